/* The pictures and videos of a message: files looked at and read, and the tray above the draft that they wait in. What
 * is sent is the file, byte for byte. What is shown is a canvas: the page's policy loads no picture but the server's
 * own, and no video, of which the canvas has a sign.
 *
 * A picture: {name, url, small, video}: a data: URI, a canvas of SIDE pixels at most, whether it is a video. */
import { $, el, icon } from "./dom.js";

const MOST = 64, MOST_MB = 20, VIDEO_MB = 44, SIDE = 480;
const KINDS = [ /* what a file is, its first bytes tell, as they do to the server */
  ["image/jpeg", /^\xff\xd8\xff/],
  ["image/png", /^\x89PNG\r\n\x1a\n/],
  ["image/webp", /^RIFF[^]{4}WEBP/],
  ["image/gif", /^GIF8[79]a/],
  ["video/mp4", /^[^]{4}(ftyp|moov|mdat|wide)/], /* and MOV */
  ["video/webm", /^\x1aE\xdf\xa3/], /* and Matroska */
];

const kindOf = async file => {
  const head = String.fromCharCode(...new Uint8Array(await file.slice(0, 12).arrayBuffer()));
  return KINDS.find(([, begins]) => begins.test(head))?.[0];
};

const dataUri = blob => new Promise((done, failed) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => failed(reader.error);
  reader.readAsDataURL(blob);
});

const draw = (node, source) => {
  const context = node.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(source, 0, 0, node.width, node.height);
  return node;
};

const shrunk = async blob => {
  const whole = await createImageBitmap(blob), scale = Math.min(1, SIDE / Math.max(whole.width, whole.height));
  const side = n => Math.max(1, Math.round(n * scale));
  const small = draw(el("canvas", { width: side(whole.width), height: side(whole.height) }), whole);
  whole.close();
  return small;
};

/* A strip of film. */
const filmStrip = () => {
  const node = el("canvas", { width: 160, height: 100 }), context = node.getContext("2d");
  context.fillStyle = "#222";
  context.fillRect(0, 0, 160, 100);
  context.fillStyle = "#ddd";
  for (let x = 6; x < 160; x += 20) for (const y of [6, 86]) context.fillRect(x, y, 8, 8);
  context.beginPath();
  context.moveTo(66, 32);
  context.lineTo(66, 68);
  context.lineTo(98, 50);
  context.fill();
  return node;
};

/* An error's message is for the user. */
const read = async file => {
  const name = file.name || "The picture", wrong = why => new Error(`${name} ${why}`);
  const unreadable = () => {
    throw wrong("cannot be read.");
  };
  const tooLarge = mb => wrong(`has ${Math.ceil(file.size / (1 << 20))} MB, at most ${mb} are taken.`);
  if (file.size > VIDEO_MB << 20) throw tooLarge(VIDEO_MB);
  const type = await kindOf(file).catch(unreadable), video = type?.startsWith("video/");
  if (!type) throw wrong("is no JPEG, PNG, WebP or GIF picture, and no MP4, MOV, WebM or Matroska video.");
  if (!video && file.size > MOST_MB << 20) throw tooLarge(MOST_MB);
  const url = await dataUri(file.slice(0, file.size, type)).catch(unreadable);
  if (video) return { name, url, small: filmStrip(), video };
  try {
    return { name, url, small: await shrunk(file) };
  } catch {
    throw wrong("is damaged, or too large for this browser.");
  }
};

export const thumbnail = ({ name, small }) =>
  draw(el("canvas", { role: "img", "aria-label": name, title: name, width: small.width, height: small.height }), small);

export class Tray {
  /* changed(): pictures came or went. */
  constructor(changed) {
    this.changed = changed;
    this.allowed = null; /* whether the model reads pictures; null: not known yet */
    this.pictures = [];
    this.ready = null; /* a promise while files are read */
    const choose = $("choose");
    $("attach").addEventListener("click", () => choose.click());
    choose.addEventListener("change", () => {
      this.add([...choose.files]);
      choose.value = ""; /* the same file may be chosen again */
    });
    document.addEventListener("paste", e => this.pasted(e));
    for (const kind of ["dragover", "dragleave", "drop"]) document.addEventListener(kind, e => this.dragged(e));
  }

  allow(allowed) {
    this.allowed = allowed;
    $("attach").hidden = !allowed;
  }

  /* Text wins where there is both, unless it is only the files' names. */
  pasted(e) {
    const files = [...e.clipboardData.files], lines = e.clipboardData.getData("text/plain").split(/\r?\n/);
    if ($("settings").open || !files.length || lines.some(l => l.trim() && !files.some(f => l.trim().endsWith(f.name)))) return;
    e.preventDefault();
    this.add(files);
  }

  /* A file that misses the chat would take the page's place: it goes into the chat, wherever it is dropped. */
  dragged(e) {
    if (!e.dataTransfer?.types.includes("Files")) return;
    e.preventDefault();
    const open = !$("settings").open;
    e.dataTransfer.dropEffect = open ? "copy" : "none";
    document.body.classList.toggle("dropping", open && (e.type === "dragover" || (e.type === "dragleave" && e.relatedTarget !== null)));
    if (e.type === "drop" && open) this.add([...e.dataTransfer.files]);
  }

  /* One after the other, in their order. */
  add(files) {
    if (this.allowed === false) return this.say(["This model reads no pictures."]);
    this.say([]);
    const mine = (this.ready = (async before => {
      const wrong = [];
      await before;
      for (const file of files) {
        try {
          if (this.pictures.length === MOST) throw new Error(`A message takes ${MOST} pictures and videos.`);
          this.put([await read(file)]);
        } catch (e) {
          wrong.push(e.message);
          if (this.pictures.length === MOST) break;
        }
      }
      if (wrong.length) this.say(wrong);
      if (this.ready === mine) this.ready = null;
    })(this.ready));
    $("draft").focus();
  }

  put(pictures) {
    this.pictures.push(...pictures);
    this.show();
  }

  /* All of them; the tray is empty then. */
  take() {
    this.say([]);
    const pictures = this.pictures.splice(0);
    this.show();
    return pictures;
  }

  say(lines) {
    $("refused").replaceChildren(...lines.map(l => el("p", null, l)));
  }

  show() {
    $("tray").hidden = !this.pictures.length;
    $("tray").replaceChildren(...this.pictures.map(picture => el("li", null, thumbnail(picture), el("button", {
      type: "button", title: `Remove ${picture.name}`, "aria-label": `Remove ${picture.name}`,
      onclick: () => {
        this.pictures.splice(this.pictures.indexOf(picture), 1);
        this.say([]);
        this.show();
        $("draft").focus();
      },
    }, icon("close")))));
    this.changed();
  }
}
