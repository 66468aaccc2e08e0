/* Markdown to elements, for text that is still growing: only the blocks that changed are built anew. Covers what models
 * write: paragraphs, headings, lists, code, quotes, tables, bold, italic, links. HTML stays text; pictures are not
 * loaded; links lead out only when somebody clicks them. Linear in the length of the text. */
import { el, icon } from "./dom.js";

const DEPTH = 6; /* lists in lists, bold in italic: deeper is shown as it is written */
const LABEL_MAX = 500, URL_MAX = 2000; /* of a link in brackets */
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
/* None of these tries a place twice: no two parts of a pattern that follow each other take the same character. */
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/s;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/s;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const DASHES = /^(?:\|\s*)?:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$/; /* of a trimmed line */

/* ---- Blocks ---- */

const kindOf = line =>
  FENCE.test(line) ? "fence" : HEADING.test(line) ? "heading" : RULE.test(line) ? "rule" : ITEM.test(line) ? "list"
    : /^ {0,3}>/.test(line) ? "quote" : "text";

/* The text cut into blocks: [{kind, lines}]. */
const split = text => {
  const blocks = [], lines = text.split("\n");
  for (let i = 0; i < lines.length; ) {
    if (!lines[i].trim()) {
      i++;
      continue;
    }
    const kind = kindOf(lines[i]), start = i++;
    if (kind === "fence") {
      const mark = FENCE.exec(lines[start])[1];
      while (i < lines.length && !(lines[i].trim().startsWith(mark) && !lines[i].trim().replaceAll(mark[0], ""))) i++;
      i++;
    } else if (kind === "list") {
      for (; i < lines.length; i++) {
        const next = lines[i].trim() ? lines[i] : lines[i + 1] ?? "";
        if (!ITEM.test(next) && !/^\s{2,}\S/.test(next) && (next !== lines[i] || kindOf(next) !== "text")) break;
        if (RULE.test(next)) break;
      }
    } else if (kind === "quote") {
      while (i < lines.length && /^ {0,3}>/.test(lines[i])) i++;
    } else if (kind === "text") {
      while (i < lines.length && lines[i].trim() && kindOf(lines[i]) === "text") i++;
    }
    blocks.push({ kind, lines: lines.slice(start, Math.min(i, lines.length)) });
  }
  return blocks;
};

const codeBlock = lines => {
  const [, mark, language] = FENCE.exec(lines[0]), last = lines[lines.length - 1].trim();
  const closed = lines.length > 1 && last.startsWith(mark) && !last.replaceAll(mark[0], "");
  const code = lines.slice(1, closed ? -1 : undefined).join("\n");
  const copy = el("button", { class: "quiet icon", title: "Copy the code", "data-copy": true, onclick: () => navigator.clipboard?.writeText(code) }, icon("copy"));
  return el("div", { class: "code-block" }, el("header", null, el("span", null, language || "code"), copy),
    el("pre", { tabindex: "0" }, el("code", null, code)));
};

const list = (lines, depth) => {
  const [, indent, marker] = ITEM.exec(lines[0]), ordered = /\d/.test(marker);
  const node = el(ordered ? "ol" : "ul", ordered ? { start: parseInt(marker, 10) } : null), items = [];
  for (const line of lines) {
    const m = ITEM.exec(line);
    if (m && (m[1].length <= indent.length + 1 || !items.length)) items.push([m[3]]);
    else items[items.length - 1].push(line.slice(Math.min(line.search(/\S|$/), indent.length + marker.length + 1)));
  }
  for (const item of items) {
    const li = el("li");
    if (depth >= DEPTH) li.textContent = item.join("\n");
    else fillBlocks(li, item.join("\n"), depth + 1, true);
    node.append(li);
  }
  return node;
};

/* A heading's text: without the marks that may stand behind it. */
const title = text => {
  const whole = text.trimEnd();
  let end = whole.length;
  while (end && whole[end - 1] === "#") end--;
  return end && !isSpace(whole[end - 1]) ? whole : whole.slice(0, end).trimEnd();
};

const cells = line => line.trim().replace(/^\||\|$/g, "").split("|").map(c => c.trim());
const table = lines => {
  const row = (line, tag) => el("tr", null, ...cells(line).map(c => inline(el(tag), c, 0)));
  return el("div", { class: "table" }, el("table", null, el("thead", null, row(lines[0], "th")),
    el("tbody", null, ...lines.slice(2).map(l => row(l, "td")))));
};

