"""`moonlet serve` at its door: heads that can be read in two ways, clients that are slow or gone, bodies that take many
times their size in memory, and what a server without a key or a place says."""
import json
import re
import select
import socket
import threading
import time
from pathlib import Path

import pytest
from serve_client import JSON, ROOT, SLOW, Server, wait_until

HEADER_S = 2 * min(SLOW, 3)  # four clients below wait for its end
SMALL = {"prompt": "x", "max_tokens": 1}


@pytest.fixture(scope="module")
def server():
    s = Server(
        "--max-body-size",
        "4",
        "--max-body-memory",
        "64",
        "--header-timeout",
        str(HEADER_S),
        "--body-rate-min",
        "2000",
        "--max-connection-requests",
        "5",
        "--max-running-requests",
        "8",
        "--max-total-tokens",
        "8192",
        "--simulate-step",
        "5000",
    )
    yield s
    wait_until(lambda: s.stats()["num_running_reqs"] == 0)
    assert s.get("/live")[1]["body_memory"] == 0 and s.get("/kv_check")[1]["ok"]
    assert s.stop() == 0


def dial(server, receive_buffer=0):
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.settimeout(20 * SLOW)
    s.connect(("127.0.0.1", server.port))
    return s


def until_closed(s):
    """Everything that comes until the server closes; a reset is an error, silence too."""
    out = b""
    while part := s.recv(65536):
        out += part
    return out


def say(server, data):
    with dial(server) as s:
        s.sendall(data)
        return until_closed(s)


def post(path, body, *headers):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(raw)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + raw


# ---- Heads ----

BODY = json.dumps(SMALL).encode()
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
LENGTH = b"Content-Length: %d" % len(BODY)


