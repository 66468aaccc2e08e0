/* What is kept, in this browser's local storage and nowhere else: settings, the conversation, the draft. */

const read = (key, otherwise) => {
  try {
    return JSON.parse(localStorage.getItem(`moonlet.${key}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
};

/* False when the browser has no room left or keeps nothing. */
const write = (key, value) => {
  try {
    localStorage.setItem(`moonlet.${key}`, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
};

/* Numbers are kept as they were typed; empty: the model's own. live: null means open where there is room. */
const DEFAULTS = {
  system: "", thinking: true, temperature: "", top_p: "", max_tokens: "", seed: "", calculator: false, tools: "", key: "",
  theme: "auto", live: null,
};

/* What another version or another hand wrote is used where it has the right type. */
const kept = read("settings", {}) ?? {};
export const settings = Object.fromEntries(Object.entries(DEFAULTS).map(([key, value]) =>
  [key, typeof kept[key] === (key === "live" ? "boolean" : typeof value) ? kept[key] : value]));
export const saveSettings = () => write("settings", settings);

const isText = x => typeof x === "string";
const isMessage = m => isText(m?.content) && ((m.role === "user" && m.pictures === undefined && Number.isInteger(m.lost ?? 0)) || (m.role === "tool" && isText(m.id) && isText(m.name)) ||
  (m.role === "assistant" && isText(m.reasoning) && Array.isArray(m.calls) && m.calls.every(c => isText(c?.id) && isText(c.name) && isText(c.args)) &&
    m.facts !== null && typeof m.facts === "object"));
export const loadMessages = () => {
  const messages = read("chat", []);
  return Array.isArray(messages) && messages.every(isMessage) ? messages : [];
};
/* Pictures do not fit there: only how many there were is kept. */
export const saveMessages = messages => write("chat", messages.map(({ pictures, ...m }) => (pictures ? { ...m, lost: pictures.length } : m)));

export const loadDraft = () => String(read("draft", ""));
export const saveDraft = text => write("draft", text);

export const forgetAll = () => {
  for (const key of ["settings", "chat", "draft"]) localStorage.removeItem(`moonlet.${key}`);
};

/* ---- Checks: the request's field, or what is wrong with it ---- */

const NUMBERS = {
  temperature: { low: 0, high: 2, whole: false },
  top_p: { low: 0, high: 1, whole: false },
  max_tokens: { low: 1, high: 1e9, whole: true },
  seed: { low: 0, high: Number.MAX_SAFE_INTEGER, whole: true },
};
export const numberFields = Object.keys(NUMBERS);

export const checkNumber = (name, text) => {
  const { low, high, whole } = NUMBERS[name], trimmed = text.trim().replace(",", ".");
  if (trimmed === "") return {};
  const value = Number(trimmed);
  if (!Number.isFinite(value)) return { error: "not a number" };
  if (whole && !Number.isInteger(value)) return { error: "a whole number, please" };
  if (value < low) return { error: `at least ${low}` };
  if (value > high) return { error: `at most ${high}` };
  return { value };
};

export const checkTools = text => {
  if (text.trim() === "") return { value: [] };
  let value;
  try {
    value = JSON.parse(text);
  } catch (e) {
    return { error: `not JSON: ${e.message}` };
  }
  if (!Array.isArray(value)) value = [value];
  for (const tool of value)
    if (tool?.type !== "function" || typeof tool.function?.name !== "string" || tool.function.name === "")
      return { error: 'each tool is {"type": "function", "function": {"name": …}}' };
  return { value };
};
