/* The live view: asks /live once a second while it is seen, now and then otherwise to know whether the server is there. */
import { Chart, Meter, key } from "./chart.js";
import { authorization } from "./chat.js";
import { $, el, setText } from "./dom.js";
import { count, rate, share, time, uptime } from "./format.js";

const POINTS = 121, SECOND = 1000, IDLE = 5000;

const figure = unit => {
  const number = el("span", null, "–");
  return { node: el("div", { class: "figure" }, number, el("small", null, unit)), number };
};

/* A row: name, then cells of [number, unit]; "" keeps the unit's place, null does not. */
const row = (name, cells) => {
  const numbers = Array.from({ length: cells }, () => el("span")), units = Array.from({ length: cells }, () => el("small"));
  return {
    node: el("tr", null, el("th", { scope: "row" }, ...[name].flat()), ...numbers.map((n, i) => el("td", null, n, units[i]))),
    show: (...values) => values.forEach(([number, unit], i) => {
      setText(numbers[i], number);
      setText(units[i], unit ?? "");
      units[i].hidden = unit === null;
    }),
  };
};
const rows = (kind, ...all) => el("table", { class: `rows ${kind}` }, el("tbody", null, ...all.map(r => r.node)));
const panel = (title, note, ...children) => el("section", { class: "panel" }, el("h3", null, title, note.nodeType ? note : el("small", null, note)), ...children);

export class Live {
  /* on(state, data): "ok" | "bad" | "key" | a word of the server's, and what /live said. */
  constructor(on) {
    this.on = on;
    this.open = false;
    this.last = 0;
    this.series = { prompt_per_s: [], output_per_s: [] };
    this.build();
    document.addEventListener("visibilitychange", () => this.ask());
    this.ask();
  }

  build() {
    this.output = figure("tok/s");
    this.prompt = figure("tok/s");
    this.outputChart = new Chart("output", POINTS, "Generated tokens a second over two minutes", v => rate(v));
    this.promptChart = new Chart("prompt", POINTS, "Prompt tokens a second over two minutes", v => rate(v));
    this.running = figure("");
    this.queued = figure("");
    this.meter = new Meter(["used", "kept", "free"], "KV pages");
    this.used = row([key("used"), "In use"], 2);
    this.kept = row([key("kept"), "Prefix cache"], 2);
    this.free = row([key("free"), "Free"], 2);
    this.hits = row("Last minute", 2);
    this.allHits = row("Since the start", 2);
    this.drafts = row("In the last minute", 2);
    this.allDrafts = row("In all", 2);
    this.draftSize = el("small");
    this.ttft = row("First token", 3);
    this.itl = row("Between tokens", 3);
    this.step = row("Step", 1);
    this.batch = row("Tokens a step", 1);
    this.busy = row("Computing", 1);
    this.up = row("Up", 1);
    this.ended = row("Answers ended", 1);
    this.dropped = row("Refused, preempted", 1);
    this.size = el("small");
    const table = rows("times", this.ttft, this.itl);
    table.prepend(el("thead", null, el("tr", null, el("th"), ...["p50", "p90", "p99"].map(p => el("th", { scope: "col" }, p)))));
    $("live-body").append(
      panel("Output", this.output.node, this.outputChart.node),
      panel("Prompts", this.prompt.node, this.promptChart.node),
      el("section", { class: "panel pair" }, el("h3", null, "Running", this.running.node), el("h3", null, "Waiting", this.queued.node)),
      panel("KV cache", this.size, this.meter.node, rows("", this.used, this.kept, this.free)),
      panel("Prefix-cache hits", "prompt tokens", rows("", this.hits, this.allHits)),
      panel("Drafts kept", this.draftSize, rows("", this.drafts, this.allDrafts)),
      panel("Latency", "last minute", table),
      panel("Engine", "last minute", rows("times", this.step, this.batch, this.busy)),
      panel("Server", "", rows("", this.up, this.ended, this.dropped)),
    );
  }

  show(open) {
    this.open = open;
    $("live").hidden = !open;
    this.ask();
  }

  async ask() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    const mine = (this.turn = {}), wait = this.open ? SECOND : IDLE;
    try {
      const response = await fetch(`live?since=${this.last}`, { headers: authorization(), signal: AbortSignal.timeout(5000) });
      if (mine !== this.turn) return;
      if (response.ok) this.take(await response.json());
      else this.on(response.status === 401 ? "key" : "bad");
      $("live").classList.toggle("stale", !response.ok);
    } catch {
      if (mine !== this.turn) return;
      $("live").classList.add("stale");
      this.on("bad");
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), wait);
  }

  take(d) {
    const restarted = d.history.last < this.last;
    for (const [name, values] of Object.entries(this.series)) {
      if (restarted) values.length = 0;
      values.push(...d.history[name]);
      if (values.length > POINTS) values.splice(0, values.length - POINTS);
    }
    this.last = d.history.last;
    this.on(d.status, d);
    if (!this.open) return;
    const { now, minute, total } = d, { prompt_per_s, output_per_s } = this.series;
    setText(this.output.number, rate(output_per_s.at(-1) ?? 0));
    setText(this.prompt.number, rate(prompt_per_s.at(-1) ?? 0));
    this.outputChart.show(output_per_s);
    this.promptChart.show(prompt_per_s);
    setText(this.running.number, count(now.running));
    setText(this.running.node.lastChild, `of ${count(d.max_running)}`);
    setText(this.queued.number, count(now.queued));
    this.pages(d);
    this.hitRate(this.hits, minute);
    this.hitRate(this.allHits, total);
    this.draftRate(this.drafts, minute);
    this.draftRate(this.allDrafts, total);
    setText(this.draftSize, d.draft_pinned ? "PINNED, the text means nothing" : "and tokens a step of an answer");
    this.latency(this.ttft, minute.ttft_s);
    this.latency(this.itl, minute.itl_s);
    this.step.show(minute.steps ? time(minute.step_s) : ["–", ""]);
    this.batch.show(minute.steps ? [minute.rows_per_step.toFixed(1), ""] : ["–", ""]);
    this.busy.show(share(minute.busy));
    this.up.show([uptime(d.uptime_s), null]);
    this.ended.show([count(total.ended), null]);
    this.dropped.show([`${count(total.refused)}, ${count(total.preemptions)}`, null]);
    setText($("live-sub"), d.simulated ? "simulated: nothing is computed" : d.device.split(" ")[0]);
  }

  pages({ now, pages, page_tokens }) {
    const all = [now.pages_used, now.pages_cached, now.pages_free];
    this.meter.show(all);
    [this.used, this.kept, this.free].forEach((r, i) => r.show([count(all[i]), null], share(all[i] / (pages || 1))));
    setText(this.size, `${count(pages)} pages, ${page_tokens} tokens each`);
  }

  hitRate(r, { prompt_tokens, cached_tokens }) {
    r.show(prompt_tokens ? [`${count(cached_tokens)} of ${count(prompt_tokens)}`, null] : ["", null], prompt_tokens ? share(cached_tokens / prompt_tokens) : ["–", ""]);
  }

  draftRate(r, { draft_rounds, draft_tokens, draft_tokens_accepted }) {
    r.show(
      draft_rounds ? [`${count(draft_tokens_accepted)} of ${count(draft_tokens)}`, null] : ["", null],
      draft_rounds ? [(1 + draft_tokens_accepted / draft_rounds).toFixed(2), ""] : ["–", ""],
    );
  }

  latency(r, q) {
    r.show(...[q.p50, q.p90, q.p99].map(s => (q.n ? time(s) : ["–", ""])));
  }
}
