/* The conversation: what is said, what is sent, what comes back. Knows no elements; view.js shows it.
 *
 * A message: {role: "user", content, pictures, lost} | {role: "tool", id, name, content} |
 *            {role: "assistant", content, reasoning, thought_ms, calls: [{id, name, args}], state, error, refused, facts}
 * state: "wait", "reasoning", "writing", "done", "stopped", "failed". pictures: as in pictures.js, absent where there are
 * none; lost: how many there were before the page was loaded anew. refused: the request was wrong, and would be again. */
import { checkNumber, checkTools, loadMessages, numberFields, saveMessages, settings } from "./store.js";
import { BrokenOff, events } from "./stream.js";
import { CALCULATOR, calculate } from "./tools.js";

const ROUNDS = 8; /* answers in a row that the calculator alone may cause */
const SAVE_MS = 1000;

export const authorization = () => (settings.key ? { Authorization: `Bearer ${settings.key}` } : {});

export class Chat {
  /* changed(message): it has grown. listed(): messages came or went. saved(bool): whether the browser kept it. */
  constructor({ changed, listed, saved }) {
    Object.assign(this, { changed, listed, saved });
    this.messages = loadMessages();
    this.controller = null;
    this.savedAt = 0;
    for (const m of this.messages)
      if (m.role === "assistant" && !["done", "stopped", "failed"].includes(m.state)) m.state = "stopped";
  }

  get busy() {
    return this.controller !== null;
  }

  save() {
    this.savedAt = performance.now();
    this.saved(saveMessages(this.messages));
  }

  /* ---- What a user does ---- */

  ask(text, pictures) {
    for (const call of this.openCalls()) this.push({ role: "tool", id: call.id, name: call.name, content: "not answered" });
    this.push({ role: "user", content: text, ...(pictures.length ? { pictures } : {}) });
    return this.answer();
  }

  stop() {
    this.controller?.abort();
  }

  /* Where the question stands that a message answers; the beginning if there is none. */
  questionOf(message) {
    let index = this.messages.indexOf(message);
    while (index > 0 && this.messages[index].role !== "user") index--;
    return index;
  }

  /* The answer, and what followed it, is written anew. */
  again(message) {
    const index = this.questionOf(message);
    this.messages.length = index + (this.messages[index]?.role === "user" ? 1 : 0);
    this.listed();
    return this.answer();
  }

  /* The question leaves the conversation, with all that followed, and is given back. */
  takeBack(message) {
    const [question] = this.messages.splice(this.questionOf(message));
    this.save();
    this.listed();
    return question;
  }

  clear() {
    this.stop();
    const before = this.messages;
    this.messages = [];
    this.save();
    this.listed();
    return () => {
      this.messages = before;
      this.save();
      this.listed();
    };
  }

  result(call, content) {
    this.push({ role: "tool", id: call.id, name: call.name, content });
    return this.openCalls().length ? null : this.answer();
  }

  resultOf(message, call) {
    const from = this.messages.indexOf(message);
    for (let i = from + 1; i < this.messages.length && this.messages[i].role === "tool"; i++)
      if (this.messages[i].id === call.id) return this.messages[i].content;
    return null;
  }

  /* Calls of the last answer that have no result yet. */
  openCalls() {
    const last = this.messages.findLast(m => m.role !== "tool");
    if (last?.role !== "assistant" || last.state !== "done") return [];
    return last.calls.filter(c => this.resultOf(last, c) === null);
  }

  push(message) {
    this.messages.push(message);
    this.save();
    this.listed();
    return message;
  }

  /* ---- One request ---- */

  body() {
    const tools = [...(settings.calculator ? [CALCULATOR] : []), ...(checkTools(settings.tools).value || [])];
    const body = {
      messages: this.history(), stream: true, stream_options: { include_usage: true, continuous_usage_stats: true },
      chat_template_kwargs: { thinking: settings.thinking },
    };
    if (tools.length) body.tools = tools;
    for (const name of numberFields) {
      const { value } = checkNumber(name, settings[name]);
      if (value !== undefined) body[name] = value;
    }
    return body;
  }

