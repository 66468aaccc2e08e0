"""`moonlet serve --role decode` beside servers of --role prefill: the answers of one server, and what becomes of
requests when a server is lost, stands still, sends damaged pages, or is not like the other."""
import ctypes
import json
import re
import shutil
import signal
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from serve_client import JSON, NANO, ROOT, SLOW, Server, wait_until
from test_serve_drafts import answers_of
from test_serve_pictures import CHATS, ask

WORDS = "one two three four five six seven eight nine ten eleven twelve".split()
FEW = ["--max-running-requests", "4"]


def prefill(*flags):
    return Server("--role", "prefill", *FEW, *flags)


def decode(*ports, flags=()):
    urls = [word for p in ports for word in ("--prefill-url", f"http://127.0.0.1:{p}/")]
    return Server("--role", "decode", *urls, "--prefill-min-tokens", "64", *FEW, *flags)


def long_text(seed, words=150):
    return " ".join(WORDS[(seed * 7 + i * i) % 12] + str(seed) for i in range(words))


def long_answers(server, n=6, **more):
    def one(i):
        body = {"text": long_text(i, 60 + 40 * i), "return_logprob": True, **more}
        body["sampling_params"] = {"max_new_tokens": 24, "temperature": 0.8 * (i % 2), "sampling_seed": i}
        got = server.post("/generate", body)
        return got["text"], got["meta_info"]["output_token_logprobs"], got["meta_info"]["prompt_tokens"]

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(one, range(n)))


def fetched(server):
    return server.metric("moonlet:kv_tokens_fetched_total")


@pytest.fixture(scope="module")
def trio():
    even = ["--speculative-disable-adaptive"]  # as many drafts, however long steps take
    there = prefill(*even)
    servers = [there, decode(there.port, flags=even), Server(*FEW, *even)]
    yield servers
    assert [s.get("/kv_check")[1]["ok"] for s in servers] == [True] * 3
    assert [s.stats()["pages_used"] for s in servers] == [0] * 3
    assert [s.stop() for s in reversed(servers)] == [0] * 3


def test_the_answers_of_one_server(trio):
    """Log-probabilities, drawn tokens, drafts and what comes true of them."""
    there, here, alone = trio
    want, got = long_answers(alone), long_answers(here)
    assert got == want
    tokens = sum(n - 1 for _, _, n in want)  # all but the last one, which is run for the first token's sake
    assert fetched(here) == there.metric("moonlet:kv_tokens_sent_total") == tokens > 64 * 12
    accepted = [s.metric("moonlet:draft_tokens_accepted_total") for s in (here, alone)]
    assert accepted[0] == accepted[1] > 0
    assert there.metric("sglang:generation_tokens_total") == 0
    assert here.metric("moonlet:kv_transfer_bytes_total") > 0 == here.metric("moonlet:kv_prompts_failed_total")


def test_chats_tools_and_forced_text(trio):
    _, here, alone = trio
    assert answers_of(here) == answers_of(alone)


def test_a_second_turn_fetches_what_lacks(trio):
    _, here, alone = trio
    before = fetched(here)
    text = long_text(77, 200)
    first = [s.post("/generate", {"text": text, "sampling_params": {"max_new_tokens": 8}}) for s in (here, alone)]
    middle = fetched(here)
    longer = text + first[0]["text"] + long_text(78, 100)
    second = [s.post("/generate", {"text": longer, "sampling_params": {"max_new_tokens": 8}}) for s in (here, alone)]
    assert first[0]["text"] == first[1]["text"] and second[0]["text"] == second[1]["text"]
    one, two = (m["meta_info"]["prompt_tokens"] - 1 for m in (first[0], second[0]))
    cached = second[0]["meta_info"]["cached_tokens"]
    assert cached == (one + 8) // 64 * 64  # whole pages, of the answer, too
    assert middle - before == one and fetched(here) - middle == two - cached


def test_pictures_are_computed_here(trio):
    _, here, alone = trio
    before = fetched(here)
    for i in range(min(2, len(CHATS))):
        one, other = (ask(s, i)["choices"][0]["message"] for s in (here, alone))
        assert one == other
    assert fetched(here) == before