const build = ({ kind, lines }, depth, tight) => {
  const text = lines.join("\n");
  if (kind === "fence") return codeBlock(lines);
  if (kind === "rule") return el("hr");
  if (kind === "list") return list(lines, depth);
  if (kind === "heading") {
    const [, marks, rest] = HEADING.exec(text);
    return inline(el(`h${Math.min(4, marks.length)}`), title(rest), 0);
  }
  if (kind === "quote") {
    const inside = lines.map(l => l.replace(/^ {0,3}> ?/, "")).join("\n"), node = el("blockquote");
    if (depth >= DEPTH) node.textContent = inside;
    else fillBlocks(node, inside, depth + 1);
    return node;
  }
  if (lines.length > 1 && lines[0].includes("|") && DASHES.test(lines[1].trim()) && lines[1].includes("-")) return table(lines);
  return inline(el(tight ? "span" : "p"), text, 0);
};

const fillBlocks = (node, text, depth, tight = false) => {
  split(text).forEach((block, i) => node.append(build(block, depth, tight && i === 0)));
};

export const renderMarkdown = (node, text) => {
  const blocks = split(text);
  blocks.forEach((block, i) => {
    const source = block.lines.join("\n"), old = node.children[i];
    if (old && old.source === source) return;
    const fresh = build(block, 0, false);
    fresh.source = source;
    old ? old.replaceWith(fresh) : node.append(fresh);
  });
  while (node.children.length > blocks.length) node.lastChild.remove();
};

/* ---- Inside a line ---- */

const LINK = /^(?:https?:\/\/|mailto:)/i;
const ADDRESS = /https?:\/\/[^\s<>"'`)\]]*[^\s<>"'`)\].,;:!?]/y;
const isWord = c => c !== undefined && /[\p{L}\p{N}]/u.test(c);
const isSpace = c => c === undefined || /\s/.test(c);

const link = (url, label) => el("a", { href: url, target: "_blank", rel: "noopener noreferrer", title: url }, label);

/* Code without the spaces that keep a backtick at its edge apart from the mark. */
const unpadded = code => code.length > 2 && code[0] === " " && code.endsWith(" ") && code.trim() ? code.slice(1, -1) : code;

/* A closing mark at or after `from`, or -1. What was not found once is not looked for again. */
const closing = (text, mark, from, missing) => {
  if (missing.has(mark)) return -1;
  for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + mark.length)) {
    const after = at + mark.length;
    if (mark[0] === "`" && text[after] === "`") {
      while (text[at] === "`") at++;
      continue;
    }
    if (mark === "*" && text[after] === "*") {
      at++;
      continue;
    }
    if (mark[0] === "`" || (!isSpace(text[at - 1]) && at > from && !(mark[0] === "_" && isWord(text[after])))) return at;
  }
  missing.add(mark);
  return -1;
};

const opens = (text, i, mark) => {
  if (mark[0] === "`") return true;
  if (isSpace(text[i + mark.length])) return false;
  return mark.length === 2 && mark !== "__" ? true : !isWord(text[i - 1]);
};

const inline = (node, text, depth) => {
  const missing = new Set();
  let plain = "", i = 0, middle = -1, close = -1; /* the next "](" and the ")" behind it */
  const flush = () => {
    if (plain) node.append(plain);
    plain = "";
  };
  const put = (child, end) => {
    flush();
    node.append(child);
    i = end;
  };
  while (i < text.length) {
    const c = text[i];
    if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
      continue;
    }
    const mark = c === "`" ? /`+/y : c === "*" || c === "_" || c === "~" ? null : undefined;
    if (mark !== undefined && depth < DEPTH) {
      let m = c;
      if (mark) {
        mark.lastIndex = i;
        m = mark.exec(text)[0];
      } else if (text[i + 1] === c) {
        m = c + c;
      }
      const from = i + m.length, end = m === "~" || !opens(text, i, m) ? -1 : closing(text, m, from, missing);
      if (end > from) {
        const inside = text.slice(from, end);
        const child = mark ? el("code", null, unpadded(inside))
          : inline(el(m === "~~" ? "s" : m.length === 2 ? "strong" : "em"), inside, depth + 1);
        put(child, end + m.length);
        continue;
      }
      plain += m;
      i = from;
      continue;
    }
    if (c === "[" && !missing.has("](")) {
      if (middle < i) middle = text.indexOf("](", i);
      if (middle >= 0 && close < middle) close = text.indexOf(")", middle);
      if (middle < 0 || close < 0) missing.add("](");
      const near = !missing.has("](") && middle - i < LABEL_MAX && close - middle < URL_MAX;
      const url = near ? text.slice(middle + 2, close).trim() : "";
      if (LINK.test(url) && !/\s/.test(url)) {
        if (plain.endsWith("!")) plain = plain.slice(0, -1);
        put(link(url, text.slice(i + 1, middle) || url), close + 1);
        continue;
      }
    }
    if (c === "h" && !isWord(text[i - 1])) {
      ADDRESS.lastIndex = i;
      const found = ADDRESS.exec(text);
      if (found) {
        put(link(found[0], found[0]), i + found[0].length);
        continue;
      }
    }
    plain += c;
    i++;
  }
  flush();
  return node;
};
