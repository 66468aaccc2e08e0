"""`moonlet serve`: /v1/messages, Anthropic's protocol. The tests do not depend on what the model says, but for those
that need a tool call, which the small model makes reliably."""
import json

import pytest
from serve_client import JSON, SLOW, Server

ASK = [{"role": "user", "content": "What is 17 + 25?"}]
BASE = {"model": "nano", "max_tokens": 64, "temperature": 0}
TOOL = {
    "name": "get_weather",
    "description": "the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "description": "the weather", "parameters": TOOL["input_schema"]},
}
OFF = {"thinking": {"type": "disabled"}}


@pytest.fixture(scope="module")
def server():
    s = Server("--max-running-requests", "8", "--max-body-size", "1")
    yield s
    assert s.get("/health")[0] == 200
    assert s.stop() == 0


def ask(server, messages=ASK, **fields):
    return server.post("/v1/messages", {**BASE, "messages": messages, **fields})


def prompt_of(server, body):
    """The text that the model is shown for a /v1/messages body, through the chat route's tokenizer."""
    return server.post("/v1/messages/count_tokens", body)["input_tokens"]


def tokens_of(server, **body):
    return server.post("/tokenize", body)["count"]


def message_of(events):
    """What a client adds the events up to; the order is checked on the way."""
    assert events[0]["type"] == "message_start" and events[-1]["type"] == "message_stop"
    assert [e["type"] for e in events].count("message_delta") == 1 and events[-2]["type"] == "message_delta"
    message, open_block, partial = events[0]["message"], None, ""
    assert message["content"] == [] and message["stop_reason"] is None and message["stop_sequence"] is None
    for e in events[1:-2]:
        if e["type"] == "ping":
            continue
        if e["type"] == "content_block_start":
            assert open_block is None and e["index"] == len(message["content"]), "one block at a time, counted up"
            open_block, partial = e["content_block"], ""
            continue
        assert e["index"] == len(message["content"]) and open_block is not None
        if e["type"] == "content_block_stop":
            if open_block["type"] == "tool_use":
                assert open_block["input"] == {}
                open_block["input"] = json.loads(partial or "{}")
            message["content"].append(open_block)
            open_block = None
            continue
        assert e["type"] == "content_block_delta"
        delta, kind = e["delta"], open_block["type"]
        if delta["type"] == "signature_delta":
            assert kind == "thinking"
            open_block["signature"] = delta["signature"]
        elif delta["type"] == "input_json_delta":
            assert kind == "tool_use"
            partial += delta["partial_json"]
        else:
            assert delta["type"] == kind + "_delta" and delta[kind]
            open_block[kind] += delta[kind]
    assert open_block is None
    message.update(events[-2]["delta"])
    message["usage"].update(events[-2]["usage"])
    return message


def test_whole_message(server):
    body = ask(server)
    assert body["type"] == "message" and body["role"] == "assistant" and body["model"] == "nano"
    assert body["id"].startswith("msg_") and body["stop_reason"] in ("end_turn", "max_tokens")
    assert body["stop_sequence"] is None
    assert all(b["type"] in ("thinking", "text") for b in body["content"]) and body["content"]
    usage = body["usage"]
    assert usage["cache_creation_input_tokens"] == 0 and 0 < usage["output_tokens"] <= 64
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == tokens_of(server, messages=ASK)


def test_the_same_words_as_chat(server):
    chat = server.post("/v1/chat/completions", {"messages": ASK, "temperature": 0, "max_tokens": 64})
    choice, body = chat["choices"][0], ask(server)
    said = {b["type"]: b.get("text") or b.get("thinking") for b in body["content"]}
    assert said.get("thinking") == choice["message"]["reasoning_content"]
    assert said.get("text", "") == (choice["message"]["content"] or "")
    assert body["usage"]["output_tokens"] == chat["usage"]["completion_tokens"]
    assert (body["stop_reason"] == "max_tokens") == (choice["finish_reason"] == "length")


@pytest.mark.parametrize(
    "extra",
    [{}, OFF, {"tools": [TOOL]}, {"max_tokens": 3}, {"temperature": 1, "seed": 7}, {"stop_sequences": ["1", "4"]}],
)
def test_stream_equals_whole(server, extra):
    whole = ask(server, **extra)
    streamed = message_of(server.events("/v1/messages", {**BASE, "messages": ASK, **extra}))
    for m in (whole, streamed):
        del m["id"], m["usage"]["input_tokens"], m["usage"]["cache_read_input_tokens"]
    assert streamed == whole


