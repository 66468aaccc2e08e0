"""The web page in headless Chromium: a question, a stream, tools, pictures, settings, the live view, a phone, other
servers' pages.

Run by `make check-all`: pytest tests/browser/check_page.py. Pictures go to build/screenshots (SCREENSHOTS=DIR). The
server uses the reference backend on one thread: at some 90 tokens a second there is something to see and to stop."""
import base64
import contextlib
import http.server
import json
import os
import re
import struct
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from chromium import Chromium, Page, find_chromium  # noqa: E402
from serve_client import Server  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SHOTS = Path(os.environ.get("SCREENSHOTS", ROOT / "build/screenshots"))
APPLES = "Tom has 14 apples. He buys 18 more and gives 8 to Mia. How many apples does he have now?"
WEATHER = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
ENDED = "['done', 'stopped', 'failed'].includes([...document.querySelectorAll('.answer')].at(-1)?.dataset.state)"

pytestmark = pytest.mark.skipif(not find_chromium(), reason="Chromium is not installed (tools/setup all)")


@pytest.fixture(scope="module")
def browser():
    b = Chromium()
    yield b
    b.close()


@pytest.fixture(scope="module")
def server():
    s = Server("--device", "ref", "--threads", "1", "--max-total-tokens", "16384")
    yield s
    assert s.get("/health")[0] == 200 and s.stats()["num_running_reqs"] == 0
    assert s.stop() == 0


@pytest.fixture
def page(browser, server):
    """The page, fresh. At the end: nothing on its console, no request to anybody else."""
    p = Page(browser)
    p.base = f"http://127.0.0.1:{server.port}/"
    p.open(p.base)
    p.until("document.querySelector('#model').textContent === 'nano'")
    yield p
    try:
        assert p.console == []
        assert [u for u in p.urls if not u.startswith(p.base)] == []
    finally:
        p.close()


def ask(page, text):
    page.click("#draft")
    page.type(text)
    page.press("Enter")


def answered(page, seconds=30):
    page.until(f"!document.querySelector('#send').hidden && {ENDED}", seconds)


def texts(page, selector):
    return page.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")


def bodies(page):
    """What was sent to the model, by the page's own fetch."""
    return [json.loads(b) for b in page.js("window.sent")]


def record(page):
    page.js(
        "window.sent = [], window.heads = []; const f = window.fetch; window.fetch = (u, o) => {"
        " if (o?.body) { sent.push(o.body); heads.push(o.headers); } return f(u, o); }, 0"
    )


def put(page, **stored):
    for key, value in stored.items():
        page.js(f"localStorage.setItem('moonlet.{key}', JSON.stringify({json.dumps(value)})), 0")
    page.reload()
    page.until("document.querySelector('#model').textContent === 'nano'")


def greedy(page, **settings):
    """What nano answers is the same each time."""
    put(page, settings={"temperature": "0", **settings})


# ---- Chat ----


def test_first_look(page):
    assert page.js("document.activeElement.id") == "draft" and page.js("document.querySelector('#send').disabled")
    assert "16,384 tokens" in page.js("document.querySelector('#empty').textContent")
    page.until("document.querySelector('.chart .curve').getAttribute('d')")
    page.screenshot(SHOTS / "empty.png")
    page.scheme(True)
    page.screenshot(SHOTS / "empty-dark.png")


def test_streamed_answer(page):
    greedy(page)
    page.js(
        "window.seen = new Set(); new MutationObserver(() => { const a = document.querySelector('.answer'); if (a)"
        " seen.add(a.dataset.state + a.querySelector('.inside').textContent.length + '/' + a.querySelector('.prose').textContent.length); })"
        ".observe(document.querySelector('#messages'), {subtree: true, childList: true, characterData: true}), 0"
    )
    ask(page, APPLES)
    assert page.js("document.querySelector('#draft').value") == ""
    page.until("document.querySelector('.answer')?.dataset.state === 'reasoning'")
    assert not page.js("document.querySelector('#stop').hidden") and page.js("document.querySelector('#send').hidden")
    page.until("document.querySelector('.inside').textContent.length > 20")
    page.screenshot(SHOTS / "thinking.png")
    answered(page)
    assert "24" in texts(page, ".prose")[0]
    assert texts(page, ".user .bubble") == [APPLES]
    assert not page.js("document.querySelector('.thought').open"), "folded"
    assert page.js("document.querySelector('.thought summary').textContent").startswith("Thought for ")
    assert len(texts(page, ".inside")[0]) > 20
    # how many depends on how fast the server is: 11 to 15 on a fast machine, more on others
    assert page.js("seen.size") > 6, "it grew bit by bit"
    thought = [int(n) for n in re.findall(r"reasoning(\d+)/0", page.js("[...seen].join(' ')"))]
    assert len(thought) > 3 and thought == sorted(thought), "the thought only grew"
    facts = texts(page, ".facts .parts span")
    assert [f for f in facts if f.endswith(" tok/s")] and [f for f in facts if f.startswith("first after ")]
    assert [f for f in facts if f.endswith(" tokens")] and [f for f in facts if re.match(r"prompt \d+", f)]
    page.click(".thought summary")
    assert page.js("document.querySelector('.thought').open")
    page.screenshot(SHOTS / "answer.png")


def test_keys(page):
    page.click("#draft")
    page.type("What is")
    page.press("Enter", shift=True)
    page.type("2 + 3?")
    assert page.js("document.querySelector('#draft').value") == "What is\n2 + 3?" and texts(page, ".message") == []
    before = page.js("document.querySelector('#draft').clientHeight")
    assert before > 40, "the field grows with its text"
    page.press("Enter")
    assert texts(page, ".user .bubble") == ["What is\n2 + 3?"]
    assert page.js("document.querySelector('#draft').clientHeight") < before
    answered(page)


def test_stop_and_again(page, server):
    greedy(page)
    ask(page, APPLES)
    page.until("document.querySelector('.inside')?.textContent.length > 10")
    page.press("Escape")
    answered(page, 3)
    assert page.js("document.querySelector('.answer').dataset.state") == "stopped"
    assert "stopped" in texts(page, ".facts .parts span")
    end = time.time() + 5
    while server.stats()["num_running_reqs"]:
        assert time.time() < end, "the server goes on computing"
        time.sleep(0.05)
    page.click("[data-again]")
    answered(page)
    assert len(texts(page, ".answer")) == 1 == len(texts(page, ".user")) and "24" in texts(page, ".prose")[0]
    ask(page, APPLES)
    page.until("!document.querySelector('#stop').hidden")
    page.click("#stop")
    answered(page, 3)
    assert [a[-1] for a in [page.js("[...document.querySelectorAll('.answer')].map(a => a.dataset.state)")]] == [
        "stopped"
    ]


