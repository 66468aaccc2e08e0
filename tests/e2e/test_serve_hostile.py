"""`moonlet serve` with requests that are wrong, too large, too slow, too many, or given up."""
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
from serve_client import JSON, MOONLET, SLOW, Server, text_of, wait_until

ASK = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server():
    s = Server("--max-running-requests", "8", "--max-queued-requests", "64", "--max-body-size", "1")
    yield s
    assert s.get("/health")[0] == 200, "alive after all of it"
    stats = s.stats()
    assert stats["num_running_reqs"] == 0 == stats["num_queue_reqs"] and stats["pages_used"] == 0
    assert s.stop() == 0


def idle(server):
    s = server.stats()
    return s["num_running_reqs"] == 0 == s["num_queue_reqs"] and s["pages_used"] == 0


def refused(server, path, body, param, status=400):
    got, answer, head = server.request("POST", path, body)
    assert got == status, answer
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    assert error["param"] == param, error
    assert head["content-type"] == "application/json"
    return error


# ---- Wrong requests ----

CHAT_400 = [
    ({}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": [5]}, "messages"),
    ({"messages": [{"role": "king", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
    (
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}
            ]
        },
        "messages[0].content[0]",
    ),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 10**18}, "max_tokens"),
    ({"max_tokens": 10**25}, "max_tokens"),
    ({"seed": 2**63}, "seed"),
    ({"temperature": 10**400}, "temperature"),
    ({"tools": [10**25]}, "tools"),
    ({"messages": [10**25]}, "messages"),
    ({"stop": 10**25}, "stop"),
    ({"chat_template_kwargs": 10**25}, "chat_template_kwargs"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"top_k": -5}, "top_k"),
    ({"n": 0}, "n"),
    ({"n": 10**9}, "n"),
    ({"logprobs": True, "top_logprobs": 10**9}, "top_logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"stop": 3}, "stop"),
    ({"stop": ["x"] * 1000}, "stop"),
    ({"stop": "x" * 100000}, "stop"),
    ({"stop_token_ids": [10**6]}, "stop_token_ids"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"99999999": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 1000}}, "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(2000)}}, "logit_bias"),
    ({"seed": 1.5}, "seed"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": []}, "stream_options"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}, "stream": True}, "response_format"),
    ({"regex": "(a"}, "regex"),
    ({"regex": "(?=a)b"}, "regex"),
    ({"ebnf": "root ::= x"}, "ebnf"),
    ({"json_schema": "{"}, "json_schema"),
    ({"json_schema": {"type": "object", "not": {}}}, "json_schema"),
    ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
    ({"structured_outputs": {"lark": "x"}}, "structured_outputs"),
    ({"regex": "a", "guided_json": {}}, "guided_json"),
    ({"tools": 5}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]}, "tools"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"not": {}}}}]},
        "tools",
    ),
    ({"tools": [{"type": "function", "function": {"name": "f"}}] * 2}, "tools"),
    ({"tools": [], "tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"tool_choice": "maybe"}, "tool_choice"),
    ({"chat_template_kwargs": {"thinking": "no"}}, "thinking"),
    ({"cache_salt": "x" * 2000}, "cache_salt"),
    ({"rid": "a\nb"}, "rid"),
    ({"rid": ""}, "rid"),
    ({"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
]


@pytest.mark.parametrize("fields,param", CHAT_400, ids=lambda v: json.dumps(v)[:40] if isinstance(v, dict) else None)
def test_chat_400_names_the_field(server, fields, param):
    body = fields if "messages" in fields or not fields else {"messages": ASK, **fields}
    refused(server, "/v1/chat/completions", body, param)


@pytest.mark.parametrize(
    "fields,param",
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1, "x"]}, "prompt"),
        ({"prompt": ["x", 5]}, "prompt"),
        ({"prompt": {"x": 1}}, "prompt"),
        ({"prompt": ["x"] * 3000}, "prompt"),
        ({"prompt": "x", "best_of": 3}, "best_of"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "logprobs": 1000}, "logprobs"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
    ],
)
def test_completion_400_names_the_field(server, fields, param):
    refused(server, "/v1/completions", fields, param)
    refused(server, "/v1/completions", {**fields, "stream": True}, param)


