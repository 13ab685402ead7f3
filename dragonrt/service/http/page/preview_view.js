// What would leave this machine for the first question of a chat, before it is sent.

import { postJson } from "./api.js";
import { element } from "./element.js";

const OFF = "dragonrt.preview";

export class PreviewView {
  constructor({ dialog, to, levels, leaves, stays, later, send, cancel, shown }) {
    Object.assign(this, { dialog, to, levels, leaves, stays, later, shown });
    send.addEventListener("click", () => dialog.close("send"));
    cancel.addEventListener("click", () => dialog.close(""));
    shown.checked = later.checked = this.wanted;
    for (const box of [shown, later]) box.addEventListener("change", () => this.want(box.checked));
  }

  get wanted() {
    return localStorage.getItem(OFF) !== "off";
  }

  want(yes) {
    if (yes) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, "off");
    this.shown.checked = this.later.checked = yes;
  }

  /** Shows what a request would send; returns the chosen level ("" if there is none), null for no. */
  async ask(request) {
    const { levels } = await postJson("/preview", request);
    this.show(levels[0]);
    const rows = levels.map((each, place) => {
      const choose = () => this.show(each);
      const box = { type: "radio", name: "level", checked: place === 0, onchange: choose };
      return element("label", {}, element("input", box), ` ${each.level}`);
    });
    this.levels.hidden = levels.length < 2;
    this.levels.replaceChildren(element("legend", {}, "Level of disclosure"), ...rows);
    this.dialog.returnValue = "";
    this.dialog.showModal();
    await new Promise((resolve) => this.dialog.addEventListener("close", resolve, { once: true }));
    return this.dialog.returnValue === "send" ? this.chosen : null;
  }

  show(found) {
    this.chosen = found.level ?? "";
    this.to.textContent = `Sent to ${found.to.join(", ")} for this question`;
    this.leaves.replaceChildren(...found.leaves.map((line) => element("li", {}, line)));
    this.stays.replaceChildren(...found.stays.map((line) => element("li", {}, line)));
  }
}