def test_calculator(page):
    greedy(page)
    page.click("#calculator")
    assert page.js("document.querySelector('#calculator').getAttribute('aria-pressed')") == "true"
    ask(page, "What is 4831 * 27?")
    page.until("document.querySelectorAll('.answer').length === 2")
    answered(page)
    assert texts(page, ".call header b") == ["calculator"] and texts(page, ".call header span") == [
        "functions.calculator:0"
    ]
    assert texts(page, ".call > pre")[0].replace(" ", "") == '{"expression":"4831*27"}' and texts(
        page, ".call .result pre"
    ) == ["130437"]
    assert "130437" in texts(page, ".prose")[1]
    page.screenshot(SHOTS / "calculator.png")


def test_tool_by_hand(page):
    greedy(page, tools=json.dumps(WEATHER))
    assert page.js("document.querySelector('#tools-count').textContent") == "1 tool of yours"
    record(page)
    ask(page, "What is the weather in Paris?")
    page.until("document.querySelector('.call form')")
    assert texts(page, ".call header b") == ["get_weather"] and "Paris" in texts(page, ".call > pre")[0]
    page.screenshot(SHOTS / "tool-by-hand.png")
    page.click(".call form textarea")
    page.type("18 degrees, light rain")
    page.click(".call form .action")
    page.until("document.querySelectorAll('.answer').length === 2")
    answered(page)
    assert texts(page, ".call .result pre") == ["18 degrees, light rain"]
    first, second = bodies(page)
    assert first["tools"] == WEATHER
    user, call, result = second["messages"]
    assert user["role"] == "user" and call["tool_calls"][0]["function"]["name"] == "get_weather"
    assert result == {
        "role": "tool",
        "tool_call_id": "functions.get_weather:0",
        "name": "get_weather",
        "content": "18 degrees, light rain",
    }
    # a question instead of a result
    ask(page, "How warm is it in Oslo?")
    page.until("document.querySelector('.call form')")
    ask(page, "Hello!")
    answered(page)
    assert bodies(page)[-1]["messages"][-2]["content"] == "not answered"


def test_conversation_is_kept_and_cleared(page):
    page.click("#thinking")
    ask(page, "Hello!")
    answered(page)
    said = texts(page, ".message")
    assert texts(page, ".thought:not([hidden])") == [], "no reasoning was asked for"
    page.click("#draft")
    page.type("not sent yet")
    page.reload()
    page.until("document.querySelectorAll('.message').length === 2")
    assert texts(page, ".message") == said and page.js("document.querySelector('#draft').value") == "not sent yet"
    page.click("#new")
    assert texts(page, ".message") == [] and not page.js("document.querySelector('#empty').hidden")
    page.click("#toast button")
    assert texts(page, ".message") == said
    page.click("#new")
    page.reload()
    page.until("document.querySelector('#model').textContent === 'nano'")
    assert texts(page, ".message") == []


def test_two_turns(page):
    record(page)
    for text in ("Hello!", "What is 2 + 3?"):
        ask(page, text)
        page.until(f"[...document.querySelectorAll('.user')].at(-1)?.textContent === {json.dumps(text)}")
        answered(page)
    one, two = bodies(page)
    assert [m["role"] for m in two["messages"]] == ["user", "assistant", "user"] and one["stream"] is True
    assert two["messages"][1]["content"] == texts(page, ".prose")[0].strip()


def test_what_is_said_again(page):
    """A stopped answer goes along with the next question as far as it came, what failed before a word does not."""
    said = {"role": "assistant", "reasoning": "", "calls": [], "facts": {}}
    put(
        page,
        chat=[
            {"role": "user", "content": "one"},
            {**said, "content": "It is", "reasoning": "hm", "state": "stopped"},
            {"role": "user", "content": "two"},
            {**said, "content": "", "state": "failed"},
        ],
    )
    record(page)
    ask(page, "three")
    answered(page)
    assert bodies(page)[0]["messages"] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "It is", "reasoning_content": "hm"},
        {"role": "user", "content": "two"},
        {"role": "user", "content": "three"},
    ]


def test_odd_storage(page):
    """What another version left there does no harm."""
    put(
        page,
        settings={"temperature": 5, "tools": None, "thinking": "yes", "live": 3},
        chat=[{"role": "assistant"}],
        draft=5,
    )
    assert (
        texts(page, ".message") == []
        and page.js("document.querySelector('#thinking').getAttribute('aria-pressed')") == "true"
    )
    page.js("for (const k of ['settings', 'chat', 'draft']) localStorage.setItem('moonlet.' + k, '{['), 0")
    page.reload()
    page.until("document.querySelector('#model').textContent === 'nano'")
    ask(page, "Hello!")
    answered(page)


# ---- Pictures ----


def png(width, height, rgb):
    """A PNG file of one colour."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes(rgb) * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


RED, BLUE = png(28, 28, (200, 30, 30)), png(56, 28, (30, 30, 200))


def url(data, kind="png"):
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def give(page, how, *files, text=None):
    """Files, [name, type, bytes] each, or a text, by paste, or by dragover, dragleave or drop. Whether the page took it
    from the browser."""
    files = [[name, kind, base64.b64encode(data).decode()] for name, kind, data in files]
    return page.js(
        f"""(() => {{ const data = new DataTransfer(), text = {json.dumps(text)};
        for (const [name, type, b64] of {json.dumps(files)})
            data.items.add(new File([Uint8Array.from(atob(b64), c => c.charCodeAt(0))], name, {{type}}));
        if (text !== null) data.setData('text/plain', text);
        const how = {{bubbles: true, cancelable: true}};
        const e = '{how}' === 'paste' ? new ClipboardEvent('paste', {{...how, clipboardData: data}}) : new DragEvent('{how}', {{...how, dataTransfer: data}});
        document.querySelector('{"#draft" if how == "paste" else "#log"}').dispatchEvent(e);
        return e.defaultPrevented; }})()"""
    )


def waiting(page, *names):
    """Exactly these pictures wait to be sent."""
    names = json.dumps(names, separators=(",", ":"))
    page.until(
        f"JSON.stringify([...document.querySelectorAll('#tray canvas')].map(c => c.title)) === {json.dumps(names)}"
    )


def colour(page, selector):
    """Of a thumbnail's middle."""
    return page.js(
        f"(c => [...c.getContext('2d').getImageData(c.width >> 1, c.height >> 1, 1, 1).data].slice(0, 3))(document.querySelector({json.dumps(selector)}))"
    )