@pytest.mark.parametrize(
    "fields,param",
    [
        ({}, "text"),
        ({"text": "x", "input_ids": [1]}, "input_ids"),
        ({"text": "x", "sampling_params": 5}, "sampling_params"),
        ({"text": "x", "sampling_params": {"regex": "("}}, "regex"),
        ({"text": "x", "image_data": "x"}, "image_data"),
        ({"input_ids": [10**7]}, "input_ids"),
        ({"text": "x", "sampling_params": {"max_new_tokens": 0}}, "max_new_tokens"),
    ],
)
def test_generate_400_names_the_field(server, fields, param):
    refused(server, "/generate", fields, param)


def test_too_long_for_the_context(server):
    error = refused(server, "/v1/completions", {"prompt": "word " * 60000, "max_tokens": 4}, "prompt")
    assert error["code"] == "context_length_exceeded" and "maximum context length" in error["message"]
    error = refused(server, "/v1/chat/completions", {"messages": ASK, "max_tokens": 100000, "stream": True}, "messages")
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"{} {}",
        b'{"prompt": NaN}',
        b'{"prompt": "\xff"}',
        b"[" * 100000,
        b'{"a":' * 300 + b"1" + b"}" * 300,
        b"\x00" * 50,
        b'{"prompt": "a\tb"}',
    ],
)
def test_malformed_json(server, raw):
    for path in ("/v1/completions", "/v1/chat/completions", "/generate", "/tokenize", "/detokenize", "/abort_request"):
        refused(server, path, raw, None)


def test_odd_strings_are_no_harm(server):
    for prompt in ("\ud800", "a\u0000b", "x" * 3000, " " * 3000, "\U0010ffff", "<|im_end|>" * 10):
        body = json.dumps({"prompt": prompt, "max_tokens": 1})
        assert server.request("POST", "/v1/completions", body)[0] in (200, 400)
        body = json.dumps({"messages": [{"role": "user", "content": prompt}], "max_tokens": 1})
        assert server.request("POST", "/v1/chat/completions", body)[0] in (200, 400)


def test_unknown_fields_are_ignored(server):
    body = {
        "messages": ASK,
        "max_tokens": 2,
        "user": "me",
        "metadata": {},
        "store": False,
        "quux": [1],
        "service_tier": "x",
    }
    assert server.post("/v1/chat/completions", body)["choices"]


def test_models_names(server):
    error = refused(server, "/v1/completions", {"prompt": "x", "model": "gpt"}, "model", 404)
    assert error["code"] == "model_not_found"
    for name in ("nano", "default", "somebody/nano"):
        assert server.post("/v1/completions", {"prompt": "x", "model": name, "max_tokens": 1})


def test_paths_methods_types(server):
    assert server.get("/nope")[0] == 404 and server.get("/v1/embeddings")[1]["error"]["type"] == "not_found_error"
    status, _, head = server.get("/v1/completions")
    assert status == 405 and "POST" in head["allow"]
    assert server.request("DELETE", "/v1/models")[0] == 405
    assert (
        server.request("POST", "/v1/completions", "x=1", {"Content-Type": "application/x-www-form-urlencoded"})[0]
        == 415
    )
    assert (
        server.request(
            "POST",
            "/v1/completions",
            '{"prompt":"x","max_tokens":1}',
            {"Content-Type": "application/json; charset=utf-8"},
        )[0]
        == 200
    )
    assert server.request("POST", "/v1/completions", '{"prompt":"x","max_tokens":1}', {})[0] == 200
    assert server.request("OPTIONS", "/v1/completions")[0] == 204
    assert server.request("HEAD", "/health")[0] == 200


# ---- Sizes ----


def test_large_bodies_are_413(server):
    assert server.request("POST", "/v1/completions", "x" * (1 << 20))[0] == 400  # as much as is allowed
    c = server.connect()
    c.putrequest("POST", "/v1/completions")
    c.putheader("Content-Type", "application/json")
    c.putheader("Content-Length", str(10**12))
    c.endheaders()
    r = c.getresponse()  # before any of it was sent
    assert r.status == 413 and json.loads(r.read())["error"]["code"] == 413
    c.close()
    c = server.connect()
    c.request("POST", "/v1/completions", (b"x" * 65536 for _ in range(20)), JSON, encode_chunked=True)
    r = c.getresponse()  # not a reset: the answer arrives, however much was sent
    assert r.status == 413 and json.loads(r.read())["error"]["code"] == 413
    c.close()


