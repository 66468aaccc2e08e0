"""Pictures over HTTP: the small model answers as PyTorch does, whatever the protocol, and what is no picture is a 400.

The pictures and answers are those of tests/data/nano/vision.* (tools/nano/golden_vision.py), sent as PNG.
"""

import base64
import json
import socket
import struct
import time
import zlib
from pathlib import Path

import pytest
from serve_client import SLOW, Server, wait_until

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/nano"
CHATS = [json.loads(line) for line in (DATA / "vision.jsonl").read_text().splitlines()]
CHATS = [c for c in CHATS if "question" in c]


def png(width, height, rgb, says=None):
    """A PNG file; says: the size in its header, if it lies."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + rgb[y * width * 3 : (y + 1) * width * 3] for y in range(height))
    head = struct.pack(">IIBBBBB", *(says or (width, height)), 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def pictures():
    raw = (DATA / "vision.safetensors").read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8 : 8 + n])
    for i in range(len(CHATS)):
        t = head[f"{i}.pixels"]
        _, h, w, _ = t["shape"]
        yield png(w, h, raw[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]])


FILES = list(pictures())
url = lambda data, mime="image/png": f"data:{mime};base64,{base64.b64encode(data).decode()}"
URLS = [url(f) for f in FILES]
part = lambda u: {"type": "image_url", "image_url": {"url": u}}
text = lambda s: {"type": "text", "text": s}
user = lambda *parts: {"role": "user", "content": list(parts)}
BASE = {"model": "nano", "temperature": 0, "max_tokens": 60}


@pytest.fixture(scope="module")
def server():
    s = Server()
    yield s
    assert s.stop() == 0


def ask(server, i, **more):
    chat = CHATS[i]
    kwargs = {"chat_template_kwargs": {"thinking": chat["thinking"]}}
    body = {**BASE, **kwargs, "messages": [user(part(URLS[i]), text(chat["question"]))], **more}
    return server.post("/v1/chat/completions", body)


def said(server, i):
    """What PyTorch's greedy answer says behind its thinking."""
    ids = CHATS[i]["greedy"][:-1]
    whole = server.post("/detokenize", {"tokens": ids})["prompt"]
    return whole.split("</think>")[-1]


@pytest.mark.parametrize("i", range(len(CHATS)))
def test_chat(server, i):
    answer = ask(server, i, return_token_ids=True)
    assert answer["choices"][0]["token_ids"] == CHATS[i]["greedy"]
    assert answer["choices"][0]["message"]["content"] == said(server, i)
    assert answer["usage"]["prompt_tokens"] == len(CHATS[i]["ids"])


def test_streamed(server):
    body = {**BASE, "messages": [user(part(URLS[0]), text(CHATS[0]["question"]))]}
    chunks = [
        c["choices"][0]["delta"].get("content") or ""
        for c in server.stream("/v1/chat/completions", body)
        if c["choices"]
    ]
    assert "".join(chunks) == said(server, 0)


def test_once_more_from_the_cache(server):
    i = max(range(len(CHATS)), key=lambda i: len(CHATS[i]["ids"]))
    ask(server, i)
    again = ask(server, i, return_token_ids=True)
    assert again["choices"][0]["token_ids"] == CHATS[i]["greedy"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64


def test_anthropic(server):
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(FILES[0]).decode()}
    block = {"type": "image", "source": source}
    body = {"model": "nano", "max_tokens": 60, "temperature": 0}
    answer = server.post("/v1/messages", {**body, "messages": [user(block, text(CHATS[0]["question"]))]})
    assert answer["content"][-1]["text"] == said(server, 0)
    assert answer["usage"]["input_tokens"] == len(CHATS[0]["ids"])
    counted = server.post(
        "/v1/messages/count_tokens", {"model": "nano", "messages": [user(block, text(CHATS[0]["question"]))]}
    )
    assert counted["input_tokens"] == len(CHATS[0]["ids"])
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block, text("there")]}
    seen = [user(text("look")), {"role": "assistant", "content": [call]}, user(result)]
    with_picture = server.post("/v1/messages", {**body, "messages": seen})["usage"]["input_tokens"]
    result["content"] = [text("there")]
    without = server.post("/v1/messages", {**body, "messages": seen})["usage"]["input_tokens"]
    tokens = CHATS[0]["ids"].count(1813)
    assert tokens < with_picture - without <= tokens + 6  # and its marks


def test_responses(server):
    content = [
        {"type": "input_image", "image_url": URLS[0], "detail": "auto"},
        {"type": "input_text", "text": CHATS[0]["question"]},
    ]
    body = {"model": "nano", "temperature": 0, "max_output_tokens": 60, "input": [{"role": "user", "content": content}]}
    answer = server.post("/v1/responses", body)
    assert answer["output"][-1]["content"][0]["text"] == said(server, 0)
    assert answer["usage"]["input_tokens"] == len(CHATS[0]["ids"])


