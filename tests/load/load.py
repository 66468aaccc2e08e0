#!/usr/bin/env python3
"""`moonlet serve` under load: many streams, clients of every bad kind, slow and idle ones. Standard library only.

    tests/load/load.py [--long] [--moonlet build/moonlet] [--only streams,mixed,crowd,limit]

The short form takes about a minute on two cores and is part of `make check-all`; --long is what bench/results/
serving-load-*.txt records: 256 streams, 10,000 mixed requests, 1,000 slow readers beside 1,000 idle connections.
Prints a line a part, exits 1 when one of them fails."""
import argparse
import asyncio
import json
import os
import random
import re
import resource
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NANO = str(ROOT / "models/nano")


def need(true, what):
    if not true:
        raise AssertionError(what)


# ---- the server under test ----


class Server:
    def __init__(self, moonlet, *args, port=0):
        self.process = subprocess.Popen(
            [moonlet, "serve", "-m", NANO, "--port", str(port), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        line = self.process.stdout.readline().decode()
        found = re.search(r"http://127\.0\.0\.1:(\d+) ", line)
        need(found, f"the server did not start: {line} {self.process.stderr.read().decode() if not line else ''}")
        self.port = int(found[1])
        self.log = []
        threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True).start()

    def state(self):
        """Resident MB, threads, open files."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        value = {k: int(re.search(rf"^{k}:\s+(\d+)", status, re.M)[1]) for k in ("VmRSS", "Threads")}
        return value["VmRSS"] / 1024, value["Threads"], len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


# ---- HTTP ----


def bytes_of(method, path, body=b"", headers=()):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


async def dial(server, receive_buffer=0):
    s = socket.socket()
    s.setblocking(False)
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", server.port))
    return await asyncio.open_connection(sock=s, limit=1 << 26)


async def hang_up(writer, reset=False):
    if reset:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        pass


async def head(reader):
    raw = await reader.readuntil(b"\r\n\r\n")
    return int(raw.split()[1]), {
        k.strip().lower(): v.strip()
        for k, _, v in (line.partition(":") for line in raw.decode().split("\r\n")[1:] if line)
    }


async def chunks(reader):
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)


async def answer(reader):
    """(status, whole body) of one response."""
    status, headers = await head(reader)
    if headers.get("transfer-encoding") == "chunked":
        return status, b"".join([c async for c in chunks(reader)])
    return status, await reader.readexactly(int(headers.get("content-length", 0)))


async def ask(server, method, path, body=None):
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    reader, writer = await dial(server)
    try:
        writer.write(bytes_of(method, path, raw))
        status, text = await answer(reader)
        return status, text
    finally:
        await hang_up(writer)


def events(raw):
    lines = [line[6:] for line in raw.decode().split("\n") if line.startswith("data: ")]
    need(lines and lines[-1] == "[DONE]" and lines.count("[DONE]") == 1, f"a stream without its end: {raw[-200:]!r}")
    return [json.loads(line) for line in lines[:-1]]


def text_of(raw, stream):
    """{choice: (text, finish_reason)} of a /v1/completions answer."""
    out = {}
    for e in events(raw) if stream else [json.loads(raw)]:
        need("error" not in e, e)
        for c in e["choices"]:
            text, finish = out.get(c["index"], ("", None))
            out[c["index"]] = (text + c["text"], c["finish_reason"] or finish)
    return out


async def complete(server, body, stream):
    status, raw = await ask(server, "POST", "/v1/completions", {**body, "stream": stream})
    need(status == 200, f"{status} {raw[:300]!r}")
    return text_of(raw, stream)


async def ttft(server, body):
    """Seconds to the first piece of an answer, and to its end."""
    reader, writer = await dial(server)
    start = time.monotonic()
    writer.write(bytes_of("POST", "/v1/completions", json.dumps({**body, "stream": True}).encode()))
    status, _ = await head(reader)
    need(status == 200, status)
    first, raw = None, b""
    async for c in chunks(reader):
        first = first or time.monotonic() - start
        raw += c
    events(raw)
    await hang_up(writer)
    return first, time.monotonic() - start


async def settled(server, seconds=30):
    """Waits until nothing runs, then has the pool proved."""
    for _ in range(int(seconds * 20)):
        status, raw = await ask(server, "GET", "/kv_check")
        check = json.loads(raw)
        need(status == 200 and check["ok"], check)
        status, raw = await ask(server, "GET", "/server_info")
        now = json.loads(raw)["internal_states"][0]
        if check["pages_used"] == 0 == now["num_running_reqs"] + now["num_queue_reqs"]:
            return check
        await asyncio.sleep(0.05)
    raise AssertionError(f"requests are left: {now} {check}")


# ---- requests with known answers ----

WORDS = (
    "red blue cat dog sum of how many apples Tom Ann seven nine twelve what is the and then plus minus box pencils day "
    "has gives buys left over each week London Paris rain sun list name sort"
).split()


def requests(n, seed, tokens):
    """Greedy and seeded requests of different lengths; some share a beginning."""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 60)))
        if i % 4 == 0:
            text = "You are given a list of words and continue it. " * 6 + text
        body = {
            "prompt": text,
            "max_tokens": rng.randint(max(1, tokens // 2), tokens),
            "ignore_eos": i % 3 > 0,
            "temperature": 0,
        }
        if i % 2:
            body |= {"temperature": 1.1, "top_p": 0.95, "seed": 1000 + i}
        if i % 16 == 3:
            body["n"] = 3
        out.append(body)
    return out


async def alone(server, bodies):
    """Each one's answer when nothing else runs, with an empty cache."""
    out = []
    for body in bodies:
        status, _ = await ask(server, "POST", "/flush_cache")
        need(status == 200, "flush_cache")
        out.append(await complete(server, body, False))
    return out


# ---- 256 streams at once ----


async def streams(o, say):
    server = Server(o.moonlet, "--max-running-requests", "256", "--max-total-tokens", "131072")
    try:
        bodies = requests(256, 7, o.tokens)
        want = await alone(server, bodies)
        await ask(server, "POST", "/flush_cache")
        start = time.monotonic()
        got = await asyncio.gather(*(complete(server, b, True) for b in bodies))
        took = time.monotonic() - start
        wrong = [i for i in range(256) if got[i] != want[i]]
        need(
            not wrong,
            f"{len(wrong)} of 256 differ, first {wrong[:1]}: " f"{[(bodies[i], want[i], got[i]) for i in wrong[:1]]}",
        )
        _, raw = await ask(server, "GET", "/metrics")
        tokens = sum(b["max_tokens"] * b.get("n", 1) for b in bodies)
        await settled(server)
        say(f"256 streams at once: none lost, all texts equal to those alone; at most {tokens} tokens in {took:.1f} s")
    finally:
        need(server.stop() == 0, "exit status")


# ---- mixed requests ----


class Mix:
    """One request of a kind drawn from all of them; counts what happened."""

    def __init__(self, server, bodies, want, trap):
        self.server, self.bodies, self.want, self.trap = server, bodies, want, trap
        self.count = Counter()

    async def known(self, rng):
        i, stream = rng.randrange(len(self.bodies)), rng.random() < 0.6
        got = await complete(self.server, self.bodies[i], stream)
        need(got == self.want[i], f"{self.bodies[i]} gave {got}, alone {self.want[i]}")

    async def chat(self, rng):
        tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
        body = {
            "messages": [{"role": "user", "content": "What is 17 + 25?"}],
            "max_tokens": 12,
            "temperature": 0,
            "stream": rng.random() < 0.5,
            "tools": [tool] * (rng.random() < 0.3),
            "logprobs": rng.random() < 0.2,
        }
        status, raw = await ask(self.server, "POST", "/v1/chat/completions", body)
        need(status == 200, f"{status} {raw[:200]!r}")
        if body["stream"]:
            events(raw)

    async def several_on_one_connection(self, rng):
        reader, writer = await dial(self.server)
        for _ in range(3):
            writer.write(bytes_of("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 2}).encode()))
            need((await answer(reader))[0] == 200, "keep-alive")
        await hang_up(writer)

    async def cancelled(self, rng):
        """Goes away before the answer, in its middle, or with a reset."""
        reader, writer = await dial(self.server)
        body = {
            "prompt": "a b c",
            "max_tokens": 400,
            "ignore_eos": True,
            "stream": rng.random() < 0.8,
            "n": rng.choice([1, 1, 4]),
        }
        writer.write(bytes_of("POST", "/v1/completions", json.dumps(body).encode()))
        await writer.drain()
        if body["stream"] and rng.random() < 0.8:
            try:
                await asyncio.wait_for(reader.readexactly(rng.randrange(1, 3000)), 20)
            except asyncio.IncompleteReadError:
                pass
        await hang_up(writer, reset=rng.random() < 0.5)

    async def aborted(self, rng):
        rid = f"rid-{rng.random()}"
        body = {"prompt": "a b c", "max_tokens": 1000, "ignore_eos": True, "stream": True, "rid": rid}
        reader, writer = await dial(self.server)
        writer.write(bytes_of("POST", "/v1/completions", json.dumps(body).encode()))
        status, _ = await head(reader)
        need(status == 200, status)
        status, raw = await ask(self.server, "POST", "/abort_request", {"rid": rid})
        need(status == 200 and json.loads(raw)["aborted"] == 1, raw)
        raw = b"".join([c async for c in chunks(reader)])
        need(raw.endswith(b"data: [DONE]\n\n") and b'"error"' in raw, raw[-200:])
        await hang_up(writer)

    async def wrong(self, rng):
        """What must be refused, by status."""
        deep = b"[" * 300 + b"]" * 300
        path, body, want = rng.choice(
            [
                ("/v1/completions", b"{", 400),
                ("/v1/completions", b'{"prompt": "\xff"}', 400),
                ("/v1/completions", b'{"prompt": ' + deep + b"}", 400),
                ("/v1/completions", {"prompt": "x", "n": 10**9}, 400),
                ("/v1/completions", {"prompt": "x", "logprobs": 10**6}, 400),
                ("/v1/completions", {"prompt": [10**8]}, 400),
                ("/v1/completions", {"prompt": [-1]}, 400),
                ("/v1/completions", {"prompt": "x", "max_tokens": 10**12}, 400),
                ("/v1/completions", {"prompt": "x", "model": "other"}, 404),
                ("/nowhere", {}, 404),
                (
                    "/v1/chat/completions",
                    {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 10**9},
                    400,
                ),
                (
                    "/v1/chat/completions",
                    {
                        "messages": [
                            {
                                "role": "user",
                                "content": [
                                    {
                                        "type": "image_url",
                                        "image_url": {"url": f"http://127.0.0.1:{self.trap}/picture.png"},
                                    }
                                ],
                            }
                        ]
                    },
                    400,
                ),
                ("/v1/completions", {"prompt": "word " * 30000, "max_tokens": 5}, 400),
            ]
        )
        status, raw = await ask(self.server, "POST", path, body)
        need(status == want and b'"error"' in raw, f"{path} {str(body)[:100]}: {status} {raw[:200]!r}")

    async def oversized(self, rng):
        reader, writer = await dial(self.server)
        form = rng.randrange(3)
        try:
            if form == 0:
                writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
                need((await head(reader))[0] == 413, "413 by length")
            elif form == 1:
                writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
                for _ in range(40):
                    writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                writer.write(b"0\r\n\r\n")
                need((await head(reader))[0] == 413, "413 by chunks")
            else:
                writer.write(bytes_of("GET", "/health", headers=[f"X-{i}: {'y' * 1000}" for i in range(100)]))
                need((await head(reader))[0] in (413, 431), "a head that is too large")
        except (ConnectionError, asyncio.IncompleteReadError):
            need(form == 2, "closed without an answer")  # of a head that is too large the library reads no more
        await hang_up(writer)

    async def byte_by_byte(self, rng):
        raw = bytes_of("POST", "/v1/completions", b'{"prompt":"a","max_tokens":1}')
        reader, writer = await dial(self.server)
        for i in range(len(raw)):
            writer.write(raw[i : i + 1])
            await asyncio.sleep(0.005)
        need((await answer(reader))[0] == 200, "byte by byte")
        await hang_up(writer)

    async def given_up(self, rng):
        raw = bytes_of("POST", "/v1/completions", b'{"prompt":"a","max_tokens":1}')
        _, writer = await dial(self.server)
        writer.write(raw[: rng.randrange(len(raw))])
        await hang_up(writer, reset=rng.random() < 0.5)

    async def slow_reader(self, rng):
        reader, writer = await dial(self.server, 4096)
        body = {"prompt": "a", "max_tokens": 60, "ignore_eos": True, "stream": True}
        writer.write(bytes_of("POST", "/v1/completions", json.dumps(body).encode()))
        raw = b""
        while not raw.endswith(b"0\r\n\r\n"):
            part = await reader.read(512)
            need(part, "closed early")
            raw += part
            await asyncio.sleep(0.01)
        need(b"[DONE]" in raw, "slow reader")
        await hang_up(writer)

    async def looking(self, rng):
        path = rng.choice(["/metrics", "/server_info", "/v1/models", "/health", "/kv_check"])
        need((await ask(self.server, "GET", path))[0] == 200, path)

    async def one(self, rng):
        kind = rng.choices(
            [
                self.known,
                self.chat,
                self.several_on_one_connection,
                self.cancelled,
                self.aborted,
                self.wrong,
                self.oversized,
                self.byte_by_byte,
                self.given_up,
                self.slow_reader,
                self.looking,
            ],
            [30, 8, 4, 14, 4, 18, 4, 4, 6, 3, 5],
        )[0]
        await asyncio.wait_for(kind(rng), 120)
        self.count[kind.__name__] += 1


def open_trap():
    """A listening socket that nobody may connect to."""
    s = socket.create_server(("127.0.0.1", 0), backlog=64)
    s.setblocking(False)
    return s


async def mixed(o, say):
    server = Server(
        o.moonlet,
        "--max-running-requests",
        "32",
        "--max-total-tokens",
        "8192",
        "--max-body-size",
        "1",
        "--cache-prompts-only",
    )
    trap = open_trap()
    try:
        bodies = requests(60, 11, 24)
        mix = Mix(server, bodies, await alone(server, bodies), trap.getsockname()[1])

        async def run(n, seed):
            left = iter(range(n))

            async def work(me):
                rng = random.Random(f"{seed} {me}")
                for _ in left:
                    await mix.one(rng)

            await asyncio.gather(*(work(i) for i in range(o.clients)))

        await run(1000, "warm")  # allocator, thread stacks and buffers find their size
        for i in range(40):  # and every page of the KV pool is touched once: it counts as resident from then on
            await complete(server, {"prompt": [300 + i] * 500, "max_tokens": 1}, False)
        await settled(server)
        before = server.state()
        start = time.monotonic()
        await run(o.mixed, "mixed")
        took = time.monotonic() - start
        check = await settled(server)
        for _ in range(100):  # threads of closed connections are joined by and by
            after = server.state()
            if after[1] <= before[1] and after[2] <= before[2]:
                break
            await asyncio.sleep(0.1)
        need(
            after[1] <= before[1] and after[2] <= before[2], f"threads and files before {before[1:]}, after {after[1:]}"
        )
        need(after[0] < before[0] + 8, f"resident MB before {before[0]:.1f}, after {after[0]:.1f}")
        status, _ = await ask(server, "POST", "/flush_cache")
        need(status == 200, "flush_cache")
        check = await settled(server)
        need(check["pages_free"] == check["pages"], check)
        try:
            trap.accept()
            raise AssertionError("the server opened a connection for an image_url")
        except BlockingIOError:
            pass
        again = await alone(server, bodies[:10])
        need(again == mix.want[:10], "answers changed")
        kinds = ", ".join(f"{v} {k.replace('_', ' ')}" for k, v in mix.count.most_common())
        say(
            f"{o.mixed} mixed requests, {o.clients} at a time, in {took:.1f} s (1,000 before them for warmth): kv_check clean, "
            f"all pages free, RSS {before[0]:.1f} -> {after[0]:.1f} MB, threads {before[1]} -> {after[1]}, files {before[2]} -> "
            f"{after[2]}, no connection for an image_url\n    with the warm-up: {kinds}"
        )
    finally:
        need(server.stop() == 0, "exit status")
        trap.close()


# ---- slow readers and idle connections ----


async def probe(server, n):
    body = {"prompt": "What is 17 plus 25?", "max_tokens": 16, "temperature": 0, "ignore_eos": True}
    got = [await ttft(server, body) for _ in range(n)]
    return [f"{1e3 * statistics.median(v):.1f} ms (worst {1e3 * max(v):.1f})" for v in zip(*got)], max(
        g[1] for g in got
    )


async def crowd(o, say):
    server = Server(
        o.moonlet,
        "--max-running-requests",
        "64",
        "--max-connections",
        str(2 * o.crowd + 100),
        "--max-total-tokens",
        "65536",
    )
    try:
        quiet, _ = await probe(server, 20)
        idle = [await dial(server) for _ in range(o.crowd)]
        with_idle, _ = await probe(server, 20)
        body = json.dumps(
            {"prompt": "a b c", "max_tokens": o.slow_tokens, "ignore_eos": True, "stream": True, "logprobs": 20}
        ).encode()
        slow = []
        for _ in range(o.crowd):
            reader, writer = await dial(server, 4096)
            writer.transport.pause_reading()
            writer.write(bytes_of("POST", "/v1/completions", body))
            slow.append((reader, writer))
        # The sockets' buffers take some MB off the server's hands: /generate with all logprobs so far in each event is
        # more, and the thread that writes it stands still.
        stuck = []
        many = json.dumps(
            {
                "text": "a b c",
                "stream": True,
                "return_logprob": True,
                "top_logprobs_num": 20,
                "sampling_params": {"max_new_tokens": 1000, "ignore_eos": True},
            }
        ).encode()
        for _ in range(20):
            reader, writer = await dial(server, 4096)
            writer.transport.pause_reading()
            writer.write(bytes_of("POST", "/generate", many))
            stuck.append((reader, writer))
        start = time.monotonic()
        during = []  # while the engine works for them: a higher priority goes first, the others wait for their turn
        while True:
            during.append(await ttft(server, {"prompt": "What is 17?", "max_tokens": 4, "priority": 5}))
            info = json.loads((await ask(server, "GET", "/server_info"))[1])["internal_states"][0]
            if info["num_running_reqs"] + info["num_queue_reqs"] == 0:
                break
            need(time.monotonic() - start < 600, "the slow readers' answers are not ready")
        took = time.monotonic() - start
        for _, writer in idle:  # some may be 60 seconds old, and closed
            await hang_up(writer)
        await asyncio.sleep(0.5)
        idle = [await dial(server) for _ in range(o.crowd)]
        await asyncio.sleep(0.5)
        rss, threads, files = server.state()
        need(threads > 2 * o.crowd, f"{threads} threads")
        after, worst = await probe(server, 20)
        size = 0
        for reader, writer in slow[:: max(1, o.crowd // 50)]:  # a sample of them reads now, and gets everything
            writer.transport.resume_reading()
            status, _ = await head(reader)
            need(status == 200, status)
            raw = b""
            async for c in chunks(reader):
                raw += c
            tokens = sum(len(c["logprobs"]["tokens"]) for e in events(raw) for c in e["choices"] if c["logprobs"])
            need(tokens == o.slow_tokens, f"{tokens} of {o.slow_tokens} tokens")
            size = len(raw)
        for reader, writer in stuck[:3]:
            writer.transport.resume_reading()
            need((await head(reader))[0] == 200, "stuck reader")
            raw = b"".join([c async for c in chunks(reader)])
            last = events(raw)[-1]
            need(
                len(last["output_ids"]) == 1000 == len(last["meta_info"]["output_token_logprobs"]), "tokens are missing"
            )
            # what came while the socket was full was sent as one event
            need(len(events(raw)) < 250, f"{len(events(raw))} events: the socket was never full")
        for _, writer in slow + stuck + idle:
            await hang_up(writer, reset=True)
        await settled(server)
        need((await ask(server, "GET", "/health"))[0] == 200, "health")
        need(worst < 5, f"a normal client waited {worst:.1f} s beside slow readers")
        say(
            f"{o.crowd} idle connections, {o.crowd} readers that do not read ({size // 1024} kB each), 20 more of {len(raw) >> 20} MB: RSS {rss:.0f} MB, {threads} threads, {files} files\n"
            f"    TTFT of a normal client, median of 20: {quiet[0]} alone, {with_idle[0]} beside the idle ones, {after[0]} beside both;\n"
            f"    while the engine worked for the slow ones ({took:.1f} s, 64 of them at a time), with priority: "
            f"{1e3 * statistics.median(d[0] for d in during):.1f} ms (worst {1e3 * max(d[0] for d in during):.1f})"
        )
    finally:
        need(server.stop() == 0, "exit status")


# ---- beyond the limits ----


async def limit(o, say):
    """Connections beyond --max-connections are closed at once; with a place free again the next one is served. SIGTERM
    lets what runs end, and the port can be used again at once."""
    server = Server(o.moonlet, "--max-connections", "50")
    try:
        held = [await dial(server) for _ in range(50)]
        await asyncio.sleep(0.3)
        for _ in range(20):
            reader, writer = await dial(server)
            writer.write(bytes_of("GET", "/health"))
            try:
                need(await asyncio.wait_for(reader.read(), 10) == b"", "beyond the limit")
            except ConnectionError:
                pass
            await hang_up(writer)
        await hang_up(held.pop()[1])
        for i in range(200):
            try:
                need((await ask(server, "GET", "/health"))[0] == 200, "health")
                break
            except (ConnectionError, asyncio.IncompleteReadError):
                need(i < 199, "no place became free")
                await asyncio.sleep(0.02)
        for _, writer in held[10:]:
            await hang_up(writer)
        await asyncio.sleep(0.3)
        body = {"prompt": "a", "max_tokens": 300, "ignore_eos": True}
        running = [asyncio.ensure_future(ttft(server, body)) for _ in range(8)]
        await asyncio.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*running)
        need(await asyncio.get_running_loop().run_in_executor(None, server.process.wait, 60) == 0, "exit status")
        again = Server(o.moonlet, port=server.port)
        need((await ask(again, "GET", "/health"))[0] == 200, "health")
        need(again.stop() == 0, "exit status")
        say(
            "connections beyond the limit are closed, one that goes makes room; SIGTERM: 8 streams ended, restarted on the same port"
        )
    finally:
        server.stop()


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--moonlet", default=str(ROOT / "build/moonlet"))
    a.add_argument("--long", action="store_true")
    a.add_argument("--only", default="streams,mixed,crowd,limit")
    o = a.parse_args()
    o.tokens, o.mixed, o.clients, o.crowd, o.slow_tokens = (
        (64, 10000, 64, 1000, 200) if o.long else (24, 1000, 32, 200, 100)
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = 2 * o.crowd + 200
    if soft < want:
        if hard < want:
            sys.exit(f"{want} open files are needed, {hard} are allowed (ulimit -n)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))
    failed = 0
    for part in (streams, mixed, crowd, limit):
        if part.__name__ not in o.only.split(","):
            continue
        start, lines = time.monotonic(), []
        try:
            asyncio.run(part(o, lines.append))
            print(f"ok   {part.__name__:8} {time.monotonic() - start:6.1f} s  {''.join(lines)}", flush=True)
        except Exception as e:  # noqa: BLE001, shown
            failed += 1
            print(f"FAIL {part.__name__:8} {time.monotonic() - start:6.1f} s  {type(e).__name__}: {e}", flush=True)
            if not isinstance(e, AssertionError):
                raise
    print(f"{len(o.only.split(',')) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
