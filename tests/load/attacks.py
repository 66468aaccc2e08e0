#!/usr/bin/env python3
"""What a hostile client may do to `moonlet serve`, while an ordinary one is served. Standard library only.

    tests/load/attacks.py [--moonlet build/moonlet] [--only NAME,...] [--seconds 5]

Each attack in turn, then all at once. Beside each, a client in a process of its own asks for short answers, one after
the other: the P99 of its time to the first token has to stay under 2 seconds, or twice what it is without an attack if
that is more, and none of its requests may fail. Afterwards the server must be idle, its KV pool whole, its memory
bounded. Wants the machine for itself; two minutes on two cores."""
import argparse
import asyncio
import json
import math
import random
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from load import ROOT, Server, answer, bytes_of, dial, hang_up, head, need, settled

KEY = "Authorization: Bearer secret"
FLAGS = [
    "--api-key",
    "secret",
    "--header-timeout",
    "2",
    "--body-rate-min",
    "4096",
    "--max-body-size",
    "8",
    "--max-body-memory",
    "192",
    "--max-connections",
    "1000",
    "--max-running-requests",
    "16",
    "--max-total-tokens",
    "65536",
]
# bodies (192, and half as much again while a buffer grows), texts, threads and their arenas, KV pages first touched
GROWTH_MB = 768
GONE = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, asyncio.TimeoutError)


# ---- the ordinary client ----


async def normal(port, seconds):
    """Prints the times to the first token of streamed chats, as JSON, and what failed."""

    class At:
        pass

    server, times, failures, end = At(), [], [], time.monotonic() + seconds
    server.port = port
    while time.monotonic() < end:
        words = " ".join(random.choice("red blue cat dog sum of how many apples".split()) for _ in range(20))
        body = {"messages": [{"role": "user", "content": words}], "max_tokens": 4, "stream": True, "temperature": 0}
        start = time.monotonic()
        try:
            reader, writer = await dial(server)
            writer.write(bytes_of("POST", "/v1/chat/completions", json.dumps(body).encode(), [KEY]))
            status, headers = await asyncio.wait_for(head(reader), 60)
            first = await asyncio.wait_for(reader.readuntil(b"\n\n"), 60)
            times.append(time.monotonic() - start)
            rest = await asyncio.wait_for(reader.readuntil(b"\r\n0\r\n\r\n"), 60)
            if status != 200 or b'"error"' in first + rest or b"[DONE]" not in rest:
                failures.append(f"{status} {(first + rest)[:200]!r}")
            await hang_up(writer)
        except GONE as e:
            failures.append(f"{type(e).__name__}: {e} after {time.monotonic() - start:.1f} s")
        await asyncio.sleep(0.02)
    print(json.dumps({"times": times, "failures": failures}))


def p99(times):
    return sorted(times)[math.ceil(0.99 * len(times)) - 1]


# ---- attackers: each is a coroutine that attacks until it is cancelled; `n` run at a time ----


def post(path, raw, *headers):
    return bytes_of("POST", path, raw if isinstance(raw, bytes) else raw.encode(), [KEY, *headers])


def leave(writer):
    writer.transport.abort()


async def exchange(server, raw, patience=60):
    """The status of the answer to raw bytes; 0: closed without one."""
    reader, writer = await dial(server)
    try:
        writer.write(raw)
        return (await asyncio.wait_for(answer(reader), patience))[0]
    except GONE:
        return 0
    finally:
        leave(writer)


async def expect(server, raw, allowed):
    status = await exchange(server, raw)
    need(status in allowed, f"{status} where one of {allowed} was expected: {raw[:200]!r}")


async def health(server):
    """GET /health_generate, without the key."""
    await expect(server, bytes_of("GET", "/health_generate"), (200, 429, 503))


MANY = post("/v1/completions", json.dumps({"prompt": [[300 + i] * 9000 for i in range(16)], "n": 128, "max_tokens": 1}))


async def many_choices(server):
    """290 KB: 16 prompts of 9,000 ids, 128 answers each."""
    reader, writer = await dial(server)
    writer.write(MANY)
    try:
        status, _ = await asyncio.wait_for(answer(reader), 3)
        need(status in (200, 400, 429, 503), status)
        await asyncio.sleep(0.1)
    except GONE:
        pass
    finally:
        leave(writer)


