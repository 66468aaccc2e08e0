/* A small curve over the last two minutes. */
import { el, setText, svg } from "./dom.js";

const HEIGHT = 60, TOP = 10, BOTTOM = 46; /* px; style.css has the height, too */

/* A round number at or above x. */
const nice = x => {
  const power = 10 ** Math.floor(Math.log10(x));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find(n => n * power >= x) * power;
};

export class Chart {
  /* kind: its colour's class. label(value): how a value reads. */
  constructor(kind, points, title, label) {
    Object.assign(this, { points, label, values: [], width: 0 });
    this.area = svg("path", { class: "area" });
    this.curve = svg("path", { class: "curve" });
    this.dot = svg("circle", { class: "dot" });
    this.most = svg("text", { x: 0, y: TOP + 12 });
    this.past = svg("text", { x: 0, y: HEIGHT });
    this.present = svg("text", { y: HEIGHT, "text-anchor": "end" });
    this.top = svg("line", { class: "rule", x1: 0, y1: TOP, y2: TOP, "stroke-dasharray": "2 4" });
    this.bottom = svg("line", { class: "rule", x1: 0, y1: BOTTOM, y2: BOTTOM });
    this.node = svg("svg", { class: `chart ${kind}`, role: "img", "aria-label": title }, this.top, this.bottom, this.area, this.curve, this.dot, this.most, this.past, this.present);
    this.node.addEventListener("pointermove", e => this.point(e.offsetX));
    this.node.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(([entry]) => {
      this.width = entry.contentRect.width;
      this.draw();
    }).observe(this.node);
  }

  show(values) {
    this.values = values.slice(-this.points);
    this.draw();
  }

  x(i) {
    return this.width * (1 - (this.values.length - 1 - i) / (this.points - 1));
  }

  point(x) {
    const n = this.values.length, at = x === null ? n - 1 : Math.round(n - 1 - (1 - x / this.width) * (this.points - 1));
    this.under = x === null || at < 0 || at >= n ? null : at;
    this.draw();
  }

  draw() {
    const { values, width } = this, n = values.length;
    if (!width || !n) return;
    const most = nice(Math.max(1, ...values)), y = v => BOTTOM - (BOTTOM - TOP) * (v / most);
    const line = values.map((v, i) => `${this.x(i).toFixed(1)} ${y(v).toFixed(1)}`).join("L");
    this.curve.setAttribute("d", `M${line}`);
    this.area.setAttribute("d", `M${this.x(0).toFixed(1)} ${BOTTOM}L${line}L${width} ${BOTTOM}Z`);
    for (const rule of [this.top, this.bottom]) rule.setAttribute("x2", width);
    const at = this.under ?? n - 1;
    this.dot.setAttribute("r", 3.5);
    this.dot.setAttribute("cx", this.x(at));
    this.dot.setAttribute("cy", y(values[at]));
    this.present.setAttribute("x", width);
    setText(this.most, values.some(v => v > 0) ? this.label(most) : "");
    setText(this.past, "2 min ago");
    setText(this.present, this.under === null || this.under === undefined ? "now" : `${this.label(values[at])}, ${n - 1 - at} s ago`);
  }
}

/* A bar of shares. */
export class Meter {
  constructor(kinds, title) {
    this.bars = kinds.map(kind => svg("rect", { class: kind, y: 0, height: 10 }));
    this.node = svg("svg", { class: "meter", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": title }, ...this.bars);
  }

  /* The smallest share that is not nothing can still be seen. */
  show(values) {
    const all = values.reduce((a, b) => a + b, 0) || 1, widths = values.map(v => (v ? Math.max(6, (1000 * v) / all) : 0));
    const scale = 1000 / widths.reduce((a, b) => a + b, 0);
    let x = 0;
    this.bars.forEach((bar, i) => {
      bar.setAttribute("x", x);
      bar.setAttribute("width", widths[i] * scale);
      x += widths[i] * scale;
    });
  }
}

export const key = kind => el("i", { class: `key ${kind}` });
