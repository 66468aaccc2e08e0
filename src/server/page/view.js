/* The conversation on the page. One object a message; a message that grows is drawn at most once a frame. */
import { $, el, icon, setText } from "./dom.js";
import { count, time, words } from "./format.js";
import { renderMarkdown } from "./markdown.js";
import { thumbnail } from "./pictures.js";

const pretty = json => {
  try {
    return JSON.stringify(JSON.parse(json), null, 2).replace(/^{\n {2}(.*)\n}$/, "{ $1 }");
  } catch {
    return json;
  }
};

const button = (name, title, onclick, attributes) => el("button", { class: "quiet", title, "aria-label": title, onclick, ...attributes }, icon(name));

class UserView {
  constructor(message) {
    const { content, pictures, lost } = message;
    this.message = message;
    this.node = el("article", { class: "message user" },
      pictures ? el("div", { class: "pictures" }, ...pictures.map(thumbnail)) : null,
      lost ? el("p", { class: "lost" }, lost === 1 ? "A picture, gone since the page was loaded anew: the model no longer sees it."
        : `${count(lost)} pictures, gone since the page was loaded anew: the model no longer sees them.`) : null,
      content || !(pictures || lost) ? el("div", { class: "bubble" }, content) : null);
  }
  draw() {}
}

class AnswerView {
  constructor(message, chat, actions) {
    Object.assign(this, { message, chat, actions });
    this.label = el("span");
    this.inside = el("div", { class: "inside" });
    this.thought = el("details", { class: "thought", hidden: true }, el("summary", null, icon("fold"), this.label), this.inside);
    this.waiting = el("span", { class: "waiting", role: "img", "aria-label": "waiting" });
    this.text = el("div", { class: "prose" });
    this.calls = el("div");
    this.notice = el("div");
    this.facts = el("footer", { class: "facts" });
    this.node = el("article", { class: "message answer" }, this.thought, this.waiting, this.text, this.calls, this.notice, this.facts);
    this.drawnCalls = [];
  }

  draw() {
    const m = this.message, ended = ["done", "stopped", "failed"].includes(m.state);
    this.node.dataset.state = m.state;
    this.waiting.hidden = m.state !== "wait";
    this.drawThought(m);
    renderMarkdown(this.text, m.content);
    this.text.hidden = !m.content;
    this.drawCalls(m, ended);
    this.drawNotice(m);
    this.drawFacts(m, ended);
  }

  drawThought(m) {
    this.thought.hidden = !m.reasoning;
    if (!m.reasoning) return;
    const going = m.state === "reasoning", ms = going ? (m.facts.last_ms ?? 0) - (m.facts.first_ms ?? 0) : m.thought_ms ?? 0;
    this.thought.classList.toggle("busy", going);
    setText(this.label, `${going ? "Thinking" : "Thought for"} ${words(time(ms / 1000))}`);
    setText(this.inside, m.reasoning.trim());
  }

  drawCalls(m, ended) {
    m.calls.forEach((call, i) => {
      const result = this.chat.resultOf(m, call), key = JSON.stringify([call, result, ended]);
      if (this.drawnCalls[i] === key) return;
      this.drawnCalls[i] = key;
      const card = this.card(call, result, ended && m.state === "done");
      this.calls.children[i] ? this.calls.children[i].replaceWith(card) : this.calls.append(card);
    });
  }

  card(call, result, complete) {
    const node = el("section", { class: "call", "aria-label": `Call of ${call.name}` },
      el("header", null, icon("tool"), el("b", null, call.name), el("span", null, call.id)), el("pre", null, complete ? pretty(call.args) : call.args));
    if (result !== null) node.append(el("div", { class: "result" }, el("span", null, "Result"), el("pre", null, result)));
    else if (complete) node.append(this.form(call));
    return node;
  }

  form(call) {
    const text = el("textarea", { rows: "1", placeholder: `What ${call.name} returns`, "aria-label": `Result of ${call.name}` });
    const send = () => this.actions.result(call, text.value);
    text.addEventListener("keydown", e => {
      if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
      e.preventDefault();
      send();
    });
    return el("form", { onsubmit: e => (e.preventDefault(), send()) }, text, el("button", { class: "action" }, "Send result"));
  }