@pytest.mark.parametrize(
    "lines,status",
    [
        ([b"Content-Length : 31"], 400),
        ([b"Content-Length\t: 31"], 400),
        ([b"Transfer-Encoding : chunked"], 400),
        ([b"Transfer-Encoding\t: chunked"], 400),
        ([LENGTH, b"Transfer-Encoding : chunked"], 400),
        ([LENGTH, b"X-Any : y"], 400),
        ([b" Content-Length: 31"], 400),
        ([b"X: y", b" Content-Length: 31"], 400),
        ([b"Transfer-: chunked", b" Encoding"], 400),
        ([b"Content-Length: 31", b"\tx"], 400),
        ([LENGTH, b"X\x01Y: z"], 400),
        ([LENGTH, b"X(Y): z"], 400),
        ([LENGTH, b"X: a\x0bb"], 400),
        ([LENGTH, b"Host: other"], 400),
        ([LENGTH, LENGTH], 400),
        ([LENGTH, b"Transfer-Encoding: chunked"], 400),
        ([b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"], 400),
        ([b"Transfer-Encoding: gzip"], 400),
        ([b"Transfer-Encoding: chunked, gzip"], 400),
        ([b"Transfer-Encoding: chunked, chunked"], 400),
        ([b"Transfer-Encoding: xchunked"], 400),
        ([b"Transfer-Encoding: identity"], 400),
        ([b"Transfer-Encoding: gzip, chunked"], 501),
        ([b"Content-Length: +31"], 400),
        ([b"Content-Length: 31, 31"], 400),
        ([b"Content-Length: 0x1f"], 400),
    ],
    ids=lambda v: b" / ".join(v).decode().encode("unicode_escape").decode() if isinstance(v, list) else None,
)
def test_heads_that_can_be_read_in_two_ways(server, lines, status):
    """One answer, then the end: what follows is nobody's request, whichever length was meant."""
    smuggled = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for body in (BODY, CHUNKED):
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + b"\r\n".join(lines) + b"\r\n\r\n"
        start = time.monotonic()
        got = say(server, head + body + smuggled)
        assert got.startswith(b"HTTP/1.1 %d " % status), got
        assert b"Connection: close" in got and b'"choices"' not in got and b'"version"' not in got
        assert time.monotonic() - start < 5 * SLOW, "it hangs"


def test_encodings_that_http_1_0_does_not_have(server):
    got = say(
        server, b"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED
    )
    assert got.split(b" ", 2)[1] == b"400" and b"Connection: close" in got and b'"choices"' not in got


@pytest.mark.parametrize(
    "head,body",
    [
        (b"HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked", CHUNKED),
        (b"HTTP/1.1\r\nHost: localhost\r\nTRANSFER-ENCODING:\tChunked", CHUNKED),
        (b"HTTP/1.1\r\nHost:localhost\r\ncontent-length:  %d" % len(BODY), BODY),
        (b"HTTP/1.1\r\nHost: localhost\r\nX-Empty:\r\nX_!#$%%&'*+-.^`|~9: \t a b\tc \r\n" + LENGTH, BODY),
        (b"HTTP/1.0\r\n" + LENGTH, BODY),
    ],
)
def test_heads_that_are_right(server, head, body):
    got = say(server, b"POST /v1/completions " + head + b"\r\nConnection: close\r\n\r\n" + body)
    assert got.split(b" ", 2)[1] == b"200", got


def test_paths_are_what_they_say(server):
    for path, status in [
        ("/%00", 404),
        ("/page%00/x", 404),
        ("/health%00", 404),
        ("/%68ealth", 200),
        ("/", 200),
        ("/%zz", 404),
    ]:
        got = say(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert int(got.split(b" ", 2)[1]) == status, (path, got[:200])


# ---- Bodies that are too large: the answer arrives ----


def refused_while_sending(server, head, pieces):
    with dial(server) as s:
        s.sendall(head)
        for piece in pieces:
            s.sendall(piece)
        return until_closed(s)


def test_a_chunked_body_over_the_limit_is_413(server):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    got = refused_while_sending(server, head, [piece] * 70)
    top, _, text = got.partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 413 ") and b"Connection: close" in top
    assert json.loads(text)["error"]["code"] == 413 and f"Content-Length: {len(text)}".encode() in top
    got = refused_while_sending(server, head, [piece] * 65)  # and one that then waits for its answer
    assert got.startswith(b"HTTP/1.1 413 ")


def test_a_long_body_that_is_sent_anyway_is_413(server):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4587520\r\n\r\n"
    assert refused_while_sending(server, head, [b"x" * 65536] * 70).startswith(b"HTTP/1.1 413 ")


# ---- Clients that are slow ----


def drip(server, start, rest, every):
    """Sends `rest` a piece at a time; seconds until the server closed, and what it said."""
    with dial(server) as s:
        s.sendall(start)
        begin = time.monotonic()
        s.settimeout(every)
        for i in range(len(rest)):
            try:
                s.sendall(rest[i : i + 1] if isinstance(rest, bytes) else rest[i])
                said = s.recv(65536)
                return time.monotonic() - begin, said
            except (ConnectionResetError, BrokenPipeError):
                return time.monotonic() - begin, b""
            except socket.timeout:
                pass
        s.settimeout(20 * SLOW)
        return time.monotonic() - begin, s.recv(65536)


def test_headers_byte_by_byte_are_dropped(server):
    took, said = drip(server, b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX: ", b"y" * 1000, 0.1)
    assert HEADER_S * 0.9 < took < HEADER_S + 5 * SLOW and not said


def test_a_body_byte_by_byte_is_dropped(server):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    took, said = drip(server, head, b"y" * 1000, 0.1)
    assert HEADER_S * 0.9 < took < HEADER_S + 5 * SLOW and not said


def test_a_body_with_a_fast_beginning_is_dropped(server):
    """The rate counts anew in every stretch: a megabyte at once does not pay for the minutes after it."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n" + b" " * 1000000
    took, said = drip(server, head, b"y" * 1000, 0.1)
    assert took < 2 * HEADER_S + 5 * SLOW and not said


def test_a_second_request_byte_by_byte_is_dropped():
    s = Server("--header-timeout", "0.5", "--idle-timeout", "1")
    try:
        with dial(s) as c:
            c.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert c.recv(65536).startswith(b"HTTP/1.1 200")
            begin = time.monotonic()
            c.settimeout(0.2)
            for _ in range(200):
                try:
                    c.sendall(b"G")
                    if not c.recv(100):
                        break
                except socket.timeout:
                    pass
                except OSError:
                    break
            assert 1 < time.monotonic() - begin < 10 * SLOW
    finally:
        assert s.stop() == 0


def test_a_slow_body_that_keeps_its_rate_is_served(server):
    body = json.dumps({**SMALL, "pad": "x" * 5000 * HEADER_S}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    pieces = [body[i : i + 400] for i in range(0, len(body), 400)]
    took, said = drip(server, head, pieces, 0.1)
    assert took > HEADER_S and said.startswith(b"HTTP/1.1 200"), (took, said)


# ---- Clients that have gone ----


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("rest", [b"", b"G", b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3])
def test_bytes_behind_a_request_do_not_hide_that_its_client_has_gone(server, stream, rest):
    before = server.metric("sglang:num_aborted_requests_total")
    with dial(server) as s:
        s.sendall(
            post("/v1/completions", {"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "stream": stream}) + rest
        )
        if stream:
            assert s.recv(10)
        wait_until(lambda: server.stats()["num_running_reqs"] == 1)
        s.shutdown(socket.SHUT_WR)  # closed for sending counts as gone
        wait_until(lambda: server.stats()["num_running_reqs"] == 0)
    assert server.metric("sglang:num_aborted_requests_total") == before + 1


def test_a_pipelined_request_is_answered_after_the_first(server):
    got = say(server, post("/v1/completions", SMALL) + post("/v1/completions", SMALL, "Connection: close"))
    assert got.count(b"HTTP/1.1 200") == 2


def test_a_connection_has_so_many_requests(server):
    with dial(server) as s:
        for i in range(5):
            s.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            got = s.recv(65536)
            assert got.startswith(b"HTTP/1.1 200") and (b"Connection: close" in got) == (i == 4)
        assert s.recv(1) == b""


# ---- Memory ----


def peak_kb(server):
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())[1])


def nested(n):
    schema = {"type": "string", "description": "X"}
    for _ in range(55):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    text = json.dumps({"messages": [{"role": "user", "content": "x"}], "tools": [tool]})
    return text.replace('"X"', '"' + "\\na" * ((n - len(text)) // 3) + '"')


def filled(head, item, tail):
    return lambda n: head + item * ((n - len(head) - len(tail)) // len(item)) + tail


CHAT = '{"messages":[{"role":"user","content":"x"}],"max_tokens":1,'
SHAPES = [  # what a body of 4 MiB took on the server that had no limits here, in MiB
    ("/v1/chat/completions", nested, 775),
    ("/v1/chat/completions", filled(CHAT + '"z":[', "{},", "1]}"), 317),
    ("/v1/chat/completions", filled(CHAT + '"z":[', "[],", "1]}"), 189),
    (
        "/v1/chat/completions",
        filled(CHAT + '"tools":[{"type":"function","function":{"name":"f","parameters":{"x":[', "{},", "1]}}}]}"),
        623,
    ),
    ("/v1/completions", filled('{"prompt":[', "1,", "1]}"), 98),
    ("/v1/completions", filled('{"prompt":"', "Q", '"}'), 31),
    ("/tokenize", filled('{"prompt":"', "Q", '"}'), 41),
]


@pytest.mark.skipif(SLOW > 1, reason="an instrumented program keeps freed memory")
def test_no_body_takes_many_times_its_size(server):
    server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
    before = peak_kb(server)
    for path, make, _ in SHAPES:
        body = make((4 << 20) - 1000)
        status, answer, _ = server.request("POST", path, body)
        assert status in (400, 413), (status, str(answer)[:300])
    grown = (peak_kb(server) - before) >> 10
    assert grown < 48, f"{grown} MiB for bodies of 4 MiB"


def test_too_long_is_said_without_counting(server):
    long = "Q" * 1000000
    for path, body, param in [
        ("/v1/completions", {"prompt": long}, "prompt"),
        ("/generate", {"text": long}, "text"),
        ("/v1/completions", {"prompt": [5] * 20000}, "prompt"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": long}]}, "messages"),
        ("/v1/chat/completions", json.loads(nested(50000)), "messages"),
    ]:
        status, answer, _ = server.request("POST", path, body)
        error = answer["error"]
        assert status == 400 and error["code"] == "context_length_exceeded" and error["param"] == param
        assert "maximum context length is 16384 tokens; the prompt has more" in error["message"]
    assert server.post("/tokenize", {"prompt": "Q" * 40000})["count"] == 40000  # counting goes further
    assert server.post("/tokenize", {"prompt": ["Q" * 600000, "Q" * 600000]}, 400)


def settled(server):
    """What bodies take does not change any more: none is on its way."""
    before = server.get("/live")[1]["body_memory"]
    time.sleep(0.2)
    return server.get("/live")[1]["body_memory"] == before


def test_the_budget_of_bodies(server):
    """Large bodies beyond it are 503 with Retry-After; small ones are served all the while."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n"
    held, refused = [], []
    for _ in range(20):
        s = dial(server)
        try:
            s.sendall(head + b" " * 3900000)
        except OSError:
            pass  # refused in the middle of it
        held.append(s)
        for s in select.select(held, [], [], 0)[0]:
            refused.append(s)
            held.remove(s)
    wait_until(lambda: len(refused) + len(select.select(held, [], [], 0.1)[0]) >= 2 and settled(server))
    said = [s.recv(65536) for s in refused + select.select(held, [], [], 0)[0]]
    assert len(said) <= 18 and all(r.startswith(b"HTTP/1.1 503 ") and b"Retry-After: " in r for r in said)
    assert server.post("/v1/completions", {**SMALL, "pad": "x" * 50000})["choices"]
    for s in held + refused:
        s.close()
    wait_until(lambda: server.get("/live")[1]["body_memory"] == 0)
    assert server.post("/v1/completions", {**SMALL, "pad": "x" * 3900000})["choices"]


def test_more_than_half_of_the_budget_is_413(server):
    status, answer, _ = server.request("POST", "/v1/completions", filled('{"prompt":"x","z":[', "{},", "1]}")(1 << 20))
    assert status == 413 and "--max-body-memory" in answer["error"]["message"]


def test_a_running_request_holds_nothing_of_its_body(server):
    c = server.connect()
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "pad": "y" * 2000000,
        "tools": tools,
        "max_tokens": 2000,
        "ignore_eos": True,
        "stream": True,
    }
    c.request("POST", "/v1/chat/completions", json.dumps(body), JSON)
    c.getresponse().readline()
    assert server.stats()["num_running_reqs"] == 1 and server.get("/live")[1]["body_memory"] == 0
    c.sock.close()
    c.close()


def test_strings_may_hold_brackets(server):
    deep = "[" * 200
    server.post("/v1/completions", {**SMALL, "user": '"' + deep})
    raw = json.dumps({**SMALL, "user": '"'})[:-1] + ',"x":' + deep + "]" * 200 + "}"
    assert "deeper" in server.post("/v1/completions", raw, 400)["error"]["message"]


def test_a_client_that_never_reads():
    """Its answer is dropped when 32 MiB of it wait; the server's memory stays bounded. 16 x 6000 tokens are more
    than 100 MB: the thread that answers may take twice what is just allowed before it waits for the client."""
    flags = ("--max-total-tokens", "131072", "--max-running-requests", "16", "--idle-timeout", str(60 * SLOW))
    s = Server("--simulate-step", "0", *flags)  # by default it would be closed as idle where the answer takes a minute
    try:
        s.post("/v1/completions", SMALL)
        before = peak_kb(s)
        with dial(s, 4096) as c:
            params = {"n": 16, "max_new_tokens": 6000, "ignore_eos": True}
            c.sendall(
                post(
                    "/generate",
                    {
                        "text": "x",
                        "stream": True,
                        "return_logprob": True,
                        "top_logprobs_num": 128,
                        "sampling_params": params,
                    },
                )
            )
            wait_until(lambda: s.stats()["num_running_reqs"] > 0)
            wait_until(lambda: s.stats()["num_running_reqs"] + s.stats()["num_queue_reqs"] == 0, 60 * SLOW)
            out = b""
            while not out.endswith(b"0\r\n\r\n"):
                part = c.recv(1 << 20)
                assert part, "closed"
                out = out[-2000:] + part
        assert b'"code":503' in out and b"reads too slowly" in out and out.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        if SLOW == 1:
            assert peak_kb(s) - before < 80 << 10
    finally:
        assert s.stop() == 0


# ---- Keys, and the end ----


def test_every_route_but_six_wants_the_key():
    source = (ROOT / "src/server/routes.c").read_text()
    table = re.findall(r'^    \{"(/[^"]*)", M_(\w+), (true|false), ', source, re.M)
    assert len(table) >= 27
    s = Server("--api-key", "secret")
    try:
        opened = []
        for path, methods, _ in table:
            for method in ("GET", "POST") if methods == "BOTH" else (methods,):
                answers = [
                    s.request(method, path, "{}" if method == "POST" else None, headers)[0]
                    for headers in (JSON, {**JSON, "x-api-key": "wrong"}, {**JSON, "Authorization": "Basic secret"})
                ]
                if answers[0] != 401:
                    opened.append(path)
                else:
                    assert answers == [401] * 3, path
        assert sorted(opened) == ["/", "/health", "/health_generate", "/metrics", "/page", "/ping"]
    finally:
        assert s.stop() == 0


def test_a_draining_server_refuses():
    s = Server("--simulate-step", "20000")
    try:
        with dial(s) as kept, dial(s) as running:
            kept.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(65536).startswith(b"HTTP/1.1 200")
            running.sendall(
                post("/v1/completions", {**SMALL, "max_tokens": 100 * min(SLOW, 3), "ignore_eos": True, "stream": True})
            )
            assert running.recv(10)
            s.process.terminate()
            wait_until(lambda: any("shutting down" in line for line in s.log))
            kept.sendall(post("/v1/completions", SMALL))
            head, _, text = until_closed(kept).partition(b"\r\n\r\n")
            assert (
                head.startswith(b"HTTP/1.1 503 ")
                and b"\r\nConnection: close" in head
                and b"\r\nx-should-retry: false" in head
            )
            assert json.loads(text)["error"]["type"] == "overloaded_error"
            rest = b""
            while not rest.endswith(b"0\r\n\r\n"):
                rest += running.recv(65536)
            assert b"[DONE]" in rest and b'"error"' not in rest
    finally:
        assert s.stop() == 0


def test_two_signals_end_a_server_whose_clients_send_long_requests():
    """Handlers that read and render are done in seconds, so a second signal is not kept waiting."""
    s = Server("--max-body-size", "32")
    calls = ",".join('{"id":"a%d","function":{"name":"f","arguments":""}}' % i for i in range(100000))
    results = ",".join('{"role":"tool","tool_call_id":"a%d","content":""}' % i for i in range(100000))
    body = '{"messages":[{"role":"assistant","content":"","tool_calls":[%s]},%s]}' % (calls, results)
    data = post("/v1/chat/completions", body.encode())
    clients = [dial(s) for _ in range(4)]
    senders = [threading.Thread(target=c.sendall, args=(data,)) for c in clients]
    for t in senders:
        t.start()
    for t in senders:
        t.join()
    time.sleep(0.2)
    for c in clients:
        c.close()
    start = time.monotonic()
    s.process.terminate()
    time.sleep(0.1)
    s.process.terminate()
    assert s.process.wait(20 * SLOW) == 0 and time.monotonic() - start < 15 * SLOW
