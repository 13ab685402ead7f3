// The page: a conversation with both sides, and beside it how its answers are made.

import { AnswerView } from "./answer_view.js";
import { events, getJson, key, Refused } from "./api.js";
import { Chats } from "./chats.js";
import { DocumentsView } from "./documents_view.js";
import { byId, element } from "./element.js";
import { LiveView } from "./live_view.js";
import { SourceView } from "./source_view.js";
import { Speaker } from "./speaker.js";

const chats = new Chats();
const live = new LiveView({
  tokens: byId("tokens"),
  numbers: byId("numbers"),
  ledger: byId("ledger"),
  sent: byId("sent"),
});
const speaker = new Speaker(byId("spoken"));
const documents = new DocumentsView({
  drop: byId("drop"),
  hint: byId("drop-hint"),
  choose: byId("choose"),
  files: byId("files"),
  uploads: byId("uploads"),
  listed: byId("listed"),
  chosen: byId("document"),
});

const source = new SourceView({
  dialog: byId("source"),
  name: byId("source-name"),
  text: byId("source-text"),
  close: byId("source-close"),
});

const LEVELS = {
  drafts: "fastest: send drafts",
  answer: "send only the answer",
  redacted: "send only what the cloud could guess",
};
const EXAMPLES = 3;
const NEAR = 80; // pixels from the end at which a reader still follows an answer

let model = "";
let asking = null; // the AbortController of the answer under way
let queue = []; // questions that wait for it

async function connect() {
  const state = byId("state");
  try {
    const models = (await getJson("/v1/models")).data;
    model = models[0].id;
    const reading = models.filter(({ languages }) => languages.length);
    const both = reading.map((each) => each.languages.join(" or "));
    byId("languages").textContent = both.length ? `Ask in ${[...new Set(both)].join(", ")}.` : "";
    const { connected } = await getJson("/ready");
    const lost = Object.keys(connected).filter((name) => !connected[name]);
    state.textContent = lost.length ? `${model}, without ${lost.join(", ")}` : `${model}, connected`;
    state.classList.toggle("wrong", lost.length > 0);
    suggest((await documents.refresh()).questions);
    await showLevels();
  } catch (error) {
    state.textContent = reason(error);
    state.classList.add("wrong");
    if (error.status === 401) askForKey();
  }
}

const reason = (error) => (error instanceof Refused ? error.message : "the service cannot be reached");

function askForKey() {
  panel("nav", true);
  byId("settings").open = true;
  byId("key").focus();
}

function request(question) {
  const temperature = byId("temperature").valueAsNumber;
  const length = byId("length").valueAsNumber;
  return {
    model,
    stream: true,
    sources_in_text: false,
    include: ["dragonrt.trace"],
    input: chats.messages(question),
    ...(byId("level").value ? { disclose: byId("level").value } : {}),
    ...(byId("document").value ? { document: byId("document").value } : {}),
    ...(Number.isNaN(temperature) ? {} : { temperature }),
    ...(Number.isNaN(length) ? {} : { max_output_tokens: length }),
  };
}

/** Shows what is sent at each level that this device allows; its own is the first. */
async function showLevels() {
  const { levels } = await getJson("/version");
  const level = byId("level");
  const rows = Object.keys(levels).map((name) => element("option", { value: name }, LEVELS[name] ?? name));
  if (level.options.length !== rows.length) level.replaceChildren(...rows);
  byId("levels").hidden = !level.value;
  const show = () => (byId("leaves").textContent = `Sent for a question: ${levels[level.value]}.`);
  level.onchange = show;
  show();
}

async function ask(question) {
  if (!question.trim()) return;
  if (asking) {
    queue.push(question);
    showQueue();
    return;
  }
  asking = new AbortController();
  if (!model) await connect(); // asked before the page knew
  const body = request(question);
  const chat = chats.current;
  const turn = { question, pieces: [], report: null };
  chat.turns.push(turn);
  chats.save();
  location.hash = chat.id;
  listChats();
  const view = viewOf(turn);
  busy(true);
  follow();
  live.begin();
  speaker.begin();
  try {
    for await (const event of events("/v1/responses", body, asking.signal)) take(event, turn, view);
  } catch (error) {
    if (error.name === "AbortError") view.notice("You stopped this answer.", "stopped");
    else view.problem(reason(error), error.code);
    if (error.status === 401) askForKey();
  } finally {
    asking = null;
    busy(false);
    speaker.end();
    const read = isReadToEnd();
    view.end();
    if (chats.current === chat) chats.save(); // a chat that was forgotten meanwhile stays forgotten
    listChats();
    if (read) follow();
    connect();
    if (queue.length) {
      const next = queue.shift();
      showQueue();
      ask(next);
    }
  }
}

function take(event, turn, view) {
  const read = isReadToEnd();
  if (event.type === "dragonrt.trace") {
    for (const each of event.events) {
      if (each.event === "piece") {
        turn.pieces.push({ text: each.text, share: each.share });
        view.piece(each);
        speaker.hear(each.text);
      } else if (each.event === "notice") {
        view.notice(each.text, each.kind);
        speaker.say(each.text);
      } else live.take(each);
    }
    live.show();
    if (read) follow();
  } else if (event.response?.error) {
    view.problem(event.response.error.message, event.response.error.code);
  } else if (event.response?.dragonrt) {
    turn.report = event.response.dragonrt;
    live.end(turn.report);
  }
}

