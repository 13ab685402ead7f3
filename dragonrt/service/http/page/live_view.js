// How an answer comes about, from the events of its trace.

import { define, element } from "./element.js";

const milliseconds = (seconds) => `${(1000 * seconds).toFixed(1)} ms`;
const CAUSES = { own: "own draft", other: "the other side’s draft", target: "a decision" };

export class LiveView {
  constructor({ tokens, numbers, ledger }) {
    Object.assign(this, { tokens, numbers, ledger });
  }

  begin() {
    this.tokens.replaceChildren();
    define(this.ledger, [["nothing was told yet", ""]]);
    this.counted = {
      tokens: 0,
      drafted: 0,
      compared: { device: 0, cloud: 0 },
      accepted: { device: 0, cloud: 0 },
      waited: {},
      rollbacks: 0,
    };
    this.link = {};
    this.drafts = new Map(); // the device's draft for each place, where it has left this machine
    this.show();
  }

  take(event) {
    const { counted } = this;
    if (event.event === "decide") this.decide(event);
    else if (event.event === "draft") counted.drafted += 1;
    else if (event.event === "disclose" && event.text) this.drafts.set(event.step, event.text);
    else if (event.event === "block") counted.drafted += event.tokens;
    else if (event.event === "rollback") counted.rollbacks += 1;
    else if (event.event === "link") this.link = event;
  }

  decide({ step, text, device, cloud, cause, waited }) {
    const { counted } = this;
    counted.tokens += 1;
    counted.waited[cause] = (counted.waited[cause] ?? 0) + waited;
    if (device !== null && cloud !== null) {
      for (const [side, stands] of [["device", device], ["cloud", cloud]]) {
        counted.compared[side] += 1;
        counted.accepted[side] += stands;
      }
    }
    const refused = device === false ? [`the device drafted “${this.drafts.get(step) ?? "?"}”`] : [];
    this.tokens.append(
      element(
        "li",
        { title: [`waited ${milliseconds(waited)} for ${CAUSES[cause] ?? cause}`, ...refused].join("; ") },
        mark("device", device),
        element("span", { class: "token" }, text.trim() || (text.includes("\n") ? "⏎" : "␣")),
        mark("cloud", cloud),
      ),
    );
    this.tokens.scrollTop = this.tokens.scrollHeight;
  }

  show() {
    const { counted, link } = this;
    const share = (side) =>
      counted.compared[side] ? `${counted.accepted[side]} of ${counted.compared[side]}` : "–";
    define(this.numbers, [
      ["tokens decided", counted.tokens],
      ["drafted on this device", counted.drafted],
      ["drafts that stand, device", share("device")],
      ["drafts that stand, cloud", share("cloud")],
      ["roll-backs", counted.rollbacks],
      ...Object.entries(counted.waited).map(([cause, seconds]) => [
        `waited for ${CAUSES[cause] ?? cause}`,
        milliseconds(seconds),
      ]),
      ["round trip", link.rtt == null ? "–" : milliseconds(link.rtt)],
      ["bytes sent", link.bytes_sent ?? "–"],
      ["bytes received", link.bytes_received ?? "–"],
    ]);
  }

  /** What the answer's report says once it is over. */
  end({ statistics, ledger }) {
    const rows = ledger
      ? ledgerRows(ledger)
      : [["bytes of the answer’s messages", statistics.bytes_sent]];
    define(this.ledger, rows);
  }
}

function mark(side, stands) {
  const kind = stands === null ? "none" : stands ? "yes" : "no";
  const said = { yes: "stands", no: "refused", none: "no draft" }[kind];
  return element(
    "span",
    { class: `mark ${side} ${kind}` },
    element("span", { "aria-hidden": "true" }, side[0].toUpperCase()),
    element("span", { class: "unseen" }, `${side} ${said}`),
  );
}

const LEFT = {
  question_bytes: "bytes of the question",
  history_bytes: "bytes of earlier turns",
  tokens_sent: "tokens sent",
  distributions_sent: "distributions sent",
  documents_named: "documents named",
  tokens_not_in_answer: "of them not in the answer",
  tokens_withheld: "tokens withheld",
  revealed_bits: "bits revealed",
  evidence_bits: "evidence of your documents, bits",
};

function ledgerRows(ledger) {
  const rows = Object.entries(LEFT)
    .filter(([name]) => (ledger[name] ?? -1) >= 0)
    .map(([name, said]) => [said, ledger[name]]);
  const files = (ledger.files ?? []).filter(({ bits }) => bits >= 0);
  return [...rows, ...files.map(({ file, bits }) => [`of ${file}, bits`, bits])];
}