def test_the_servers_say_what_they_are(trio):
    assert [s.get("/server_info")[1]["role"] for s in trio] == ["prefill", "decode", None]
    assert "prompts for other servers" in trio[0].ready and "prompts from other servers" in trio[1].ready
    assert [s.get("/health_generate")[0] for s in trio] == [200] * 3
    assert [s.get("/kv_pages")[0] for s in trio] == [200, 404, 404]
    for path in ("/v1/chat/completions", "/generate", "/v1/messages"):
        status, answer, _ = trio[0].request("POST", path, {"text": "a", "messages": []})
        assert status == 403 and "--role prefill" in answer["error"]["message"]


NONE = ["--speculative-algorithm", "NONE"]
ALWAYS = ["--speculative-num-steps", "3", "--speculative-disable-adaptive"]
DIVIDED = [
    (["--tp", "2", *NONE], NONE),
    (NONE, ["--tp", "2", *NONE]),
    (["--tp", "2"], ["--tp", "2"]),
    (["--kv-cache-dtype", "fp8_e4m3"], ["--kv-cache-dtype", "fp8_e4m3", "--disable-radix-cache"]),
    (["--tp", "2", "--dcp", "2", *NONE], ["--tp", "2", "--enable-dp-attention", *NONE]),
    (["--pp", "2", *NONE], ["--tp", "2", "--dcp", "2", *NONE]),
    (["--tp", "2", "--pp", "2", *ALWAYS], ["--tp", "2", *ALWAYS]),
    (["--tp", "2", "--enable-dp-attention", "--disable-radix-cache", *NONE], ["--pp", "2", *NONE]),
]


@pytest.mark.parametrize("there_flags, here_flags", DIVIDED)
def test_however_each_is_divided(there_flags, here_flags):
    """A page's bytes are the same, a draft's as well: the text of one server that is divided as the decoding one is,
    and as many guesses that come true. (Sums over ranks differ in their last bits, so log-probabilities are not
    compared.)"""
    there = prefill("--device", "ref", *there_flags)
    servers = [
        there,
        decode(there.port, flags=["--device", "ref", *here_flags]),
        Server("--device", "ref", *FEW, *here_flags),
    ]
    body = {"text": long_text(5, 40), "sampling_params": {"max_new_tokens": 12, "temperature": 0}}
    got, want = (s.post("/generate", body)["text"] for s in servers[1:])
    assert fetched(servers[1]) >= 64
    if here_flags[-1] == ALWAYS[-1]:
        true = [s.metric("moonlet:draft_tokens_accepted_total") for s in servers[1:]]
        assert true[0] == true[1] > 0
    assert [s.get("/kv_check")[1]["ok"] for s in servers] == [True] * 3
    assert [s.stop() for s in reversed(servers)] == [0] * 3
    assert got == want


# ---- faults ----


class Wire:
    """Between the two servers: after `bytes` of an answer it cuts, stalls, or damages a bit; act None: it passes on."""

    def __init__(self, port):
        self.upstream, self.act, self.bytes = port, None, 0
        self.acted = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.upstream))
        except OSError:
            return client.close()
        threading.Thread(target=self.forward, args=(client, server, False), daemon=True).start()
        self.forward(server, client, True)

    def forward(self, of, to, answers):
        passed = 0
        try:
            while data := of.recv(1 << 16):
                if answers and self.act and passed + len(data) > self.bytes:
                    at = max(self.bytes - passed, 0)
                    if self.act == "damage":
                        data = data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]
                        self.act = None
                    else:
                        to.sendall(data[:at])
                        self.acted.set()
                        while self.act == "stall":
                            time.sleep(0.05)
                        break
                passed += len(data)
                to.sendall(data)
        except OSError:
            pass
        for s in (of, to):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


@pytest.fixture(scope="module")
def wired():
    there = prefill()
    wire = Wire(there.port)
    servers = [there, decode(wire.port, flags=["--prefill-timeout", str(1.5 * SLOW)]), Server(*FEW)]
    yield [*servers, wire]
    wire.close()
    assert [s.get("/kv_check")[1]["ok"] for s in servers] == [True] * 3
    assert [s.stats()["pages_used"] for s in servers] == [0] * 3
    assert [s.stop() for s in reversed(servers)] == [0] * 3