  history() {
    const out = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
    for (const m of this.messages) {
      if (m.role === "user") out.push({ role: "user", content: m.pictures ? parts(m) : m.content });
      if (m.role === "tool") out.push({ role: "tool", tool_call_id: m.id, name: m.name, content: m.content });
      if (m.role !== "assistant" || m.state === "wait") continue;
      const calls = m.calls.filter(c => this.resultOf(m, c) !== null);
      if (!m.content && !calls.length) continue; /* nothing was said */
      out.push({
        role: "assistant", content: m.content, ...(m.reasoning ? { reasoning_content: m.reasoning } : {}),
        ...(calls.length ? { tool_calls: calls.map(c => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.args } })) } : {}),
      });
    }
    return out;
  }

  async answer() {
    for (let round = 0; round < ROUNDS && (await this.oneAnswer()); round++) {}
  }

  /* True when every call of the answer could be computed here: the model is to go on. */
  async oneAnswer() {
    const controller = (this.controller = new AbortController());
    const body = this.body();
    const m = this.push({ role: "assistant", content: "", reasoning: "", calls: [], state: "wait", facts: {} });
    const began = performance.now();
    try {
      const response = await fetch("v1/chat/completions", {
        method: "POST", headers: { "Content-Type": "application/json", ...authorization() }, body: JSON.stringify(body), signal: controller.signal,
      });
      if (!response.ok) throw await problem(response);
      for await (const event of events(response.body)) this.take(m, event, performance.now() - began);
      m.state = "done";
    } catch (e) {
      if (!controller.signal.aborted) m.error = describe(e, m.facts.first_ms !== undefined);
      m.state = controller.signal.aborted ? "stopped" : "failed";
      if (e.needsKey) m.needsKey = true;
      if (e.refused) m.refused = true;
    }
    if (m.reasoning && m.thought_ms === undefined) m.thought_ms = performance.now() - began - (m.facts.first_ms ?? 0);
    m.facts.all_ms = performance.now() - began;
    if (this.controller === controller) this.controller = null;
    if (!this.messages.includes(m)) return false; /* the chat was cleared meanwhile */
    this.save();
    this.changed(m);
    return m.state === "done" && this.compute(m);
  }

  compute(m) {
    if (!m.calls.length) return false;
    for (const call of m.calls)
      if (call.name === "calculator" && settings.calculator)
        this.push({ role: "tool", id: call.id, name: call.name, content: calculate(call.args) });
    return this.openCalls().length === 0;
  }

  take(m, event, ms) {
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices?.[0], delta = choice?.delta, f = m.facts;
    const usage = event.usage || choice?.usage;
    if (usage) Object.assign(f, { prompt: usage.prompt_tokens, tokens: usage.completion_tokens, cached: usage.prompt_tokens_details?.cached_tokens ?? 0 });
    if (choice?.finish_reason) f.finish = choice.finish_reason;
    if (delta) {
      f.first_ms ??= ms;
      f.last_ms = ms;
      if (delta.reasoning_content) {
        m.reasoning += delta.reasoning_content;
        m.state = "reasoning";
      }
      if (delta.content || delta.tool_calls) {
        if (m.reasoning) m.thought_ms ??= ms - f.first_ms;
        m.state = "writing";
        m.content += delta.content || "";
      }
      for (const part of delta.tool_calls || []) {
        const call = (m.calls[part.index] ??= { id: "", name: "", args: "" });
        call.id += part.id || "";
        call.name += part.function?.name || "";
        call.args += part.function?.arguments || "";
      }
    }
    if (performance.now() - this.savedAt > SAVE_MS) this.save();
    this.changed(m);
  }
}

const parts = ({ pictures, content }) => [
  ...pictures.map(({ url, video }) => (video ? { type: "video_url", video_url: { url } } : { type: "image_url", image_url: { url } })),
  ...(content ? [{ type: "text", text: content }] : []),
];

/* ---- What went wrong, in words ---- */

const problem = async response => {
  let text = "";
  try {
    text = (await response.json()).error.message;
  } catch {}
  const wait = response.headers.get("Retry-After");
  const e = new Error(`${text || `The server answered ${response.status}`}${response.status === 429 && wait ? ` Again in ${wait} s.` : ""}`);
  e.needsKey = response.status === 401;
  e.refused = [400, 413].includes(response.status);
  return e;
};

const describe = (e, begun) => {
  if (e instanceof BrokenOff || (e instanceof TypeError && begun)) return "The connection ended before the answer was complete.";
  if (e instanceof TypeError) return "The server cannot be reached. Is it running?";
  if (e instanceof SyntaxError) return "The server sent something that is not JSON.";
  return e.message[0].toUpperCase() + e.message.slice(1);
};
