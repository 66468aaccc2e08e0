#!/usr/bin/env python3
"""Makes chat_vectors.jsonl, ts_tools.jsonl and pyjson.jsonl: what Kimi's published chat templates and its encoder of
tools render for conversations and tools of our own.

Needs jinja2 and tiktoken, and copies of the published files (not part of this repository):
  --k2-0711      ggml-org/llama.cpp models/templates/moonshotai-Kimi-K2.jinja
  --k2-0905      chat_template.jinja of moonshotai/Kimi-K2-Instruct-0905
  --k2-thinking  ggml-org/llama.cpp models/templates/moonshotai-Kimi-K2-Thinking.jinja, its bare tojson() replaced by
    the
                 official tojson(separators=(',', ':'))
  --k2.5         chat_template.jinja of moonshotai/Kimi-K2.5 (lightseekorg/smg keeps it in its tokenizer's test
                 fixtures)
  --ts           tool_declaration_ts.py of moonshotai/Kimi-K2.5 (thinking-machines-lab/tinker-cookbook keeps a copy)
  --vocab        folder with tiktoken.model and tokenizer_config.json (tests/data/kimi-k2.5)
For k2-instruct-r3 there is no published file at hand: its three differences are put into the 0905 file here. Nor for
k2.6 and k2.7-code: with preserve_thinking K2.5's file gets no history (what thinking-machines-lab/tinker-cookbook
compares with K2.6's own file), and k2.7-code sets thinking and preserve_thinking to true in front of it.

The environment is the one of transformers: trim_blocks, lstrip_blocks, loop controls, tojson = json.dumps without ASCII
escapes. Token ids: the rendered text is cut at the template's own control tokens (those of the messages are hidden
behind private characters while rendering), and what lies between two of them is encoded as ordinary text in one run."""
import argparse
import base64
import copy
import importlib.util
import json
import math
import random
import re
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.sandbox
import tiktoken

from official_tokenizer import ranks_file

HERE = Path(__file__).resolve().parent
PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return env


def load_encoder(path):
    spec = importlib.util.spec_from_file_location("tool_declaration_ts", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.encode_tools_to_typescript_style


def load_vocabulary(folder):
    ranks = {}
    for line in ranks_file(folder).splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    named = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    specials = {}
    for i in range(len(ranks), len(ranks) + 256):
        specials[named[str(i)]["content"] if str(i) in named else f"<|reserved_token_{i}|>"] = i
    return tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=specials), specials


def deep_sort(x):
    if isinstance(x, dict):
        return {k: deep_sort(v) for k, v in sorted(x.items())}
    return [deep_sort(v) for v in x] if isinstance(x, list) else x


def typescript(encode, tools):
    """The declaration of sorted tools, None where the encoder gives up (the wrapper then leaves it out)."""
    try:
        return encode(deep_sort(tools))
    except Exception:
        return None


def render(template, name, encode, request):
    tools = request.get("tools")
    context = dict(request.get("chat_template_kwargs") or {})
    if name in ("k2-thinking", "k2.5", *NEWER):
        tools = deep_sort(tools)
    if name in ("k2.5", *NEWER):
        context.setdefault("thinking", True)
        if tools:
            ts = typescript(encode, tools)
            if ts is not None:
                context["tools_ts_str"] = ts
    return template.render(
        messages=request["messages"],
        tools=tools,
        add_generation_prompt=request.get("add_generation_prompt", True),
        **context,
    )


def replace_strings(x, f):
    if isinstance(x, dict):
        return {f(k): replace_strings(v, f) for k, v in x.items()}
    if isinstance(x, list):
        return [replace_strings(v, f) for v in x]
    return f(x) if isinstance(x, str) else x


def ids_of(encoding, specials, render_with, request):
    names = sorted(specials, key=len, reverse=True)
    hide = {n: chr(0xE000 + i) for i, n in enumerate(names)}
    show = {v: k for k, v in hide.items()}
    every = re.compile("|".join(re.escape(n) for n in names))
    hidden = replace_strings(request, lambda s: every.sub(lambda m: hide[m.group()], s))
    text = render_with(hidden)
    ids, whole = [], ""
    for i, piece in enumerate(re.split("(" + every.pattern + ")", text)):
        if i % 2:
            ids.append(specials[piece])
        else:
            piece = "".join(show.get(c, c) for c in piece)
            ids += encoding.encode(piece, disallowed_special=())
        whole += piece
    return ids, whole