FAULTS = {"cut": " pages: transfer closed", "stall": "nothing came for ", "damage": "was damaged on its way"}
seeds = iter(range(1000, 2000))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_server_costs_its_request_an_error(wired, fault):
    """And nobody else anything: a stream beside it ends as it would have alone. Then all is as before."""
    there, here, alone, wire = wired
    beside = {"text": "one two three", "sampling_params": {"max_new_tokens": 400, "ignore_eos": True, "temperature": 0}}
    text = long_text(next(seeds), 75)
    body = {"text": text, "sampling_params": {"max_new_tokens": 8, "temperature": 0}}
    wire.act, wire.bytes = fault, 900_000
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(here.post, "/generate", beside)
        status, answer, head = here.request("POST", "/generate", body)
        assert status == 503 and FAULTS[fault] in answer["error"]["message"], answer
        assert f"prefill server http://127.0.0.1:{wire.port}/" in answer["error"]["message"]
        assert answer["error"]["code"] == "prefill_failed" and head["retry-after"] == "1"
        assert stream.result()["text"] == alone.post("/generate", beside)["text"]
    wire.act = None
    assert here.post("/generate", body)["text"] == alone.post("/generate", body)["text"]
    assert here.get("/health")[0] == 200


def test_a_server_that_is_killed_and_one_that_stands_still(wired):
    there, here, alone, wire = wired
    slow = prefill("--device", "ref", "--kv-cache-dtype", "bf16")
    wire.upstream = slow.port
    text = long_text(next(seeds), 500)
    body = {"text": text, "sampling_params": {"max_new_tokens": 4, "temperature": 0}}
    for sig, said in ((signal.SIGSTOP, "nothing came for"), (signal.SIGKILL, "pages: ")):
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(here.request, "POST", "/generate", body)
            wait_until(lambda: slow.metric("moonlet:kv_prompts_sending") == 1)
            slow.process.send_signal(sig)
            status, answer, _ = asked.result()
            assert status == 503 and said in answer["error"]["message"], answer
            if sig == signal.SIGSTOP:
                slow.process.send_signal(signal.SIGCONT)
                wait_until(lambda: slow.metric("moonlet:kv_prompts_sending") == 0)
    slow.process.wait()
    status, answer, _ = here.request("POST", "/generate", body)
    assert status == 503 and "0 of " in answer["error"]["message"], answer
    wire.upstream = there.port
    assert here.post("/generate", body)["text"] == alone.post("/generate", body)["text"]


def test_a_client_that_goes_ends_the_transfer(wired):
    there, here, _, wire = wired
    wire.act, wire.bytes = "stall", 300_000
    wire.acted.clear()
    c = here.connect()
    c.request("POST", "/generate", json.dumps({"text": long_text(next(seeds), 200)}), JSON)
    assert wire.acted.wait(20 * SLOW)
    assert here.metric("moonlet:kv_prompts_fetching") == 1
    c.close()
    wait_until(lambda: here.metric("moonlet:kv_prompts_fetching") == 0)
    wire.act = None
    wait_until(lambda: there.metric("moonlet:kv_prompts_sending") == 0)
    assert here.stats()["pages_used"] == 0


def test_a_prompt_that_no_server_takes_is_computed_here():
    there = prefill("--max-total-tokens", "256")
    here, alone = decode(there.port), Server(*FEW)
    body = {"text": long_text(8, 150), "sampling_params": {"max_new_tokens": 8, "temperature": 0}}
    assert here.post("/generate", body)["text"] == alone.post("/generate", body)["text"]
    assert fetched(here) == here.metric("moonlet:kv_transfer_failures_total") == 0
    assert [s.stop() for s in (here, alone, there)] == [0] * 3
    assert any("does not take a prompt of" in line for line in here.log)


