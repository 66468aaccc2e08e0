"""Videos over HTTP and on the command line: pieces and times in the prompt, the prefix cache, and what is no video."""

import base64
import json
import os
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from serve_client import MOONLET, SLOW, Server

ROOT = Path(__file__).resolve().parents[2]
VIDEOS = ROOT / "tests/golden/videos"
DECODER = Path(MOONLET).parent / "moonlet-video"
pytestmark = pytest.mark.skipif(not DECODER.exists(), reason="no moonlet-video: it was built without FFmpeg's headers")

file = lambda name: (VIDEOS / name).read_bytes()
url = lambda data, mime="video/mp4": f"data:{mime};base64,{base64.b64encode(data).decode()}"
part = lambda u: {"type": "video_url", "video_url": {"url": u}}
text = lambda s: {"type": "text", "text": s}
user = lambda *parts: {"role": "user", "content": list(parts)}
BASE = {"model": "nano", "temperature": 0, "max_tokens": 8, "chat_template_kwargs": {"thinking": False}}


def expected(name):
    """The pieces of a file and the tokens of each, as the golden file has them."""
    lines = [line.split() for line in (VIDEOS / "expected.txt").read_text().splitlines()]
    rows, cols = next((int(w[7]), int(w[8])) for w in lines if w[:2] == ["video", name])
    return [w[2] for w in lines if w[:2] == ["piece", name]], rows * cols // 4


@pytest.fixture(scope="module")
def server():
    s = Server()
    yield s
    assert s.stop() == 0


def ask(server, *parts, **more):
    return server.post("/v1/chat/completions", {**BASE, "messages": [user(*parts)], **more})


def count(server, s):
    return len(server.post("/tokenize", {"prompt": s, "add_special_tokens": False})["tokens"])