def content(page, i=-1):
    return bodies(page)[-1]["messages"][i]["content"]


def test_chosen_pictures(page, tmp_path):
    greedy(page)
    record(page)
    (tmp_path / "red.png").write_bytes(RED)
    (tmp_path / "blue.png").write_bytes(BLUE)
    page.call("Page.setInterceptFileChooserDialog", enabled=True)
    page.js("window.asked = 0, document.querySelector('#choose').addEventListener('click', () => asked++), 0")
    assert page.js("document.querySelector('#attach').getAttribute('aria-label')") == "Add pictures and videos"
    page.click("#attach")
    assert page.js("asked") == 1
    field = page.call("Runtime.evaluate", expression="document.querySelector('#choose')")["result"]["objectId"]
    for names, all in (
        (["red.png", "blue.png"], ["red.png", "blue.png"]),
        (["red.png"], ["red.png", "blue.png", "red.png"]),
    ):
        page.call("DOM.setFileInputFiles", files=[str(tmp_path / n) for n in names], objectId=field)
        waiting(page, *all)
    assert colour(page, "#tray li:nth-child(2) canvas") == [30, 30, 200]
    page.screenshot(SHOTS / "pictures-tray.png")
    page.click("#tray [aria-label='Remove red.png']")
    waiting(page, "blue.png", "red.png")
    assert page.js("document.activeElement.id") == "draft"
    ask(page, "What is in the picture?")
    waiting(page)
    assert page.js(
        "[...document.querySelectorAll('.user canvas')].map(c => [c.getAttribute('aria-label'), c.width, c.height])"
    ) == [
        ["blue.png", 56, 28],
        ["red.png", 28, 28],
    ]
    answered(page)
    assert texts(page, ".prose")[0].strip() and texts(page, ".notice") == []
    assert content(page) == [
        {"type": "image_url", "image_url": {"url": url(BLUE)}},
        {"type": "image_url", "image_url": {"url": url(RED)}},
        {"type": "text", "text": "What is in the picture?"},
    ]
    page.screenshot(SHOTS / "pictures.png")
    ask(page, "Hello!")  # they stay part of the conversation
    page.until("document.querySelectorAll('.answer').length === 2")
    answered(page)
    assert len(content(page, 0)) == 3 and content(page) == "Hello!"


def test_pasted_and_dropped_pictures(page):
    greedy(page, max_tokens="30", thinking=False)
    record(page)
    assert give(page, "paste", ("image.png", "image/png", RED))
    waiting(page, "image.png")
    assert not give(page, "paste", text="words"), "the browser's own work"
    assert not give(page, "paste", ("cells.png", "image/png", RED), text="1\t2"), "text wins"
    assert give(page, "paste", ("b.png", "image/png", BLUE), text="/home/me/b.png\n"), "but for a file's own name"
    waiting(page, "image.png", "b.png")
    assert not give(page, "dragover", text="words") and give(page, "dragover", ("c.gif", "", b""))
    assert page.js("document.body.classList.contains('dropping')")
    page.screenshot(SHOTS / "pictures-drop.png")
    give(page, "dragleave", ("c.gif", "", b""))
    assert not page.js("document.body.classList.contains('dropping')")
    give(page, "dragover", ("c.gif", "", b""))
    kinds = page.js(
        "(async () => { const c = document.createElement('canvas'), out = []; c.width = c.height = 28; c.getContext('2d').fillRect(0, 0, 28, 28);"
        " for (const type of ['image/jpeg', 'image/webp']) out.push(c.toDataURL(type)); return out; })()"
    )
    kinds = [base64.b64decode(k.split(",")[1]) for k in kinds]
    assert give(page, "drop", ("x", "", kinds[0]), ("y.txt", "text/plain", kinds[1]))  # their bytes tell
    waiting(page, "image.png", "b.png", "x", "y.txt")
    assert not page.js("document.body.classList.contains('dropping')")
    assert page.js("document.querySelector('#send').disabled") is False, "pictures alone are a message"
    page.click("#send")
    answered(page)
    assert [p["image_url"]["url"] for p in content(page)] == [
        url(RED),
        url(BLUE),
        url(kinds[0], "jpeg"),
        url(kinds[1], "webp"),
    ]
    assert (
        texts(page, ".user .bubble") == []
        and texts(page, ".prose")[0].strip()
        and page.js("document.querySelector('#send').disabled")
    )


def test_pictures_still_being_read_go_along(page):
    greedy(page, max_tokens="30", thinking=False)
    record(page)
    page.click("#draft")
    page.type("What is this?")
    give(page, "drop", *(("a.png", "", RED) for _ in range(5)))
    page.press("Enter")
    page.until("window.sent.length")
    answered(page)
    assert len(content(page)) == 6 and len(bodies(page)) == 1


def test_videos(page):
    """A video is sent as it is; what stands for it is a strip of film."""
    greedy(page, max_tokens="10", thinking=False)
    record(page)
    data = (ROOT / "tests/golden/videos/vp8.webm").read_bytes()
    give(page, "drop", ("clip.webm", "", data), ("red.png", "", RED))
    waiting(page, "clip.webm", "red.png")
    ask(page, "What is it?")
    answered(page)
    assert content(page) == [
        {"type": "video_url", "video_url": {"url": f"data:video/webm;base64,{base64.b64encode(data).decode()}"}},
        {"type": "image_url", "image_url": {"url": url(RED)}},
        {"type": "text", "text": "What is it?"},
    ]
    assert texts(page, ".prose")[0].strip() and texts(page, ".notice") == []


