"""Structured output of `moonlet serve`: whatever nano writes is valid when it is finished, and a beginning of something
valid when it is cut. Moonshot's verifier cases (reference/serving.md, 1.14 and 6.2) among the refusals."""
import json
import re
import subprocess

import pytest
from serve_client import MOONLET, NANO, Server, message_of, wait_until

ASK = [{"role": "user", "content": "What is 17 + 25?"}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
OFF = {"thinking": {"type": "disabled"}}
CITY = {"type": "string", "minLength": 1, "maxLength": 12}
SCHEMA = {
    "$defs": {"place": {"type": "object", "properties": {"city": CITY}, "required": ["city"]}},
    "type": "object",
    "title": "Trip",
    "properties": {
        "days": {"type": "integer", "minimum": 1, "maximum": 30},
        "kind": {"enum": ["short", "long", None]},
        "where": {"type": "array", "items": CITY, "minItems": 1, "maxItems": 3},
    },
    "required": ["days", "kind", "where"],
    "additionalProperties": False,
}


def check_trip(v):
    """SCHEMA, by hand."""
    assert set(v) == {"days", "kind", "where"}, v
    assert type(v["days"]) is int and 1 <= v["days"] <= 30
    assert v["kind"] in ("short", "long", None)
    assert 1 <= len(v["where"]) <= 3 and all(isinstance(c, str) and 1 <= len(c) <= 12 for c in v["where"])
    return True


def format_of(schema, **more):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **more}}}


def tool(name, **properties):
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "it",
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
        },
    }


def strict(t):
    return {**t, "function": {**t["function"], "strict": True}}


TOOL = tool("get_weather", city=CITY)
FLAG = tool("set-flag.2", on={"type": "boolean"})


def check_call(name, arguments):
    value = json.loads(arguments)
    if name == "get_weather":
        assert set(value) == {"city"} and 1 <= len(value["city"]) <= 12
    else:
        assert name == "set-flag.2" and set(value) == {"on"} and isinstance(value["on"], bool)


@pytest.fixture(scope="module")
def server():
    s = Server("--max-running-requests", "16")
    yield s
    wait_until(lambda: s.stats()["num_running_reqs"] == 0)  # an answer is told before its last step is over
    stats = s.stats()
    assert stats["num_running_reqs"] == 0 == stats["num_queue_reqs"] and stats["pages_used"] == 0
    assert s.stop() == 0


def chat(server, messages=ASK, **fields):
    return server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 400, **fields})


def one(server, messages=ASK, **fields):
    (choice,) = chat(server, messages, **fields)["choices"]
    return choice


def refused(server, path, body, param):
    for stream in (False, True):
        status, answer, _ = server.request("POST", path, {**body, "stream": stream})
        assert status == 400 and answer["error"]["param"] == param, answer
    return answer["error"]["message"]


def match(lines):
    """`moonlet text match`, one answer a line."""
    asked = "".join(json.dumps(x) + "\n" for x in lines).encode()
    done = subprocess.run([MOONLET, "text", "match", "-m", str(NANO)], input=asked, capture_output=True, timeout=100)
    return [json.loads(x) for x in done.stdout.decode().splitlines()]


# ---- response_format ----


@pytest.mark.parametrize("think", [{}, OFF], ids=["thinking", "instant"])
@pytest.mark.parametrize("draw", [{"temperature": 0}, {"temperature": 1.5, "seed": 1}], ids=["greedy", "hot"])
def test_schema(server, think, draw):
    choice = one(server, **format_of(SCHEMA), **think, **draw)
    assert choice["finish_reason"] == "stop" and check_trip(json.loads(choice["message"]["content"]))
    assert bool(choice["message"]["reasoning_content"]) == (not think)
    text = choice["message"]["content"]
    assert "\n" not in text and "\t" not in text and not re.search(r"  |[\[{] | [\]}]", re.sub(r'"[^"]*"', '""', text))
    events = server.stream(
        "/v1/chat/completions", {"messages": ASK, "max_tokens": 400, **format_of(SCHEMA), **think, **draw}
    )
    message = message_of(events)
    assert message["content"] == text and message["finish_reason"] == "stop"
    assert message["reasoning_content"] == (choice["message"]["reasoning_content"] or "")