def raw(server, data, wait=10):
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait * SLOW) as s:
        s.sendall(data)
        out = b""
        try:
            while part := s.recv(65536):
                out += part
                if b"\r\n\r\n" in out and b"Connection: close" not in out and len(out) > 200:
                    break
        except (ConnectionResetError, socket.timeout):
            pass
        return out


def test_broken_http(server):
    huge = (
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
        + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 1000) for i in range(200))
        + b"\r\n"
    )
    assert b" 200 " not in raw(server, huge)[:20]
    two = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert raw(server, two).startswith(b"HTTP/1.1 400")
    assert b" 200 " not in raw(server, b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n")[:20]
    for junk in (b"\r\n\r\n\r\n", b"\x16\x03\x01" + os.urandom(200), b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        assert b" 200 " not in raw(server, junk, 0.5)[:20]
    assert server.get("/health")[0] == 200


def test_expect_100_continue(server):
    body = b'{"prompt": "x", "max_tokens": 1}'
    with socket.create_connection(("127.0.0.1", server.port), timeout=10 * SLOW) as s:
        s.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
            % len(body)
        )
        assert s.recv(1000).startswith(b"HTTP/1.1 100")
        s.sendall(body)
        assert s.recv(100000).startswith(b"HTTP/1.1 200")


def test_keep_alive_and_pipelining(server):
    c = server.connect()
    for _ in range(5):
        c.request("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 2}), JSON)
        r = c.getresponse()
        assert r.status == 200 and json.loads(r.read())
    c.close()
    two = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\nGET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert raw(server, two).count(b"HTTP/1.1 200") >= 1


# ---- Clients that go, and clients that are slow ----

LONG = {"prompt": "x", "max_tokens": 1500, "ignore_eos": True}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("reset", [True, False])
def test_a_client_that_goes_frees_its_request(server, stream, reset):
    before = server.metric("sglang:num_aborted_requests_total")
    body = json.dumps({**LONG, "stream": stream}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        if stream:
            assert s.recv(10)
        else:
            wait_until(lambda: server.stats()["num_running_reqs"] == 1)
        if reset:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: idle(server))
    assert server.metric("sglang:num_aborted_requests_total") == before + 1


def test_slow_senders_and_readers_stall_nobody(server):
    slow = []
    for _ in range(20):
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        slow.append(s)
    for _ in range(3):
        s = socket.create_connection(("127.0.0.1", server.port))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = json.dumps({**LONG, "max_tokens": 1000, "stream": True}).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        slow.append(s)
    assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 3})["choices"]
    for s in slow:
        s.close()
    wait_until(lambda: idle(server))


def test_fifty_clients_at_once(server):
    want = server.post("/v1/completions", {"prompt": "What is 17", "temperature": 0, "max_tokens": 16})["choices"][0][
        "text"
    ]
    answers = [None] * 50

    def one(i):
        body = {"prompt": "What is 17", "temperature": 0, "max_tokens": 16}
        try:
            if i % 2:
                answers[i] = text_of(server.stream("/v1/completions", body))[0]
            else:
                answers[i] = server.post("/v1/completions", body)["choices"][0]["text"]
        except Exception as e:  # noqa: BLE001, shown by the comparison
            answers[i] = repr(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(50)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60 * SLOW)
    assert answers == [want] * 50


def test_one_request_cannot_take_the_whole_queue(server):
    """8 places and a quarter of the queue's 64 are a request's share: more can never be taken, which is no 429."""
    error = server.post("/v1/completions", {"prompt": ["x"] * 25, "max_tokens": 2}, 400)["error"]
    assert "share of the queue" in error["message"] and "24 answers" in error["message"]
    assert len(server.post("/v1/completions", {"prompt": "x", "n": 24, "max_tokens": 2})["choices"]) == 24


