/* The settings' dialog: fields are checked and kept as they are typed. */
import { $ } from "./dom.js";
import { checkNumber, checkTools, forgetAll, numberFields, saveSettings, settings } from "./store.js";

const showTheme = () => {
  const root = document.documentElement;
  if (settings.theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = settings.theme;
};

/* Text fields, with what checks them. */
const texts = { system: null, key: null, tools: checkTools, ...Object.fromEntries(numberFields.map(n => [n, t => checkNumber(n, t)])) };
const switches = ["thinking", "calculator"];

/* changed(): something is different now. */
export const openableSettings = changed => {
  const dialog = $("settings");
  const kept = () => {
    saveSettings();
    showTheme();
    showSwitches();
    changed();
  };
  const judge = (name, field) => {
    const error = texts[name]?.(field.value).error ?? "";
    field.classList.toggle("wrong", !!error);
    field.setAttribute("aria-invalid", String(!!error));
    const small = field.parentElement.querySelector("small");
    if (small) small.textContent = error;
    return !error;
  };
  const showSwitches = () => {
    for (const name of switches) {
      $(`set-${name}`).checked = settings[name];
      $(name).setAttribute("aria-pressed", String(settings[name]));
    }
  };
  for (const name of Object.keys(texts)) {
    const field = $(`set-${name}`);
    field.value = settings[name];
    judge(name, field);
    field.addEventListener("input", () => {
      if (!judge(name, field)) return; /* what is wrong is shown, and not used */
      settings[name] = field.value;
      kept();
    });
  }
  for (const name of switches) {
    const flip = () => {
      settings[name] = !settings[name];
      kept();
    };
    $(`set-${name}`).addEventListener("change", flip);
    $(name).addEventListener("click", flip);
  }
  for (const radio of document.getElementsByName("theme")) {
    radio.checked = radio.value === settings.theme;
    radio.addEventListener("change", () => {
      settings.theme = radio.value;
      kept();
    });
  }
  dialog.addEventListener("click", e => e.target === dialog && dialog.close());
  $("forget").addEventListener("click", () => {
    forgetAll();
    location.reload();
  });
  showTheme();
  showSwitches();
  return field => {
    dialog.showModal();
    if (field) $(`set-${field}`).focus();
  };
};