function viewOf(turn) {
  const view = new AnswerView(byId("turns"), turn, {
    retry: () => again(turn, view),
    open: (...place) => source.open(...place),
  });
  return view;
}

/** Offers questions that the sample documents answer; nothing is sent before one is chosen. */
function suggest(questions) {
  const rows = questions.slice(0, EXAMPLES).map((question) =>
    element("li", {}, element("button", { type: "button", onclick: () => ask(question) }, question)),
  );
  byId("suggestions").replaceChildren(...rows);
}

function showQueue() {
  const rows = queue.map((question, place) => {
    const drop = () => {
      queue.splice(place, 1);
      showQueue();
      byId("question").focus();
    };
    const about = { type: "button", "aria-label": `Do not ask ${question}`, onclick: drop };
    return element("li", { class: "asked" }, `${question} (waits)`, element("button", about, "✕"));
  });
  byId("queue").replaceChildren(...rows);
  follow();
}

function again(turn, view) {
  if (asking) return;
  const { turns } = chats.current;
  const place = turns.indexOf(turn);
  if (place >= 0) turns.length = place; // what followed belonged to the old answer
  while (view.item.nextSibling) view.item.nextSibling.remove();
  view.remove();
  byId("question").focus();
  ask(turn.question);
}

function busy(yes) {
  byId("stop").hidden = !yes;
  byId("send").textContent = yes ? "Ask next" : "Ask";
  byId("welcome").hidden = true;
}

/** Whether the end is in sight: a reader who scrolled back stays where they are. */
function isReadToEnd() {
  const { scrollHeight, clientHeight, scrollTop } = byId("talk");
  return scrollHeight - clientHeight - scrollTop < NEAR;
}

function follow() {
  const talk = byId("talk");
  talk.scrollTop = talk.scrollHeight;
}

function showChat() {
  byId("turns").replaceChildren();
  byId("welcome").hidden = chats.current.turns.length > 0;
  for (const turn of chats.current.turns) {
    const view = viewOf(turn);
    for (const piece of turn.pieces) view.piece(piece);
    view.end();
  }
  live.begin();
  const report = chats.current.turns.at(-1)?.report;
  if (report) live.end(report);
  follow();
}

/** Opens a kept chat, or an empty one. */
function open(chat) {
  if (asking) return;
  if (chat) chats.current = chat;
  else chats.begin();
  location.hash = chat?.id ?? "";
  showChat();
  listChats();
  panel("nav", false);
  byId("question").focus();
}

function listChats() {
  const rows = chats.all.map((chat) => {
    const title = chat.turns[0]?.question ?? "empty";
    const forget = () => {
      const shown = chats.current === chat;
      if (shown) stop();
      chats.forget(chat);
      if (shown) showChat();
      listChats();
    };
    const here = chat === chats.current ? { "aria-current": "true" } : {};
    return element(
      "li",
      {},
      element("button", { type: "button", class: "open", ...here, onclick: () => open(chat) }, title),
      element("button", { type: "button", "aria-label": `Forget ${title}`, onclick: forget }, "✕"),
    );
  });
  byId("chats").replaceChildren(...rows);
  byId("forget").hidden = !rows.length;
}

/** Stops the answer under way, and asks none of the waiting questions. */
function stop() {
  queue = [];
  showQueue();
  asking?.abort();
}

const isOpen = (id) => document.body.classList.contains(id) || (id === "side" && !byId("side").hidden);
const buttonOf = (id) => document.querySelector(`[data-panel="${id}"]`);

function panel(id, yes) {
  document.body.classList.toggle(id, yes);
  if (id === "side") byId("side").hidden = !yes;
  buttonOf(id).setAttribute("aria-expanded", `${yes}`);
  if (yes) document.querySelector(`[data-close="${id}"]`).focus();
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const box = byId("question");
  const question = box.value;
  box.value = "";
  ask(question);
});
byId("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    byId("ask").requestSubmit();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || byId("source").open) return;
  const shown = ["nav", "side"].find((id) => document.body.classList.contains(id));
  if (shown && !asking) {
    panel(shown, false);
    buttonOf(shown).focus();
  } else stop();
});
byId("stop").addEventListener("click", () => {
  stop();
  byId("question").focus();
});
byId("new").addEventListener("click", () => open(null));
for (const button of document.querySelectorAll("[data-panel]")) {
  button.addEventListener("click", () => panel(button.dataset.panel, !isOpen(button.dataset.panel)));
}
for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => {
    panel(button.dataset.close, false);
    buttonOf(button.dataset.close).focus();
  });
}
byId("keep").checked = chats.keeps;
byId("keep").addEventListener("change", (event) => {
  chats.keeps = event.target.checked;
  listChats();
});
byId("forget").addEventListener("click", () => {
  if (!confirm("Forget all chats? They cannot be restored.")) return;
  stop();
  chats.forgetAll();
  showChat();
  listChats();
});
byId("key").value = key.get();
byId("key").addEventListener("change", (event) => {
  key.set(event.target.value);
  connect();
});
addEventListener("storage", () => {
  chats.load();
  listChats();
});
addEventListener("hashchange", () => {
  const chat = chats.find(location.hash.slice(1));
  if (chat && chat !== chats.current) open(chat);
});
addEventListener("pagehide", () => asking && chats.save());

const kept = chats.find(location.hash.slice(1));
if (kept) chats.current = kept;
showChat();
listChats();
connect();