def test_what_is_refused(page):
    big = (
        "(d => { const head = new Uint8Array([0x89, 80, 78, 71, 13, 10, 26, 10]); d.items.add(new File([head, new Uint8Array(20 << 20)], 'big.png'));"
        " document.dispatchEvent(new DragEvent('drop', {dataTransfer: d})); })(new DataTransfer()), 0"
    )
    neither = "is no JPEG, PNG, WebP or GIF picture, and no MP4, MOV, WebM or Matroska video."
    for name, data, why in (
        ("notes.txt", b"not a picture", f"notes.txt {neither}"),
        ("fake.png", b"<svg onload=x>", f"fake.png {neither}"),
        ("empty.gif", b"", f"empty.gif {neither}"),
        ("half.png", RED[:50], "half.png is damaged, or too large for this browser."),
        (None, None, "big.png has 21 MB, at most 20 are taken."),
    ):
        page.js(big) if name is None else give(page, "drop", (name, "image/png", data))
        page.until(f"document.querySelector('#refused').textContent === {json.dumps(why)}")
        waiting(page)
    assert page.js("document.querySelector('#send').disabled")
    give(page, "drop", ("a.txt", "", b"a"), ("red.png", "", RED), ("<b>", "", b"b"))
    waiting(page, "red.png")
    page.until("document.querySelectorAll('#refused p').length === 2")
    assert texts(page, "#refused p")[1] == f"<b> {neither}"
    page.screenshot(SHOTS / "pictures-refused.png")
    give(page, "drop", *((f"{i}.png", "", RED) for i in range(70)))
    page.until("document.querySelector('#refused').textContent === 'A message takes 64 pictures and videos.'")
    assert len(texts(page, "#tray li")) == 64
    assert page.js("document.querySelector('.composer').getBoundingClientRect().height") < 500, "they scroll"


def test_pictures_are_not_kept(page):
    """Only that there were some. A cleared conversation that comes back has them."""
    greedy(page, max_tokens="30", thinking=False)
    give(page, "drop", ("a.png", "", RED), ("b.png", "", BLUE))
    waiting(page, "a.png", "b.png")
    page.press("Enter")
    answered(page)
    page.click("#new")
    page.click("#toast button")
    assert page.js("document.querySelectorAll('.user canvas').length") == 2
    assert "base64" not in page.js("JSON.stringify(localStorage)")
    page.reload()
    page.until("document.querySelector('.lost')")
    assert texts(page, ".user") == ["2 pictures, gone since the page was loaded anew: the model no longer sees them."]
    page.until("!document.querySelector('#attach').hidden")
    record(page)
    ask(page, "Hello!")
    page.until("document.querySelectorAll('.answer').length === 2")
    answered(page)
    assert content(page, 0) == "" and texts(page, ".notice") == []
    put(page, chat=[{"role": "user", "content": "x", "pictures": [{"name": "a", "url": "http://127.0.0.1:9/x.png"}]}])
    assert texts(page, ".message") == [], "another hand's"


# ---- Settings ----


def test_settings(page):
    page.click("#show-settings")
    for name, value in {
        "system": "You are brief.",
        "temperature": "0,5",
        "top_p": "0.9",
        "max_tokens": "5",
        "seed": "7",
        "key": "k",
    }.items():
        page.click(f"#set-{name}")
        page.type(value)
    page.click("#set-thinking")
    page.screenshot(SHOTS / "settings.png")
    page.press("Escape")
    page.reload()
    page.until("document.querySelector('#model').textContent === 'nano'")
    assert page.js("['system', 'temperature', 'seed', 'key'].map(n => document.querySelector('#set-' + n).value)") == [
        "You are brief.",
        "0,5",
        "7",
        "k",
    ]
    record(page)
    ask(page, "Tell me a joke")
    answered(page)
    (body,) = bodies(page)
    assert body["messages"][0] == {"role": "system", "content": "You are brief."}
    assert {k: body[k] for k in ("temperature", "top_p", "max_tokens", "seed")} == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 5,
        "seed": 7,
    }
    assert body["chat_template_kwargs"] == {"thinking": False} and "tools" not in body
    assert page.js("heads[0].Authorization") == "Bearer k"
    assert "5 tokens" in texts(page, ".facts .parts span") and "cut off: the limit of tokens" in texts(
        page, ".facts .parts span"
    )


def test_wrong_settings_are_shown_and_not_used(page):
    page.click("#show-settings")
    for name, value, why in (
        ("temperature", "hot", "not a number"),
        ("top_p", "2", "at most 1"),
        ("max_tokens", "1.5", "whole"),
        ("tools", "[{", "not JSON"),
    ):
        page.click(f"#set-{name}")
        page.type(value)
        assert why in page.js(f"document.querySelector('#set-{name}').parentElement.querySelector('small').textContent")
    page.screenshot(SHOTS / "settings-wrong.png")
    page.press("Escape")
    record(page)
    ask(page, "Hello!")
    answered(page)
    assert not {"temperature", "top_p", "max_tokens", "tools"} & set(bodies(page)[0])


def test_theme(page):
    color = "getComputedStyle(document.body).backgroundColor"
    light = page.js(color)
    page.scheme(True)
    dark = page.js(color)
    assert light != dark
    page.click("#show-settings")
    page.js("document.querySelector('input[name=theme][value=light]').click(), 0")
    assert page.js(color) == light
    page.reload()
    assert page.js(color) == light
    page.js("document.querySelector('input[name=theme][value=dark]').click(), 0")
    page.scheme(False)
    assert page.js(color) == dark


# ---- Text from a model is only ever text ----

HOSTILE = """<img src=x onerror="window.pwned = 1"> <script>window.pwned = 1</script> [a](javascript:window.pwned=1)
[b](data:text/html,x) ![pic](http://127.0.0.1:9/x.png) **<b>x</b>**

```html" onclick="x
<svg onload="window.pwned = 1">
```
| <i>a</i> | b |
|---|---|
| <style>*{display:none}</style> | `<u>` |
"""


def test_hostile_text(page):
    answer = {
        "role": "assistant",
        "content": HOSTILE,
        "reasoning": HOSTILE,
        "calls": [{"id": "<b>", "name": "<img src=x>", "args": HOSTILE}],
        "state": "done",
        "thought_ms": 1,
        "facts": {},
    }
    put(page, chat=[{"role": "user", "content": HOSTILE}, answer])
    tags = page.js("[...new Set([...document.querySelectorAll('#messages *')].map(e => e.localName))]")
    assert not {"img", "script", "style", "iframe", "i", "b", "u"} - {"b"} & set(tags), tags
    assert page.js("[...document.querySelectorAll('.prose a')].map(a => a.href)") == [
        "http://127.0.0.1:9/x.png"
    ], "a link, not a picture"
    assert page.js("window.pwned ?? null") is None
    assert "<script>" in texts(page, ".prose")[0] and "<img src=x>" in texts(page, ".call header b")