def test_generate(server):
    ids, at = [], 0
    for i in CHATS[0]["ids"]:  # the placeholder once, as a client writes it
        if i != 1813 or not ids or ids[-1] != 1813:
            ids.append(i)
    params = {"sampling_params": {"temperature": 0, "max_new_tokens": 60}}
    answer = server.post("/generate", {"input_ids": ids, "image_data": URLS[0], "return_token_ids": True, **params})
    assert answer["meta_info"]["prompt_tokens"] == len(CHATS[0]["ids"])
    same = server.post("/generate", {"input_ids": ids, "image_data": [{"url": URLS[0]}], **params})
    assert same["text"] == answer["text"] and answer["text"].strip().endswith(said(server, 0).strip())
    status, body, _ = server.request("POST", "/generate", {"input_ids": ids, "image_data": [URLS[0]] * 2, **params})
    assert status == 400 and "2 pictures for 1 placeholders" in body["error"]["message"]


def test_several_pictures(server):
    three = user(part(URLS[0]), text("and"), part(URLS[1]), part(URLS[0]), text("What is in them?"))
    answer = server.post("/v1/chat/completions", {**BASE, "messages": [three], "n": 2})
    tokens = 2 * CHATS[0]["ids"].count(1813) + CHATS[1]["ids"].count(1813)
    assert tokens < answer["usage"]["prompt_tokens"] < tokens + 40
    assert answer["choices"][0]["message"] == answer["choices"][1]["message"]


def test_spellings_of_urls(server):
    data = base64.b64encode(FILES[0]).decode()
    want = ask(server, 0)["choices"][0]["message"]
    broken = "\n".join(data[i : i + 60] for i in range(0, len(data), 60))
    for u in (f"data:image/png;base64, {data}", f"data:image/jpeg;base64,{data}", f"data:;base64,{broken}"):
        for p in (
            part(u),
            {"type": "image_url", "image_url": u},
            {"type": "image_url", "image_url": {"url": u, "detail": "high"}},
        ):
            body = {**BASE, "messages": [user(p, text(CHATS[0]["question"]))]}
            assert server.post("/v1/chat/completions", body)["choices"][0]["message"] == want


