// Conversations, kept in this browser unless the user turns that off: then in this tab only.

const PLACE = "dragonrt.chats";
const KEPT = "dragonrt.keep";
const MOST = 50;

export class Chats {
  constructor() {
    this.all = [];
    this.begin();
    this.load();
  }

  get keeps() {
    return localStorage.getItem(KEPT) !== "no";
  }

  set keeps(value) {
    localStorage.setItem(KEPT, value ? "yes" : "no");
    if (!value) localStorage.removeItem(PLACE);
    this.save();
  }

  /** Reads what this tab or another one kept; the chat that is open here stays as it is here. */
  load() {
    if (!this.keeps) return;
    const kept = JSON.parse(localStorage.getItem(PLACE) ?? "[]");
    this.all = kept.map((chat) => (chat.id === this.current.id ? this.current : chat));
  }

  begin() {
    this.current = { id: crypto.randomUUID?.() ?? `${Date.now()}`, turns: [] };
  }

  find(id) {
    return this.all.find((chat) => chat.id === id);
  }

  forget(chat) {
    this.load();
    this.all = this.all.filter(({ id }) => id !== chat.id);
    if (this.current.id === chat.id) this.begin();
    this.store();
  }

  forgetAll() {
    this.all = [];
    this.begin();
    this.store();
  }

  save() {
    this.load(); // another tab may have saved meanwhile
    const { current } = this;
    if (current.turns.length && !this.find(current.id)) this.all.unshift(current);
    this.all.length = Math.min(this.all.length, MOST);
    this.store();
  }

  store() {
    if (!this.keeps) return;
    try {
      localStorage.setItem(PLACE, JSON.stringify(this.all));
    } catch {
      this.all.length = Math.ceil(this.all.length / 2); // the browser's room is used up
    }
  }

  /** The messages of the conversation so far, as the API takes them. */
  messages(question) {
    const earlier = this.current.turns.filter((turn) => turn.pieces.length).flatMap((turn) => [
      { role: "user", content: turn.question },
      { role: "assistant", content: turn.pieces.map((piece) => piece.text).join("") },
    ]);
    return [...earlier, { role: "user", content: question }];
  }
}