def test_a_full_queue_is_429_with_retry_after(server):
    """Three shares fill it. Who is better than those that wait passes, and the question whether the engine works."""
    share = {**LONG, "n": 24, "rid": "flood"}
    flood = [threading.Thread(target=server.request, args=("POST", "/v1/completions", share)) for _ in range(3)]
    for t in flood:
        t.start()
    wait_until(lambda: server.stats()["num_running_reqs"] + server.stats()["num_queue_reqs"] == 72)
    status, body, head = server.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 2})
    assert status == 429 and body["error"]["code"] == "rate_limit_exceeded" and 1 <= int(head["retry-after"]) <= 60
    assert server.get("/health_generate")[0] == 200
    assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "priority": 1})["choices"]
    server.post("/abort_request", {"rid": "flood"})
    for t in flood:
        t.join(30 * SLOW)
    wait_until(lambda: idle(server))


# ---- Keys, signals, start ----


def test_api_key():
    s = Server("--api-key", "secret")
    try:
        ask = {"prompt": "x", "max_tokens": 1}
        for headers, status in [
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "Bearer "}, 401),
            ({"x-api-key": ""}, 401),
            ({"Authorization": "Bearer secretsecret"}, 401),
            ({"Authorization": "secret"}, 401),
            ({"Authorization": "bearer secret"}, 200),
            ({"x-api-key": "secret"}, 200),
        ]:
            got, body, _ = s.request("POST", "/v1/completions", ask, {**JSON, **headers})
            assert got == status, headers
            if status == 401:
                assert body["error"]["code"] == "invalid_api_key"
        assert s.get("/v1/models")[0] == s.get("/nope")[0] == s.get("/flush_cache")[0] == 401
        assert s.get("/health")[0] == s.get("/metrics")[0] == 200
    finally:
        assert s.stop() == 0


def test_sigterm_lets_running_streams_end():
    s = Server("--request-timeout", "300")
    c = s.connect()
    c.request("POST", "/v1/completions", json.dumps({**LONG, "max_tokens": 300, "stream": True}), JSON)
    r = c.getresponse()
    r.readline()
    s.process.send_signal(signal.SIGTERM)
    rest = r.read().decode()
    assert rest.endswith("data: [DONE]\n\n") and '"finish_reason":"length"' in rest
    assert s.process.wait(20 * SLOW) == 0
    again = Server("--port", str(s.port))  # the port is free again at once
    assert again.port == s.port and again.stop(signal.SIGINT) == 0


def test_a_second_signal_ends_at_once():
    s = Server()
    c = s.connect()
    c.request("POST", "/v1/completions", json.dumps({**LONG, "n": 16, "temperature": 1, "stream": True}), JSON)
    r = c.getresponse()
    r.readline()
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    s.process.send_signal(signal.SIGTERM)
    rest = r.read().decode()
    assert '"error"' in rest and rest.endswith("data: [DONE]\n\n")
    assert s.process.wait(20 * SLOW) == 0


def test_request_timeout():
    s = Server("--request-timeout", "0.05")
    try:
        status, body, head = s.request("POST", "/v1/completions", {**LONG, "n": 8, "temperature": 1})
        assert status == 503 and body["error"]["code"] == "timeout" and "retry-after" in head
    finally:
        assert s.stop() == 0


@pytest.mark.parametrize(
    "args,status,word",
    [
        (["--port", "x"], 2, "--port"),
        (["--tp", "8"], 1, "--tp 8: 2 attention heads"),
        (["--tp", "0"], 2, "--tp"),
        (["--api-key", ""], 2, "--api-key"),
        (["--tool-call-parser", "hermes"], 2, "tool-call-parser"),
        (["--host", "256.0.0.1"], 1, "--host"),
        (["--host", "192.0.2.1"], 1, "cannot listen"),
        (["-m", "/nonexistent"], 1, "nonexistent"),
    ],
)
def test_flags_that_cannot_be_honoured(args, status, word):
    done = subprocess.run([MOONLET, "serve", *args], capture_output=True, timeout=60)
    assert done.returncode == status and word in done.stderr.decode() and done.stdout == b""


def test_port_in_use(server):
    done = subprocess.run([MOONLET, "serve", "--port", str(server.port)], capture_output=True, timeout=60)
    assert done.returncode == 1 and "cannot listen" in done.stderr.decode()