lying = png(1, 1, b"abc", (60000, 60000))
BAD = [
    ("https://example.com/x.png", "data: URI"),
    ("file:///etc/passwd", "data: URI"),
    ("data:image/png,abc", ";base64,"),
    ("data:image/png;base64,", "empty"),
    ("data:image/png;base64,@@@@", "not base64"),
    ("data:text/html;base64,AAAA", "text/html"),
    (url(b"no picture at all"), "no picture"),
    (url(FILES[0][: len(FILES[0]) // 2]), ""),
    (url(FILES[0][:20]), ""),
    (url(b"\xff\xd8\xff\xe0" + bytes(100)), ""),
    (url(b"GIF89a" + bytes(20)), ""),
    (url(b"RIFF\x10\0\0\0WEBPVP8 " + bytes(8)), ""),
    (url(lying), "60000"),
    (url(png(1, 1, b"abc", (0, 1))), ""),
]


@pytest.mark.parametrize("bad,word", BAD)
def test_no_picture(server, bad, word):
    body = {**BASE, "messages": [user(text("a"), part(bad))]}
    began = time.monotonic()
    status, answer, _ = server.request("POST", "/v1/chat/completions", body)
    assert status == 400 and time.monotonic() - began < 3 * SLOW, answer  # a second, on a machine that is not busy
    message = answer["error"]["message"]
    assert message.startswith("messages[0].content[1]: ") and word in message


@pytest.mark.parametrize(
    "p,word",
    [
        ({"type": "image_url"}, "expected a string, got nothing"),
        ({"type": "image_url", "image_url": {"url": 7}}, "expected a string"),
        ({"type": "video_url", "video_url": {"url": "data:"}}, "begins with its type"),
        ({"type": "input_audio", "input_audio": {}}, "audio"),
    ],
)
def test_other_parts(server, p, word):
    status, answer, _ = server.request("POST", "/v1/chat/completions", {**BASE, "messages": [user(p)]})
    assert status == 400 and word in answer["error"]["message"]


def test_the_place_is_ours(server):
    """A part's own "place" is a client's word and names nothing."""
    body = {**BASE, "messages": [user({**part("https://example.com"), "place": "elsewhere"})]}
    status, answer, _ = server.request("POST", "/v1/chat/completions", body)
    assert status == 400 and answer["error"]["param"] == "messages[0].content[0]"
    assert answer["error"]["message"].startswith("messages[0].content[0]: ")


def test_a_nul_in_base64(server):
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(FILES[0]).decode() + "\0AAAA"}
    body = {"model": "nano", "max_tokens": 1, "messages": [user({"type": "image", "source": source})]}
    status, answer, _ = server.request("POST", "/v1/messages", body)
    assert status == 400 and "not base64" in answer["error"]["message"]


def white(side):
    """A PNG of one bit a pixel: a small file of many pixels."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((1 + (side + 7) // 8) * side))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_more_than_one_request_may_have():
    """To come again helps nobody whose pictures are too many for an empty server."""
    s = Server("--max-body-memory", "16")
    try:
        body = {**BASE, "max_tokens": 1, "messages": [user(*[part(url(white(1000)))] * 5)]}  # 3 MB each
        status, answer, _ = s.request("POST", "/v1/chat/completions", body)
        assert status == 400 and "8 MiB" in answer["error"]["message"], answer
    finally:
        assert s.stop() == 0


def test_a_client_leaves():
    """What nobody waits for any more is not decoded to the end."""
    s = Server()
    try:
        many = json.dumps({**BASE, "messages": [user(*[part(url(white(9000)))] * 25)]}).encode()
        cpu = lambda: sum(map(int, Path(f"/proc/{s.process.pid}/stat").read_text().split()[13:15]))
        c = s.connect()
        c.request("POST", "/v1/chat/completions", many, {"Content-Type": "application/json"})
        before = cpu()
        wait_until(lambda: cpu() > before + 20)
        c.close()
        before, last = cpu(), -1
        while cpu() > last:
            last = cpu()
            time.sleep(1)
        assert last - before < 150 * SLOW  # hundredths of a second; all 25 take several times that
    finally:
        assert s.stop() == 0


def test_limits():
    s = Server("--max-pictures", "2", "--max-picture-pixels", "50000", "--context-length", "256")
    try:
        body = lambda *urls: {**BASE, "max_tokens": 1, "messages": [user(*map(part, urls))]}
        small = url(png(28, 28, bytes(28 * 28 * 3)))
        assert s.post("/v1/chat/completions", body(small, small))["usage"]["prompt_tokens"] < 40
        column = lambda h: url(png(28, h, bytes(28 * h * 3)))
        for urls, word in (
            ((small,) * 3, "more than 2 pictures"),
            ((url(png(300, 200, bytes(300 * 200 * 3))),), "50000"),
            ((column(1700), column(5600)), "pixels"),
        ):
            status, answer, _ = s.request("POST", "/v1/chat/completions", body(*urls))
            assert status == 400 and word in answer["error"]["message"], answer
    finally:
        assert s.stop() == 0
    s = Server("--context-length", "256")
    try:
        status, answer, _ = s.request("POST", "/v1/chat/completions", body(column(3600), column(3640)))
        assert status == 400 and "259 tokens" in answer["error"]["message"], answer
    finally:
        assert s.stop() == 0


def reads_pictures(server):
    """What the server says of it, at each place."""
    info, model, live = (server.get(path)[1] for path in ("/server_info", "/model_info", "/live"))
    said = {info["has_image_understanding"], model["has_image_understanding"], live["pictures"]}
    assert len(said) == 1
    return said.pop()


def test_says_so(server):
    assert reads_pictures(server) is True


def test_without_a_tower():
    s = Server("--language-model-only")
    try:
        assert reads_pictures(s) is False
        status, answer, _ = s.request("POST", "/v1/chat/completions", {**BASE, "messages": [user(part(URLS[0]))]})
        assert status == 400 and "without a vision tower" in answer["error"]["message"]
        assert s.post("/v1/chat/completions", {**BASE, "messages": [user(text("Hello"))]})["choices"]
    finally:
        assert s.stop() == 0


def test_remote_pictures_are_asked_for_and_allowed():
    """Nothing is fetched unless a host is named, and then nothing of the server's own network."""
    trap = socket.create_server(("127.0.0.1", 0))
    trap.setblocking(False)
    port = trap.getsockname()[1]
    s = Server("--allow-remote-media", f"127.0.0.1:{port}", "--allow-remote-media", "example.com")
    try:
        for u, word in (
            (f"http://127.0.0.1:{port}/x.png", "private"),
            (f"http://localhost:{port}/x.png", "none of the hosts"),
            ("http://example.org/x.png", "example.org, port 80"),
            ("http://example.com:22/x.png", "port 22"),
            ("http://user@example.com/x.png", "credentials"),
            ("ftp://example.com/x.png", "data: URI"),
        ):
            status, answer, _ = s.request("POST", "/v1/chat/completions", {**BASE, "messages": [user(part(u))]})
            message = answer["error"]["message"]
            assert status == 400 and message.startswith("messages[0].content[0]: ") and word in message, message
        with pytest.raises(BlockingIOError):
            trap.accept()
        assert ask(s, 0)["choices"][0]["message"]["content"] == said(s, 0)
    finally:
        trap.close()
        assert s.stop() == 0