def test_system_content_and_blocks(server):
    """Strings and blocks say the same; a system's blocks are lines of their own."""

    def count(**body):
        return prompt_of(server, body)

    text = [{"type": "text", "text": "What is 17 + 25?", "cache_control": {"type": "ephemeral"}}]
    assert count(messages=ASK) == count(messages=[{"role": "user", "content": text}]) == tokens_of(server, messages=ASK)
    system = {"role": "system", "content": "Be short.\nBe kind."}
    want = tokens_of(server, messages=[system] + ASK)
    blocks = [{"type": "text", "text": t} for t in ("Be short.", "Be kind.")]
    assert count(messages=ASK, system="Be short.\nBe kind.") == count(messages=ASK, system=blocks) == want
    assert count(messages=[system] + ASK) == want, "a message may have the role system"
    assert count(messages=ASK, tools=[TOOL]) == tokens_of(server, messages=ASK, tools=[CHAT_TOOL])
    assert count(messages=ASK, system=[]) == count(messages=ASK, system="") == tokens_of(server, messages=ASK)


def test_a_line_that_changes_every_time_is_not_shown(server):
    """Claude Code's billing header would keep the prefix cache from ever being used."""
    head = "x-anthropic-billing-header: cc_version=2.1; cch=%s;"
    want = prompt_of(server, {"messages": ASK, "system": "Be short."})
    for system in (
        [{"type": "text", "text": head % "1a"}, {"type": "text", "text": "Be short."}],
        head % "2b" + "\nBe short.",
    ):
        assert prompt_of(server, {"messages": ASK, "system": system}) == want
    assert prompt_of(server, {"messages": ASK, "system": head}) == prompt_of(server, {"messages": ASK})


def test_cached_tokens(server):
    system = "You are a patient teacher who explains every step in simple words. " * 12
    first = ask(server, system=system, max_tokens=2)["usage"]
    again = message_of(server.events("/v1/messages", {**BASE, "system": system, "messages": ASK, "max_tokens": 2}))[
        "usage"
    ]
    assert again["cache_read_input_tokens"] >= 64
    assert (
        again["input_tokens"] + again["cache_read_input_tokens"]
        == first["input_tokens"] + first["cache_read_input_tokens"]
    )


def test_thinking(server):
    def thoughts(**fields):
        return [b["thinking"] for b in ask(server, **fields)["content"] if b["type"] == "thinking"]

    assert (
        thoughts()
        == thoughts(thinking={"type": "enabled", "budget_tokens": 1024})
        == thoughts(thinking={"type": "adaptive"})
    )
    assert thoughts(**OFF) == [] == thoughts(thinking={"type": "adaptive", "display": "omitted"})
    assert ask(server, **OFF)["usage"]["output_tokens_details"]["thinking_tokens"] == 0


def test_stop_sequence(server):
    text = ask(server, **OFF, max_tokens=40)["content"][0]["text"]
    stop = text[3:6]
    body = ask(server, **OFF, stop_sequences=["\x01never", stop])
    assert body["stop_reason"] == "stop_sequence" and body["stop_sequence"] == stop
    assert "".join(b["text"] for b in body["content"]) == text[: text.index(stop)]


def test_the_assistants_words_go_on(server):
    body = ask(server, ASK + [{"role": "assistant", "content": "The answer"}])
    assert all(b["type"] == "text" for b in body["content"]), "what has begun is no thought"
    chat = server.post(
        "/v1/chat/completions",
        {
            "messages": ASK + [{"role": "assistant", "content": "The answer"}],
            "temperature": 0,
            "max_tokens": 64,
            "continue_final_message": True,
        },
    )
    assert body["content"][0]["text"] == chat["choices"][0]["message"]["content"]


