// The page: a conversation with both sides, and beside it how its answers come about.

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

let model = "";
let asking = null; // the AbortController of the answer under way

async function connect() {
  const state = byId("state");
  try {
    const models = (await getJson("/v1/models")).data;
    model = models[0].id;
    const reading = models.filter(({ languages }) => languages.length);
    byId("languages").textContent = reading
      .map(({ id, languages }) => `${id} reads ${languages.join(", ")}.`)
      .join(" ");
    const { connected } = await getJson("/ready");
    const lost = Object.keys(connected).filter((name) => !connected[name]);
    state.textContent = lost.length ? `${model}, without ${lost.join(", ")}` : `${model}, connected`;
    state.classList.toggle("wrong", lost.length > 0);
    suggest((await documents.refresh()).questions);
    await showLevels();
  } catch (error) {
    state.textContent = error instanceof Refused ? error.message : "the service cannot be reached";
    state.classList.add("wrong");
    if (error.status === 401) openPanel("settings");
  }
}

function openPanel(id) {
  byId(id).open = true;
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
  const rows = Object.keys(levels).map((name) => element("option", { value: name }, name));
  if (level.options.length !== rows.length) level.replaceChildren(...rows);
  byId("levels").hidden = !level.value;
  const show = () => (byId("leaves").textContent = `Sent for a question: ${levels[level.value]}.`);
  level.onchange = show;
  show();
}

async function ask(question) {
  if (asking || !question.trim()) return;
  asking = new AbortController();
  if (!model) await connect(); // asked before the page knew
  const chat = chats.current;
  const turn = { question, pieces: [], report: null };
  const view = viewOf(turn);
  busy(true);
  live.begin();
  speaker.begin();
  try {
    for await (const event of events("/v1/responses", request(question), asking.signal)) {
      take(event, turn, view);
    }
  } catch (error) {
    if (error.name === "AbortError") view.notice("stopped");
    else view.problem(error.message);
    if (error.status === 401) openPanel("settings");
  } finally {
    asking = null;
    busy(false);
    speaker.end();
    view.end(turn.report);
    // A chat that was forgotten meanwhile stays forgotten.
    if (chats.current === chat) chat.turns.push(turn);
    chats.save();
    listChats();
    follow();
    connect();
  }
}

function take(event, turn, view) {
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
    follow();
  } else if (event.response?.error) view.problem(event.response.error.message);
  else if (event.response?.dragonrt) {
    turn.report = event.response.dragonrt;
    live.end(turn.report);
  }
}

function viewOf(turn) {
  const retry = () => again(turn, view);
  const open = (...place) => source.open(...place);
  const view = new AnswerView(byId("turns"), turn.question, retry, open);
  return view;
}

/** Offers questions that the sample documents answer; nothing is sent before one is chosen. */
function suggest(questions) {
  if (chats.current.turns.length || asking) return;
  const rows = questions.map((question) =>
    element("li", {}, element("button", { type: "button", onclick: () => ask(question) }, question)),
  );
  byId("suggestions").replaceChildren(...rows);
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
  byId("send").disabled = yes;
  welcome(false);
}

function welcome(yes) {
  byId("welcome").hidden = !yes;
  byId("suggestions").hidden = !yes;
}

function follow() {
  const talk = byId("talk");
  talk.scrollTop = talk.scrollHeight;
}

function showChat() {
  byId("turns").replaceChildren();
  welcome(chats.current.turns.length === 0);
  for (const turn of chats.current.turns) {
    const view = viewOf(turn);
    for (const piece of turn.pieces) view.piece(piece);
    view.end(turn.report);
  }
  follow();
}

function listChats() {
  const rows = chats.all.map((chat) => {
    const title = chat.turns[0]?.question ?? "empty";
    const open = () => {
      if (asking) return;
      chats.open(chat);
      showChat();
      panels(false);
    };
    const forget = () => {
      const shown = chats.current === chat;
      if (shown) asking?.abort();
      chats.forget(chat);
      if (shown) showChat();
      listChats();
    };
    return element(
      "li",
      {},
      element("button", { type: "button", class: "open", onclick: open }, title),
      element("button", { type: "button", "aria-label": `Forget ${title}`, onclick: forget }, "✕"),
    );
  });
  byId("chats").replaceChildren(...rows);
}

function panels(open) {
  document.body.classList.toggle("panels", open);
  byId("panels").setAttribute("aria-expanded", `${open}`);
  if (open) byId("close").focus();
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const box = byId("question");
  const question = box.value;
  if (asking || !question.trim()) return;
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
  if (document.body.classList.contains("panels")) {
    panels(false);
    byId("panels").focus();
  } else asking?.abort();
});
byId("stop").addEventListener("click", () => {
  asking?.abort();
  byId("question").focus();
});
byId("new").addEventListener("click", () => {
  if (asking) return;
  chats.begin();
  showChat();
  byId("question").focus();
});
byId("panels").addEventListener("click", () => panels(true));
byId("close").addEventListener("click", () => {
  panels(false);
  byId("panels").focus();
});
byId("keep").checked = chats.keeps;
byId("keep").addEventListener("change", (event) => {
  chats.keeps = event.target.checked;
});
byId("key").value = key.get();
byId("key").addEventListener("change", (event) => {
  key.set(event.target.value);
  connect();
});

live.begin();
listChats();
connect();