MARKDOWN = [
    ("a *b* **c** `d` ~~e~~", "<p>a <em>b</em> <strong>c</strong> <code>d</code> <s>e</s></p>"),
    ("**bold *and* more**", "<p><strong>bold <em>and</em> more</strong></p>"),
    (
        "2*3*4 and 2 * 3 * 4, snake_case_name, __init__",
        "<p>2*3*4 and 2 * 3 * 4, snake_case_name, <strong>init</strong></p>",
    ),
    ("**open and `open", "<p>**open and `open</p>"),
    ("``a ` b`` \\*c\\*", "<p><code>a ` b</code> *c*</p>"),
    ("# T\ntext\n\n---\n### U", "<h1>T</h1><p>text</p><hr><h3>U</h3>"),
    (
        "- a\n- b\n  - c\n\n- d",
        "<ul><li><span>a</span></li><li><span>b</span><ul><li><span>c</span></li></ul></li><li><span>d</span></li></ul>",
    ),
    ("3. a\n4. b", '<ol start="3"><li><span>a</span></li><li><span>b</span></li></ol>'),
    ("- a\nlazy\n\nb", "<ul><li><span>a\nlazy</span></li></ul><p>b</p>"),
    ("- a\n - b\n  - c", "<ul><li><span>a</span></li><li><span>b</span><ul><li><span>c</span></li></ul></li></ul>"),
    ("> a\n> b\n\nc", "<blockquote><p>a\nb</p></blockquote><p>c</p>"),
    ("# C# #\n# a ##\n## F#", "<h1>C#</h1><h1>a</h1><h2>F#</h2>"),
    ("- a\r\n- b\r", "<ul><li><span>a\r</span></li><li><span>b\r</span></li></ul>"),
    (
        " |a|b|\n |:-:| --:| \n|1|2|",
        '<div class="table"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table></div>',
    ),
    ("` a ` and `  ` and ` b`", "<p><code>a</code> and <code>  </code> and <code> b</code></p>"),
    (
        "[x](http://a.b/c) ![z]( https://d ) [w](no)",
        '<p><a href="http://a.b/c" target="_blank" rel="noopener noreferrer" title="http://a.b/c">x</a> '
        '<a href="https://d" target="_blank" rel="noopener noreferrer" title="https://d">z</a> [w](no)</p>',
    ),
    ("<b>&amp;", "<p>&lt;b&gt;&amp;amp;</p>"),
    ("x < y\n| a |", "<p>x &lt; y\n| a |</p>"),
]
SUMS = [
    ("2+3*4", "14"),
    ("(2+3)*4", "20"),
    ("-2^2", "-4"),
    ("2^3^2", "512"),
    ("1/0", "cannot be computed"),
    ("0.1+0.2", "0.3"),
    ("4831 × 27", "130437"),
    ("1e3", "1000"),
    ("2+", "not an arithmetic expression"),
    ("alert(1)", "not an arithmetic expression"),
    ("", "not an arithmetic expression"),
    ("(1", "a bracket is open"),
    ("1 2", "not an arithmetic expression"),
    ("constructor", "not an arithmetic expression"),
]


def test_markdown(page):
    shown = page.js(
        "(async () => { const m = await import('/page/markdown.js'); return ("
        + json.dumps([s for s, _ in MARKDOWN])
        + ").map(s => { const d = document.createElement('div'); m.renderMarkdown(d, s); return d.innerHTML; }); })()"
    )
    assert shown == [want for _, want in MARKDOWN]
    # growing text gives what the whole text gives
    whole = "\n\n".join(s for s, _ in MARKDOWN) + "\n\n```c\nint x;\n\nint y;\n```\n\n|a|b|\n|-|-|\n|1|2|"
    same = page.js(
        "(async () => { const m = await import('/page/markdown.js'), t = "
        + json.dumps(whole)
        + ", a = document.createElement('div'),"
        " b = document.createElement('div'); for (let i = 0; i <= t.length; i++) m.renderMarkdown(a, t.slice(0, i)); m.renderMarkdown(b, t);"
        " return a.innerHTML === b.innerHTML && a.querySelectorAll('table, .code-block').length === 3; })()"
    )
    assert same
    # and nobody makes it slow
    gap = " " * 60000
    for hostile in (
        f"- {gap}x\rx",
        f"# x{gap}y",
        "# " + "#" * 60000 + "y",
        f"|\n{gap}x",
        f"|\n-{gap}x",
        f"` {'x' * 40000}`",
        "[](http://" * 10000 + " )",
        "[" * 60000 + "](",
        "**a " * 20000,
        "[" * 60000,
        "`" * 3001 + "a`" * 20000,
        "> " * 20000,
        "- " * 20000,
        "_a" * 30000,
        "|" * 60000 + "\n|-|",
        "* a\n" * 20000,
        "http://" * 10000,
    ):
        ms = page.js(
            "(async () => { const m = await import('/page/markdown.js'), d = document.createElement('div'), s = performance.now();"
            f" m.renderMarkdown(d, {json.dumps(hostile)}); return performance.now() - s; }})()"
        )
        assert ms < 1500, (hostile[:10], hostile[-10:])


FORMATS = [
    ("count(1234.5)", "1,235"),
    ("time(0.00123)", ["1.23", "ms"]),
    ("time(0.0123)", ["12.3", "ms"]),
    ("time(0.123)", ["123", "ms"]),
    ("time(1.234)", ["1.23", "s"]),
    ("time(12.34)", ["12.3", "s"]),
    ("time(1234)", ["1,234", "s"]),
    ("rate(0.5)", "0.5"),
    ("rate(3.02)", "3"),
    ("rate(9.96)", "10"),
    ("rate(1234)", "1,234"),
    ("share(0)", ["0", "%"]),
    ("share(0.0004)", ["< 0.1", "%"]),
    ("share(0.05)", ["5.0", "%"]),
    ("share(0.5)", ["50", "%"]),
    ("uptime(59.9)", "59 s"),
    ("uptime(61)", "1 min 1 s"),
    ("uptime(3660)", "1 h 1 min"),
    ("uptime(90000)", "1 d 1 h"),
    ("words(time(2))", "2.00 s"),
]
FIELDS = [
    ("temperature", "", {}),
    ("temperature", " 0,7 ", {"value": 0.7}),
    ("temperature", "0", {"value": 0}),
    ("temperature", "2", {"value": 2}),
    ("temperature", "2.01", {"error": "at most 2"}),
    ("temperature", "-0.1", {"error": "at least 0"}),
    ("temperature", "1e999", {"error": "not a number"}),
    ("top_p", "1", {"value": 1}),
    ("top_p", "1.1", {"error": "at most 1"}),
    ("max_tokens", "1", {"value": 1}),
    ("max_tokens", "0", {"error": "at least 1"}),
    ("max_tokens", "1.5", {"error": "a whole number, please"}),
    ("seed", "9007199254740991", {"value": 9007199254740991}),
    ("seed", "x", {"error": "not a number"}),
]
TOOLS = [
    ("", {"value": []}),
    ("[]", {"value": []}),
    ('{"type":"function","function":{"name":"f"}}', {"value": [{"type": "function", "function": {"name": "f"}}]}),
    ('[{"type":"function","function":{"name":""}}]', None),
    ('[{"type":"other","function":{"name":"f"}}]', None),
    ("[1]", None),
    ("{", None),
]


