"""`moonlet serve`: /v1/responses, OpenAI's Responses without a store. The tests do not depend on what the model says,
but for those that need a tool call, which the small model makes reliably."""
import json

import pytest
from serve_client import SLOW, Server

QUESTION = "What is 17 + 25?"
BASE = {"model": "nano", "max_output_tokens": 64, "temperature": 0}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "the weather",
    "parameters": PARAMETERS,
    "strict": False,
}
CHAT_TOOL = {"type": "function", "function": {k: TOOL[k] for k in ("name", "description", "parameters")}}
OFF = {"reasoning": {"effort": "none"}}


@pytest.fixture(scope="module")
def server():
    s = Server("--max-running-requests", "8")
    yield s
    assert s.get("/health")[0] == 200
    assert s.stop() == 0


def ask(server, input=QUESTION, **fields):
    return server.post("/v1/responses", {**BASE, "input": input, **fields})


def chat(server, messages, **fields):
    body = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 64, **fields})
    return body["choices"][0], body["usage"]


def texts(response, kind):
    return [part["text"] for item in response["output"] if item["type"] == kind for part in item["content"]]


def response_of(events):
    """The last response, after checking that the events add up to it, in order and without gaps."""
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"]
    for e in events[:2]:
        assert (
            e["response"]["status"] == "in_progress"
            and e["response"]["output"] == []
            and e["response"]["usage"] is None
        )
    last = events[-1]["response"]
    assert (
        events[-1]["type"] == "response." + last["status"]
        and len({e["response"]["id"] for e in events if "response" in e}) == 1
    )
    items, item, text = [], None, ""
    for e in events[2:-1]:
        kind = e["type"].removeprefix("response.")
        assert e["output_index"] == len(items)
        if kind == "output_item.added":
            assert item is None
            item, text = e["item"], ""
            assert item["status"] == "in_progress" and not item.get("content") and not item.get("arguments")
        elif kind == "output_item.done":
            done = e["item"]
            assert (done["id"], done["type"]) == (item["id"], item["type"])
            assert done.get("arguments", "") + "".join(p["text"] for p in done.get("content", [])) == text
            items.append(done)
            item = None
        else:
            assert e["item_id"] == item["id"] and (item["type"] == "function_call" or e["content_index"] == 0)
            if kind.endswith(".delta"):
                assert e["delta"]
                text += e["delta"]
            elif kind in ("output_text.done", "reasoning_text.done"):
                assert e["text"] == text
            elif kind == "function_call_arguments.done":
                assert e["arguments"] == text and e["name"] == item["name"]
            else:
                assert kind in ("content_part.added", "content_part.done")
                assert e["part"]["text"] == ("" if kind.endswith("added") else text)
    assert item is None and items == last["output"]
    return last


def test_whole_response(server):
    body = ask(server, instructions="Be short.", metadata={"a": "b"})
    assert body["object"] == "response" and body["id"].startswith("resp_") and body["model"] == "nano"
    assert body["status"] in ("completed", "incomplete") and body["error"] is None and body["store"] is False
    assert body["instructions"] == "Be short." and body["metadata"] == {"a": "b"} and body["max_output_tokens"] == 64
    assert body["tools"] == [] and body["tool_choice"] == "auto" and body["parallel_tool_calls"] is True
    assert body["output"] and len({item["id"] for item in body["output"]}) == len(body["output"])
    usage = body["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens"] >= usage["output_tokens_details"]["reasoning_tokens"] >= 0
    assert usage["input_tokens_details"]["cached_tokens"] >= 0


def test_the_same_words_as_chat(server):
    for extra in ({}, OFF):
        body = ask(server, instructions="Be short.", **extra)
        messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}]
        choice, usage = chat(server, messages, **extra)
        assert "".join(texts(body, "reasoning")) == (choice["message"]["reasoning_content"] or "")
        assert "".join(texts(body, "message")) == (choice["message"]["content"] or "")
        assert body["usage"]["input_tokens"] == usage["prompt_tokens"]
        assert body["usage"]["output_tokens"] == usage["completion_tokens"]
        assert (body["status"] == "incomplete") == (choice["finish_reason"] == "length")


@pytest.mark.parametrize(
    "extra",
    [
        {},
        OFF,
        {"tools": [TOOL], "max_output_tokens": 120, "input": "What is the weather in Paris?"},
        {"temperature": 1, "seed": 7},
        {"max_output_tokens": 3},
    ],
)
def test_stream_equals_whole(server, extra):
    whole = ask(server, **extra)
    streamed = response_of(server.events("/v1/responses", {**BASE, "input": QUESTION, **extra}))
    for r in (whole, streamed):
        for item in r["output"]:
            del item["id"]
        del r["id"], r["created_at"], r["usage"]["input_tokens_details"]
    assert streamed == whole


def test_incomplete(server):
    body = ask(server, max_output_tokens=3)
    assert body["status"] == "incomplete" and body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["output"][-1]["status"] == "incomplete" and body["usage"]["output_tokens"] == 3
    events = server.events("/v1/responses", {**BASE, "input": QUESTION, "max_output_tokens": 3})
    assert events[-1]["type"] == "response.incomplete"