def test_the_other_server_takes_over():
    """Where one of two fails, the transfer goes on at the other from the page that lacks."""
    two = [prefill(), prefill()]
    wire = Wire(two[0].port)
    here, alone = decode(wire.port, two[1].port), Server(*FEW)
    wire.act, wire.bytes = "cut", 1_200_000
    body = {"text": long_text(3, 150), "sampling_params": {"max_new_tokens": 8, "temperature": 0}}
    assert here.post("/generate", body)["text"] == alone.post("/generate", body)["text"]
    sent = [s.metric("moonlet:kv_tokens_sent_total") for s in two]
    assert min(sent) > 0 and fetched(here) < sum(sent)
    assert here.metric("moonlet:kv_prompts_failed_total") == 0
    assert [s.stop() for s in (here, alone, *two)] == [0] * 4
    assert any("prefill server" in line and "pages" in line for line in here.log)


def test_an_orderly_end_waits_for_transfers(wired):
    """SIGTERM to the prefilling server: what it is asked for by then it still hands out. To the decoding one: answers
    under way, fetching ones among them, get their time."""
    _, _, alone, _ = wired
    there = prefill("--device", "ref", "--kv-cache-dtype", "bf16")
    here = decode(there.port)
    body = {"text": long_text(9, 100), "sampling_params": {"max_new_tokens": 8, "temperature": 0}}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(here.post, "/generate", body)
        wait_until(lambda: there.metric("moonlet:kv_prompts_sending") == 1)
        there.process.send_signal(signal.SIGTERM)
        here.process.send_signal(signal.SIGTERM)
        assert asked.result()["meta_info"]["completion_tokens"] == 8
    assert [s.stop() for s in (there, here)] == [0, 0]


# ---- what is refused ----


def refused(*flags):
    with pytest.raises(RuntimeError) as e:
        Server(*flags)
    return str(e.value)


def test_servers_that_are_not_alike(trio, tmp_path):
    there, _, alone = trio
    url = lambda s: ["--role", "decode", "--prefill-url", f"http://127.0.0.1:{s.port}"]
    assert "--kv-cache-dtype is F8_E4M3 here and BF16 there" in refused(*url(there), "--kv-cache-dtype", "fp8_e4m3")
    simulated = ["--simulate-step", "0", "--speculative-algorithm", "NONE"]
    assert "--simulate-step is yes here and no there" in refused(*url(there), *simulated)
    assert "a draft model is no here and yes there" in refused(*url(there), "--speculative-algorithm", "NONE")
    assert "start it with --role prefill" in refused(*url(alone))
    changed = tmp_path / "model"
    shutil.copytree(NANO, changed)
    weights = max(changed.glob("*.safetensors"), key=lambda p: p.stat().st_size)
    data = bytearray(weights.read_bytes())
    first = 8 + int.from_bytes(data[:8], "little")
    for tensor in json.loads(data[8:first]).values():
        if tensor.get("dtype") == "BF16":
            begin, end = (first + at for at in tensor["data_offsets"])
            data[begin:end:2] = bytes(b ^ 1 for b in data[begin:end:2])
    weights.write_bytes(data)
    with pytest.raises(RuntimeError, match="the checkpoint is .* here and .* there"):
        Server(*url(there), model=changed)


