// A source of an answer: its sentence, and of a private document also the text around it.

import { getJson } from "./api.js";
import { element } from "./element.js";

export class SourceView {
  constructor({ dialog, name, text, close }) {
    Object.assign(this, { dialog, name, text });
    close.addEventListener("click", () => dialog.close());
  }

  async open({ side, file, title, sentence }, start) {
    this.dialog.className = side;
    this.name.textContent = `${side === "device" ? "Your document" : "The cloud’s document"}: ${file}`;
    this.text.replaceChildren(element("p", { class: "here" }, sentence || title));
    this.dialog.showModal();
    if (side !== "device") {
      const about = "The cloud keeps this document. Only this sentence of it was sent.";
      this.text.append(element("p", { class: "faint" }, about));
      return;
    }
    const path = file.split("/").map(encodeURIComponent).join("/");
    try {
      const { chunks, unread } = await getJson(`/documents/${path}?start=${start ?? 0}`);
      const quoted = (chunk) => start === undefined && sentence && chunk.text.includes(sentence);
      const reached = (chunk) => chunk.start <= (start ?? 0);
      const here = chunks.find(quoted) ?? chunks.findLast(reached) ?? chunks[0];
      const shown = chunks.map((chunk) => {
        const text = chunk === here ? around(chunk.text, sentence) : [chunk.text];
        return element("p", { class: chunk === here ? "here" : "" }, ...text);
      });
      if (unread) shown.push(element("p", { class: "problem" }, `Not read: ${unread}`));
      this.text.replaceChildren(...shown);
      this.text.querySelector(".here").scrollIntoView({ block: "center" });
    } catch (error) {
      this.text.append(element("p", { class: "problem", role: "alert" }, error.message));
    }
  }
}

/** The text with the sentence emphasised, if it stands in it as it is. */
function around(text, sentence) {
  const place = sentence ? text.indexOf(sentence) : -1;
  if (place < 0) return [text];
  const end = place + sentence.length;
  return [text.slice(0, place), element("mark", {}, sentence), text.slice(end)];
}