  drawNotice(m) {
    if (this.shownError === m.error) return;
    this.shownError = m.error;
    this.notice.replaceChildren(...(m.error ? [el("div", { class: "notice", role: "alert" }, el("span", null, m.error),
      m.needsKey ? el("button", { onclick: () => this.actions.settings() }, "Enter the key") : null,
      m.refused && this.chat.messages[this.chat.questionOf(m)]?.pictures ? el("button", { onclick: () => this.actions.takeBack(m) }, "Take it back") : null,
      el("button", { onclick: () => this.actions.again(m) }, "Try again"))] : []));
  }

  drawFacts(m, ended) {
    const f = m.facts, parts = [];
    if (m.state === "stopped") parts.push("stopped");
    if (f.finish === "length") parts.push("cut off: the limit of tokens");
    if (f.tokens) parts.push(`${count(f.tokens)} token${f.tokens === 1 ? "" : "s"}`);
    const seconds = (f.last_ms - f.first_ms) / 1000;
    if (f.tokens > 1 && seconds > 0.002) parts.push(`${count((f.tokens - 1) / seconds)} tok/s`);
    if (f.first_ms !== undefined) parts.push(`first after ${words(time(f.first_ms / 1000))}`);
    if (ended && f.prompt) parts.push(`prompt ${count(f.prompt)}${f.cached ? `, ${count(f.cached)} cached` : ""}`);
    const key = parts.join("|") + ended;
    if (key === this.shownFacts) return;
    this.shownFacts = key;
    const goesOn = m.state === "done" && m.calls.length > 0; /* the answer is the one after the call */
    const buttons = ended && !goesOn ? [el("span", { class: "buttons" },
      m.content ? button("copy", "Copy the answer", () => this.actions.copy(m.content)) : null,
      m.error ? null : button("again", "Write it anew", () => this.actions.again(m), { "data-again": true }))] : [];
    this.facts.replaceChildren(...buttons, el("span", { class: "parts" }, ...parts.map(p => el("span", null, p))));
  }
}

export class View {
  constructor(chat, actions) {
    Object.assign(this, { chat, actions });
    this.list = $("messages");
    this.log = $("log");
    this.views = new Map();
    this.dirty = new Set();
    this.atEnd = true;
    this.top = 0; /* where the text was last seen */
    this.log.addEventListener("scroll", () => this.scrolled());
    new ResizeObserver(() => this.follow()).observe(this.list);
    $("to-end").addEventListener("click", () => this.toEnd());
  }

  /* Messages came or went. */
  refresh() {
    const shown = this.chat.messages.filter(m => m.role !== "tool"), keep = new Set(shown);
    for (const [message, view] of this.views)
      if (!keep.has(message)) {
        view.node.remove();
        this.views.delete(message);
      }
    for (const message of shown) {
      let view = this.views.get(message);
      if (!view) {
        view = message.role === "user" ? new UserView(message) : new AnswerView(message, this.chat, this.actions);
        this.views.set(message, view);
      }
      if (this.list.lastChild !== view.node && !view.node.isConnected) this.list.append(view.node);
      view.draw();
    }
    $("empty").hidden = shown.length > 0;
    this.follow();
  }

  changed(message) {
    if (["done", "stopped", "failed"].includes(message.state)) return this.draw(message);
    if (!this.dirty.size) requestAnimationFrame(() => this.dirty.forEach(m => this.draw(m)));
    this.dirty.add(message);
  }

  draw(message) {
    this.dirty.delete(message);
    this.views.get(message)?.draw();
  }

  /* ---- The end of the text stays in sight while the reader is there ---- */

  /* A reader leaves the end by going up. The event of follow()'s own step comes a frame later, when more text may
     stand below: that is no leaving. */
  scrolled() {
    const top = this.log.scrollTop;
    if (this.log.scrollHeight - top - this.log.clientHeight < 60) this.atEnd = true;
    else if (top < this.top) this.atEnd = false;
    this.top = top;
    $("to-end").hidden = this.atEnd;
  }

  follow() {
    if (!this.atEnd) return this.scrolled();
    this.log.scrollTop = this.log.scrollHeight;
    this.top = this.log.scrollTop;
  }

  toEnd() {
    this.atEnd = true;
    this.follow();
  }
}
