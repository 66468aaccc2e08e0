/* Moonlet's page: puts its parts together. Reading order: stream, chat, markdown, view, pictures, live, settings. */
import { Chat } from "./chat.js";
import { $, el } from "./dom.js";
import { count } from "./format.js";
import { Live } from "./live.js";
import { Tray } from "./pictures.js";
import { openableSettings } from "./settings.js";
import { checkTools, loadDraft, saveDraft, saveSettings, settings } from "./store.js";
import { View } from "./view.js";

const WIDE = matchMedia("(min-width: 75rem)"), NARROW = matchMedia("(max-width: 60rem)");
const IDEAS = [
  { text: "Tom has 14 apples. He buys 18 more and gives 8 to Mia. How many apples does he have now?" },
  { text: "What is 4831 * 27?", calculator: true },
  { text: "Hello! What can you do?" },
];

/* ---- A line that passes by ---- */

let toastTimer;
const toast = (text, label, action) => {
  const node = $("toast"), button = node.lastElementChild;
  node.firstElementChild.textContent = text;
  button.textContent = label ?? "";
  button.hidden = !label;
  button.onclick = () => {
    node.hidden = true;
    action();
  };
  node.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (node.hidden = true), 6000);
};

/* ---- Chat ---- */

let warned = false;
const chat = new Chat({
  changed: message => {
    view.changed(message);
    showBusy();
  },
  listed: () => {
    view.refresh();
    showBusy();
  },
  saved: ok => {
    if (!ok && !warned) toast("This browser keeps nothing more: the conversation is gone after a reload.");
    warned = !ok;
  },
});

const copy = async text => {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    toast("This browser does not allow copying here");
  }
};

const view = new View(chat, {
  again: message => !chat.busy && run(() => chat.again(message)),
  takeBack: message => !chat.busy && takeBack(chat.takeBack(message)),
  result: (call, text) => !chat.busy && run(() => chat.result(call, text)),
  settings: () => showSettings("key"),
  copy,
});

const draft = $("draft"), tray = new Tray(() => showBusy());

const fitDraft = () => {
  draft.style.height = "auto";
  draft.style.height = `${draft.scrollHeight}px`;
};

const showBusy = () => {
  $("send").hidden = chat.busy;
  $("stop").hidden = !chat.busy;
  $("send").disabled = !draft.value.trim() && !tray.pictures.length;
};

const run = async step => {
  view.toEnd();
  const done = step();
  showBusy();
  await done;
  showBusy();
};

const setDraft = text => {
  draft.value = text;
  saveDraft(text);
  fitDraft();
};

const send = text => {
  if (chat.busy || (!text.trim() && !tray.pictures.length)) return;
  setDraft("");
  run(() => chat.ask(text.trim(), tray.take()));
};

/* What is still being read goes along. */
const sendDraft = async () => {
  while (tray.ready) await tray.ready;
  send(draft.value);
};

/* In front of what was written meanwhile. */
const takeBack = ({ content, pictures = [] }) => {
  tray.put([...pictures, ...tray.take()]);
  setDraft([content, draft.value].filter(Boolean).join("\n"));
  showBusy();
  draft.focus();
};

$("composer").addEventListener("submit", e => {
  e.preventDefault();
  sendDraft();
});
draft.addEventListener("keydown", e => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  sendDraft();
});
draft.addEventListener("input", () => {
  saveDraft(draft.value);
  fitDraft();
  showBusy();
});
document.addEventListener("keydown", e => {
  if (e.key === "Escape" && chat.busy && !$("settings").open) {
    e.preventDefault();
    chat.stop();
  }
});
$("stop").addEventListener("click", () => {
  chat.stop();
  draft.focus();
});
$("new").addEventListener("click", () => {
  if (chat.messages.length) {
    const undo = chat.clear();
    toast("The conversation is cleared", "Undo", undo);
  }
  draft.focus();
});

for (const { text, calculator } of IDEAS)
  $("ideas").append(el("button", {
    onclick: () => {
      if (calculator && !settings.calculator) $("calculator").click();
      send(text);
    },
  }, text));

/* ---- Live view ---- */

let title = "";
const states = { ok: "", bad: "not reachable", key: "needs an API key", draining: "shutting down", stuck: "stuck", broken: "broken" };
const live = new Live((state, d) => {
  const node = $("state");
  node.dataset.state = state === "ok" ? "ok" : "bad";
  node.lastElementChild.textContent = states[state] ?? state;
  node.title = state === "ok" ? "The server answers" : "";
  if (d && tray.allowed !== d.pictures) tray.allow(d.pictures);
  if (!d || title === d.model) return;
  title = d.model;
  document.title = `${d.model} · Moonlet`;
  $("model").textContent = d.model;
  $("empty-model").textContent = `${d.model} answers here, with ${count(d.context)} tokens of context.`;
});

const showLive = (open, keep) => {
  live.show(open);
  $("show-live").setAttribute("aria-expanded", String(open));
  if (!keep) return;
  settings.live = open;
  saveSettings();
};
$("show-live").addEventListener("click", () => showLive($("live").hidden, !NARROW.matches));
NARROW.addEventListener("change", () => showLive(NARROW.matches ? false : settings.live ?? WIDE.matches, false));
$("hide-live").addEventListener("click", () => showLive(false, !NARROW.matches));

/* ---- Settings ---- */

const countTools = () => {
  const n = checkTools(settings.tools).value?.length ?? 0;
  $("tools-count").textContent = n ? `${n} tool${n === 1 ? "" : "s"} of yours` : "";
};
const showSettings = openableSettings(() => {
  countTools();
  live.ask();
});
$("show-settings").addEventListener("click", () => showSettings());

showLive(NARROW.matches ? false : settings.live ?? WIDE.matches, false);
draft.value = loadDraft();
countTools();
fitDraft();
view.refresh();
showBusy();