def test_numbers_and_fields(page):
    shown = page.js(
        "(async () => { const {count, time, rate, share, uptime, words} = await import('/page/format.js'); return ["
        + ", ".join(e for e, _ in FORMATS)
        + "]; })()"
    )
    assert shown == [want for _, want in FORMATS]
    got = page.js(
        "(async () => { const s = await import('/page/store.js'); return "
        + json.dumps([f[:2] for f in FIELDS])
        + ".map(([n, t]) => s.checkNumber(n, t)); })()"
    )
    assert got == [want for _, _, want in FIELDS]
    got = page.js(
        "(async () => { const s = await import('/page/store.js'); return "
        + json.dumps([t for t, _ in TOOLS])
        + ".map(t => s.checkTools(t)); })()"
    )
    for one, (_, want) in zip(got, TOOLS):
        assert one == want if want else list(one) == ["error"]


def test_events_however_they_are_cut(page):
    """The page's reader of streams: the same events for every place of a cut, also inside a character; what ends early
    says so."""
    stream = 'data: {"a":"é🌙"}\r\n\r\n: comment\nevent: x\ndata:{"a":2}\n\ndata: [DONE]\n\ndata: {"a":3}\n\n'
    read = (
        "(async () => { const { events } = await import('/page/stream.js'), all = new TextEncoder().encode("
        + json.dumps(stream)
        + "), out = new Set();"
        " for (let i = 0; i <= all.length; i++) { const got = []; const body = new ReadableStream({start(c) { for (const part of [all.slice(0, i), all.slice(i)])"
        " if (part.length) c.enqueue(part); c.close(); }}); for await (const e of events(body)) got.push(e.a); out.add(JSON.stringify(got)); } return [...out]; })()"
    )
    assert page.js(read) == ['["é🌙",2]']
    cut = (
        "(async () => { const { events, BrokenOff } = await import('/page/stream.js'), got = []; const body = new ReadableStream({start(c) {"
        ' c.enqueue(new TextEncoder().encode(\'data: {"a":1}\\n\\ndata: {"a"\')); c.close(); }});'
        " try { for await (const e of events(body)) got.push(e.a); } catch (e) { got.push(e instanceof BrokenOff); } return got; })()"
    )
    assert page.js(cut) == [1, True]


def test_curve_and_meter(page):
    """The scale's top is the round number above the largest value; a share that is not nothing is seen, all of them
    fill the bar."""
    tops = page.js(
        "(async () => { const { Chart } = await import('/page/chart.js'); return [0, 1, 1.2, 1.6, 7, 9.5, 12, 101, 850].map(v => { const c = new Chart('x', 5, 't', n => `${n}`);"
        " c.width = 100; c.show([0, v]); return [c.most.textContent, c.curve.getAttribute('d'), c.dot.getAttribute('cy')]; }); })()"
    )
    assert [t for t, _, _ in tops] == ["", "1", "1.5", "2", "8", "10", "15", "150", "1000"]
    assert tops[1][1] == "M75.0 46.0L100.0 10.0" and float(tops[1][2]) == 10 and tops[3][1] == "M75.0 46.0L100.0 17.2"
    under = page.js(
        "(async () => { const { Chart } = await import('/page/chart.js'); const c = new Chart('x', 5, 't', n => `${n} t`); c.width = 100; c.show([9, 1, 2, 3, 4, 5]);"
        " return [0, 26, 100, null].map(x => { c.point(x); return c.present.textContent; }); })()"
    )
    assert under == ["1 t, 4 s ago", "2 t, 3 s ago", "5 t, 0 s ago", "now"]
    bars = page.js(
        "(async () => { const { Meter } = await import('/page/chart.js'); const m = new Meter(['a', 'b', 'c'], 't'); m.show([999999, 1, 0]);"
        " return m.bars.map(b => [+b.getAttribute('x'), +b.getAttribute('width')]); })()"
    )
    assert (
        bars[1][1] > 5
        and bars[2][1] == 0
        and abs(sum(w for _, w in bars) - 1000) < 1e-6
        and abs(bars[1][0] - bars[0][1]) < 1e-6
    )


def test_calculator_sums(page):
    got = page.js(
        "(async () => { const t = await import('/page/tools.js'); return ("
        + json.dumps([s for s, _ in SUMS])
        + ").map(e => t.calculate(JSON.stringify({expression: e}))); })()"
    )
    assert got == [want for _, want in SUMS]
    assert (
        page.js(
            "import('/page/tools.js').then(t => ['', 'null', '{}', '{\"expression\": 5}', '[1'].map(t.calculate).join())"
        ).count("not an")
        == 4
    )


RICH = """Here is what **matters**, with *some* emphasis and `inline code`:

1. First, read the file
2. Then count
   - nested one
   - nested two with **bold**
3. Done

```python
def area(r):
    return 3.14159 * r ** 2  # a line that is much longer than the column is wide, so that it has to be scrolled, or not
```

| model | tokens | time |
|---|---|---|
| nano | 1,024 | 1.2 s |
| K2.5 | 64 | 3.0 s |

> A quote, with <b>HTML</b> that stays text.
"""


def rich(page):
    put(
        page,
        chat=[
            {"role": "user", "content": "Show me what you can write."},
            {
                "role": "assistant",
                "content": RICH,
                "reasoning": "Lists, code, a table.",
                "thought_ms": 3420,
                "calls": [],
                "state": "done",
                "facts": {"tokens": 412, "first_ms": 120, "last_ms": 5120, "prompt": 64, "cached": 0, "finish": "stop"},
            },
        ],
    )


def test_rich_text_looks(page):
    rich(page)
    page.size(1280, 1000)
    page.screenshot(SHOTS / "rich.png")
    page.scheme(True)
    page.screenshot(SHOTS / "rich-dark.png")


# ---- Live view ----


@contextlib.contextmanager
def busy(server, requests=9, tokens=12):
    """Keeps `requests` running for the body, however fast the machine; then waits for their ends."""
    enough = threading.Event()

    def one(i):
        while not enough.is_set():
            server.post("/v1/completions", {"prompt": [100 + i] * 66, "max_tokens": tokens, "ignore_eos": True})

    threads = [threading.Thread(target=one, args=(i,)) for i in range(requests)]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        enough.set()
        for t in threads:
            t.join()


