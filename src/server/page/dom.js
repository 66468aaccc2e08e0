/* Elements without innerHTML: what a model or a server says is only ever text. */

export const $ = id => document.getElementById(id);

const SVG = "http://www.w3.org/2000/svg";
const fill = (node, attributes, children) => {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter(c => c !== null && c !== undefined));
  return node;
};

/* el("p", {class: "note", onclick: f}, "text", child, ...) */
export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const icon = name => svg("svg", { "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));

/* Sets text only where it changed, so that nothing is laid out anew without need. */
export const setText = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};