def test_reasoning_left_in_the_content(server):
    """separate_reasoning says how the answer is shown, not whether the model thinks."""
    text = one(server, **format_of(SCHEMA), temperature=0, separate_reasoning=False)["message"]["content"]
    thought, end, rest = text.partition("</think>")
    assert thought and end and check_trip(json.loads(rest))


def test_a_model_that_opens_its_thinking_itself():
    s = Server("--template", "k2-thinking")
    try:
        for seed in range(3):
            choice = one(s, **format_of(SCHEMA), temperature=1, seed=seed)
            assert choice["finish_reason"] != "stop" or check_trip(json.loads(choice["message"]["content"]))
    finally:
        assert s.stop() == 0


def test_json_object(server):
    for seed in range(4):
        choice = one(server, response_format={"type": "json_object"}, temperature=1.2, seed=seed, **OFF)
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["message"]["content"]), dict)
    assert one(server, response_format={"type": "text"}, temperature=0)["finish_reason"] == "stop"


def test_many_answers(server):
    body = chat(server, **format_of(SCHEMA), n=3, temperature=1.3, seed=3, **OFF)
    texts = [c["message"]["content"] for c in body["choices"]]
    assert len(texts) == 3 == len(set(texts)) and all(check_trip(json.loads(t)) for t in texts)


def test_cut_by_max_tokens(server):
    """A prefix of something valid, and finish_reason says so."""
    lines = []
    for most in (1, 2, 3, 5, 8, 13):
        choice = one(server, **format_of(SCHEMA), temperature=1, seed=most, max_tokens=most, **OFF)
        assert choice["finish_reason"] == "length"
        lines.append({"schema": SCHEMA, "text": choice["message"]["content"]})
    for line, answer in zip(lines, match(lines)):
        assert answer == {"accepts": False, "prefix": len(line["text"].encode())}, line
    choice = one(server, **format_of(SCHEMA), temperature=0, max_tokens=3)
    assert choice["finish_reason"] == "length" and not choice["message"]["content"]


RF = "response_format"
SCHEMA_400 = [
    {"type": "json"},
    {"type": None},
    {},
    {"type": "json_schema"},
    {"type": "json_schema", "json_schema": None},
    {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
    {"type": "json_schema", "json_schema": {"name": "n"}},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": "object"}},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": []}},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": "true"}},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": 1}},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "objekt"}}},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 1, "enum": [2]}}},
]


@pytest.mark.parametrize("bad", SCHEMA_400, ids=lambda v: json.dumps(v)[:60])
def test_response_format_400(server, bad):
    refused(server, "/v1/chat/completions", {"messages": ASK, "response_format": bad}, RF)


def test_strict_and_not(server):
    odd = {"type": "object", "properties": {"a": {"type": "integer", "not": {"const": 5}}}, "required": ["a"]}
    for more in ({}, {"strict": True}, {"strict": None}):
        said = refused(server, "/v1/chat/completions", {"messages": ASK, **format_of(odd, **more)}, RF)
        assert '"not"' in said and "a" in said
    body = {"messages": ASK, "max_tokens": 60, "temperature": 0, **OFF, **format_of(odd, strict=False)}
    for stream in (False, True, False):
        status, _, head = server.request("POST", "/v1/chat/completions", {**body, "stream": stream})
        assert status == 200
        said = head["x-moonlet-warning"]
        assert '"not"' in said and len(said) < 600 and said.isascii() and "\n" not in said
    assert any("structured output: " in line for line in server.log)
    assert "x-moonlet-warning" not in server.request("POST", "/v1/chat/completions", {"messages": ASK, **OFF})[2]


# ---- Tools ----


def calls_of(choice):
    calls = choice["message"]["tool_calls"] or []
    for i, c in enumerate(calls):
        check_call(c["function"]["name"], c["function"]["arguments"])
        assert c["index"] == i
    return calls


