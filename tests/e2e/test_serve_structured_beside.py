"""Structured output of `moonlet serve` in other protocols, beside other requests, and under the server's options."""
import json
import threading

import pytest
from serve_client import JSON, Server, message_of

from test_serve_structured import (
    ASK, FLAG, OFF, RF, SCHEMA, TOOL, YES, check_call, check_trip, format_of, one, refused, server, strict,
)  # fmt: skip

__all__ = ["server"]  # a fixture of its own here


# ---- Foreign protocols ----


@pytest.mark.parametrize("think", [{}, OFF], ids=["thinking", "instant"])
def test_anthropic(server, think):
    def ask(**fields):
        return server.post("/v1/messages", {"max_tokens": 400, "messages": ASK, **think, **fields})

    def uses(body):
        found = [b for b in body["content"] if b["type"] == "tool_use"]
        for b in found:
            check_call(b["name"], json.dumps(b["input"]))
        return found

    tools = [
        {"name": t["function"]["name"], "input_schema": t["function"]["parameters"], "strict": True}
        for t in (TOOL, FLAG)
    ]
    one_use = {"disable_parallel_tool_use": True}
    body = ask(tools=tools, tool_choice={"type": "any", **one_use}, temperature=1, seed=1)
    assert body["stop_reason"] == "tool_use" and len(uses(body)) == 1
    body = ask(tools=tools, tool_choice={"type": "tool", "name": "set-flag.2"}, temperature=1, seed=1)
    assert body["stop_reason"] == "tool_use" and [b["name"] for b in uses(body)] == ["set-flag.2"]
    form = {"type": "json_schema", "schema": SCHEMA}
    for fields in ({"output_config": {"format": form}}, {"output_format": form}):
        body = ask(**fields, temperature=0)
        assert body["stop_reason"] == "end_turn"
        assert check_trip(json.loads("".join(b["text"] for b in body["content"] if b["type"] == "text")))


def test_responses(server):
    def ask(**fields):
        return server.post("/v1/responses", {"input": "hi", "max_output_tokens": 400, **fields})

    def text(body):
        (message,) = [i for i in body["output"] if i["type"] == "message"]
        return message["content"][0]["text"]

    form = {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}
    body = ask(text={"format": form}, temperature=0)
    assert body["status"] == "completed" and check_trip(json.loads(text(body))) and body["text"] == {"format": form}
    cut = ask(text={"format": form}, max_output_tokens=2, reasoning={"effort": "none"})
    assert cut["status"] == "incomplete"
    flat = [{"type": "function", **t["function"], "strict": True} for t in (TOOL, FLAG)]
    for choice in (
        "required",
        {"type": "function", "name": "set-flag.2"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "set-flag.2"}]},
    ):
        body = ask(tools=flat, tool_choice=choice, parallel_tool_calls=False, temperature=1, seed=2)
        (call,) = [i for i in body["output"] if i["type"] == "function_call"]
        check_call(call["name"], call["arguments"])
        assert choice == "required" or call["name"] == "set-flag.2"


# ---- Beside others ----


def in_parallel(jobs):
    """Runs them at a time; what they return."""
    out, threads = [None] * len(jobs), []

    def run(i):
        out[i] = jobs[i]()

    for i in range(len(jobs)):
        threads.append(threading.Thread(target=run, args=(i,)))
        threads[-1].start()
    [t.join() for t in threads]
    return out


def test_constrained_beside_free(server):
    """Each answer is what it is alone, and each kind is of its kind."""
    kinds = [format_of(SCHEMA), {}, {"guided_choice": YES}, {"tools": [TOOL], "tool_choice": "required"}]
    asked = [{**kinds[i % 4], "temperature": 1, "seed": i, "max_tokens": 120, **OFF} for i in range(16)]
    alone = [one(server, **f)["message"] for f in asked]
    together = in_parallel([lambda f=f: one(server, **f)["message"] for f in asked])
    assert alone == together and all(m["content"] in YES for m in together[2::4])


def hostile(i):
    """Bursts the bounds of a compiler: automata whose product has 2^20 states and more, in many spellings."""
    return {"allOf": [{"type": "string", "pattern": f"^(a|b|{i})*a(a|b){{{9 + k}}}$"} for k in range(12)]}


