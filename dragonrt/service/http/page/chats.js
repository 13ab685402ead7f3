// Conversations, in this browser only; without leave to keep them, in this tab only.

const PLACE = "dragonrt.chats";
const KEPT = "dragonrt.keep";
const MOST = 50;

export class Chats {
  constructor() {
    this.all = this.keeps ? JSON.parse(localStorage.getItem(PLACE) ?? "[]") : [];
    this.begin();
  }

  get keeps() {
    return localStorage.getItem(KEPT) === "yes";
  }

  set keeps(value) {
    if (value) localStorage.setItem(KEPT, "yes");
    else {
      localStorage.removeItem(KEPT);
      localStorage.removeItem(PLACE);
    }
    this.save();
  }

  begin() {
    this.current = { id: crypto.randomUUID?.() ?? `${Date.now()}`, turns: [] };
  }

  open(chat) {
    this.current = chat;
  }

  forget(chat) {
    this.all = this.all.filter((each) => each !== chat);
    if (this.current === chat) this.begin();
    this.save();
  }

  save() {
    const { current } = this;
    if (current.turns.length && !this.all.includes(current)) this.all.unshift(current);
    this.all.length = Math.min(this.all.length, MOST);
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