def stand_in(get, post=lambda _: (404, {}, b"")):
    """A server of ours instead of one of --role prefill; each takes a request's body, gives status, headers, body."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self, made):
            status, headers, body = made
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.answer(get(b""))

        def do_POST(self):
            self.answer(post(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_a_proxy_that_knows_no_server_yet():
    proxy = stand_in(lambda _: (404, {}, b"no such route"))
    here = decode(proxy.server_port)
    wait_until(lambda: re.search(r"prefill server .*: HTTP 404: .*prompts wait for it", "".join(here.log), re.S))
    assert here.stop() == 0
    proxy.shutdown()


class Pages:
    """What a server of --role prefill would send, of one value; or, as long as it is full, that it is."""

    def __init__(self, like):
        self.layout = json.dumps(like.get("/kv_pages")[1]).encode()
        self.page_bytes = like.get("/kv_pages")[1]["page_bytes"]
        self.checksum = ctypes.CDLL("libxxhash.so.0").XXH3_64bits_withSeed
        self.checksum.restype = ctypes.c_uint64
        self.checksum.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
        self.value, self.full, self.asked = 0, False, []
        self.server = stand_in(lambda _: (200, {}, self.layout), self.pages)

    def record(self, kind, number, data):
        told = struct.pack("<QQQ", kind, number, len(data))
        check = self.checksum(data, len(data), self.checksum(told, 24, 0))
        return struct.pack("<IIQQQ", 0x314B564D, kind, number, len(data), check) + data

    def pages(self, body):
        self.asked.append(json.loads(body)["priority"])
        if self.full:
            return 429, {"Retry-After": "1"}, b"full"
        n = (len(json.loads(body)["ids"]) - 1 + 63) // 64
        data = struct.pack("<H", self.value) * (self.page_bytes // 2)
        return 200, {}, b"".join(self.record(1, i, data) for i in range(n)) + self.record(3, 0, b"")


def test_a_page_without_numbers_is_refused(trio):
    """Its checksum is right, as of a server whose memory is at fault. It gets nowhere near the prefix cache."""
    wrong = Pages(trio[0])
    here = decode(wrong.server.server_port, flags=["--speculative-disable-adaptive"])
    body = {"text": long_text(6, 60), "sampling_params": {"max_new_tokens": 4}}
    for wrong.value in (0x7FC0, 0xFF80):  # BF16: NaN, minus infinity
        status, answer, _ = here.request("POST", "/generate", body)
        assert status == 503 and "page 0 has a NaN or an infinity" in answer["error"]["message"], answer
    wrong.value = 0
    assert here.post("/generate", body)["meta_info"]["cached_tokens"] == 0
    assert here.stop() == 0
    wrong.server.shutdown()


# All places, or all pages, belong to prompts that wait.
WAITING = {"places": (["--max-running-requests", "2"], 2), "pages": (["--max-total-tokens", "1024"], 1)}


@pytest.mark.parametrize("what", WAITING)
def test_it_is_healthy_while_all_wait_for_another(trio, what):
    flags, n = WAITING[what]
    there = Pages(trio[0])
    there.full = True
    here = decode(there.server.server_port, flags=["--context-length", "1024", "--prefill-timeout", "60", *flags])
    ids = lambda i: [300 + (7 * i + 11 * k) % 1000 for k in range(1000)]
    body = lambda i: {"input_ids": ids(i), "sampling_params": {"max_new_tokens": 4}}
    with ThreadPoolExecutor(n) as pool:
        asked = [pool.submit(here.request, "POST", "/generate", body(i)) for i in range(n)]
        wait_until(lambda: here.metric("moonlet:kv_prompts_fetching") == n)
        began = time.monotonic()
        status, answer, _ = here.request("GET", "/health_generate")
        assert status == 200 and time.monotonic() - began < 15, (answer, time.monotonic() - began)
        assert here.metric("moonlet:kv_prompts_fetching") == n
        there.full = False
        assert [a.result()[0] for a in asked] == [200] * n
    assert here.stop() == 0
    there.server.shutdown()


STREAMS = {
    "/generate": {"text": long_text(5, 60)},
    "/v1/completions": {"prompt": long_text(5, 60)},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": long_text(5, 60)}]},
    "/v1/messages": {"messages": [{"role": "user", "content": long_text(5, 60)}], "max_tokens": 8},
    "/v1/responses": {"input": long_text(5, 60)},
}


def test_a_stream_begins_when_its_prompt_is_there():
    """So what fails before has a status, as without a stream."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    here = decode(port)
    for path, body in STREAMS.items():
        status, answer, head = here.request("POST", path, {**body, "stream": True})
        assert status == 503 and head["retry-after"] == "1", (path, status, answer)
        assert f"prefill server http://127.0.0.1:{port}/" in answer["error"]["message"]
    assert here.stop() == 0


def test_a_full_server_is_asked_again():
    """Its queue, its connections: nobody else's request fails of them."""
    for flags in (["--max-queued-requests", "1", "--max-running-requests", "1"], ["--max-connections", "2"]):
        there = Server("--role", "prefill", *flags)
        here = Server("--role", "decode", "--prefill-url", f"http://127.0.0.1:{there.port}")
        with ThreadPoolExecutor(12) as pool:
            body = lambda i: {"text": long_text(i, 150), "priority": i % 3, "sampling_params": {"max_new_tokens": 4}}
            asked = list(pool.map(lambda i: here.request("POST", "/generate", body(i)), range(16)))
        assert [status for status, _, _ in asked] == [200] * 16, [a for s, a, _ in asked if s != 200][:2]
        assert here.metric("moonlet:kv_transfer_failures_total") == 0
        assert [s.stop() for s in (here, there)] == [0, 0]
        assert any("takes no more prompts at the moment" in line for line in here.log)


