// What a screen reader hears: whole sentences, politely, not every token.

const SENTENCE = /^[\s\S]*?[.!?…。！？](?=\s)\s*/;

export class Speaker {
  constructor(region) {
    this.region = region;
    this.unsaid = "";
  }

  begin() {
    this.region.replaceChildren();
    this.unsaid = "";
  }

  hear(text) {
    this.unsaid += text;
    for (let found; (found = SENTENCE.exec(this.unsaid)); ) {
      this.say(found[0]);
      this.unsaid = this.unsaid.slice(found[0].length);
    }
  }

  end() {
    this.say(this.unsaid);
    this.unsaid = "";
  }

  say(text) {
    if (!text.trim()) return;
    const line = document.createElement("p");
    line.textContent = text.trim();
    this.region.append(line);
  }
}
