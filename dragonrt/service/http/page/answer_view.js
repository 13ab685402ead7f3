// One question and its answer in the conversation.

import { element } from "./element.js";

const CLEAR = 0.75;

function carrier(share) {
  if (share >= CLEAR) return "device";
  return share <= 1 - CLEAR ? "cloud" : "both";
}

const NOT_CONNECTED = "The cloud cannot be reached, and this service answers only together with it.";

/** The whole text of a refusal: no document that was read has the answer. */
const REFUSAL = /^I don.t know\.?$/;

export class AnswerView {
  /** `open` shows a source, from the start of a chunk on. */
  constructor(turns, turn, { retry, open }) {
    Object.assign(this, { turn, retry, open, told: new Set() });
    this.text = element("p", { class: "text" });
    this.behind = element("div");
    this.item = element("li", { class: "answered", "aria-busy": "true" }, this.text, this.behind);
    this.asked = element("li", { class: "asked" }, turn.question);
    turns.append(this.asked, this.item);
  }

  piece({ text, share }) {
    this.text.append(element("span", { class: `word ${carrier(share)}` }, text));
  }

  /** Marks what is from a document and what is in none, and heads each part by its question. */
  mark({ marks = [], sources, not_found: unseen, asked = [] }) {
    const letters = [...this.text.textContent.trimEnd()]; // places count these, not UTF-16
    const kinds = letters.map((_, place) => {
      const covers = (each) => each.start_index <= place && place < each.end_index;
      return unseen.find(covers) ?? marks.find(covers);
    });
    const parts = asked.filter(({ question }) => question !== this.turn.question);
    const heads = new Map(parts.map(({ start_index, question }) => [start_index, question]));
    const runs = [];
    letters.forEach((letter, place) => {
      if (heads.has(place)) {
        const head = heads.get(place);
        const before = runs.at(-1) ?? { text: "" }; // it may end with "; who bred them: "
        const label = `${head.replace(/\?+$/, "")}: `.toLowerCase();
        const end = before.text.toLowerCase().endsWith(label) ? -label.length : undefined;
        before.text = before.text.slice(0, end).replace(/;? $/, "");
        runs.push({ head });
      }
      if (place && kinds[place] === kinds[place - 1] && !heads.has(place)) runs.at(-1).text += letter;
      else runs.push({ text: letter, kind: kinds[place] });
    });
    this.text.replaceChildren(
      ...runs.map(({ text, kind, head }) => {
        if (head) return element("strong", { class: "part" }, head);
        if (!kind) return text;
        if (!kind.side) return element("mark", { title: "no document that was read has this" }, text);
        const place = sources.findIndex((each) => each.side === kind.side && each.file === kind.file);
        const attributes = { class: `word ${kind.side}`, "data-number": `${place + 1}` };
        return this.link(text, attributes, sources[place], kind.chunk_start);
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
    if (this.told.has(text)) return;
    this.told.add(text);
    this.behind.append(element("p", { class: "notice", "data-kind": kind }, text));
  }

  problem(text, code = "") {
    const shown = code === "not_connected" ? NOT_CONNECTED : text;
    this.behind.append(element("p", { class: "problem", role: "alert", "data-code": code }, shown));
  }

  /** The answer is over; its report is missing where it was stopped or failed. */
  end() {
    const { report, pieces } = this.turn;
    this.item.removeAttribute("aria-busy");
    if (report) {
      for (const { kind, text } of report.notices) this.notice(text, kind);
      this.mark(report);
      const codes = [...new Set(report.not_found.map(({ text }) => text))].join(", ");
      if (codes) this.notice(`No document that was read has ${codes}.`);
      if (REFUSAL.test(this.text.textContent.trim())) {
        this.notice("No document that was read answers this. Ask in other words, or choose one document under “From”.", "refused");
      }
      this.behind.append(this.sources(report));
    }
    const copy = async ({ target }) => {
      await navigator.clipboard.writeText(pieces.map(({ text }) => text).join("").trim());
      target.textContent = "Copied";
    };
    this.behind.append(
      element(
        "div",
        { class: "actions" },
        element("button", { type: "button", class: "retry", onclick: this.retry }, "Try again"),
        pieces.length ? element("button", { type: "button", onclick: copy }, "Copy") : "",
        element("span", {}, report ? costs(report) : ""),
      ),
    );
  }

  sources({ sources, marks = [] }) {
    const chips = sources.map((source, place) => {
      const { side, file, title, sentence } = source;
      const start = marks.find((each) => each.side === side && each.file === file)?.chunk_start;
      const chip = element(
        "button",
        { type: "button", class: `chip ${side}`, title: sentence || title, onclick: () => this.open(source, start) },
        `${place + 1} ${file}`,
      );
      return element("li", {}, chip);
    });
    return element("ul", { class: "sources", "aria-label": "Sources" }, ...chips);
  }

  remove() {
    this.asked.remove();
    this.item.remove();
  }
}

function costs({ statistics, seed, temperature }) {
  const { tokens, time_to_first_token_ms: first, ms_per_token: pace } = statistics;
  return [
    `${tokens} tokens`,
    first === null ? "" : `first token after ${(first / 1000).toFixed(2)} s`,
    pace === null ? "" : `${pace.toFixed(1)} ms per token`,
    temperature > 0 ? `seed ${seed}` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}
