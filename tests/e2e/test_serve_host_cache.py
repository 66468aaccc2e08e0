"""`--hicache-size`: prompts that the KV pool has no room for come back from the host's memory, whatever divides the
model, with drafts, pictures and roles; what is refused."""
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from serve_client import MOONLET, NANO, Server
from test_serve_pictures import FILES, url

POOL = ("--max-total-tokens", "2048", "--context-length", "2048", "--max-running-requests", "3")
NONE = ("--speculative-algorithm", "NONE")
HOST = ("--hicache-size", "0.05")
PROMPTS = [[random.Random(i).randrange(300, 1000) for _ in range(900)] for i in range(5)]


def ask(server, ids, **more):
    body = {"prompt": ids, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": 1, **more}
    a = server.post("/v1/completions", body)
    return a["choices"][0], a["usage"]["prompt_tokens_details"]["cached_tokens"]


def agree(first, again, bits):
    """Where ranks divide the KV cache, how a sum rounds hangs on where a page lies: then first tokens alone, nearly."""
    chances = [[c["logprobs"]["token_logprobs"] for c, _ in answers] for answers in (first, again)]
    if bits:
        assert chances[0] == chances[1]
    assert all(abs(a[0] - b[0]) < 0.1 for a, b in zip(*chances))


def rounds(server, n=3):
    return [[ask(server, ids) for ids in PROMPTS] for _ in range(n)]


@pytest.fixture(scope="module")
def plain():
    s = Server(*POOL, *NONE)
    yield [ask(s, ids) for ids in PROMPTS]
    assert s.stop() == 0


@pytest.mark.parametrize(
    "flags",
    [
        NONE,
        (),
        ("--tp", "2", "--dcp", "2", *NONE),
        ("--tp", "2", "--pp", "2"),
        ("--kv-cache-dtype", "fp8_e4m3", *NONE),
        ("--cache-prompts-only",),
    ],
)
def test_prompts_come_back(plain, flags):
    s = Server(*POOL, *HOST, *flags)
    try:
        first, second, third = rounds(s)
        if "--tp" not in flags and "--kv-cache-dtype" not in flags:
            assert [c["text"] for c, _ in first] == [c["text"] for c, _ in plain]
        for again in (second, third):
            agree(first, again, "--dcp" not in flags)
        # a pool of 32 pages lets half of it wait at a time: the rest of a prompt goes with the second answer
        assert [n for _, n in first] == [0] * 5 and min(n for _, n in second) >= 832
        assert {n for _, n in third} == {896}
        assert s.metric("moonlet:host_cache_tokens_loaded_total") >= 5 * 832
        assert s.metric("moonlet:host_cache_tokens_held") <= s.metric("moonlet:host_cache_tokens")
        assert s.get("/server_info")[1]["host_cache_tokens"] == s.metric("moonlet:host_cache_tokens") > 2048
    finally:
        assert s.stop() == 0


def test_sequences_apart_and_many_at_once():
    s = Server("--max-total-tokens", "4096", "-c", "2048", *HOST, "--tp", "2", "--enable-dp-attention", *NONE)
    try:
        first = rounds(s, 1)[0]
        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda i: ask(s, PROMPTS[i % 5]), range(40)))
        for i in range(0, 40, 5):
            agree(first, got[i : i + 5], True)
        assert s.metric("moonlet:host_cache_tokens_loaded_total") > 0
    finally:
        assert s.stop() == 0


def test_roles():
    """Both servers have one; the decoding one asks for what neither of its caches has."""
    prefill = Server("--role", "prefill", *POOL, *HOST)
    decode = Server(
        "--role",
        "decode",
        "--prefill-url",
        f"http://127.0.0.1:{prefill.port}",
        *POOL,
        *HOST,
        "--prefill-min-tokens",
        "64",
    )
    try:
        first, second, third = rounds(decode)
        for again in (second, third):
            agree(first, again, True)
        assert {n for _, n in third} == {896}
        fetched = decode.metric("moonlet:kv_tokens_fetched_total")
        assert 5 * 899 <= fetched < 2 * 5 * 899
        assert decode.request("POST", "/flush_cache")[0] == 200
        agree(first, rounds(decode, 1)[0], True)
        assert decode.metric("moonlet:kv_tokens_fetched_total") > fetched
        assert prefill.metric("moonlet:host_cache_tokens_loaded_total") > 0
    finally:
        assert [decode.stop(), prefill.stop()] == [0, 0]


def test_a_picture_is_told_from_another():
    """Prompts that differ in their picture alone have the same ids."""

    def chat(server, picture):
        content = [{"type": "image_url", "image_url": {"url": url(picture)}}, {"type": "text", "text": "Well? " * 60}]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 8, "temperature": 0, "logprobs": True}
        a = server.post("/v1/chat/completions", body)
        return a["choices"][0], a["usage"]["prompt_tokens_details"]["cached_tokens"]

    s = Server(*POOL, *HOST, *NONE)
    try:
        first = [chat(s, p) for p in FILES[:2]]
        rounds(s, 1)
        second = [chat(s, p) for p in FILES[:2]]
        assert [c["logprobs"] for c, _ in first] == [c["logprobs"] for c, _ in second]
        assert first[0][0]["logprobs"] != first[1][0]["logprobs"]
        assert first[0][1] == 0 and all(n >= 128 for _, n in second)
        assert s.metric("moonlet:host_cache_tokens_loaded_total") >= 128
    finally:
        assert s.stop() == 0


def test_a_flush_forgets_it():
    s = Server(*POOL, *HOST, *NONE)
    try:
        rounds(s, 1)
        assert s.request("POST", "/flush_cache")[0] == 200
        assert s.metric("moonlet:host_cache_tokens_held") == 0
        assert ask(s, PROMPTS[0])[1] == 0
    finally:
        assert s.stop() == 0


def test_sglangs_flag_is_twice_the_pool():
    s = Server(*POOL, "--enable-hierarchical-cache", "--hicache-write-policy", "write_through")
    try:
        assert s.metric("moonlet:host_cache_tokens") == 2 * 2048
        assert any("--hicache-write-policy" in line for line in s.log)
    finally:
        assert s.stop() == 0


@pytest.mark.parametrize(
    "flags, words",
    [
        (("--hicache-size", "1", "--hicache-ratio", "2"), "leave one out"),
        (("--hicache-size", "1", "--disable-radix-cache"), "leave out --disable-radix-cache"),
        (("--enable-hierarchical-cache", "--nnodes", "2", "--tp", "2"), "does not go with --nnodes"),
        (("--hicache-size", "900000"), "GB of memory left"),
        (("--hicache-size", "-1"), "--hicache-size"),
        (("--hicache-storage-backend", "file"), "one tier behind the prefix cache"),
        (("--kv-offloading-size", "4"), "write --hicache-size GB"),
    ],
)
def test_what_cannot_be_is_refused(flags, words):
    r = subprocess.run([MOONLET, "serve", "-m", str(NANO), "--port", "0", *flags], capture_output=True, text=True)
    assert r.returncode == 2 and words in r.stderr, r.stderr
