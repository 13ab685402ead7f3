// How an answer is made, and what leaves this machine for it, from the events of its trace.

import { define, element } from "./element.js";

const milliseconds = (seconds) => `${Math.round(1000 * seconds).toLocaleString("en")} ms`;
const CAUSES = { own: "this device’s draft", other: "the cloud’s draft", target: "the cloud’s decision" };

export class LiveView {
  constructor({ tokens, numbers, ledger, sent }) {
    Object.assign(this, { tokens, numbers, ledger, sent });
  }

  begin() {
    this.tokens.replaceChildren();
    this.left = { question: 0, history: 0, tokens: 0, distributions: 0, documents: 0 };
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
    else if (event.event === "disclose") this.disclose(event);
    else if (event.event === "block") counted.drafted += event.tokens;
    else if (event.event === "rollback") counted.rollbacks += 1;
    else if (event.event === "link") this.link = event;
  }

  disclose(event) {
    for (const name of Object.keys(this.left)) this.left[name] += event[name] ?? 0;
    if (event.text) this.drafts.set(event.step, event.text);
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
    const rows = [
      ["tokens of the answer", counted.tokens],
      ["drafts of this device", counted.drafted],
      ["accepted drafts of this device", share("device")],
      ["accepted drafts of the cloud", share("cloud")],
      ["rollbacks after a rejected draft", counted.rollbacks],
      ...Object.entries(counted.waited).map(([cause, seconds]) => [
        `waited for ${CAUSES[cause] ?? cause}`,
        milliseconds(seconds),
      ]),
      ["round trip to the cloud", link.rtt == null ? "–" : milliseconds(link.rtt)],
      ["bytes received", link.bytes_received ?? "–"],
    ];
    define(this.numbers, counted.tokens ? rows : []); // a kept chat has no trace
    const { question, history, tokens, distributions, documents } = this.left;
    this.count({
      question_bytes: question,
      history_bytes: history,
      tokens_sent: tokens,
      distributions_sent: distributions,
      documents_named: documents,
    });
  }

  /** Shows the counts of a ledger, and one sentence about them. */
  count(ledger) {
    const bytes = this.link.bytes_sent ?? 0;
    const { question_bytes: asked, history_bytes: before, tokens_sent: tokens } = ledger;
    const empty = !(bytes || asked || before || tokens);
    this.sent.textContent = empty
      ? "Nothing was sent for the last question of this chat."
      : "Counted for the last question of this chat.";
    if (!this.counted.tokens && empty) this.sent.textContent = "No question was asked yet.";
    define(this.ledger, empty ? [] : [...ledgerRows(ledger), ["bytes on the network", bytes]]);
  }

  /** Shows what the answer's report says once it is over. */
  end({ statistics, ledger }) {
    this.counted.tokens ||= statistics.tokens;
    this.link.bytes_sent = statistics.bytes_sent ?? this.link.bytes_sent;
    this.count(ledger);
  }
}

function mark(side, stands) {
  const kind = stands === null ? "none" : stands ? "yes" : "no";
  const said = { yes: "accepted draft", no: "rejected draft", none: "no draft" }[kind];
  return element(
    "span",
    { class: `mark ${side} ${kind}` },
    element("span", { "aria-hidden": "true" }, side[0].toUpperCase()),
    element("span", { class: "unseen" }, `${side}: ${said}`),
  );
}

const LEFT = {
  question_bytes: "bytes of your question",
  history_bytes: "bytes of the conversation before",
  tokens_sent: "tokens sent",
  tokens_not_in_answer: "of these tokens, not in the answer",
  tokens_withheld: "tokens kept on this machine",
  distributions_sent: "tokens sent with their alternatives",
  documents_named: "names of documents sent",
  revealed_bits: "bits that the sent tokens reveal",
  evidence_bits: "bits from your documents",
};

/** The counts that are not 0, and the evidence of each document in whole bits. */
function ledgerRows(ledger) {
  const rows = Object.entries(LEFT)
    .filter(([name]) => ledger[name] >= 0.5)
    .map(([name, said]) => [said, Math.round(ledger[name])]);
  const files = (ledger.files ?? []).filter(({ bits }) => bits >= 0.5);
  return [...rows, ...files.map(({ file, bits }) => [`of these bits, from “${file}”`, Math.round(bits)])];
}
