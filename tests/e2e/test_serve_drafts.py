"""Drafts by repetition: the same answers with and without, and fewer steps where text repeats itself."""
from concurrent.futures import ThreadPoolExecutor

from serve_client import Server, wait_until

ITEM = "{'name': 'Ada', 'age': 36, 'city': 'London'}, "
TOOL = {
    "type": "function",
    "function": {
        "name": "note",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"words": {"type": "array", "items": {"enum": ["one", "two"]}, "minItems": 9, "maxItems": 9}},
            "required": ["words"],
            "additionalProperties": False,
        },
    },
}


def requests():
    for i in range(12):
        draw = {"temperature": [0, 1][i % 2], "seed": i, "max_tokens": 90}
        if i % 3 == 0:
            yield "/v1/completions", {"prompt": ITEM * 5, "ignore_eos": True, "logprobs": 2, **draw}
        elif i % 3 == 1:
            yield "/v1/completions", {"prompt": ITEM * 3, "ignore_eos": True, "frequency_penalty": 0.1, **draw}
        else:
            asked = {"messages": [{"role": "user", "content": "Note nine words."}], "tools": [TOOL], **draw}
            yield "/v1/chat/completions", {**asked, "tool_choice": "required", "max_tokens": 300}


def answers(*flags):
    s = Server("--max-running-requests", "4", *flags)
    try:
        with ThreadPoolExecutor(12) as pool:
            got = list(pool.map(lambda x: s.post(*x)["choices"][0], requests()))
        wait_until(lambda: s.stats()["num_running_reqs"] == 0)
        return got, s.metric("moonlet:draft_tokens_total"), s.metric("moonlet:draft_tokens_accepted_total")
    finally:
        assert s.stop() == 0


def test_no_answer_changes():
    without, proposed, _ = answers()
    assert proposed == 0
    for n in ("1", "6"):
        got, proposed, accepted = answers("--speculative-ngram", n)
        assert got == without
        assert 0 < accepted <= proposed