def test_input_items_are_shown_as_chat_shows_them(server):
    call = {
        "type": "function_call",
        "call_id": "call_1",
        "name": "get_weather",
        "arguments": '{"city": "Rome"}',
        "id": "fc_1",
        "status": "completed",
    }
    items = [
        {"role": "developer", "content": "Be short."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I ask."}]},
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "content": [{"type": "output_text", "text": "One moment.", "annotations": []}],
        },
        call,
        {**call, "call_id": "call_2"},
        {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "rain"}]},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        {
            "type": "reasoning",
            "id": "rs_2",
            "summary": [{"type": "summary_text", "text": "Two answers."}],
            "encrypted_content": "xyz",
        },
        {"role": "assistant", "content": "It is both."},
        {"role": "user", "content": "Thanks."},
        {"role": "user", "content": "And now?"},
    ]
    function = {"type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "reasoning_content": "I ask.",
            "content": "One moment.",
            "tool_calls": [{**function, "id": "call_1"}, {**function, "id": "call_2"}],
        },
        {"role": "tool", "tool_call_id": "call_2", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "assistant", "reasoning_content": "Two answers.", "content": "It is both."},
        {"role": "user", "content": "Thanks."},
        {"role": "user", "content": "And now?"},
    ]
    body = ask(server, items, tools=[TOOL])
    choice, usage = chat(server, messages, tools=[CHAT_TOOL])
    assert body["usage"]["input_tokens"] == usage["prompt_tokens"]
    assert "".join(texts(body, "message")) == (choice["message"]["content"] or "")


def test_a_round_with_a_tool(server):
    question = {"role": "user", "content": "What is the weather in Paris?"}
    fields = {"tools": [TOOL], "max_output_tokens": 120, "tool_choice": "auto", "parallel_tool_calls": False}
    body = ask(server, [question], **fields)
    assert body["status"] == "completed" and body["tools"] == [TOOL] and body["parallel_tool_calls"] is False
    (call,) = [item for item in body["output"] if item["type"] == "function_call"]
    assert call["call_id"] == "functions.get_weather:0" and "city" in json.loads(call["arguments"])
    history = [
        question,
        *body["output"],
        {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny, 21 degrees"},
    ]
    answer = ask(server, history, **fields)
    assert answer["status"] == "completed" and texts(answer, "message")
    more = ask(
        server, history + answer["output"] + [{"role": "user", "content": "What is the weather in Rome?"}], **fields
    )
    assert [i["call_id"] for i in more["output"] if i["type"] == "function_call"] == ["functions.get_weather:1"]
    none = ask(server, [question], tools=[TOOL], tool_choice="none")
    assert all(item["type"] != "function_call" for item in none["output"])


@pytest.mark.parametrize(
    "fields,param",
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0]"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]},
            "input[0].content[0]",
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0]"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": {}}]}, "input[0]"),
        ({"input": [{"type": "function_call_output", "call_id": "a"}]}, "input[0]"),
        (
            {"input": [{"type": "function_call_output", "call_id": "a", "output": [{"type": "input_file"}]}]},
            "input[0].output[0]",
        ),
        ({"input": [{"type": "reasoning", "content": 5}]}, "content"),
        ({"instructions": 5}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "5"}, "max_output_tokens"),
        ({"max_output_tokens": 10**6}, "input"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"store": "yes"}, "store"),
        ({"metadata": 5}, "metadata"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"not": {}}}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"text": 5}, "text"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"name": "f"}]}, "tools[0]"),
        ({"tools": [{**TOOL, "strict": True, "parameters": {"not": {}}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"reasoning": 5}, "reasoning"),
        ({"reasoning": {"effort": []}}, "reasoning"),
        ({"parallel_tool_calls": 5}, "parallel_tool_calls"),
        ({"regex": "("}, "regex"),
    ],
)
def test_400_names_the_field(server, fields, param):
    for stream in (False, True):
        status, answer, _ = server.request("POST", "/v1/responses", {"input": "x", **fields, "stream": stream})
        assert status == 400, answer
        assert (
            set(answer["error"]) == {"message", "type", "param", "code"} and answer["error"]["param"] == param
        ), answer


def test_what_is_tolerated(server):
    body = {
        **BASE,
        "input": "x",
        "max_output_tokens": 2,
        "store": True,
        "truncation": "auto",
        "user": "me",
        "service_tier": "auto",
        "prompt_cache_key": "k",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "stream_options": {"include_obfuscation": False},
        "previous_response_id": None,
        "background": False,
        "max_tool_calls": 3,
        "n": 4,
        "quux": 1,
    }
    answer = server.post("/v1/responses", body)
    assert (
        answer["store"] is False
        and answer["reasoning"] == {"effort": "high", "summary": "auto"}
        and answer["user"] == "me"
    )


def test_responses_are_not_kept(server):
    made = ask(server, max_output_tokens=2)
    for method, path in (("GET", ""), ("POST", "/cancel"), ("DELETE", "")):
        status, body, _ = server.request(method, f"/v1/responses/{made['id']}{path}")
        assert status == 404 and body["error"]["type"] == "not_found_error"
    assert (
        server.post("/v1/responses", {**BASE, "input": "x", "model": "gpt"}, 404)["error"]["code"] == "model_not_found"
    )


def test_an_error_after_the_stream_has_begun():
    s = Server("--simulate-step", "20000", "--request-timeout", str(1 * SLOW))
    try:
        events = s.events("/v1/responses", {**BASE, "input": "x", "max_output_tokens": 6000, "ignore_eos": True})
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
        assert events[0]["type"] == "response.created" and events[-1]["type"] == "response.failed"
        response = events[-1]["response"]
        assert (
            response["status"] == "failed"
            and response["error"]["code"] == "server_error"
            and response["error"]["message"]
        )
    finally:
        assert s.stop() == 0
