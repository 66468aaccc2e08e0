"""Tool calls of nano over its whole evaluation set: with strict tools every finished call is valid, by Python's
jsonschema; greedy as well as at temperature 1, and where a call must come."""
import gzip
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from jsonschema import Draft202012Validator

from serve_client import NANO

LONGEST = 400


def items():
    with gzip.open(NANO / "eval/tools.jsonl.gz", "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def ask(server, seed, item, choice, temperature, strict):
    tools = json.loads(json.dumps(item["tools"]))
    for tool in tools:
        tool["function"]["strict"] = strict
    body = {
        "messages": item["messages"],
        "tools": tools,
        "tool_choice": choice,
        "temperature": temperature,
        "seed": seed,
        "max_tokens": LONGEST,
    }
    return server.post("/v1/chat/completions", body)["choices"][0]


def is_valid(call, tools):
    schemas = {t["function"]["name"]: t["function"]["parameters"] for t in tools}
    try:
        arguments = json.loads(call["arguments"])
    except ValueError:
        return False
    return call["name"] in schemas and Draft202012Validator(schemas[call["name"]]).is_valid(arguments)


def calls_of(choice):
    return [x["function"] for x in choice["message"].get("tool_calls") or []]


@pytest.mark.parametrize("choice, temperature", [("auto", 0), ("auto", 1), ("required", 0), ("required", 1)])
def test_finished_calls_are_valid(server, choice, temperature):
    asked = items()[:: 1 if temperature else 2]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda x: ask(server, x[0], x[1], choice, temperature, True), enumerate(asked)))
    finished = [(x, a) for x, a in zip(asked, answers) if a["finish_reason"] != "length"]
    called = [(x, a) for x, a in finished if calls_of(a)]
    bad = [(x["messages"], a) for x, a in called if not all(is_valid(c, x["tools"]) for c in calls_of(a))]
    assert not bad, bad[:3]
    assert all(a["finish_reason"] == "tool_calls" for _, a in called)
    if choice == "required":
        assert len(called) == len(finished)
    right = sum(
        [(c["name"], json.loads(c["arguments"])) for c in calls_of(a)]
        == [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in x["calls"]]
        for x, a in called
    )
    print(
        f"{choice}, temperature {temperature}: {len(called)} of {len(asked)} called and ended, all valid; {right} right"
    )
    assert len(called) >= 0.9 * len(asked) and right >= (0.95 if temperature == 0 else 0.7) * len(called)