def test_a_hostile_schema_costs_its_sender(server):
    """It is refused, and a stream beside it goes on meanwhile."""
    stream = {"messages": ASK, "max_tokens": 1500, "ignore_eos": True, "temperature": 1, "seed": 1}
    alone = server.stream("/v1/chat/completions", stream)

    def bad(i):
        body = {"messages": ASK, "max_tokens": 4, **format_of(hostile(i)), **OFF}
        return server.request("POST", "/v1/chat/completions", body)[0]

    got = in_parallel([lambda: server.stream("/v1/chat/completions", stream)] + [lambda i=i: bad(i) for i in range(6)])
    assert got[1:] == [400] * 6 and message_of(got[0]) == message_of(alone)
    before = server.metric("sglang:num_grammar_total")
    assert bad(0) == 400 and server.metric("sglang:num_grammar_total") == before, "it is remembered"


def test_compiled_once(server):
    schema = {"type": "object", "properties": {"once": {"const": 12345}}, "required": ["once"]}
    before = {n: server.metric(f"sglang:num_grammar_{n}") for n in ("total", "cache_hit_total")}
    fields = {**format_of(schema), "max_tokens": 5, **OFF}
    in_parallel([lambda: one(server, **fields) for _ in range(6)])
    assert server.metric("sglang:num_grammar_total") == before["total"] + 1
    assert server.metric("sglang:num_grammar_cache_hit_total") == before["cache_hit_total"] + 5
    assert server.metric("sglang:grammar_compilation_time_seconds_count") >= 1
    assert server.metric("moonlet:grammar_cache_entries") >= 1 and server.metric("moonlet:grammar_cache_bytes") > 0


def test_too_long(server):
    long = {"description": "x" * (1 << 20)}
    assert "1048576" in refused(server, "/v1/chat/completions", {"messages": ASK, **format_of(long)}, RF)


def test_abandoned(server):
    """Clients that go while their answers are written leave nothing behind; the fixture looks."""
    for _ in range(4):
        c = server.connect()
        body = {"messages": ASK, "stream": True, "regex": "a*b", "logit_bias": {}, **OFF}
        c.request("POST", "/v1/chat/completions", json.dumps(body), JSON)
        c.getresponse().read(10)
        c.close()


# ---- Options ----


def test_space_and_forced_text():
    whole = {"type": "object", "properties": {"only": {"const": [1, {"a": "b"}]}}, "required": ["only"]}
    whole["additionalProperties"] = False
    got = {}
    for space, flag in (
        ("line", "--disable-jump-forward"),
        ("none", "--constrained-json-disable-any-whitespace"),
        ("any", "--disable-jump-forward"),
    ):
        s = Server("--constrained-json-whitespace", space, flag)
        try:
            info = s.get("/server_info")[1]
            assert info["constrained_json_whitespace"] == space
            assert info["disable_jump_forward"] == (flag == "--disable-jump-forward")
            choices = [one(s, **format_of(whole), temperature=1, seed=i, **OFF) for i in range(4)]
            texts = [c["message"]["content"] for c in choices if c["finish_reason"] == "stop"]
            assert texts or space == "any", "space without end"
            assert all(json.loads(t) == {"only": [1, {"a": "b"}]} for t in texts)
            got[space] = texts
            forced = s.metric("moonlet:forced_tokens_total")
            assert forced == 0 if flag == "--disable-jump-forward" else forced > 0
        finally:
            assert s.stop() == 0
    assert all(" " not in t and "\n" not in t for t in got["none"])
    assert all("  " not in t and "\n" not in t for t in got["line"])


def test_properties_in_order():
    names = ["why", "b", "a", "what"]
    schema = {"type": "object", "properties": {n: {"enum": [1, 2]} for n in names}, "required": ["why", "what"]}
    schema["additionalProperties"] = False
    turned = dict(schema, properties=dict(reversed(schema["properties"].items())))
    seen = {}
    for order in ("any", "schema"):
        s = Server("--constrained-json-property-order", order)
        try:
            assert s.get("/server_info")[1]["constrained_json_property_order"] == order
            for which, expected in ((schema, names), (turned, names[::-1])):
                answers = [one(s, **format_of(which), temperature=1, seed=i, **OFF) for i in range(12)]
                keys = [list(json.loads(c["message"]["content"])) for c in answers]
                seen[order] = [k == sorted(k, key=expected.index) for k in keys]
                assert order == "any" or all(seen[order]), keys
        finally:
            assert s.stop() == 0
    assert not all(seen["any"])


def test_no_parser_of_calls():
    s = Server("--tool-call-parser", "none")
    try:
        refused(s, "/v1/chat/completions", {"messages": ASK, "tools": [TOOL], "tool_choice": "required"}, "tool_choice")
        refused(s, "/v1/chat/completions", {"messages": ASK, "tools": [strict(TOOL)]}, "tools")
        assert one(s, tools=[TOOL], **format_of(SCHEMA), temperature=0, **OFF)["finish_reason"] == "stop"
    finally:
        assert s.stop() == 0