def figures(page):
    return page.js(
        "Object.fromEntries([...document.querySelectorAll('#live-body .figure, #live-body tr')].map(e => ["
        "(e.querySelector('th') ?? e.parentElement.firstChild).textContent, [...e.querySelectorAll('span')].map(s => s.textContent)]))"
    )


def test_live_view(page, server):
    assert not page.js("document.querySelector('#live').hidden"), "open where there is room"
    page.until("document.querySelector('#live-sub').textContent === 'ref'")
    before = page.js("document.querySelector('.chart.output .curve').getAttribute('d')")
    with busy(server):
        page.until("Number(document.querySelectorAll('.pair .figure span')[0].textContent) >= 8")
        page.until("Number(document.querySelector('.figure span').textContent) > 0")
        page.screenshot(SHOTS / "live.png")
    page.until("document.querySelectorAll('.pair .figure span')[0].textContent === '0'")
    f, truth = figures(page), server.get("/live")[1]
    assert truth["now"]["pages_cached"] >= 9 and truth["now"]["pages_used"] == 0
    assert page.js("document.querySelector('.chart.output .curve').getAttribute('d')") != before
    assert [f[k][0] for k in ("In use", "Prefix cache", "Free")] == [
        f"{truth['now'][k]:,}" for k in ("pages_used", "pages_cached", "pages_free")
    ]
    for name, k in (("First token", "ttft_s"), ("Between tokens", "itl_s")):
        shown = [float(x) for x in f[name]]  # tokens kept with drafts come at once: of these the median may be 0
        assert len(shown) == 3 and shown[0] >= 0 and shown[2] > 0 and truth["minute"][k]["n"] > 0
    assert float(f["Step"][0]) > 0 and float(f["Tokens a step"][0]) > 1
    assert f["Since the start"][0].endswith(f"of {truth['total']['prompt_tokens']:,}")
    kept, proposed = (f"{truth['total'][k]:,}" for k in ("draft_tokens_accepted", "draft_tokens"))
    assert f["In all"][0] == f"{kept} of {proposed}" and float(f["In all"][1]) >= 1
    page.scheme(True)
    page.size(1440, 900)
    page.screenshot(SHOTS / "live-dark.png")
    page.click("#hide-live")
    page.reload()
    page.until("document.querySelector('#model').textContent === 'nano'")
    assert page.js("document.querySelector('#live').hidden"), "closed stays closed"


# ---- A phone ----

TOO_WIDE = """[...document.querySelectorAll('body *')].filter(e => { const r = e.getBoundingClientRect();
    return r.width && r.right > innerWidth + 0.5 && !e.closest('.code-block pre, .table, svg, .sprite'); }).map(e => e.outerHTML.slice(0, 80))"""


AT_END = "(l => l.scrollHeight - l.scrollTop - l.clientHeight < 4)(document.querySelector('#log'))"


