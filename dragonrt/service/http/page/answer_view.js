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
      const unseen = report.not_found ?? [];
      mark(this.text, unseen);
      const codes = [...new Set(unseen.map((code) => code.text))].join(", ");
      if (codes) this.notice(`Not found in the documents: ${codes}`);
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
  const rows = found.map(({ side, file, title, relevance, sentence }) => {
    const badge = element("span", { class: `badge ${SIDES[side] ?? ""}` }, side);
    const heading = [badge, ` ${file} `, element("span", { class: "faint" }, relevance.toFixed(2))];
    return element("li", {}, ...heading, element("blockquote", {}, sentence || title));
  });
  return element("ul", { class: "sources", "aria-label": "Sources" }, ...rows);
}

/** Marks numbers and codes that stand in no document; their places count characters of the text. */
function mark(text, codes) {
  let place = 0;
  for (const word of text.children) {
    const runs = [];
    for (const letter of word.textContent) {
      const missing = codes.some((code) => code.start_index <= place && place < code.end_index);
      if (runs.at(-1)?.missing === missing) runs.at(-1).text += letter;
      else runs.push({ text: letter, missing });
      place += 1;
    }
    const title = "stands in no document that was read";
    word.replaceChildren(
      ...runs.map((run) => (run.missing ? element("mark", { title }, run.text) : run.text)),
    );
  }
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