def test_a_higher_priority_asks_a_full_server_first(trio):
    """Those that wait have a thread each, as many as there are; one of them lets it go ahead, and gets its turn."""
    there = Pages(trio[0])
    there.full = True
    here = decode(there.server.server_port, flags=["--max-running-requests", "16"])
    body = lambda i, priority: {
        "text": long_text(i, 60),
        "priority": priority,
        "sampling_params": {"max_new_tokens": 4},
    }
    with ThreadPoolExecutor(10) as pool:
        asked = [pool.submit(here.request, "POST", "/generate", body(30 + i, 1)) for i in range(9)]
        wait_until(lambda: here.metric("moonlet:kv_prompts_fetching") == 9 and len(there.asked) >= 8)
        assert set(there.asked) == {1}
        asked.append(pool.submit(here.request, "POST", "/generate", body(50, 7)))
        wait_until(lambda: 7 in there.asked)
        there.full = False
        assert [a.result()[0] for a in asked] == [200] * 10
    assert here.get("/kv_check")[1]["ok"] is True
    assert here.stop() == 0
    there.server.shutdown()


def test_what_is_full_for_too_long_is_lost(trio):
    """A proxy that says to come back, and has no server."""
    layout = json.dumps(trio[0].get("/kv_pages")[1]).encode()
    proxy = stand_in(lambda _: (200, {}, layout), lambda _: (503, {"Retry-After": "1"}, b"no server"))
    here = decode(proxy.server_port, flags=["--prefill-timeout", "1.2", "--speculative-disable-adaptive"])
    began = time.monotonic()
    status, answer, _ = here.request("POST", "/generate", {"text": long_text(5, 60)})
    assert status == 503 and "HTTP 503: no server" in answer["error"]["message"], answer
    assert time.monotonic() - began > 1.2
    assert sum("takes no more prompts at the moment" in line for line in here.log) == 1
    assert here.stop() == 0
    proxy.shutdown()


def test_a_prompt_that_is_too_long_for_those_who_live():
    """One server does not take it, the other is dead: it is computed here, whichever is asked first."""
    there = prefill("--max-total-tokens", "256")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = taken.getsockname()[1]
    here = decode(there.port, dead)
    for i in range(3):
        body = {"text": long_text(20 + i, 150), "sampling_params": {"max_new_tokens": 4}}
        assert here.post("/generate", body)["meta_info"]["completion_tokens"] == 4
    assert [s.stop() for s in (here, there)] == [0, 0]


def test_flags_that_do_not_go_together():
    decoding = ["--role", "decode", "--prefill-url"]
    for url in (
        "http://",
        "http://a b/",
        "http://[::1",
        "ftp://host:1",
        "http://host:1/?a=b",
        "http://host:99999",
        "http://host:1#",
        "http://host:0",
    ):
        assert "expected http://HOST:PORT" in refused(*decoding, url), url
    for url in ("http://me:secret@127.0.0.1:1", "http://me:secret@host:99999", "http://me:sec ret@host:1"):
        said = refused(*decoding, url)
        assert "a name or a password" in said and "secret" not in said and "sec ret" not in said
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as held:  # so what is not refused goes on to where it listens, no further
        port = str(held.getsockname()[1])
        for own in (f"http://127.0.0.1:{port}", f"http://localhost:{port}/"):
            assert "that is this server itself" in refused("--port", port, *decoding, own)
        said = refused("--host", "::", "--port", port, *decoding, f"http://[::1]:{port}")
        assert "that is this server itself" in said
        for other in ([f"http://127.0.0.2:{port}"], ["http://127.0.0.1:1/A", "--prefill-url", "http://127.0.0.1:1/a"]):
            said = refused("--port", port, *decoding, *other)
            assert port in said and "prefill-url" not in said
    twice = ["--prefill-url", "http://127.0.0.1:1/"]
    assert "http://127.0.0.1:1/: given twice" in refused(*decoding, "http://127.0.0.1:1", *twice)
    for flag in ("--prefill-min-tokens", "--prefill-timeout"):
        assert f"{flag} goes with --role decode" in refused(flag, "9")
        assert f"{flag} goes with --role decode" in refused("--role", "prefill", flag, "9")
    assert "--role decode needs --prefill-url" in refused("--role", "decode")
    assert "goes with --role decode" in refused("--prefill-url", "http://127.0.0.1:1")
    assert "--role does not go with --nnodes" in refused("--role", "prefill", "--nnodes", "2")
    assert "expected http://HOST:PORT" in refused("--role", "decode", "--prefill-url", "localhost:30000")


