// One question and its answer in the conversation.

import { element } from "./element.js";

const CLEAR = 0.75;

function carrier(share) {
  if (share >= CLEAR) return "device";
  return share <= 1 - CLEAR ? "cloud" : "both";
}

const SIDES = { device: "device", cloud: "cloud" };

export class AnswerView {
  constructor(turns, question, retry) {
    this.text = element("p", { class: "text" });
    this.behind = element("div");
    this.item = element("li", { class: "answered", "aria-busy": "true" }, this.text, this.behind);
    this.asked = element("li", { class: "asked" }, question);
    this.retry = retry;
    turns.append(this.asked, this.item);
  }

  piece({ text, share }) {
    this.text.append(element("span", { class: `word ${carrier(share)}` }, text));
  }

  notice(text) {
    this.behind.append(element("p", { class: "notice" }, text));
  }

  problem(text) {
    this.behind.append(element("p", { class: "problem", role: "alert" }, text));
  }

  /** The answer is over; `report` is missing where it was stopped or failed. */
  end(report) {
    this.item.removeAttribute("aria-busy");
    if (report) {
      this.behind.append(sources(report.sources), element("p", { class: "costs" }, costs(report)));
    }
    const copy = () => navigator.clipboard.writeText(this.text.textContent);
    this.behind.append(
      element(
        "div",
        { class: "actions" },
        element("button", { type: "button", class: "retry", onclick: this.retry }, "Try again"),
        element("button", { type: "button", onclick: copy }, "Copy"),
      ),
    );
  }

  remove() {
    this.asked.remove();
    this.item.remove();
  }
}

function sources(found) {
  const rows = found.map(({ side, file, title, relevance, passage }) => {
    const badge = element("span", { class: `badge ${SIDES[side] ?? ""}` }, side);
    const heading = [badge, ` ${file} `, element("span", { class: "faint" }, relevance.toFixed(2))];
    const text = passage || title || "The other side named the file only.";
    return element(
      "li",
      {},
      element("details", {}, element("summary", {}, ...heading), element("blockquote", {}, text)),
    );
  });
  return element("ul", { class: "sources", "aria-label": "Sources" }, ...rows);
}

function costs({ statistics, seed, temperature }) {
  const { tokens, time_to_first_token_ms: first, ms_per_token: pace } = statistics;
  return [
    `${tokens} tokens`,
    first === null ? "" : `first ${Math.round(first)} ms`,
    pace === null ? "" : `${pace.toFixed(1)} ms/token`,
    temperature > 0 ? `seed ${seed}` : "",
    statistics.alone_from == null ? "" : `alone from token ${statistics.alone_from}`,
  ]
    .filter(Boolean)
    .join(" · ");
}