def test_the_end_stays_in_sight_until_the_reader_goes_up(page):
    ask(page, "What is 2 + 2?")
    answered(page)
    page.js(
        """window.grow = height => {
            const d = document.createElement('div');
            d.style.height = height + 'px';
            document.querySelector('#messages').append(d);
        }, 0"""
    )
    for _ in range(3):  # more text while the event of the step to the end is under way
        page.js(
            "(l => { grow(900); l.scrollTop = l.scrollHeight; grow(700); return 0 })(document.querySelector('#log'))"
        )
        page.until(AT_END)
    assert page.js("document.querySelector('#to-end').hidden")
    page.js("document.querySelector('#log').scrollTop -= 500, 0")
    page.until("!document.querySelector('#to-end').hidden")
    before = page.js("document.querySelector('#log').scrollTop")
    page.js("grow(300), 0")
    page.until("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    assert page.js("document.querySelector('#log').scrollTop") == before
    page.click("#to-end")
    page.until(AT_END)
    page.js("grow(300), 0")
    page.until(AT_END)
    page.until("document.querySelector('#to-end').hidden")


@pytest.mark.parametrize("width,height", [(390, 844), (320, 568)])
def test_phone(page, width, height):
    page.size(width, height, phone=True)
    put(page, settings={"max_tokens": "40"})
    rich(page)
    assert page.js("document.querySelector('#live').hidden")

    def fits(name):
        assert page.js("document.documentElement.scrollWidth") <= width and page.js(TOO_WIDE) == [], name
        page.screenshot(SHOTS / f"phone-{width}-{name}.png")

    fits("rich")
    files = [
        ("red.png", "", RED),
        ("wide.png", "", png(1200, 300, (30, 150, 90))),
        ("high.png", "", png(30, 900, (30, 30, 200))),
    ]
    give(page, "drop", *files, *files, ("a" * 80, "", b""))
    waiting(page, *[name for name, _, _ in files] * 2)
    fits("tray")
    page.click("#thinking")
    ask(page, "What is the answer, and is this rather long line of words broken where it has to be?")
    answered(page)
    page.until(AT_END)
    fits("chat")
    page.js("document.querySelector('.pictures').scrollIntoView(), 0")
    fits("pictures")
    page.click("#show-live")
    page.until("document.querySelector('#live-sub').textContent === 'ref'")
    fits("live")
    page.click("#hide-live")
    page.click("#show-settings")
    fits("settings")
    small = page.js(
        "[...document.querySelectorAll('nav button, .send, dialog input')].filter(b => b.type !== 'checkbox' && b.type !== 'radio')"
        ".map(b => b.getBoundingClientRect()).filter(r => r.width && Math.min(r.width, r.height) < 32).length"
    )
    assert small == 0, "buttons that a thumb finds"


# ---- Servers that refuse, go away and come back ----


def own_page(browser, server):
    p = Page(browser)
    p.open(f"http://127.0.0.1:{server.port}/")
    return p


def test_key_is_asked_for(browser):
    s = Server("--api-key", "secret")
    p = own_page(browser, s)
    try:
        p.until("document.querySelector('#state').textContent.includes('needs an API key')")
        ask(p, "Hello!")
        p.until("document.querySelector('.notice')")
        assert "API key" in texts(p, ".notice")[0]
        p.screenshot(SHOTS / "key.png")
        p.click(".notice button")
        p.until("document.activeElement.id === 'set-key'")
        p.type("secret")
        p.press("Escape")
        p.until("document.querySelector('#state').dataset.state === 'ok'")
        p.click(".notice button:last-child")
        answered(p)
        assert texts(p, ".notice") == [] and texts(p, ".prose")[0]
    finally:
        p.close()
        assert s.stop() == 0


def test_picture_that_the_server_refuses(browser):
    """Its 400 is shown; the question can be taken back and sent otherwise. A body that is too large is told, too."""
    s = Server("--max-picture-pixels", "1000", "--max-body-size", "1")
    p = own_page(browser, s)
    try:
        greedy(p, max_tokens="30", thinking=False)
        p.until("!document.querySelector('#attach').hidden")
        record(p)
        give(p, "drop", ("small.png", "", RED), ("wide.png", "", BLUE))
        waiting(p, "small.png", "wide.png")
        ask(p, "What is it?")
        answered(p)
        assert "content[1]" in texts(p, ".notice span")[0] and "1000" in texts(p, ".notice span")[0]
        assert texts(p, ".notice button") == ["Take it back", "Try again"]
        p.screenshot(SHOTS / "pictures-400.png")
        give(p, "drop", ("more.png", "", RED))
        waiting(p, "more.png")
        p.type("Here.")
        p.click(".notice button")
        waiting(p, "small.png", "wide.png", "more.png")
        assert texts(p, ".message") == [] and p.js("document.querySelector('#draft').value") == "What is it?\nHere."
        p.click("#tray li:nth-child(2) button")
        p.press("Enter")
        answered(p)
        assert texts(p, ".prose")[0].strip() and texts(p, ".notice") == [] and len(content(p)) == 3
        give(p, "drop", ("large.png", "", RED + os.urandom(1 << 20)))
        waiting(p, "large.png")
        p.press("Enter")
        answered(p)
        assert "1048576" in texts(p, ".notice span")[0].replace(",", ""), texts(p, ".notice span")
    finally:
        p.close()
        assert s.stop() == 0


def test_model_without_a_tower(browser):
    s = Server("--language-model-only")
    p = own_page(browser, s)
    try:
        p.until("document.querySelector('#model').textContent === 'nano'")
        assert p.js("document.querySelector('#attach').hidden")
        for how in ("paste", "drop"):
            assert give(p, how, ("red.png", "image/png", RED)), "nor does the browser show it"
            p.until("document.querySelector('#refused').textContent === 'This model reads no pictures.'")
            ask(p, "Hello!")
            answered(p)
            assert texts(p, "#refused p") == texts(p, "#tray li") == []
    finally:
        p.close()
        assert s.stop() == 0


def test_server_goes_and_comes_back(browser):
    s = Server("--device", "ref", "--threads", "1")
    p = own_page(browser, s)
    try:
        ask(p, APPLES)
        p.until("document.querySelector('.inside')?.textContent.length > 10")
        s.process.kill()
        s.process.wait()
        answered(p)
        assert texts(p, ".notice span") == ["The connection ended before the answer was complete."]
        p.until("document.querySelector('#state').textContent.includes('not reachable')")
        p.screenshot(SHOTS / "gone.png")
        p.click(".notice button")
        p.until("document.querySelector('.notice span')?.textContent.startsWith('The server cannot be reached')")
        s = Server("--device", "ref", "--threads", "1", "--port", str(s.port))
        p.until("document.querySelector('#state').dataset.state === 'ok'")
        p.click(".notice button")
        answered(p)
        assert texts(p, ".prose")[0].strip() and texts(p, ".notice") == []
    finally:
        p.close()
        assert s.stop() == 0


# ---- Rules of the browser ----


def test_policy(browser, server):
    p = own_page(browser, server)
    try:
        broken = p.js(
            """new Promise(done => { const seen = []; addEventListener('securitypolicyviolation', e => seen.push(e.effectiveDirective));
            const s = document.createElement('script'); s.textContent = 'window.pwned = 1'; document.body.append(s);
            const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i);
            const d = document.createElement('div'); d.setAttribute('style', 'color: red'); document.body.append(d);
            for (const u of ['data:image/png;base64,AAAA', URL.createObjectURL(new Blob(['x']))]) new Image().src = u;
            fetch('http://127.0.0.1:9/').catch(() => 0);
            setTimeout(() => done(seen), 500); })"""
        )
        assert broken.count("img-src") == 3, "a text's own pictures are none, either"
        assert {"script-src-elem", "img-src", "connect-src", "style-src-attr"} <= set(broken), broken
        assert p.js("window.pwned ?? null") is None
    finally:
        p.close()


class Elsewhere(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<!doctype html><link rel=icon href=data:,><title>elsewhere</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def elsewhere():
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    yield web.server_address[1]
    web.shutdown()


CROSS = """(async base => { const out = {};
    const name = async (key, f) => { try { out[key] = await f(); } catch (e) { out[key] = e.name; } };
    const chat = {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}'};
    await name('get', async () => (await fetch(base + 'v1/models')).status);
    await name('chat', async () => (await (await fetch(base + 'v1/chat/completions', chat)).json()).object);
    await name('blind', async () => (await fetch(base + 'v1/completions', {method: 'POST', mode: 'no-cors', body: new Blob(['{"prompt": "hi", "max_tokens": 2}'])})).type);
    await name('picture', () => new Promise(done => { const i = new Image(); i.onload = i.onerror = e => done(e.type); i.src = base + 'flush_cache'; }));
    return out; })"""


@pytest.mark.parametrize("allowed", [False, True])
def test_pages_from_elsewhere(browser, elsewhere, allowed):
    s = Server(*(["--allow-origin", f"http://127.0.0.1:{elsewhere}"] if allowed else []))
    p = Page(browser)
    try:
        p.open(f"http://127.0.0.1:{elsewhere}/")
        got = p.js(f"{CROSS}('http://127.0.0.1:{s.port}/')")
        computed = s.metric("sglang:num_requests_total")
        if allowed:
            assert got["get"] == 200 and got["chat"] == "chat.completion" and computed == 2
        else:
            assert got["get"] == "TypeError" == got["chat"] and computed == 0, "neither read nor computed"
    finally:
        p.close()
        assert s.stop() == 0


def test_rebound_name(browser, server):
    """A foreign name that leads here: one origin for the browser, a foreign Host for the server."""
    p = Page(browser)
    try:
        p.open(f"http://rebound.example:{server.port}/")
        assert "host_not_allowed" in p.js("document.body.innerText")
        assert p.js("fetch('/v1/models').then(r => r.status)") == 403
        p.open(f"http://moon.localhost:{server.port}/")
        p.until("document.querySelector('#model')?.textContent === 'nano'")
    finally:
        p.close()