def call(i, name, arguments):
    return {"id": f"functions.{name}:{i}", "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(name, description=None, **parameters):
    f = {"name": name}
    if description is not None:
        f["description"] = description
    if parameters:
        f["parameters"] = {"type": "object", **parameters}
    return {"type": "function", "function": f}


WEATHER = tool(
    "get_weather",
    "Weather of a city.",
    properties={"city": {"type": "string", "description": "City name"}, "unit": {"enum": ["c", "f"]}},
    required=["city"],
)
SEARCH = tool(
    "search",
    "Search the web.\n\nReturns at most `limit` hits.",
    properties={
        "query": {"type": "string", "minLength": 1, "maxLength": 200},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
    },
    required=["query"],
)
PING = {"type": "function", "function": {"name": "ping"}}
PONG = {"type": "function", "function": {"name": "pong", "parameters": {"type": "object", "properties": {}}}}


def u(text, **more):
    return {"role": "user", "content": text, **more}


def a(text, **more):
    return {"role": "assistant", "content": text, **more}


def s(text, **more):
    return {"role": "system", "content": text, **more}


def t(i, text, **more):
    return {"role": "tool", "tool_call_id": i, "content": text, **more}


NUMBERS = tool(
    "n",
    properties={
        "id": {
            "type": "integer",
            "minimum": -(10**22),
            "maximum": 18446744073709551615,
            "default": 12345678901234567890,
        },
        "e": {"type": "integer", "enum": [10**19, 2**63, 5]},
        "x": {"type": "number", "maximum": math.inf, "minimum": -math.inf, "default": math.inf, "const": 1e300},
    },
)
LOOP = [
    u("weather?"),
    a("", reasoning_content="need tool", tool_calls=[call(0, "get_weather", '{"city": "Paris"}')]),
    t("functions.get_weather:0", '{"t": 21}', name="get_weather"),
]
TWO = [
    u("Compare Rome and Oslo."),
    a(
        "Looking.",
        reasoning_content="two calls\nat once",
        tool_calls=[
            call(0, "get_weather", '{"city":"Rome"}'),
            call(
                1,
                "get_weather",
                {"city": "Oslo", "unit": "c", "days": [1, 2.5, 1e-05, None, True], "note": 'köld "ok"\n\u2028'},
            ),
        ],
    ),
    t("functions.get_weather:0", "30"),
    t("functions.get_weather:1", "-3"),
]
ALL = ["k2-instruct-0711", "k2-instruct-0905", "k2-instruct-r3", "k2-thinking", "k2.5"]
NEWER = ["k2.6", "k2.7-code"]
KEEP = {"preserve_thinking": True}
TURNS = [
    s("S"),
    u("a"),
    a("b", reasoning_content="r1"),
    a("b2", reasoning_content="r2 "),
    u("c"),
    a("d", reasoning_content="r3"),
    u("e"),
]
ANSWERED = LOOP + [
    a("21C", reasoning_content="done"),
    u("and tomorrow?"),
    a("", reasoning_content="again", tool_calls=[call(1, "get_weather", "{}")]),
    t("functions.get_weather:1", "5"),
]
K2X = ALL[1:]
FRAMES = ALL[3:]
# name, templates, request. Templates are left out where the Jinja file fails or prints Python's view of a value and
# ours does what was meant (text/chat.h), for example null content in the oldest file.
CONVERSATIONS = [
    ("hello", ALL, {"messages": [u("hello")]}),
    ("digits", ALL, {"messages": [u("1234567890")]}),
    ("no generation prompt", ALL, {"messages": [u("hello"), a("hi")], "add_generation_prompt": False}),
    ("instant", ALL, {"messages": [u("hello")], "chat_template_kwargs": {"thinking": False}}),
    ("thinking true", ["k2.5"], {"messages": [u("hello")], "chat_template_kwargs": {"thinking": True}}),
    ("thinking zero stays on", ["k2.5"], {"messages": [u("hello")], "chat_template_kwargs": {"thinking": 0}}),
    ("thinking null stays on", ["k2.5"], {"messages": [u("hello")], "chat_template_kwargs": {"thinking": None}}),
    ("thinking string stays on", ["k2.5"], {"messages": [u("hello")], "chat_template_kwargs": {"thinking": "false"}}),
    ("unknown kwargs", ["k2.5"], {"messages": [u("x")], "chat_template_kwargs": {"preserve_thinking": True, "x": [1]}}),
    ("system", ALL, {"messages": [s("You are Kimi."), u("hi")]}),
    ("system later", ALL, {"messages": [u("hi"), s("Be brief."), u("ok?")]}),
    ("empty texts", ALL, {"messages": [s(""), u(""), a(""), u("")]}),
    ("no messages", ALL, {"messages": []}),
    ("no messages, tools", ALL, {"messages": [], "tools": [WEATHER]}),
    ("turns", ALL, {"messages": [u("a"), a("b"), u("c"), a("d"), u("e")]}),
    (
        "turns with reasoning",
        ALL,
        {"messages": [u("a"), a("b", reasoning_content="r1"), u("c"), a("d", reasoning_content="r2"), u("e")]},
    ),
    (
        "ends with assistant",
        ALL,
        {"messages": [u("a"), a("b", reasoning_content="r1")], "add_generation_prompt": False},
    ),
    (
        "scripts",
        ALL,
        {
            "messages": [
                s("你是 Kimi。"),
                u("Привет, мир! 🌍 नमस्ते\tشكرا"),
                a("好的，没问题。\n\n\n- 1\n- 2"),
                u("e\u0301 \u00a0 \u3000x"),
            ]
        },
    ),
    ("spaces kept", ALL, {"messages": [u("  lead\n\n"), a("\n trail  "), u("\r\n")]}),
    ("names", ALL, {"messages": [s("S", name="boss"), u("hi", name="Ann Lee"), a("yo", name="bot"), u("x", name="")]}),
    ("null name", K2X, {"messages": [u("hi", name=None)]}),
    (
        "other roles",
        K2X,
        {
            "messages": [
                {"role": "developer", "content": "D"},
                u("q"),
                {"role": "function", "name": "f", "content": "r"},
            ]
        },
    ),
    (
        "control strings in text",
        ALL,
        {
            "messages": [
                s("<|im_end|><|im_user|>user"),
                u("say <|im_end|> and [EOS] <think>x</think> <|tool_call_begin|>"),
                a("<|im_middle|>"),
                u("<|media_pad|>"),
            ]
        },
    ),
    ("control string as name", K2X, {"messages": [u("hi", name="<|im_end|>")]}),
    ("tools", ALL, {"messages": [u("weather?")], "tools": [WEATHER]}),
    ("two tools and system", ALL, {"messages": [s("S"), u("q")], "tools": [WEATHER, SEARCH]}),
    ("tools without parameters", ALL, {"messages": [u("q")], "tools": [PING, PONG]}),
    ("no tools", ALL, {"messages": [u("q")], "tools": []}),
    ("null tools", ALL, {"messages": [u("q")], "tools": None}),
    ("tools that are no functions", ALL, {"messages": [u("q")], "tools": [{"type": "web_search"}]}),
    (
        "tools beyond TypeScript",
        ALL,
        {"messages": [u("q")], "tools": [tool("f", properties={"x": {"oneOf": [{"type": "string"}]}})]},
    ),
    (
        "tool keys get sorted",
        ALL,
        {
            "messages": [u("q")],
            "tools": [
                {
                    "function": {
                        "parameters": {
                            "required": ["b"],
                            "properties": {"b": {"type": "string"}, "a": {"type": "integer"}},
                            "type": "object",
                        },
                        "name": "z",
                        "description": 'Ünïcode "q"',
                    },
                    "type": "function",
                }
            ],
        },
    ),
    (
        "control strings in tools",
        ALL,
        {
            "messages": [u("q")],
            "tools": [tool("f", "ends <|im_end|> here", properties={"x": {"enum": ["<think>", "b"]}})],
        },
    ),
    ("tool loop", K2X, {"messages": LOOP, "tools": [WEATHER]}),
    (
        "tool loop, instant",
        ["k2.5"],
        {"messages": LOOP, "tools": [WEATHER], "chat_template_kwargs": {"thinking": False}},
    ),
    ("tool loop in the first file", ALL[:1], {"messages": LOOP, "tools": [WEATHER]}),
    (
        "tool loop answered",
        K2X,
        {"messages": LOOP + [a("21C", reasoning_content="done"), u("and tomorrow?")], "tools": [WEATHER]},
    ),
    ("two calls, object arguments", K2X, {"messages": TWO, "tools": [WEATHER]}),
    (
        "two loops",
        K2X,
        {
            "messages": LOOP
            + [
                a("21C"),
                u("more"),
                a("", reasoning_content="r3", tool_calls=[call(1, "search", "{}")]),
                t("functions.search:1", "hit"),
            ],
            "tools": [WEATHER, SEARCH],
        },
    ),
    (
        "calls without reasoning",
        FRAMES,
        {"messages": [u("q"), a(None, tool_calls=[call(0, "ping", {})]), t("functions.ping:0", "")]},
    ),
    ("call with empty list", K2X, {"messages": [u("q"), a("x", reasoning_content="r", tool_calls=[]), u("y")]}),
    (
        "call with null list",
        K2X,
        {"messages": [u("q"), a("x", tool_calls=None, refusal=None, annotations=None), u("y")]},
    ),
    (
        "arguments verbatim",
        K2X,
        {
            "messages": [
                u("q"),
                a(
                    "",
                    tool_calls=[
                        call(0, "f", '{"a":1,   "b":\n2}'),
                        call(1, "f", "not json <|tool_call_end|>"),
                        call(2, "f", [1, "x"]),
                        call(3, "f", None),
                    ],
                ),
            ],
            "add_generation_prompt": False,
        },
    ),
    (
        "numbers of any size",
        K2X,
        {
            "messages": [
                u("q"),
                a(
                    "",
                    tool_calls=[
                        call(
                            0,
                            "f",
                            {
                                "id": 12345678901234567890,
                                "n": [10**22, -(2**63), -(2**63) - 1, 2**63 - 1, 2**63, 0],
                                "x": [math.inf, -math.inf, 1e22, 100.0, 0.1, 1e-7, -0.0],
                                str(10**22): None,
                            },
                        ),
                        call(1, "f", '{"id":12345678901234567890, "x":[1e400,1e2, 1.50]}'),
                        call(2, "f", 10**30),
                        call(3, "f", -math.inf),
                    ],
                ),
            ],
            "tools": [NUMBERS],
        },
    ),
    (
        "foreign call id",
        K2X,
        {
            "messages": [
                u("q"),
                a(
                    "",
                    tool_calls=[
                        {"id": "call_abc", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}
                    ],
                ),
                t("call_abc", "r"),
            ]
        },
    ),
    (
        "tool result without a name",
        K2X,
        {"messages": [u("q"), a("", tool_calls=[call(0, "f", "{}")]), t("functions.f:0", "r\n\nr2")]},
    ),
    (
        "reasoning in history only",
        FRAMES,
        {"messages": [u("a"), a("b", reasoning_content="gone"), u("c"), a("d", reasoning_content="gone too")]},
    ),
    (
        "think tags in reasoning",
        FRAMES,
        {"messages": [u("a"), a("", reasoning_content="x</think>y", tool_calls=[call(0, "f", "{}")])]},
    ),
    (
        "image then text",
        ["k2.5"],
        {
            "messages": [
                u([{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "text", "text": "What is this?"}])
            ]
        },
    ),
    (
        "text then image",
        ["k2.5"],
        {"messages": [u([{"type": "text", "text": "Look:"}, {"type": "image", "image": "x"}])]},
    ),
    (
        "two images",
        ["k2.5"],
        {
            "messages": [
                u([{"type": "image"}, {"type": "image"}, {"type": "text", "text": "<|media_pad|>"}]),
                a("two"),
                u("sure?"),
            ]
        },
    ),
    (
        "image in a tool result",
        ["k2.5"],
        {
            "messages": LOOP[:2]
            + [t("functions.get_weather:0", [{"type": "text", "text": "map"}, {"type": "image_url", "image_url": "u"}])]
        },
    ),
    (
        "image, text only model",
        ALL[:4],
        {"messages": [u([{"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": "t"}])]},
    ),
    ("image by its key", ALL[:4], {"messages": [u([{"image": "u"}, {"type": "text", "text": "t"}])]}),
    (
        "video",
        ["k2.5"],
        {
            "messages": [
                u([{"type": "video_url", "video_url": {"url": "u"}}, {"type": "text", "text": "t"}, {"type": "video"}])
            ]
        },
    ),
    (
        "parts",
        ALL,
        {
            "messages": [
                s([{"type": "text", "text": "S"}]),
                u([{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "other", "text": " b\n"}]),
                u([]),
            ]
        },
    ),
    (
        "null content",
        K2X,
        {"messages": [u("q"), {"role": "assistant", "content": None}, {"role": "user", "content": None}]},
    ),
    ("missing content", FRAMES, {"messages": [u("q"), {"role": "assistant"}, {"role": "user"}]}),
    (
        "missing call ids",
        FRAMES,
        {
            "messages": [
                u("q"),
                a("", tool_calls=[{"type": "function", "function": {"name": "f", "arguments": "{}"}}]),
                {"role": "tool", "content": "r"},
            ]
        },
    ),
    (
        "call comes first",
        K2X,
        {"messages": [a("c", reasoning_content="kept", tool_calls=[call(0, "f", "{}")]), t("functions.f:0", "r")]},
    ),
    (
        "call right after an answer",
        K2X,
        {
            "messages": [
                u("q"),
                a("b", reasoning_content="gone"),
                a("", reasoning_content="kept", tool_calls=[call(0, "f", "{}")]),
            ],
            "add_generation_prompt": False,
        },
    ),
    ("hello", NEWER, {"messages": [u("hello")]}),
    ("tools", NEWER, {"messages": [s("S"), u("weather?")], "tools": [WEATHER, PING]}),
    (
        "image then text",
        NEWER,
        {"messages": [u([{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "text", "text": "What?"}])]},
    ),
    ("reasoning of turns", NEWER, {"messages": TURNS}),
    ("reasoning of turns, preserve", NEWER, {"messages": TURNS, "chat_template_kwargs": KEEP}),
    (
        "reasoning of turns, preserve null",
        NEWER,
        {"messages": TURNS, "chat_template_kwargs": {"preserve_thinking": None, "thinking": None}},
    ),
    (
        "reasoning of turns, preserve false",
        NEWER[:1],
        {"messages": TURNS, "chat_template_kwargs": {"preserve_thinking": False, "thinking": True}},
    ),
    ("instant", NEWER[:1], {"messages": TURNS, "chat_template_kwargs": {"thinking": False}}),
    ("instant, preserve", NEWER[:1], {"messages": TURNS, "chat_template_kwargs": {"thinking": False, **KEEP}}),
    ("tool loop", NEWER, {"messages": LOOP, "tools": [WEATHER]}),
    ("tool loop answered", NEWER, {"messages": ANSWERED, "tools": [WEATHER]}),
    ("tool loop answered, preserve", NEWER, {"messages": ANSWERED, "tools": [WEATHER], "chat_template_kwargs": KEEP}),
    (
        "turns without reasoning, preserve",
        NEWER,
        {
            "messages": [
                u("a"),
                a("b"),
                u("c"),
                a(None, tool_calls=[call(0, "ping", {})]),
                t("functions.ping:0", ""),
                a("d"),
                u("e"),
            ],
            "chat_template_kwargs": KEEP,
        },
    ),
    (
        "ends with assistant, preserve",
        NEWER,
        {"messages": TURNS[:4], "add_generation_prompt": False, "chat_template_kwargs": KEEP},
    ),
    (
        "control strings in reasoning, preserve",
        NEWER,
        {"messages": [u("a"), a("b", reasoning_content="</think><|im_end|>x"), u("c")], "chat_template_kwargs": KEEP},
    ),
    ("no messages, preserve", NEWER, {"messages": [], "chat_template_kwargs": KEEP}),
    ("nothing", ALL, {"messages": [], "add_generation_prompt": False}),
    ("long", ["k2.5"], {"messages": [u("The quick brown fox. " * 200), a("ok " * 100), u("中文" * 300)]}),
]


def obj(properties=None, required=None, **more):
    o = {"type": "object", **more}
    if properties is not None:
        o["properties"] = properties
    if required is not None:
        o["required"] = required
    return o


def fn(parameters=None, **more):
    f = {"name": "f", **more}
    if parameters is not None:
        f["parameters"] = parameters
    return [{"type": "function", "function": f}]


def one(schema, required=False):
    return fn(obj({"x": schema}, ["x"] if required else None))


S = {"type": "string"}
NODE = obj({"id": S, "next": {"$ref": "#/$defs/Node"}}, ["id"], description="A node.\n\nLinked.")
DECLARATIONS = [
    [WEATHER],
    [SEARCH],
    [WEATHER, SEARCH, PING, PONG],
    [PING],
    [PONG],
    [{"type": "web_search"}],
    [{"type": "web_search"}, PING],
    [{"type": "function"}],
    [{"type": "function", "function": {}}],
    [{"type": "function", "function": None}],
    [{}],
    [{"function": {"name": "x"}}],
    fn(),
    fn({}),
    fn(None),
    fn([]),
    fn([1]),
    fn("x"),
    fn(obj()),
    fn(obj({})),
    fn({"properties": {"a": S}}),
    fn({"description": "only"}),
    fn(name=None),
    fn(name=5),
    fn(name="mcp__a.b-c"),
    fn(name=["l", "q\"'"]),
    [{"type": "function", "function": {"description": "no name"}}],
    fn(description=""),
    fn(description=None),
    fn(description="one\n\ntwo\n"),
    fn(description="\n"),
    fn(description=7),
    fn(description=0),
    fn(description=["a"]),
    fn(description="ü <|im_end|> // /* \u2028"),
    one(S),
    one(S, True),
    one({"type": "integer"}),
    one({"type": "number"}),
    one({"type": "boolean"}),
    one({"type": "null"}),
    one({"type": "uuid"}),
    one({"type": "any"}),
    one({}),
    one(True),
    one(False),
    one(None),
    one("string"),
    one(5),
    one([]),
    one([S]),
    one({"type": None}),
    one({"type": 5}),
    one({"type": True}),
    one({"type": 1.5}),
    one({"type": {"a": "b'c"}}),
    one({"description": "no type"}),
    one({"title": "t"}),
    one({"type": ["string", "null"]}),
    one({"type": ["integer", "object", "array", "boolean", "number"]}),
    one({"type": []}),
    one({"type": ["uuid"]}),
    one({"type": [["string"]]}),
    one({"type": ["string", 5]}),
    fn(
        obj({"b": S, "a": S, "d": S, "c": S, "ä": S, "Z": S, "_": S, "a-b": S, "😀": S, "\uffee": S}, ["d", "b", "nope"])
    ),
    fn(obj({"a": S, "b": S, "bc": S, "é": S}, "bé")),
    fn(obj({"a": S, "b": S}, {"a": 1})),
    fn(obj({"a": S}, None)),
    fn(obj({"a": S}, 5)),
    fn(obj({"a": S}, [5, None])),
    fn(obj({"a": S}, [["a"]])),
    one({"type": "object", "required": True}),
    one({"type": "object", "required": True, "properties": {}}),
    fn(obj([], [])),
    fn(obj("ab")),
    fn(obj(5)),
    fn({"type": "object", "properties": None}),
    one({**S, "description": "d"}),
    one({**S, "description": "d1\nd2\n\nd3"}),
    one({**S, "description": ""}),
    one({**S, "description": 5}),
    one({**S, "description": None}),
    one({**S, "description": False}),
    one({**S, "minLength": 1, "maxLength": 5, "pattern": '^a"b\\d+\n$', "format": "date"}),
    one({**S, "minLength": 1.0, "maxLength": None, "pattern": 5}),
    one({**S, "maximum": 5, "minItems": 1}),
    one({"type": "number", "minimum": 0.1, "maximum": 1e22}),
    one({"type": "integer", "minimum": -5, "maximum": 9007199254740993}),
    one({"type": "number", "minimum": 1e-05, "maximum": 0.0001}),
    one({"type": "number", "minimum": 1e16, "maximum": 123456789012345680.0}),
    one({"type": "number", "minimum": -0.0, "maximum": 3.0, "exclusiveMinimum": 1}),
    one({"type": "integer", "minimum": True, "maximum": [1, 2.0, "a'b", None, {"k": "v"}]}),
    one({"type": "number", "minimum": 5e-324, "maximum": 1.7976931348623157e308}),
    one({"type": "number", "minimum": 0.1 + 0.2, "maximum": 1 / 3}),
    one({"type": "number", "minimum": 1234567.875, "maximum": 100.0}),
    one({**S, "default": "x"}),
    one({**S, "default": 'ü"\n'}),
    one({**S, "default": ""}),
    one({**S, "default": None}),
    one({"type": "boolean", "default": False}),
    one({"type": "boolean", "default": True}),
    one({"type": "integer", "default": 0}),
    one({"type": "number", "default": 1e-05}),
    one({"type": "number", "default": 2.0}),
    one({"type": "array", "default": [1, 2.0, True, None, "é", {"b": 1, "a": []}]}),
    one({"type": "object", "default": {}}),
    one({"default": 5}),
    one({"enum": ["a"], "default": "a", "description": "e"}),
    one({"$ref": "#", "default": 1}),
    one({"enum": ["a", 'b"c', "d\n"]}),
    one({"enum": [1, 2.5, 1e-09, True, False, None]}),
    one({"enum": []}),
    one({"enum": [[1, "a"], {"k": None, "j": "it's"}]}),
    one({"enum": ["\u00ad\u200b\x01\x7f\u3000é", ["\u00ad\u200b\x01\x7f\u3000é\t\\'\""]]}),
    one({"enum": None}),
    one({"enum": "abé"}),
    one({"enum": {"k1": 1, "k0": 2}}),
    one({"enum": 5}),
    one({"enum": [1], "minimum": 5, "description": "d"}),
    one({"type": "string", "enum": ["a", None]}),
    one({"type": "string", "enum": ["a", 1]}),
    one({"type": "integer", "enum": [1, True]}),
    one({"type": "integer", "enum": [1.0]}),
    one({"type": "number", "enum": [1, 2.5, False]}),
    one({"type": "number", "enum": ["1"]}),
    one({"type": "boolean", "enum": [True]}),
    one({"type": "boolean", "enum": [1]}),
    one({"type": "uuid", "enum": [1, "x"]}),
    one({"type": None, "enum": [1]}),
    one({"type": ["string"], "enum": ["a"]}),
    one({"type": ["string"], "enum": [1]}),
    one({"type": ["null", "integer"], "enum": [1, None]}),
    one({"type": ["integer", "null"], "enum": ["x"]}),
    one({"type": ["null", "null"], "enum": ["x"]}),
    one({"type": ["string", "integer"], "enum": ["a"]}),
    one({"type": [], "enum": []}),
    one({"type": ["a", "b", "null"], "enum": []}),
    one({"type": "string", "enum": "ab"}),
    one({"anyOf": [S, {"type": "integer"}]}),
    one({"anyOf": [{**S, "description": "dropped"}, {"type": "null"}], "description": "kept", "default": None}),
    one({"anyOf": []}),
    one({"anyOf": None}),
    one({"anyOf": {}}),
    one({"anyOf": ""}),
    one({"anyOf": {"a": 1}}),
    one({"anyOf": "a"}),
    one({"anyOf": [True, False, {}]}),
    one({"anyOf": [{"type": 5}]}),
    one({"anyOf": [{"type": None}, S]}),
    one(
        {
            "anyOf": [
                obj({"a": S, "b": {**S, "description": "in"}}, ["b"]),
                {"type": "array", "items": S},
                {"enum": [1, "z"]},
            ],
            "type": "string",
            "enum": [1],
        }
    ),
    one({"type": "integer", "enum": [10**19, -(10**22)]}),
    one({"type": "number", "enum": [10**19, math.inf, -math.inf]}),
    one({"type": "integer", "enum": [math.inf]}),
    one({"enum": [[10**19, {"k": math.inf}]]}),
    one({"type": "string", "enum": [10**19]}),
    one({"type": "string", "maxLength": 10**20, "default": 10**19}),
    one({"type": "array", "items": S, "maxItems": 2**64, "default": [10**19, math.inf]}),
    one({"type": 10**19}),
    one({"type": "integer", "description": 10**19}),
    fn(obj(additionalProperties=10**19)),
    fn(obj({"a": S}, 10**19)),
    fn(10**19),
    one(10**19),
    one({"type": "string", "items": 10**19}),
    one({"type": "array", "items": 10**19}),
    one({"enum": 10**19}),
    one({"anyOf": 10**19}),
    fn(obj({"a": S}, **{"$defs": 10**19})),
    fn(obj({"a": S}, **{"$defs": {"T": 10**19}})),
    [{"type": "function", "function": {"name": 10**19, "parameters": math.inf}}],
    [{"type": "function", "function": 10**19}],
    fn(obj({"a": S}, [10**19, "a"])),
    one({"oneOf": [S]}),
    one({"allOf": [S]}),
    one({"const": 5}),
    one({"type": "string", "const": "x"}),
    one({"type": "array"}),
    one({"type": "array", "items": {}}),
    one({"type": "array", "items": None}),
    one({"type": "array", "items": False}),
    one({"type": "array", "items": True}),
    one({"type": "array", "items": S}),
    one({"type": "array", "items": [S]}),
    one({"type": "array", "items": "x"}),
    one({"type": "array", "items": S, "minItems": 1, "maxItems": 3, "description": "l"}),
    one({"type": "array", "items": {**S, "description": "item\nline"}}),
    one({"type": "array", "items": {"type": "integer", "minimum": 1}}),
    one({"type": "array", "items": {"type": 5, "description": "d"}}),
    one({"type": "array", "items": {"type": 5}}),
    one({"type": "array", "items": obj({"a": S}, ["a"])}),
    one({"type": "array", "items": obj({"a": S}, ["a"], description="obj")}),
    one(
        {
            "type": "array",
            "items": {"type": "array", "items": {"type": "array", "items": {**S, "maxLength": 2}, "minItems": 2}},
        }
    ),
    one({"type": "array", "items": {"description": 5, "type": "string"}}),
    one(obj({"a": obj({"b": obj({"c": S}, ["c"])}, [])}, ["a"], description="deep"), True),
    one(obj()),
    one(obj({}, additionalProperties=False)),
    fn(obj({"a": S}, additionalProperties=True)),
    fn(obj({"a": S}, additionalProperties=False)),
    fn(obj({}, additionalProperties=False)),
    fn(obj(additionalProperties=S)),
    fn(obj(additionalProperties={})),
    fn(obj(additionalProperties=None)),
    fn(obj(additionalProperties=5)),
    fn(obj(additionalProperties="x")),
    fn(obj(additionalProperties={"type": 5})),
    fn(obj({"z": S}, additionalProperties=obj({"k": {**S, "description": "in"}}, description="lost"))),
    fn(obj(additionalProperties={"type": "array", "items": {**S, "description": "d"}})),
    fn(obj({"node": {"$ref": "#/$defs/Node"}}, ["node"], **{"$defs": {"Node": obj({"id": S, "label": S}, ["id"])}})),
    fn(
        obj(
            {"n": {"$ref": "#/$defs/Node", "description": "first"}},
            **{"$defs": {"Node": NODE, "Unused": {"enum": ["a", "b"], "description": "e"}}},
        )
    ),
    fn(obj({"n": {"$ref": "#/$defs/No"}})),
    fn(obj({"n": {"$ref": "#/definitions/X"}}, definitions={"X": S})),
    fn(obj({"n": {"$ref": "http://x"}})),
    fn(obj({"n": {"$ref": None}})),
    fn(obj({"n": {"$ref": 5}})),
    fn(obj({"n": {"$ref": "#/$defs/a/Node"}}, **{"$defs": {"Node": S}})),
    fn(obj({"b": {"$ref": "#"}, "a": S, "c": {**S, "description": "d"}}, ["b", "c"])),
    fn(obj({"p": {"type": "array", "items": {"$ref": "#"}}}, additionalProperties=False, description="lost")),
    fn(obj(additionalProperties={"$ref": "#"})),
    fn(obj({"a": S}, **{"$defs": {"T": obj({"up": {"$ref": "#"}})}})),
    fn(
        obj(
            {"a": {"$ref": "#/$defs/T"}, "s": {"$ref": "#"}},
            **{"$defs": {"T": obj({"up": {"$ref": "#"}}, description="T")}},
        ),
        description="D",
    ),
    fn(obj({"a": {"$ref": "#/$defs/T"}}, **{"$defs": {"T": {**S, "$self_ref": 1}}})),
    fn(obj({"a": {"$ref": "#/$defs/T"}}, **{"$defs": {"T": True}})),
    fn(obj({"a": S}, **{"$defs": {"T": True}})),
    fn(obj({"a": S}, **{"$defs": {"T": None}})),
    fn(obj({"a": S}, **{"$defs": []})),
    fn(obj({"a": S}, **{"$defs": [1]})),
    fn(obj({"a": S}, **{"$defs": {"T": {"type": 5}, "U": {"type": "string", "description": 5}}})),
    fn(obj({"a": S}, **{"$defs": {"T": {"type": 5}, "U": {"anyOf": [S]}}})),
    fn(obj({"a": {"$ref": "#/$defs/In"}, "b": obj({"x": S}, **{"$defs": {"In": S}})})),
    fn(obj({"b": obj({"x": S}, **{"$defs": {"In": S}}), "c": {"$ref": "#/$defs/In"}})),
    fn(
        obj(
            {"c": {"$ref": "#/$defs/O"}}, **{"$defs": {"O": obj({"y": {"$ref": "#/$defs/In"}}, **{"$defs": {"In": S}})}}
        )
    ),
    fn(obj({"c": {"$ref": "#/$defs/O"}, "d": obj({}, **{"$defs": {"O": {"type": "integer"}}})}, **{"$defs": {"O": S}})),
    [tool("a", "A", properties={"x": S}), tool("b", properties={"y": {"oneOf": []}})],
    [PING, {"type": "function", "function": "x"}],
    [PING, {"type": "function", "function": [1]}],
    [{"type": "function", "function": []}],
]


def random_schema(r, depth):
    kind = r.choice(
        ["s", "s", "n", "i", "b", "e", "o", "o", "a", "a", "u", "any", "ref", "x"]
        if depth
        else ["s", "n", "i", "e", "u"]
    )
    more = {}
    if r.random() < 0.4:
        more["description"] = r.choice(["short", "two\nlines", "gap\n\nline", "ünï", ""])
    if r.random() < 0.2:
        more["default"] = r.choice([None, 0, 1.5, 1e-7, True, "d", [1], {"k": 2}])
    if kind == "s":
        return {"type": "string", **more, **r.choice([{}, {"minLength": 1}, {"pattern": "a|b", "maxLength": 9}])}
    if kind in "ni":
        return {
            "type": "number" if kind == "n" else "integer",
            **more,
            **r.choice(
                [
                    {},
                    {"minimum": r.uniform(-9, 9)},
                    {"maximum": r.randint(0, 10**12), "minimum": 10.0 ** r.randint(-9, 25)},
                ]
            ),
        }
    if kind == "b":
        return {"type": "boolean", **more}
    if kind == "e":
        return {"enum": r.sample(["a", "b c", 1, 2.5, None, True], 3), **more}
    if kind == "u":
        return {"type": r.sample(["string", "null", "integer", "array", "object"], 2), **more}
    if kind == "any":
        return {"anyOf": [random_schema(r, depth - 1) for _ in range(r.randint(1, 3))], **more}
    if kind == "ref":
        return {"$ref": r.choice(["#", "#/$defs/A", "#/$defs/B", "#/$defs/A"]), **more}
    if kind == "x":
        return r.choice([{}, True, False, {"oneOf": []}, {"type": "weird"}])
    if kind == "a":
        return {"type": "array", **r.choice([{}, {"minItems": 1}]), "items": random_schema(r, depth - 1), **more}
    names = r.sample(["id", "name", "b", "a", "Zed", "x_1", "ö"], r.randint(0, 4))
    o = obj({n: random_schema(r, depth - 1) for n in names}, [n for n in names if r.random() < 0.5], **more)
    if r.random() < 0.3:
        o["additionalProperties"] = r.choice([True, False, None, random_schema(r, depth - 1)])
    return o


def random_declarations(n):
    r = random.Random(20251)
    for _ in range(n):
        p = obj(
            {k: random_schema(r, 3) for k in r.sample(["q", "limit", "opts", "list"], r.randint(0, 3))},
            r.choice([[], ["q"], ["opts", "q"]]),
        )
        if r.random() < 0.7:
            p["$defs"] = {"B": random_schema(r, 2), "A": random_schema(r, 2)}
        yield fn(p, description=r.choice(["", "Does it.", "Does\n\nit."]))


def numbers():
    r = random.Random(7)
    values = [
        0.0,
        -0.0,
        1.0,
        1e15,
        1e16,
        1e17,
        123456789012345.6,
        1e-4,
        1e-5,
        0.00012345,
        5e-324,
        2.2250738585072014e-308,
        1e22,
        1e23,
        9007199254740993.0,
        0.1 + 0.2,
        100.0,
        1e100,
        4.35,
        2.675,
        0.5,
    ]
    values += [r.uniform(-1, 1) * 10.0 ** r.randint(-30, 30) for _ in range(200)]
    return values + [-x for x in values]


def number_texts():
    """JSON texts at the edges of 64 bits and of a double, and beyond both."""
    whole = [
        10**18,
        2**63 - 1,
        2**63,
        2**63 + 1,
        2**64 - 1,
        2**64,
        10**19,
        12345678901234567890,
        10**22,
        10**30,
        3**200,
    ]
    texts = [str(x) for x in whole] + [str(-x) for x in whole] + ["0", "-0", "-1"]
    texts += [
        "0.0",
        "-0.0",
        "0e0",
        "-0e5",
        "0e999",
        "0.0E+999",
        "1e2",
        "1E2",
        "1e+2",
        "1.50",
        "1e16",
        "1e15",
        "1e22",
        "1e-7",
        "1e-400",
        "-1e-400",
        "0.1",
        "0.1000000000000000055511151231257827",
    ]
    for x in (
        "1.7976931348623157e308",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "1e308",
        "1e309",
        "9e999",
        "1e400",
        "1E400",
        "1.5e+400",
        "0.1e401",
        "123e500",
        "1e99999999999999999999",
        "1" * 308 + ".0",
        "1" * 310 + ".5",
        "1" * 309 + "e0",
        "9" * 400 + "e-100",
    ):
        texts += [x, "-" + x]
    texts += [
        "12345678901234567890.5",
        "123456789012345678901234567890.0",
        "12345678901234567890e0",
        "0.000000000000000000012345678901234567890",
    ]
    texts += [
        '{"a": [1e400, {"b": -12345678901234567890}, "1e400"], "12345678901234567890": 1, "c": [[]], "d": 10000000000000000000000}',
        '[1,2,99999999999999999999,3,{"x":4,"y":[5,-99999999999999999999]},6,1e999,"7",8]',
        '"12345678901234567890"',
        '[{"k": 1e400}, {}]',
    ]
    r = random.Random(8)
    for _ in range(60):
        d = "".join(r.choice("0123456789") for _ in range(r.randint(15, 40))).lstrip("0") or "0"
        texts.append(
            r.choice(["", "-"]) + d + r.choice(["", "", "." + str(r.randint(0, 999)), f"e{r.randint(-320, 320)}"])
        )
    return texts


BEYOND = {math.inf: "\ue0001e400", -math.inf: "\ue000-1e400"}  # private text, which becomes a number when it is written


def numbers_as_text(x):
    if isinstance(x, dict):
        return {k: numbers_as_text(v) for k, v in x.items()}
    if isinstance(x, list):
        return [numbers_as_text(v) for v in x]
    return BEYOND.get(x, x) if isinstance(x, float) else x


def write(name, lines):
    with open(HERE / name, "w", encoding="utf-8") as f:
        for line in lines:
            text = json.dumps(numbers_as_text(line), ensure_ascii=False, separators=(",", ":"))
            f.write(re.sub('"\ue000(-?1e400)"', r"\1", text) + "\n")
    print(f"{name}: {len(lines)} lines")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--k2-0711", "--k2-0905", "--k2-thinking", "--k2.5", "--ts", "--vocab"):
        ap.add_argument(option, type=Path, required=True, dest=option.strip("-"))
    o = vars(ap.parse_args())
    r2 = o["k2-0905"].read_text()
    r3 = r2.replace("\n  # Tools\n  {{ tools | tojson }}", "{{ tools | tojson(separators=(',', ':')) }}")
    r3 = r3.replace("Moonshot AI.<|im_end|>\n  {%- endif -%}", "Moonshot AI.<|im_end|>\n  {% endif %}", 1)
    r3 = r3.replace("{{ message.tool_call_id }}\n    {{", "{{ message.tool_call_id }}\n{{")
    assert r3.count("\n") == r2.count("\n") - 2 and r3 != r2
    k25 = o["k2.5"].read_text()
    k26 = k25.replace("{%- set hist_msgs = ", "{%- set hist_msgs = [] if preserve_thinking else ")
    k26 = k26.replace("{%- set suffix_msgs = ", "{%- set suffix_msgs = messages if preserve_thinking else ")
    assert k26.count("preserve_thinking") == 2
    env = environment()
    templates = {
        "k2-instruct-0711": o["k2-0711"].read_text(),
        "k2-instruct-0905": r2,
        "k2-instruct-r3": r3,
        "k2-thinking": o["k2-thinking"].read_text(),
        "k2.5": k25,
        "k2.6": k26,
        "k2.7-code": "{%- set thinking = true -%}{%- set preserve_thinking = true -%}\n" + k26,
    }
    templates = {k: env.from_string(v) for k, v in templates.items()}
    encode = load_encoder(o["ts"])
    encoding, specials = load_vocabulary(o["vocab"])

    vectors = []
    for title, kinds, request in CONVERSATIONS:
        for kind in kinds:

            def with_request(r, kind=kind):
                return render(templates[kind], kind, encode, r)

            line = {"name": title, "template": kind, "request": request, "text": with_request(copy.deepcopy(request))}
            if not any(x in line["text"] for x in ("<|media_start|>", "_video_placeholder|>")):
                line["ids"], whole = ids_of(encoding, specials, with_request, request)
                assert whole == line["text"], (title, kind)
                if (
                    "control string" not in title
                    and "verbatim" not in title
                    and "think tags" not in title
                    and title != "two images"
                ):
                    assert line["ids"] == encoding.encode(line["text"], allowed_special="all"), (title, kind)
            vectors.append(line)
    write("chat_vectors.jsonl", vectors)
    write(
        "ts_tools.jsonl",
        [{"tools": d, "text": typescript(encode, d)} for d in DECLARATIONS + list(random_declarations(120))],
    )
    texts = [(t, json.loads(t)) for t in number_texts()]
    write(
        "pyjson.jsonl",
        [{"value": v, "text": repr(v)} for v in numbers()]
        + [{"json": t, "dumps": json.dumps(v, ensure_ascii=False), "repr": repr(v)} for t, v in texts],
    )


main()