@pytest.mark.parametrize("think", [{}, OFF], ids=["thinking", "instant"])
@pytest.mark.parametrize("seed", range(3))
def test_required(server, think, seed):
    fields = {"tools": [TOOL, FLAG], "tool_choice": "required", "temperature": 1, "seed": seed, **think}
    choice = one(server, **fields)
    assert choice["finish_reason"] in ("tool_calls", "length") and calls_of(choice)
    assert not choice["message"]["content"]
    message = message_of(server.stream("/v1/chat/completions", {"messages": ASK, "max_tokens": 400, **fields}))
    assert [(c["name"], c["arguments"]) for c in message["tool_calls"]] == [
        (c["function"]["name"], c["function"]["arguments"]) for c in choice["message"]["tool_calls"]
    ]
    single = one(server, **fields, parallel_tool_calls=False)
    assert single["finish_reason"] == "tool_calls" and len(calls_of(single)) == 1


def test_named_and_allowed(server):
    tools = [TOOL, FLAG]
    for seed in range(3):
        fields = {"tools": tools, "temperature": 1, "seed": seed, **OFF}
        named = one(server, **fields, tool_choice={"type": "function", "function": {"name": "set-flag.2"}})
        assert [c["function"]["name"] for c in calls_of(named)] == ["set-flag.2"]
        assert named["finish_reason"] == "tool_calls"
        only = {"mode": "required", "tools": [{"type": "function", "function": {"name": "set-flag.2"}}]}
        some = one(server, **fields, tool_choice={"type": "allowed_tools", "allowed_tools": only})
        assert {c["function"]["name"] for c in calls_of(some)} == {"set-flag.2"}
    maybe = {"type": "allowed_tools", "allowed_tools": {**only, "mode": "auto"}}
    free = one(server, WEATHER, tools=tools, tool_choice=maybe, temperature=0)
    assert {c["function"]["name"] for c in calls_of(free)} <= {"set-flag.2"}


def test_auto(server):
    """With strict tools, calls are valid where there are some; content is as free as without them."""
    call = one(server, WEATHER, tools=[strict(TOOL)], temperature=0)
    assert call["finish_reason"] == "tool_calls" and len(calls_of(call)) == 1
    plain = one(server, ASK, tools=[TOOL], temperature=0)
    held = one(server, ASK, tools=[strict(TOOL)], temperature=0)
    assert held["message"] == plain["message"] and held["finish_reason"] == plain["finish_reason"] == "stop"
    for choice in ("auto", "none"):
        assert one(server, tool_choice=choice, temperature=0)["finish_reason"] == "stop"
        assert one(server, tool_choice=choice, tools=[], temperature=0)["finish_reason"] == "stop"
    none = one(server, WEATHER, tools=[strict(TOOL)], tool_choice="none", temperature=0)
    assert not none["message"]["tool_calls"]


def test_tools_and_a_format(server):
    for seed in range(4):
        fields = {"tools": [TOOL], **format_of(SCHEMA), "temperature": 1, "seed": seed, **OFF}
        choice = one(server, WEATHER, **fields)
        if not calls_of(choice):
            assert choice["finish_reason"] != "stop" or check_trip(json.loads(choice["message"]["content"]))
        none = one(server, WEATHER, **fields, tool_choice="none")
        assert check_trip(json.loads(none["message"]["content"])) and not none["message"]["tool_calls"]
        must = one(server, WEATHER, **fields, tool_choice="required")
        assert calls_of(must) and not must["message"]["content"]


def test_indices_go_on(server):
    """The ids of a second answer count on from the first one's; the model writes them so itself."""
    first = one(server, WEATHER, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, temperature=0, **OFF)
    (call,) = calls_of(first)
    assert call["id"] == "functions.get_weather:0"
    messages = WEATHER + [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"},
        *ASK,
    ]
    fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "temperature": 0, **OFF}
    (call,) = calls_of(one(server, messages, **fields))
    assert call["id"] == "functions.get_weather:1"
    body = {"messages": messages, "max_tokens": 400, "return_token_ids": True, **fields}
    ids = server.post("/v1/chat/completions", body)["choices"][0]["token_ids"]
    assert "functions.get_weather:1<|tool_call_argument_begin|>" in server.post("/detokenize", {"tokens": ids})["text"]


TOOLS_400 = [
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "required", "tools": []}, "tool_choice"),
    ({"tool_choice": "sometimes", "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "other"}}, "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "function"}, "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}, "tools": [TOOL]}, "tool_choice"),
    ({"tools": [TOOL, TOOL]}, "tools"),
    ({"tools": [strict(tool("f", a={"not": {}}))]}, "tools"),
    ({"tools": [strict(tool("f", a={"type": "string", "pattern": "(?=a)"}))], "tool_choice": "required"}, "tools"),
]


