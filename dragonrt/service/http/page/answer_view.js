// One question and its answer in the conversation.

import { element } from "./element.js";

const CLEAR = 0.75;

function carrier(share) {
  if (share >= CLEAR) return "device";
  return share <= 1 - CLEAR ? "cloud" : "both";
}

const SIDES = { device: "device", cloud: "cloud" };

export class AnswerView {
  constructor(turns, question, retry, open) {
    this.text = element("p", { class: "text" });
    this.behind = element("div");
    this.item = element("li", { class: "answered", "aria-busy": "true" }, this.text, this.behind);
    this.asked = element("li", { class: "asked" }, question);
    this.retry = retry;
    this.open = open; // a source, at the start of its chunk
    turns.append(this.asked, this.item);
  }

  piece({ text, share }) {
    this.text.append(element("span", { class: `word ${carrier(share)}` }, text));
  }

  /** What belongs to a document, and what stands in none, is marked; all other words are plain. */
  mark({ marks = [], sources, not_found: unseen }) {
    const letters = [...this.text.textContent.trimEnd()]; // places count these, not UTF-16
    const kinds = letters.map((_, place) => {
      const covers = (each) => each.start_index <= place && place < each.end_index;
      return unseen.find(covers) ?? marks.find(covers);
    });
    const runs = [];
    letters.forEach((letter, place) => {
      if (place && kinds[place] === kinds[place - 1]) runs.at(-1).text += letter;
      else runs.push({ text: letter, kind: kinds[place] });
    });
    this.text.replaceChildren(
      ...runs.map(({ text, kind }) => {
        if (!kind) return text;
        if (!kind.side) return element("mark", { title: "stands in no document that was read" }, text);
        const source = sources.find((each) => each.side === kind.side && each.file === kind.file);
        return this.link(text, { class: `word ${SIDES[kind.side] ?? "cloud"}` }, source, kind.chunk_start);
      }),
    );
  }

  /** Words that open the source that they are from. */
  link(text, attributes, source, start) {
    const onclick = (event) => {
      event.preventDefault();
      this.open(source, start);
    };
    const title = `${source.side}: ${source.file}`;
    return element("a", { ...attributes, href: "#source", title, onclick }, text);
  }

  notice(text, kind = "") {
    this.behind.append(element("p", { class: "notice", "data-kind": kind }, text));
  }

  problem(text) {
    this.behind.append(element("p", { class: "problem", role: "alert" }, text));
  }

  /** The answer is over; `report` is missing where it was stopped or failed. */
  end(report) {
    this.item.removeAttribute("aria-busy");
    if (report) {
      this.mark(report);
      const codes = [...new Set(report.not_found.map((code) => code.text))].join(", ");
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
