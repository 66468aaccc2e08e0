"""Headless Chromium, driven over the DevTools protocol with the standard library alone.

The protocol runs over two pipes (--remote-debugging-pipe): JSON messages that end with a NUL, no WebSocket needed."""
import base64
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time


def find_chromium():
    return next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


class Chromium:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="moonlet-chromium-")
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        # descriptors 3 and 4 are the browser's ends; a shell moves them there
        shell = f'exec 3<&{to_read} 4>&{to_write}; exec "$@"'
        args = [
            find_chromium(),
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-extensions",
            "--host-resolver-rules=MAP rebound.example 127.0.0.1",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            f"--user-data-dir={self.profile}",
            "about:blank",
        ]
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "chromium", *args],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.lock = threading.Lock()
        self.count, self.answers, self.pages = 0, {}, {}
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        rest = b""
        while True:
            try:
                data = os.read(self.back, 1 << 16)
            except OSError:
                break
            if not data:
                break
            *messages, rest = (rest + data).split(b"\0")
            for raw in messages:
                m = json.loads(raw)
                if "id" in m:
                    self.answers[m["id"]].put(m)
                elif m.get("sessionId") in self.pages:
                    self.pages[m["sessionId"]].event(m["method"], m["params"])

    def call(self, method, session=None, timeout=30, **params):
        with self.lock:
            self.count += 1
            number = self.count
            self.answers[number] = queue.Queue()
            m = {"id": number, "method": method, "params": params}
            if session:
                m["sessionId"] = session
            os.write(self.to, json.dumps(m).encode() + b"\0")
        answer = self.answers[number].get(timeout=timeout)
        del self.answers[number]
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def close(self):
        try:
            self.call("Browser.close", timeout=5)
            self.process.wait(10)
        except Exception:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        self.reader.join(5)
        os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    """A tab in a profile of its own. Records what it asks for and what appears on its console."""

    def __init__(self, browser, width=1280, height=800, dark=False, phone=False):
        self.browser = browser
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        self.urls, self.console = [], []
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height, phone)
        self.scheme(dark)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def event(self, method, p):
        if method == "Network.requestWillBeSent":
            self.urls.append(p["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.console.append(
                f"{p['type']}: " + " ".join(str(a.get("value", a.get("description"))) for a in p["args"])
            )
        elif method == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.console.append(f"exception: {d['text']} {d.get('exception', {}).get('description', '')}")
        elif method == "Log.entryAdded":
            e = p["entry"]
            self.console.append(f"{e['source']}: {e['text']} {e.get('url', '')}")

    def size(self, width, height, phone=False):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def scheme(self, dark):
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def reload(self):
        self.call("Page.reload")
        time.sleep(0.1)
        self.until("document.readyState === 'complete'")

    def js(self, expression):
        """The value of an expression; a promise is awaited."""
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(
                r["exceptionDetails"].get("exception", {}).get("description", r["exceptionDetails"]["text"])
            )
        return r["result"].get("value")

    def until(self, expression, seconds=15):
        end = time.time() + seconds
        while True:
            try:
                value = self.js(expression)
            except RuntimeError:  # between two documents
                value = None
            if value not in (None, False, 0, ""):  # an element comes back as {}
                return value
            if time.time() > end:
                raise AssertionError(f"did not happen in {seconds} s: {expression}; console: {self.console}")
            time.sleep(0.03)

    def click(self, selector):
        box = self.until(
            f"(e => {{ if (!e || e.disabled) return null; e.scrollIntoView({{block: 'nearest'}}); const r = e.getBoundingClientRect();"
            f" return r.width ? [r.x + r.width / 2, r.y + r.height / 2] : null; }})(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}

    def press(self, key, shift=False):
        code, text = self.KEYS[key]
        common = dict(key=key, code=key, windowsVirtualKeyCode=code, modifiers=8 if shift else 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path):
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def close(self):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