def nested(size):
    schema = {"type": "string", "description": "X"}
    for _ in range(55):
        schema = {"type": "object", "properties": {"a": schema}}
    text = json.dumps(
        {
            "messages": [{"role": "user", "content": "x"}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
        }
    )
    return text.replace('"X"', '"' + "\\na" * (size // 3) + '"')


NESTED = post("/v1/chat/completions", nested(2 << 20))
OBJECTS = post(
    "/v1/chat/completions", '{"messages":[{"role":"user","content":"x"}],"max_tokens":1,"z":[' + "{}," * 150000 + "1]}"
)
TEXT = post("/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "Qx7 " * 1000000}]}))
RESULTS = post(
    "/v1/chat/completions",
    '{"messages":[{"role":"assistant","content":"","tool_calls":[%s]},%s]}'
    % (
        ",".join('{"id":"a%d","function":{"name":"f","arguments":""}}' % i for i in range(25000)),
        ",".join('{"role":"tool","tool_call_id":"a%d","content":""}' % i for i in range(25000)),
    ),
)


async def descriptions(server):
    """A description of newlines, 55 objects deep, which the declaration of tools indents."""
    await expect(server, NESTED, (400, 503))


async def empty_objects(server):
    """Two bytes of text, 240 of memory."""
    await expect(server, OBJECTS, (200, 413, 429, 503))


async def long_texts(server):
    """4 MB that fit no context."""
    await expect(server, TEXT, (400, 503))


async def tool_results(server):
    """25,000 calls and their results."""
    await expect(server, RESULTS, (400, 503))


async def gone(server):
    """Asks for a long answer, sends a byte more and goes."""
    body = json.dumps({"prompt": "x", "max_tokens": 8000, "ignore_eos": True, "n": 4, "stream": random.random() < 0.5})
    _, writer = await dial(server)
    try:
        writer.write(post("/v1/completions", body) + b"G")
        await asyncio.sleep(random.random() * 0.1)
    finally:
        leave(writer)


HEADS = [
    b"Content-Length : 31",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: gzip",
    b"Transfer-Encoding: chunked, gzip",
    b"Content-Length: 31\r\nHost: other",
    b"X: y\r\n folded",
    b"Content-Length: 31\r\nTransfer-Encoding: chunked",
]


async def heads(server):
    """Requests whose end is in doubt, with another one inside."""
    raw = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + random.choice(HEADS) + b"\r\n\r\n"
    reader, writer = await dial(server)
    writer.write(raw + b"GET /version HTTP/1.1\r\nHost: localhost\r\n" + KEY.encode() + b"\r\n\r\n")
    try:
        got = await asyncio.wait_for(reader.read(-1), 20)
        need(got.split(b" ", 2)[1] in (b"400", b"501") and b'"version"' not in got, f"{raw!r}: {got[:300]!r}")
    except ConnectionError:
        pass
    finally:
        leave(writer)


async def drips(server):
    """A byte of a head, or of a body, now and then, for as long as the server lets it."""
    start = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + KEY.encode() + b"\r\n"
    start += b"Content-Length: 100000\r\n\r\n" if random.random() < 0.5 else b"X: "
    reader, writer = await dial(server)
    begin = time.monotonic()
    try:
        writer.write(start)
        while not reader.at_eof():
            writer.write(b"x")
            await writer.drain()
            try:
                await asyncio.wait_for(reader.read(100), 0.5)
            except (TimeoutError, asyncio.TimeoutError):
                pass
            need(time.monotonic() - begin < 15, "a client that drips is let in for more than 15 s")
    except ConnectionError:
        pass
    finally:
        leave(writer)


async def held_bodies(server):
    """Large bodies that are not finished, to use up the memory for bodies."""
    reader, writer = await dial(server)
    try:
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Length: 8000000\r\n\r\n" % KEY.encode()
        )
        writer.write(b" " * 7000000)
        await asyncio.wait_for(reader.read(100), 3)
    except GONE:
        pass
    finally:
        leave(writer)


async def chunked_bodies(server):
    """Chunks beyond the limit: the answer is 413."""
    reader, writer = await dial(server)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n" % KEY.encode()
    )
    writer.write((b"10000\r\n" + b"x" * 65536 + b"\r\n") * 140)
    try:
        status, _ = await asyncio.wait_for(answer(reader), 20)
        need(status in (413, 503), status)
    except ConnectionError:
        pass
    finally:
        leave(writer)


async def deaf(server):
    """Asks for a long stream with log-probabilities and does not read it."""
    reader, writer = await dial(server, 4096)
    body = {"prompt": "x", "max_tokens": 1000, "ignore_eos": True, "stream": True, "logprobs": 20}
    try:
        writer.transport.pause_reading()
        writer.write(post("/v1/completions", json.dumps(body)))
        await asyncio.sleep(3)
    finally:
        leave(writer)


ATTACKS = [
    (health, 20),
    (many_choices, 1),
    (descriptions, 4),
    (empty_objects, 4),
    (long_texts, 4),
    (tool_results, 4),
    (gone, 8),
    (heads, 8),
    (drips, 100),
    (held_bodies, 30),
    (chunked_bodies, 4),
    (deaf, 8),
]


# ---- one attack beside the ordinary client ----


async def loop(attack, server, count):
    while True:
        await attack(server)
        count[0] += 1


async def beside(server, attacks, seconds):
    """Runs the attacks while the ordinary client asks; its times, and how many attacks were carried out."""
    counts = {a.__name__: [0] for a, _ in attacks}
    tasks = [asyncio.ensure_future(loop(a, server, counts[a.__name__])) for a, n in attacks for _ in range(n)]
    client = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--normal", str(server.port), str(seconds), stdout=subprocess.PIPE
    )
    out = asyncio.ensure_future(client.communicate())
    await asyncio.wait([out, *tasks], return_when=asyncio.FIRST_COMPLETED)
    wrong = [t.exception() for t in tasks if t.done()]  # an attacker saw what must not be
    if wrong:
        client.kill()
    raw = (await out)[0]
    while left := [t for t in tasks if not t.done()]:  # wait_for() may swallow a cancellation
        for t in left:
            t.cancel()
        await asyncio.wait(left, timeout=1)
    if wrong:
        raise wrong[0]
    return json.loads(raw), {k: v[0] for k, v in counts.items()}


async def idle(server):
    """Waits until all of it is over. The pool must be whole then."""

    async def get(path):
        reader, writer = await dial(server)
        writer.write(bytes_of("GET", path, headers=[KEY]))
        status, raw = await answer(reader)
        await hang_up(writer)
        return status, json.loads(raw)

    end = time.monotonic() + 30
    while True:
        status, check = await get("/kv_check")
        need(status == 200 and check["ok"], check)
        state = (await get("/server_info"))[1]["internal_states"][0]
        left = (
            check["pages_used"]
            + state["num_running_reqs"]
            + state["num_queue_reqs"]
            + (await get("/live"))[1]["body_memory"]
        )
        if not left:
            return
        need(time.monotonic() < end, f"something is left: {check} {state}")
        await asyncio.sleep(0.1)


def peak_mb(server):
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())[1]) / 1024