def test_a_round_with_a_tool(server):
    question = {"role": "user", "content": "What is the weather in Paris?"}
    fields = {"tools": [TOOL], "max_tokens": 120, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    body = ask(server, [question], **fields)
    assert body["stop_reason"] == "tool_use"
    (call,) = [b for b in body["content"] if b["type"] == "tool_use"]
    assert call["id"] == "functions.get_weather:0" and call["name"] == "get_weather" and "city" in call["input"]
    result = {
        "type": "tool_result",
        "tool_use_id": call["id"],
        "content": [{"type": "text", "text": "sunny, 21 degrees"}],
    }
    history = [question, {"role": "assistant", "content": body["content"]}, {"role": "user", "content": [result]}]
    answer = ask(server, history, **fields)
    assert answer["stop_reason"] == "end_turn" and answer["usage"]["output_tokens"] > 0
    # The same conversation as chat has it: the same prompt, token by token, so the same answer.
    thought = [b["thinking"] for b in body["content"] if b["type"] == "thinking"]
    chat = server.post(
        "/v1/chat/completions",
        {
            "temperature": 0,
            "max_tokens": 120,
            "tools": [CHAT_TOOL],
            "messages": [
                question,
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning_content": "".join(thought),
                    "tool_calls": [
                        {
                            "id": call["id"],
                            "type": "function",
                            "function": {"name": "get_weather", "arguments": json.dumps(call["input"])},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": call["id"], "content": "sunny, 21 degrees"},
            ],
        },
    )
    usage = answer["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == chat["usage"]["prompt_tokens"]
    assert [b["text"] for b in answer["content"] if b["type"] == "text"] == [chat["choices"][0]["message"]["content"]]
    # Ids of another provider are renamed, and the call of this answer is counted after those of the history.
    foreign = json.loads(json.dumps(history).replace("functions.get_weather:0", "toolu_01abc"))
    assert prompt_of(server, {"messages": foreign, "tools": [TOOL]}) == prompt_of(
        server, {"messages": history, "tools": [TOOL]}
    )
    more = ask(
        server,
        foreign
        + [
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": "What is the weather in Rome?"},
        ],
        **fields,
    )
    assert [b["id"] for b in more["content"] if b["type"] == "tool_use"] == ["functions.get_weather:1"]
    none = ask(server, [question], tools=[TOOL], tool_choice={"type": "none"})
    assert none["stop_reason"] != "tool_use" and all(b["type"] != "tool_use" for b in none["content"])


def test_history_is_shown_as_chat_shows_it(server):
    """Results that are errors say so; several results and a text behind them; arguments that are no JSON go back as
    they were; redacted thoughts are left out."""

    def use(i, **input):
        return {"type": "tool_use", "id": f"t{i}", "name": "get_weather", "input": input}

    messages = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "I look."},
                use(1, city="Rome"),
                use(2, _raw='{"city": "Par'),
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t2", "content": "no such city", "is_error": True},
                {"type": "tool_result", "tool_use_id": "t1", "is_error": False},
                {"type": "text", "text": "And now?"},
            ],
        },
    ]
    call = {"type": "function"}
    chat = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "reasoning_content": "hm",
            "content": "I look.",
            "tool_calls": [
                {**call, "id": "t1", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}},
                {**call, "id": "t2", "function": {"name": "get_weather", "arguments": '{"city": "Par'}},
            ],
        },
        {"role": "tool", "tool_call_id": "t2", "content": "Error: no such city"},
        {"role": "tool", "tool_call_id": "t1", "content": ""},
        {"role": "user", "content": "And now?"},
    ]
    body = {"messages": messages, "tools": [TOOL]}
    assert prompt_of(server, body) == tokens_of(server, messages=chat, tools=[CHAT_TOOL])
    want = server.post(
        "/v1/chat/completions", {"messages": chat, "tools": [CHAT_TOOL], "temperature": 0, "max_tokens": 64}
    )
    got = ask(server, messages, tools=[TOOL])
    said = "".join(b["text"] for b in got["content"] if b["type"] == "text")
    assert said == (want["choices"][0]["message"]["content"] or "")


def test_cut_arguments_are_still_an_object(server):
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    for n in range(1, 40):
        body = ask(server, question, tools=[TOOL], max_tokens=n)
        calls = [b for b in body["content"] if b["type"] == "tool_use"]
        assert all(isinstance(c["input"], dict) for c in calls)
        if body["stop_reason"] != "max_tokens":
            break
        if calls and "_raw" in calls[0]["input"]:
            return
    pytest.fail("no answer was cut inside its arguments")


# ---- What is refused ----

USER = {"role": "user", "content": "x"}


def blocks(*content, role="user"):
    return {"messages": [{"role": role, "content": list(content)}]}