@pytest.mark.parametrize("bad,param", TOOLS_400, ids=lambda v: json.dumps(v)[:60])
def test_tools_400(server, bad, param):
    said = refused(server, "/v1/chat/completions", {"messages": ASK, **bad}, param)
    assert param in said


def test_a_tool_that_is_not_strict_is_held_as_far_as_it_can_be(server):
    odd = tool("f", a={"type": "boolean", "not": {"const": True}})
    body = {"messages": ASK, "tools": [odd], "tool_choice": "required", "max_tokens": 300, **OFF}
    status, answer, head = server.request("POST", "/v1/chat/completions", body)
    assert status == 200 and "tools: f" in head["x-moonlet-warning"]
    for c in answer["choices"][0]["message"]["tool_calls"]:
        assert isinstance(json.loads(c["function"]["arguments"])["a"], bool)


# ---- Other spellings ----

YES = ["yes", "no", "per'haps\n"]
GRAMMAR = 'root ::= "<" [a-c]+ ">"'
SPELLINGS = [
    ({"regex": r"\d{3}-[a-f]{2}"}, r"\d{3}-[a-f]{2}"),
    ({"ebnf": GRAMMAR}, "<[a-c]+>"),
    ({"json_schema": json.dumps({"type": "integer", "minimum": 3, "maximum": 44})}, "[3-9]|[1-4][0-9]"),
    ({"json_schema": {"type": "object", "properties": {}, "additionalProperties": False}}, "{}"),
    ({"guided_json": {"enum": [1, None]}}, "1|null"),
    ({"guided_json": '{"const": "a"}'}, '"a"'),
    ({"guided_regex": "(ab|c)*d"}, "(ab|c)*d"),
    ({"guided_choice": YES}, "yes|no|per'haps\n"),
    ({"guided_grammar": GRAMMAR}, "<[a-c]+>"),
    ({"structured_outputs": {"json": {"type": "boolean"}}}, "true|false"),
    ({"structured_outputs": {"regex": "x{4}"}}, "x{4}"),
    ({"structured_outputs": {"choice": YES}}, "yes|no|per'haps\n"),
    ({"structured_outputs": {"grammar": GRAMMAR}}, "<[a-c]+>"),
]


@pytest.mark.parametrize("fields,pattern", SPELLINGS, ids=lambda v: json.dumps(v)[:60])
def test_spellings(server, fields, pattern):
    def check(text, reason):
        assert reason == "length" or re.fullmatch(pattern, text), text
        return text

    for seed in range(2):
        draw = {"temperature": 1, "seed": seed}
        choice = one(server, **fields, **draw, max_tokens=60, **OFF)
        text = check(choice["message"]["content"], choice["finish_reason"])
        raw = server.post("/v1/completions", {"prompt": "a", "max_tokens": 60, **fields, **draw})["choices"][0]
        check(raw["text"], raw["finish_reason"])
        params = {"temperature": 1, "sampling_seed": seed, "max_new_tokens": 60, **fields}
        own = server.post("/generate", {"text": ["a", "b"], "sampling_params": params})
        for g in own:
            check(g["text"], g["meta_info"]["finish_reason"]["type"])
        last = server.stream("/generate", {"text": "a", "sampling_params": params})[-1]
        assert last["text"] == own[0]["text"]
    assert text is not None


def test_object_by_vllms_name(server):
    choice = one(server, structured_outputs={"json_object": True}, temperature=0.3, seed=1, max_tokens=900, **OFF)
    assert choice["finish_reason"] == "length" or isinstance(json.loads(choice["message"]["content"]), dict)


CALL = {"begin": "<f>", "content": {"type": "json_schema", "json_schema": {"enum": [1, 22]}}, "end": "</f>"}
TAGS = [
    ({"type": "const_string", "value": "so"}, "so"),
    ({"type": "sequence", "elements": [{"type": "regex", "pattern": "[xy]{2}"}, CALL | {"type": "tag"}]}, None),
    ({"type": "tags_with_separator", "tags": [CALL], "separator": ",", "at_least_one": True}, None),
]