CHATS = [json.loads(line) for line in (ROOT / "tests/data/nano/video.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def exact():
    s = Server("--device", "ref")
    yield s
    assert s.stop() == 0


def as_in_pytorch(server, chat):
    kwargs = {"chat_template_kwargs": {"thinking": chat["thinking"]}, "max_tokens": 48, "return_token_ids": True}
    kwargs |= {"logprobs": True, "top_logprobs": 5}
    answer = ask(server, part(url(file(chat["file"]))), text(chat["question"]), **kwargs)
    assert answer["usage"]["prompt_tokens"] == len(chat["ids"])
    return answer["choices"][0]


@pytest.mark.parametrize("chat", CHATS, ids=lambda c: c["file"])
def test_as_in_pytorch(exact, chat):
    """Token for token what PyTorch says in float32 (tools/nano/golden_video.py), behind as long a prompt."""
    assert as_in_pytorch(exact, chat)["token_ids"] == chat["greedy"]


@pytest.mark.parametrize("chat", CHATS, ids=lambda c: c["file"])
def test_nearly_as_in_pytorch(server, chat):
    """The same on the processor, up to a token that is nearly as likely as PyTorch's: roundings may choose it."""
    choice, greedy = as_in_pytorch(server, chat), chat["greedy"]
    same = len(os.path.commonprefix([choice["token_ids"], greedy]))
    if same == len(greedy) == len(choice["token_ids"]):
        return
    likely = choice["logprobs"]["content"][same]
    theirs = server.post("/detokenize", {"tokens": [greedy[same]]})["prompt"]
    beside = {t["token"]: t["logprob"] for t in likely["top_logprobs"]}
    assert same >= 16 and likely["logprob"] - beside[theirs] < 0.3  # as clear as compare_logprobs.py wants it


@pytest.mark.parametrize("name", ["vp9-tall.webm", "slow.mkv"])
def test_tokens(server, name):
    """A piece is its time, three tokens and a word around it, and its rows."""
    times, tokens = expected(name)
    plain = ask(server, text("What is it?"))["usage"]["prompt_tokens"]
    answer = ask(server, part(url(file(name))), text("What is it?"))
    around = sum(count(server, t) + 3 + count(server, "video") + tokens for t in times)
    # "\nWhat is it?" is one run of text
    between = count(server, "\nWhat is it?") - count(server, "What is it?")
    assert answer["usage"]["prompt_tokens"] == plain + around + between


def test_one_frame_is_a_picture(server):
    """The tower sees one frame as it sees a picture; what is around it differs."""
    answer = ask(server, part(url(file("h264-one.mp4"))), text("Which colors?"), max_tokens=20)
    assert answer["choices"][0]["message"]["content"]


def test_blanks_other_types_and_plain_url(server):
    """Moonshot's own example has a blank behind the comma; the URL may stand without an object."""
    data = base64.b64encode(file("vp8.webm")).decode()
    answers = [
        ask(server, part(f"data:video/webm;base64, {data}"), text("?")),
        ask(server, part(f"data:application/octet-stream;base64,{data}"), text("?")),
        ask(server, {"type": "video_url", "video_url": url(file("vp8.webm"))}, text("?")),
        ask(server, part(f"data:video/anything;base64,{data}"), text("?")),
    ]
    assert len({json.dumps(a["choices"][0]["message"]) for a in answers}) == 1


def test_cached(server):
    """The same video again comes from the prefix cache."""
    parts = text("As nobody has asked before: "), part(url(file("h264-sound.mp4"))), text("What is it?")
    cached = lambda a: a["usage"]["prompt_tokens_details"]["cached_tokens"]
    first, again = ask(server, *parts), ask(server, *parts)
    assert cached(first) == 0 and cached(again) > expected("h264-sound.mp4")[1]
    assert again["choices"][0]["message"] == first["choices"][0]["message"]


def test_among_pictures_and_others(server):
    """Two videos and a picture in one message, each in its place."""
    png = "data:image/png;base64," + base64.b64encode((ROOT / "examples/stars.png").read_bytes()).decode()
    picture = {"type": "image_url", "image_url": {"url": png}}
    parts = [part(url(file("vp8.webm"))), picture, part(url(file("slow.mkv"))), text("?")]
    tokens = lambda *parts: ask(server, *parts)["usage"]["prompt_tokens"]
    empty = tokens(text("?"))
    alone = sum(tokens(p, text("?")) - empty for p in parts[:3])
    assert abs(tokens(*parts) - empty - alone) <= 4  # newlines and times run together


def mp4(samples, rate=25):
    """An MP4 of so many frames, all of which are the one of h264-one.mp4: its bytes once, its place many times."""
    data = file("h264-one.mp4")
    size = lambda at: struct.unpack(">I", data[at : at + 4])[0]

    def boxes(start, end):
        while start < end:
            yield data[start + 4 : start + 8], start + 8, start + size(start)
            start += size(start)

    def find(*path):
        start, end = 0, len(data)
        for name in path:
            start, end = next((s, e) for n, s, e in boxes(start, end) if n == name)
        return start, end

    box = lambda name, body: struct.pack(">I4s", 8 + len(body), name) + body
    stbl = b"moov", b"trak", b"mdia", b"minf", b"stbl"
    copy = lambda *path: box(path[-1], data[slice(*find(*path))])
    sample = data[slice(*find(b"mdat"))]
    head = box(b"ftyp", b"isom\0\0\2\0isomavc1") + box(b"mdat", sample)
    at = 8 + 16 + 8
    table = lambda name, *words: box(name, struct.pack(f">I{len(words)}I", 0, *words))
    inner = copy(*stbl, b"stsd") + table(b"stts", 1, samples, 1000) + table(b"stsc", 1, 1, 1, 1)
    inner += table(b"stsz", len(sample), samples) + table(b"stco", samples, *[at] * samples)
    mdhd = table(b"mdhd", 0, 0, 1000 * rate, 1000 * samples, 0x55C40000)
    minf = copy(*stbl[:4], b"vmhd") + copy(*stbl[:4], b"dinf") + box(b"stbl", inner)
    mdia = box(b"mdia", mdhd + copy(*stbl[:3], b"hdlr") + box(b"minf", minf))
    return head + box(b"moov", copy(b"moov", b"mvhd") + box(b"trak", copy(*stbl[:2], b"tkhd") + mdia))


def refused(server, bad, status=400, **more):
    began = time.monotonic()
    got, answer, _ = server.request(
        "POST", "/v1/chat/completions", {**BASE, "messages": [user(text("a"), bad)], **more}
    )
    assert got == status, answer
    assert time.monotonic() - began < 5 * SLOW, answer
    assert answer["error"]["message"].startswith("messages[0].content[1]: ")
    return answer["error"]["message"]


def test_many_frames(server):
    """The bytes of one frame, ten thousand times: as many as the context holds, or a 400 before one is decoded."""
    assert ask(server, part(url(mp4(100))), text("?"))["usage"]["prompt_tokens"] > 12
    assert "tokens" in refused(server, part(url(mp4(200000))))


def slow_video():
    """A few frames are seen of half a million."""
    return part(url(mp4(500000, rate=240000)))


def ask_and_leave(server, *parts):
    """A client that does not wait for the answer."""
    body = json.dumps({**BASE, "messages": [user(*parts)]}).encode()
    s = socket.create_connection(("127.0.0.1", server.port))
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
    s.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    time.sleep(0.5)
    s.close()


def test_clients_that_left(server):
    """What nobody waits for is not decoded on, and others need not wait for it."""
    began = time.monotonic()
    for _ in range(4):
        ask_and_leave(server, slow_video())
    ask(server, part(url(file("vp8.webm"))), text("?"), max_tokens=1)
    assert time.monotonic() - began < 6 * SLOW


def test_end_of_the_server():
    """A request whose video is being decoded gets its 503, and the server ends."""
    s = Server()
    out = []
    body = {**BASE, "messages": [user(slow_video())]}
    asking = threading.Thread(target=lambda: out.append(s.request("POST", "/v1/chat/completions", body)))
    asking.start()
    time.sleep(1)
    began = time.monotonic()
    assert s.stop() == 0
    asking.join()
    assert time.monotonic() - began < 5 * SLOW
    assert out[0][0] == 503 and "shutting down" in out[0][1]["error"]["message"], out


@pytest.mark.parametrize(
    "bad,word",
    [
        (part(url(b"")), "empty"),
        (part(url(b"nothing of the kind")), "no MP4, MOV, Matroska or WebM video"),
        (part(url(file("vp9.webm")[:9000])), "ends too early"),
        (part(url(file("h264.mp4")[:9000])), "no MP4"),
        (part("data:video/mp4;base64,!!!!"), "not base64"),
        (part("data:video/mp4,abc"), ";base64,"),
        (part(url(file("vp8.webm"), "image/png")), "video/..."),
        (part("https://example.com/a.mp4"), "data: URIs"),
        (part("file:///etc/passwd"), "data: URIs"),
        (part(url((ROOT / "examples/stars.png").read_bytes())), "no MP4"),
        ({"type": "video_url", "video_url": {"url": 7}}, "expected a string"),
        ({"type": "video_url"}, "expected a string, got nothing"),
        ({"type": "image_url", "image_url": {"url": url(file("vp8.webm"))}}, "image/..."),
    ],
)
def test_no_video(server, bad, word):
    assert word in refused(server, bad)


def test_damaged(server):
    """Bytes that are others: an error or an answer, and the server goes on."""
    good = bytearray(file("h264-sound.mp4"))
    for k in range(12):
        data = bytearray(good)
        for i in range(k, len(data), 997):
            data[i] ^= 0x55
        got, answer, _ = server.request(
            "POST", "/v1/chat/completions", {**BASE, "max_tokens": 1, "messages": [user(part(url(bytes(data))))]}
        )
        assert got in (200, 400), answer
    assert ask(server, text("Hello"))["choices"]


def test_no_decoder_and_limits():
    s = Server("--video-decoder", "/nonexistent/moonlet-video", "--max-pictures", "1")
    try:
        message = refused(s, part(url(file("vp8.webm"))))
        assert "/nonexistent/moonlet-video" in message and "docs/guide/pictures.md" in message
        assert "more than 1 pictures and videos" not in message
    finally:
        assert s.stop() == 0
    s = Server("--max-picture-pixels", "1000", "--max-pictures", "0")
    try:
        assert "more than 0 pictures and videos" in refused(s, part(url(file("vp8.webm"))))
    finally:
        assert s.stop() == 0


def moonlet(*args, **more):
    return subprocess.run([MOONLET, *args], capture_output=True, timeout=120 * SLOW, **more)


def test_run():
    r = moonlet("run", "-q", "-n", "4", "--instant", "--video", str(VIDEOS / "vp8.webm"), "-p", "What is it?")
    assert r.returncode == 0 and r.stdout.strip(), r.stderr
    r = moonlet("run", "-q", "-n", "4", "--video", str(VIDEOS / "expected.txt"), "-p", "What is it?")
    assert r.returncode != 0 and b"no MP4" in r.stderr


def test_eval(tmp_path):
    """Each piece is an item; the rows of all follow each other."""
    times, tokens = expected("vp9.webm")
    out, line = tmp_path / "rows.f32", json.dumps({"video": str(VIDEOS / "vp9.webm")}) + "\n"
    r = moonlet("eval", "vision", "--out", str(out), input=line.encode())
    assert r.returncode == 0, r.stderr
    got = json.loads(r.stdout)
    assert got["times"] == times and got["tokens"] == tokens * len(times) and got["resized"] == [160, 90]
    assert got["grid"] == [[4, 8, 12]] * 3 + [[2, 8, 12]]
    hidden = json.loads((ROOT / "models/nano/config.json").read_text())
    hidden = hidden.get("text_config", hidden)["hidden_size"]
    assert os.path.getsize(out) == 4 * hidden * got["tokens"]
    r = moonlet("eval", "vision", input=json.dumps({"video": str(VIDEOS / "expected.txt")}).encode())
    assert r.returncode != 0 and b"no MP4" in r.stdout + r.stderr
