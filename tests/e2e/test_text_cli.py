"""moonlet text render and parse on Kimi's own vocabulary: ids against the golden renderings, errors line by line."""
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
KIMI = str(ROOT / "tests/data/kimi-k2.5")
LINES = open(ROOT / "tests/golden/chat_vectors.jsonl", encoding="utf-8").read().split("\n")[:-1]
VECTORS = [json.loads(line) for line in LINES]
# the requests as they stand in the file: 1e400 does not survive Python
REQUESTS = [line[line.index('"request":') + 10 : line.rindex(',"text":"')] for line in LINES]
TEMPLATES = sorted({v["template"] for v in VECTORS})


def moonlet(verb, lines, *args):
    """Answers of one run, its exit status and stderr. Lines are strings or values."""
    text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
    done = subprocess.run(
        [MOONLET, "text", verb, "-m", KIMI, *args], input=text.encode(), capture_output=True, timeout=120
    )
    return [json.loads(x) for x in done.stdout.decode().split("\n")[:-1]], done.returncode, done.stderr.decode()


@pytest.mark.parametrize("template", TEMPLATES)
def test_render_agrees_with_jinja_and_tiktoken(template):
    vectors, requests = zip(*[(v, r) for v, r in zip(VECTORS, REQUESTS) if v["template"] == template and "ids" in v])
    assert len(vectors) >= 12
    answers, rc, _ = moonlet("render", requests, "--template", template)
    assert rc == 0 and len(answers) == len(vectors)
    for v, a in zip(vectors, answers):
        assert a == {"text": v["text"], "ids": v["ids"]}, v["name"]


def test_render_chooses_the_template_and_says_so():
    request = {"messages": [{"role": "user", "content": "hello"}], "chat_template_kwargs": {"thinking": False}}
    (answer,), rc, stderr = moonlet("render", [request])
    assert rc == 0 and "k2.5" in stderr and "kimi_k25" in stderr
    assert answer["ids"] == [163587, 2482, 163601, 22931, 163586, 163588, 69702, 163601, 163606, 163607]


def test_render_errors_stand_alone():
    good = {"messages": [{"role": "user", "content": "x"}]}
    lines = [
        good,
        {"messages": [{"role": "user", "content": 5}]},
        "{",
        {"message": []},
        {"messages": [], "tools": 5},
        {"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "u"}}]}]},
        "[1]",
        {"messages": [], "add_generation_prompt": "yes"},
        good,
    ]
    answers, rc, _ = moonlet("render", lines)
    assert rc == 1 and len(answers) == len(lines)
    assert answers[0] == answers[-1] and "text" in answers[0]
    assert all(list(a) == ["error"] for a in answers[1:-1])
    assert answers[1]["error"].startswith("messages[0].content:")
    assert "<|kimi_k25_video_placeholder|>" in answers[5]["error"]


def test_pictures_need_their_tokens():
    request = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]}
    (answer,), rc, _ = moonlet("render", [request])
    assert rc == 0 and answer["ids"].count(163605) == 1
    (answer,), rc, _ = moonlet("render", [request], "--template", "k2-thinking")
    assert rc == 1 and "<|media_start|>" in answer["error"]


def test_unknown_template_is_wrong_usage():
    _, rc, stderr = moonlet("render", [], "--template", "k3")
    assert rc == 2 and "k3" in stderr


CALL = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "Köln 😀"}<|tool_call_end|><|tool_calls_section_end|>'
)
WEATHER = {
    "id": "functions.get_weather:0",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Köln 😀"}'},
}


@pytest.mark.parametrize(
    "text,reasoning,want",
    [
        ("Hello", False, ("", "Hello", [])),
        ("Let me see</think>Hi" + CALL, True, ("Let me see", "Hi", [WEATHER])),
        ("<think>a</think>\n\nb", False, ("a", "\n\nb", [])),
        ("no end 中文", True, ("no end 中文", "", [])),
        ("thinking" + CALL, True, ("thinking", "", [WEATHER])),
        ("<|im_end|>", None, None),
    ],
)
def test_parse_text_and_ids_agree(text, reasoning, want):
    if want is None:  # control tokens of the turn are nobody's text
        (answer,), rc, _ = moonlet("parse", [{"ids": [22931, 163586]}])
        assert rc == 0 and answer == {"reasoning_content": "", "content": "hello", "tool_calls": []}
        return
    (encoded,), _, _ = moonlet("encode", [{"text": text, "specials": True}])
    answers, rc, _ = moonlet(
        "parse", [{"text": text, "reasoning": reasoning}, {"ids": encoded["ids"], "reasoning": reasoning}]
    )
    assert rc == 0
    for a in answers:
        assert a == {"reasoning_content": want[0], "content": want[1], "tool_calls": want[2]}


def test_parse_options_and_errors():
    tools = [
        {
            "type": "function",
            "function": {
                "name": n,
                "parameters": {"type": "object", "properties": {n: {"type": "string"}}, "required": [n]},
            },
        }
        for n in "ab"
    ]
    bare = '<|tool_calls_section_begin|><|tool_call_begin|>7<|tool_call_argument_begin|>{"b":"x"}<|tool_call_end|><|tool_calls_section_end|>'
    lines = [
        {"text": bare, "tools": tools},
        {"text": bare},
        {"text": CALL, "tool_choice": "none"},
        {"text": "x", "ids": [1]},
        {"text": 5},
        {"ids": ["x"]},
        {"ids": [999999]},
        {"text": "x", "tools": {}},
        {"text": "x", "tool_choice": "maybe"},
        {"text": "x", "thinking": True},
        {},
    ]
    answers, rc, _ = moonlet("parse", lines)
    assert rc == 1
    assert [c["function"]["name"] for c in answers[0]["tool_calls"]] == ["b"] and answers[0]["tool_calls"][0][
        "id"
    ] == "7"
    assert answers[1]["tool_calls"] == []
    assert answers[2]["tool_calls"] == [] and "<|" not in answers[2]["content"]
    assert all(list(a) == ["error"] for a in answers[3:])


def test_parse_is_linear():
    arguments = json.dumps({"text": "<|tool_call " * 200000})
    text = (
        "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>" + arguments + "<|tool_call_end|>" + "<" * 1000000
    )
    (answer,), rc, _ = moonlet("parse", [{"text": text}])
    assert (
        rc == 0 and answer["tool_calls"][0]["function"]["arguments"] == arguments and answer["content"] == "<" * 1000000
    )