@pytest.mark.parametrize(
    "fields,word",
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            blocks({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}),
            "no picture",
        ),
        (blocks({"type": "image", "source": {"type": "file", "file_id": "x"}}), "source.type"),
        (blocks({"type": "image", "source": {"type": "base64"}}), "source.data"),
        (blocks({"type": "document", "source": {}}), "document"),
        (blocks({"type": "text", "text": 5}), "messages[0].content[0].text"),
        (blocks({"text": "x"}), "messages[0].content[0].type"),
        (blocks("x"), "messages[0].content[0]"),
        (blocks({"type": "tool_use", "id": "a", "name": "f", "input": {}}), "role"),
        (blocks({"type": "tool_result", "tool_use_id": 5}), "tool_use_id"),
        (
            blocks({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}),
            "messages[0].content[0].content[0]",
        ),
        (blocks({"type": "tool_result", "tool_use_id": "a", "is_error": "yes"}), "is_error"),
        (blocks({"type": "tool_use", "id": "a", "name": "f", "input": "x"}, role="assistant"), "input"),
        (blocks({"type": "tool_use", "id": "a", "name": "f", "input": {}}, role="assistant"), "tool_result"),
        (blocks({"type": "server_tool_use", "id": "a", "name": "f", "input": {}}, role="assistant"), "server_tool_use"),
        ({"system": 5}, "system"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"tools": 5}, "tools"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
        ({"tools": [{**TOOL, "strict": 1}]}, "strict"),
        ({"tools": [{**TOOL, "strict": True, "input_schema": {"not": {}}}]}, "tools: get_weather"),
        ({"tools": [TOOL, TOOL]}, "twice"),
        ({"tools": [{"name": "", "input_schema": {}}]}, "name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {}}, "tool_choice"),
        ({"thinking": {"type": "maybe"}}, "thinking"),
        ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "budget_tokens"),
        ({"thinking": {"type": "adaptive", "display": "loud"}}, "display"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": ["x"] * 99}, "stop"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"top_k": -5}, "top_k"),
        ({"metadata": 5}, "metadata"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"not": {}}}}}, "output_config.format"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
        ({"output_format": {"type": "text"}}, "output_format"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"regex": "("}, "regex"),
    ],
)
def test_400_names_the_field(server, fields, word):
    body = {"max_tokens": 5, "messages": [USER], **fields}
    for stream in (False, True):
        status, answer, head = server.request("POST", "/v1/messages", {**body, "stream": stream})
        assert status == 400, answer
        assert set(answer) == {"type", "error"} and answer["type"] == "error"
        assert answer["error"]["type"] == "invalid_request_error" and word in answer["error"]["message"], answer
        assert head["content-type"] == "application/json"


def test_other_errors_in_anthropics_form(server):
    def error(status, method, path, body, headers=JSON):
        got, answer, _ = server.request(method, path, body, headers)
        assert got == status and answer["type"] == "error", answer
        return answer["error"]["type"]

    ok = {**BASE, "messages": [USER]}
    assert error(404, "POST", "/v1/messages", {**ok, "model": "claude"}) == "not_found_error"
    assert error(404, "POST", "/v1/messages/count_tokens", {**ok, "model": "claude"}) == "not_found_error"
    assert error(404, "POST", "/v1/messages/batches", ok) == "not_found_error"
    assert error(405, "GET", "/v1/messages", None) == "invalid_request_error"
    assert error(415, "POST", "/v1/messages", "x", {"Content-Type": "text/plain"}) == "invalid_request_error"
    assert error(400, "POST", "/v1/messages", "{") == "invalid_request_error"
    assert error(400, "POST", "/v1/messages/count_tokens", "[]") == "invalid_request_error"
    assert error(400, "POST", "/v1/messages/count_tokens", {"messages": []}) == "invalid_request_error"
    assert error(400, "POST", "/v1/messages", {**ok, "max_tokens": 10**6}) == "invalid_request_error"
    c = server.connect()
    c.putrequest("POST", "/v1/messages")
    c.putheader("Content-Length", str(10**12))
    c.endheaders()
    r = c.getresponse()
    assert r.status == 413 and json.loads(r.read())["type"] == "error"
    c.close()


def test_what_is_tolerated(server):
    headers = {**JSON, "anthropic-version": "2023-06-01", "anthropic-beta": "a,b", "x-api-key": "whatever"}
    body = {
        **BASE,
        "messages": [USER],
        "metadata": {"user_id": "me"},
        "service_tier": "auto",
        "max_tokens": 2,
        "mcp_servers": [],
        "context_management": {"edits": []},
        "output_config": {"effort": "high"},
        "container": None,
        "n": 3,
        "logprobs": 5,
        "quux": 1,
        "tools": [
            {
                "type": "custom",
                "name": "f",
                "input_schema": {},
                "cache_control": {"type": "ephemeral"},
                "input_examples": [],
            }
        ],
    }
    status, answer, head = server.request("POST", "/v1/messages", body, headers)
    assert status == 200 and answer["type"] == "message" and head["request-id"] == answer["id"]


def test_api_key_in_anthropics_header():
    s = Server("--api-key", "secret")
    try:
        body = {**BASE, "messages": [USER], "max_tokens": 1}
        status, answer, _ = s.request("POST", "/v1/messages", body, {**JSON, "x-api-key": "wrong"})
        assert status == 401 and answer["error"]["type"] == "authentication_error"
        assert s.request("POST", "/v1/messages", body, {**JSON, "x-api-key": "secret"})[0] == 200
    finally:
        assert s.stop() == 0


def test_an_error_after_the_stream_has_begun():
    s = Server("--simulate-step", "20000", "--request-timeout", str(1 * SLOW))
    try:
        events = s.events("/v1/messages", {**BASE, "messages": [USER], "max_tokens": 6000, "ignore_eos": True})
        assert events[0]["type"] == "message_start"
        assert events[-1]["type"] == "error" and events[-1]["error"]["type"] == "overloaded_error"
    finally:
        assert s.stop() == 0