@pytest.mark.parametrize("form,want", TAGS, ids=lambda v: json.dumps(v)[:40])
def test_structural_tags(server, form, want):
    tag = {"type": "structural_tag", "format": form}
    pattern = want or {"sequence": "[xy]{2}<f>(1|22)</f>"}.get(form["type"], "<f>(1|22)</f>(,<f>(1|22)</f>)*")
    spellings = [
        {"response_format": tag},
        {"structural_tag": json.dumps(tag)},
        {"structural_tag": tag},
        {"structured_outputs": {"structural_tag": json.dumps(tag)}},
    ]
    texts = set()
    for fields in spellings:
        choice = one(server, **fields, temperature=1, seed=3, max_tokens=80, **OFF)
        assert choice["finish_reason"] == "length" or re.fullmatch(pattern, choice["message"]["content"])
        texts.add(choice["message"]["content"])
    assert len(texts) == 1


def test_the_older_structural_tag(server):
    old = {
        "type": "structural_tag",
        "triggers": ["<f"],
        "structures": [{"begin": "<f>", "schema": {"enum": [1, 22]}, "end": "</f>"}],
    }
    assert one(server, response_format=old, temperature=0, max_tokens=40, **OFF)["message"]["content"]
    for bad in (
        {"type": "structural_tag"},
        {**old, "triggers": 5},
        {"type": "structural_tag", "format": {"type": "x"}},
    ):
        refused(server, "/v1/chat/completions", {"messages": ASK, "response_format": bad}, RF)


def test_one_constraint_a_request(server):
    both = {"regex": "a", "guided_choice": ["b"]}
    said = refused(server, "/v1/chat/completions", {"messages": ASK, **both}, "guided_choice")
    assert "regex" in said and "guided_choice" in said
    refused(server, "/generate", {"text": "a", "sampling_params": both}, "guided_choice")
    refused(
        server, "/v1/completions", {"prompt": "a", "response_format": {"type": "json_object"}, **both}, "guided_choice"
    )


def test_generate_that_reasons(server):
    params = {"regex": "yes|no", "max_new_tokens": 300, "temperature": 1, "sampling_seed": 2}
    prompt = "<|im_user|>user<|im_middle|>What is 17 + 25?<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
    body = {"text": prompt, "sampling_params": params, "require_reasoning": True}
    answer = server.post("/generate", body)
    thought, end, rest = answer["text"].partition("</think>")
    assert thought and end and rest in ("yes", "no") and answer["meta_info"]["finish_reason"]["type"] == "stop"


def test_a_message_that_goes_on(server):
    fields = {**format_of(SCHEMA), "continue_final_message": True, "temperature": 0, **OFF}
    begun = '{"where": ["Par'
    rest = one(server, ASK + [{"role": "assistant", "content": begun}], **fields)
    assert rest["finish_reason"] == "stop" and check_trip(json.loads(begun + rest["message"]["content"]))
    bad = {"messages": ASK + [{"role": "assistant", "content": "Sure: {"}], **fields}
    refused(server, "/v1/chat/completions", bad, "continue_final_message")


def test_fields_beside(server):
    """Log-probabilities of all tokens; an answer that may not end of itself; a bias; stop strings."""
    body = chat(server, **format_of(SCHEMA), logprobs=True, top_logprobs=2, temperature=1, seed=4, **OFF)
    (choice,) = body["choices"]
    assert check_trip(json.loads(choice["message"]["content"]))
    assert len(choice["logprobs"]["content"]) == body["usage"]["completion_tokens"]
    assert all(x["logprob"] <= 0 for x in choice["logprobs"]["content"])
    for more in ({"ignore_eos": True}, {"min_tokens": 300}):
        choice = one(server, guided_choice=["yes", "no"], temperature=1, seed=4, **more, **OFF)
        assert choice["message"]["content"] in ("yes", "no") and choice["finish_reason"] == "stop"
    y, n = server.post("/tokenize", {"prompt": "y"})["tokens"] + server.post("/tokenize", {"prompt": "n"})["tokens"]
    for bias, want in (({str(y): -100}, "no"), ({str(n): -100}, "yes")):
        got = one(server, regex="[yn]", temperature=0, logit_bias=bias, **OFF)["message"]["content"]
        assert got == want[0]
    cut = one(server, regex="a+b", stop=["b"], temperature=1, logit_bias={}, max_tokens=50, **OFF)
    assert "b" not in cut["message"]["content"]