def test_a_server_that_comes_later():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    here = decode(port)
    body = {"text": long_text(4, 60), "sampling_params": {"max_new_tokens": 4}}
    wait_until(lambda: any("prompts wait for it" in line for line in here.log))
    assert here.request("POST", "/generate", body)[0] == 503
    assert here.post("/generate", {"text": "short", "sampling_params": {"max_new_tokens": 4}})["text"]
    there = prefill("--port", str(port))
    assert here.post("/generate", body)["meta_info"]["completion_tokens"] == 4
    assert [s.stop() for s in (here, there)] == [0, 0]


def test_keys():
    there = prefill("--api-key", "secret")
    assert there.get("/kv_pages")[0] == 401
    url = ["--role", "decode", "--prefill-url", f"http://127.0.0.1:{there.port}", "--prefill-min-tokens", "64"]
    here = Server(*url, "--api-key", "secret")
    body = {"text": long_text(4, 60), "sampling_params": {"max_new_tokens": 4}}
    status, answer, _ = here.request("POST", "/generate", body, {**JSON, "Authorization": "Bearer secret"})
    assert status == 200, answer
    assert there.metric("moonlet:kv_tokens_sent_total") > 0
    assert "HTTP 401: missing or wrong API key" in refused(*url, "--api-key", "other")
    assert [s.stop() for s in (here, there)] == [0, 0]


def test_hostile_questions(trio):
    there = trio[0]
    layout = there.get("/kv_pages")[1]["layout"]
    ids = list(range(300, 365))
    good = {"layout": layout, "ids": ids}
    bad = [
        ({**good, "layout": layout.replace("64 tokens", "16 tokens")}, 409),
        ({**good, "layout": "x"}, 409),
        ({**good, "layout": 5}, 400),
        ({"ids": ids}, 400),
        ({"layout": layout}, 400),
        ({**good, "ids": ids[:1]}, 400),
        ({**good, "ids": []}, 400),
        ({**good, "ids": [-1] * 65}, 400),
        ({**good, "ids": [1 << 40] * 65}, 400),
        ({**good, "ids": "abc"}, 400),
        ({**good, "ids": [5] * (1 << 20)}, 400),
        ({**good, "from": 1}, 400),
        ({**good, "from": -1}, 400),
        ({**good, "from": 1 << 50}, 400),
        ({**good, "cache_space": "xyz"}, 400),
        ({**good, "cache_space": "-1"}, 400),
        ({**good, "priority": "high"}, 400),
        ({**good, "cache_space": ""}, 400),
        ([], 400),
        (b"\0\xff", 400),
    ]
    for body, want in bad:
        status, answer, _ = there.request("POST", "/kv_pages", body)
        assert status == want, (body if len(str(body)) < 300 else "long", answer)
        assert answer["error"]["message"]
    # whoever goes in the middle of a page
    for _ in range(8):
        c = there.connect()
        c.request("POST", "/kv_pages", json.dumps({**good, "ids": list(range(300, 300 + 64 * 20 + 1))}), JSON)
        r = c.getresponse()
        assert r.status == 200 and r.read(1000)
        c.close()
    wait_until(lambda: there.metric("moonlet:kv_prompts_sending") == 0)
    assert there.get("/kv_check")[1]["ok"] is True