async def run(server, attacks, seconds, limit, before_mb):
    result, counts = await beside(server, attacks, seconds)
    await idle(server)
    times = result["times"]
    need(not result["failures"], f"the ordinary client: {result['failures'][:3]}")
    need(len(times) >= 5, f"the ordinary client got {len(times)} answers")
    need(all(counts.values()) or not attacks, f"an attack was never carried out: {counts}")
    worst, grown = p99(times), peak_mb(server) - before_mb
    need(worst <= limit, f"P99 of the time to the first token {worst:.2f} s, at most {limit:.2f} s: {counts}")
    need(grown < GROWTH_MB, f"{grown:.0f} MB of memory, at most {GROWTH_MB}")
    return worst, len(times), grown, counts


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--moonlet", default=str(ROOT / "build/moonlet"))
    a.add_argument("--only", default=",".join(f.__name__ for f, _ in ATTACKS) + ",all")
    a.add_argument("--seconds", type=float, default=5)
    a.add_argument("--normal", nargs=2, help=argparse.SUPPRESS)
    o = a.parse_args()
    if o.normal:
        return asyncio.run(normal(int(o.normal[0]), float(o.normal[1])))
    server = Server(o.moonlet, *FLAGS)
    passed = failed = 0
    try:
        before = peak_mb(server)
        quiet, n, _, _ = asyncio.run(run(server, [], o.seconds, math.inf, before))
        limit = max(2, 2 * quiet)
        print(f"     {'alone':15} P99 {1e3 * quiet:6.0f} ms of {n}", flush=True)
        parts = [(f.__name__, [(f, k)]) for f, k in ATTACKS] + [("all", ATTACKS)]
        for name, attacks in parts:
            if name not in o.only.split(","):
                continue
            try:
                seconds = o.seconds * (3 if name == "all" else 1)
                worst, n, grown, counts = asyncio.run(run(server, attacks, seconds, limit, before))
                passed += 1
                print(
                    f"ok   {name:15} P99 {1e3 * worst:6.0f} ms of {n}, {sum(counts.values())} attacks, +{grown:.0f} MB",
                    flush=True,
                )
            except AssertionError as e:
                failed += 1
                print(f"FAIL {name:15} {e}", flush=True)
    finally:
        status = server.stop()
    if status:
        failed += 1
        print(f"FAIL the server's exit status is {status}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
