"""`moonlet serve`: every route, streams and whole answers. The tests do not depend on what the model says."""
import json
import subprocess
import threading
import time

import pytest
from serve_client import MOONLET, NANO, SLOW, Server, message_of, text_of

ASK = [{"role": "user", "content": "What is 17 + 25?"}]
GREEDY = {"temperature": 0, "max_tokens": 48}
SPREAD = {"temperature": 3, "max_tokens": 24, "ignore_eos": True}  # here the random numbers decide, not the model
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def server():
    s = Server("--max-running-requests", "32")
    yield s
    assert s.stop() == 0


def chat(server, messages=ASK, **fields):
    return server.post("/v1/chat/completions", {"messages": messages, **GREEDY, **fields})


def complete(server, prompt="What is 17", **fields):
    return server.post("/v1/completions", {"prompt": prompt, **GREEDY, **fields})


# ---- What a server tells of itself ----


def test_ready_line_and_plan(server):
    assert server.ready.startswith("moonlet serve: ready on http://127.0.0.1:")
    assert "tokens of KV" in server.ready and "weights" in server.get("/server_info")[1]["memory_plan"]


def test_health(server):
    status, body, _ = server.get("/health")
    assert status == 200 and body["status"] == "ok" and body["last_step_age_s"] < 60
    assert server.get("/health_generate")[0] == 200


def test_models(server):
    body = server.get("/v1/models")[1]
    (model,) = body["data"]
    assert body["object"] == "list" and model["id"] == "nano" and model["object"] == "model"
    assert isinstance(model["created"], int) and model["max_model_len"] > 0 and model["owned_by"]
    assert server.get("/v1/models/nano")[1] == model
    status, body, _ = server.get("/v1/models/other")
    assert status == 404 and body["error"]["code"] == "model_not_found" and body["error"]["param"] == "model"


def test_info(server):
    assert "version" in server.get("/version")[1]
    for path in ("/server_info", "/get_server_info"):
        body = server.get(path)[1]
        assert "avg_spec_accept_length" in body["internal_states"][0] and body["max_total_num_tokens"] > 0
    for path in ("/model_info", "/get_model_info"):
        body = server.get(path)[1]
        assert body["is_generation"] is True and body["has_audio_understanding"] is False
    info = server.get("/tokenizer_info")[1]
    assert info["eos_token"] == "[EOS]" and info["chat_template"] is None and info["chat_template_name"]


def test_metrics(server):
    before = server.metric("sglang:generation_tokens_total")
    complete(server, ignore_eos=True, max_tokens=7)
    assert server.metric("sglang:generation_tokens_total") == before + 7
    assert server.metric("vllm:num_requests_running") == 0 == server.metric("sglang:num_queue_reqs")
    status, text, head = server.get("/metrics")
    assert head["content-type"].startswith("text/plain; version=0.0.4")
    names = set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            assert line.split()[2] not in names
            names.add(line.split()[2])
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
        assert f"sglang:{name}" in names and f"vllm:{name}" in names
        count = server.metric(f"sglang:{name}_count")
        bucket = [line for line in text.splitlines() if line.startswith(f"sglang:{name}_bucket")]
        assert 'le="+Inf"' in bucket[-1] and float(bucket[-1].split()[-1]) == count > 0


# ---- Chat ----


def test_chat(server):
    body = chat(server)
    assert body["object"] == "chat.completion" and body["id"].startswith("chatcmpl-") and body["model"] == "nano"
    (choice,) = body["choices"]
    assert choice["index"] == 0 and choice["message"]["role"] == "assistant" and choice["logprobs"] is None
    assert choice["finish_reason"] in ("stop", "length")
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert usage["completion_tokens"] <= 48 and usage["prompt_tokens_details"]["cached_tokens"] >= 0


@pytest.mark.parametrize(
    "extra", [{}, {"chat_template_kwargs": {"thinking": False}}, {"tools": [TOOL]}, {"seed": 5, "temperature": 1}]
)
def test_chat_stream_equals_whole(server, extra):
    if "temperature" in extra:
        extra = {**extra, "top_p": 0.9}
    whole = chat(server, **extra)
    events = server.stream("/v1/chat/completions", {"messages": ASK, **GREEDY, **extra})
    message, want = message_of(events), whole["choices"][0]["message"]
    assert message["content"] == (want["content"] or "")
    assert message["reasoning_content"] == (want["reasoning_content"] or "")
    assert [c["arguments"] for c in message["tool_calls"]] == [
        c["function"]["arguments"] for c in want["tool_calls"] or []
    ]
    assert message["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert len({(e["id"], e["created"], e["model"]) for e in events}) == 1
    first, last = events[0]["choices"][0], events[-1]["choices"][0]
    assert first["delta"] == {"role": "assistant", "content": ""} and first["finish_reason"] is None
    assert last["delta"] == {} and last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert all(e["choices"] and "usage" not in e for e in events)


def test_usage_chunk_only_when_asked(server):
    body = {"messages": ASK, **GREEDY, "stream_options": {"include_usage": True}}
    events = server.stream("/v1/chat/completions", body)
    assert events[-1]["choices"] == [] and events[-1]["usage"]["total_tokens"] > 0
    assert all(e["choices"] for e in events[:-1])
    body["stream_options"]["continuous_usage_stats"] = True
    counts = [e["usage"]["completion_tokens"] for e in server.stream("/v1/chat/completions", body)]
    assert counts == sorted(counts) and counts[-1] > 0


def test_thinking_can_be_switched_off(server):
    ways = [
        {"chat_template_kwargs": {"thinking": False}},
        {"thinking": {"type": "disabled"}},
        {"reasoning_effort": "none"},
        {"reasoning": {"enabled": False}},
        {"extra_body": {"chat_template_kwargs": {"thinking": False}}},
    ]
    for way in ways:
        body = chat(server, **way)
        assert body["choices"][0]["message"]["reasoning_content"] is None
        assert body["usage"]["reasoning_tokens"] == 0
    assert len({json.dumps(chat(server, **way)["choices"]) for way in ways}) == 1
    order = {"chat_template_kwargs": {"thinking": True}, "reasoning_effort": "none"}
    assert chat(server, **order)["usage"]["prompt_tokens"] == chat(server)["usage"]["prompt_tokens"]


def test_reasoning_in_other_forms(server):
    whole = chat(server)["choices"][0]["message"]
    if not whole["reasoning_content"]:
        pytest.skip("this model does not think")
    assert chat(server, include_reasoning=False)["choices"][0]["message"]["reasoning_content"] is None
    joined = chat(server, separate_reasoning=False)["choices"][0]["message"]
    assert joined["reasoning_content"] is None and joined["content"].startswith(whole["reasoning_content"])
    events = server.stream("/v1/chat/completions", {"messages": ASK, **GREEDY, "stream_reasoning": False})
    pieces = [
        c["delta"]["reasoning_content"] for e in events for c in e["choices"] if "reasoning_content" in c["delta"]
    ]
    assert pieces == [whole["reasoning_content"]]


def test_n_choices(server):
    body = chat(server, n=3, temperature=1, seed=3)
    assert [c["index"] for c in body["choices"]] == [0, 1, 2]
    events = server.stream("/v1/chat/completions", {"messages": ASK, **GREEDY, "n": 3, "temperature": 1, "seed": 3})
    for c in body["choices"]:
        message = message_of(events, c["index"])
        assert message["content"] == (c["message"]["content"] or "")
        assert message["finish_reason"] == c["finish_reason"]
    one = chat(server)["usage"]["prompt_tokens"]
    assert body["usage"]["prompt_tokens"] == one, "the prompt counts once"
    assert chat(server, n=3, temperature=1, seed=3)["choices"] == body["choices"], "a seed repeats"
    drawn = complete(server, **SPREAD, n=3, seed=3)["choices"]
    assert len({c["text"] for c in drawn}) == 3, "each choice draws for itself"
    assert (
        complete(server, **SPREAD, n=3, seed=3)["choices"]
        == drawn
        != complete(server, **SPREAD, n=3, seed=4)["choices"]
    )


def test_chat_logprobs(server):
    body = chat(server, logprobs=True, top_logprobs=3)
    entries = body["choices"][0]["logprobs"]["content"]
    assert len(entries) == body["usage"]["completion_tokens"]
    for e in entries:
        values = [t["logprob"] for t in e["top_logprobs"]]
        assert len(values) == 3 and values == sorted(values, reverse=True)
        assert e["logprob"] == values[0], "greedy takes the most probable"
        assert bytes(e["bytes"]).decode(errors="replace") == e["token"]
    events = server.stream("/v1/chat/completions", {"messages": ASK, **GREEDY, "logprobs": True, "top_logprobs": 3})
    streamed = [x for e in events for c in e["choices"] for x in (c["logprobs"] or {"content": []})["content"]]
    assert streamed == entries


def test_history_with_tools(server):
    """What OpenAI's client sends back: nulls, foreign ids, results; a developer's message first."""
    call = {"id": "call_x", "type": "function", "index": 0, "function": {"name": "get_weather", "arguments": "{}"}}
    assistant = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "tool_calls": [call],
    }
    history = [
        {"role": "developer", "content": "Be short."},
        {"role": "USER", "content": [{"type": "text", "text": "Weather?"}]},
        assistant,
        {"role": "tool", "tool_call_id": "call_x", "content": "sunny"},
    ]
    foreign = server.post("/tokenize", {"messages": history, "tools": [TOOL]})["tokens"]
    call["id"] = history[3]["tool_call_id"] = "functions.get_weather:0"
    history[0]["role"], history[1]["role"] = "system", "user"
    assert server.post("/tokenize", {"messages": history, "tools": [TOOL]})["tokens"] == foreign
    assert "functions.get_weather:0" in server.post("/detokenize", {"tokens": foreign})["text"]
    assert chat(server, history, tools=[TOOL])["choices"]


def test_a_tool_call_and_its_result(server):
    """A whole round: the model asks for the tool, gets the result, answers; as a stream and whole."""
    ask = [{"role": "user", "content": "What is the weather in Paris?"}]
    fields = {"tools": [TOOL], "max_tokens": 120}
    (choice,) = chat(server, ask, **fields)["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and call["type"] == "function" and call["index"] == 0
    assert call["id"] == "functions.get_weather:0" and call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    message = message_of(server.stream("/v1/chat/completions", {"messages": ask, **GREEDY, **fields}))
    assert (
        message["tool_calls"] == [{"id": call["id"], **call["function"]}] and message["finish_reason"] == "tool_calls"
    )
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny, 20 C"}
    history = ask + [choice["message"], result]
    answer = chat(server, history, **fields)["choices"][0]
    assert answer["finish_reason"] == "stop" and answer["message"]["content"]
    again = chat(
        server, history + [answer["message"], {"role": "user", "content": "What is the weather in Rome?"}], **fields
    )
    calls = again["choices"][0]["message"]["tool_calls"]
    assert calls[0]["id"] == "functions.get_weather:1", "counted over the conversation"
    silent = chat(server, ask, **fields, tool_choice="none")["choices"][0]
    assert silent["message"]["tool_calls"] is None and silent["finish_reason"] != "tool_calls"


def test_control_words_in_messages_are_text(server):
    """A user cannot write control tokens; a raw prompt can."""
    said = server.post("/tokenize", {"messages": [{"role": "user", "content": "<|im_end|>"}]})["tokens"]
    raw = server.post("/tokenize", {"prompt": "<|im_end|>"})["tokens"]
    plain = server.post("/tokenize", {"messages": [{"role": "user", "content": "x"}]})["tokens"]
    assert len(raw) == 1 and said.count(raw[0]) == plain.count(raw[0])


def test_continue_final_message(server):
    messages = ASK + [{"role": "assistant", "content": "The answer"}]
    body = chat(server, messages, continue_final_message=True)
    assert body["choices"][0]["message"]["reasoning_content"] is None
    closed = server.post("/tokenize", {"messages": messages, "add_generation_prompt": False})["tokens"]
    assert body["usage"]["prompt_tokens"] == len(closed) - 1  # all but the message's end marker


def test_numbers_of_any_size_reach_the_model(server):
    call = {
        "id": "functions.f:0",
        "type": "function",
        "function": {"name": "f", "arguments": {"id": 10**22, "x": 1e-7}},
    }
    verbatim = {**call, "function": {"name": "f", "arguments": '{"id":12345678901234567890,"x":1e400}'}}
    parameters = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 12345678901234567890}}}
    body = {
        "messages": ASK
        + [{"role": "assistant", "tool_calls": [call, verbatim]}]
        + [{"role": "tool", "tool_call_id": "functions.f:0", "content": "ok"}] * 2,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}],
    }
    ids = server.post("/tokenize", body)["tokens"]
    text = server.post("/detokenize", {"tokens": ids})["text"]
    assert '{"id": 10000000000000000000000, "x": 1e-07}' in text and "// maximum: 12345678901234567890\n" in text
    assert verbatim["function"]["arguments"] in text
    assert server.post("/v1/chat/completions", {**body, **GREEDY})["usage"]["prompt_tokens"] == len(ids)


# ---- Completions ----


def test_completion_prompts(server):
    ids = server.post("/tokenize", {"prompt": "What is 17"})["tokens"]
    text = complete(server)["choices"][0]["text"]
    for prompt in (ids, ["What is 17"], [ids]):
        assert complete(server, prompt)["choices"][0]["text"] == text
    other = [300, 301]
    batch = complete(server, [ids, other, ids], n=2, **SPREAD, seed=9)
    assert [c["index"] for c in batch["choices"]] == list(range(6))
    texts = [c["text"] for c in batch["choices"]]
    assert texts[:2] == texts[4:], "equal requests in one batch"
    assert texts[2:4] == [c["text"] for c in complete(server, other, n=2, **SPREAD, seed=9)["choices"]], "as alone"
    assert len(set(texts)) == 4, "what is drawn shows in what is said"
    again = complete(server, [ids, other, ids], n=2, **SPREAD, seed=9)
    assert again["choices"] == batch["choices"]


def test_without_a_seed_equal_requests_differ(server):
    """At this temperature two answers of 24 tokens that agree by chance are not to be expected."""
    assert len({complete(server, **SPREAD)["choices"][0]["text"] for _ in range(3)}) == 3
    params = {"temperature": SPREAD["temperature"], "max_new_tokens": 24, "ignore_eos": True}
    assert len({server.post("/generate", {"text": "x", "sampling_params": params})["text"] for _ in range(3)}) == 3


def test_run_draws_what_the_server_draws(server):
    """`moonlet run` and /generate: one seed, one answer, although one draws in a loop of its own."""
    command = [
        MOONLET,
        "run",
        "-q",
        "--raw",
        "-m",
        str(NANO),
        "--prompt",
        "What is 17",
        "--temperature",
        "3",
        "--seed",
        "7",
        "--max-tokens",
        "24",
        "--ignore-eos",
    ]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    params = {
        "temperature": 3,
        "top_p": 1,
        "sampling_seed": 7,
        "max_new_tokens": 24,
        "ignore_eos": True,
        "skip_special_tokens": False,
    }
    said = server.post("/generate", {"text": "What is 17", "sampling_params": params})["text"]
    assert len(said) > 40 and done.stdout.decode(errors="replace").rstrip("\n") == said.rstrip("\n")


def test_completion_stream_equals_whole(server):
    body = {"prompt": ["What is 17", "Tell me"], "n": 2, "temperature": 1, "seed": 4, "max_tokens": 40}
    whole = server.post("/v1/completions", body)
    events = server.stream("/v1/completions", body)
    assert text_of(events) == {c["index"]: c["text"] for c in whole["choices"]}
    finishes = [c["index"] for e in events for c in e["choices"] if c["finish_reason"]]
    assert sorted(finishes) == [0, 1, 2, 3]


def test_ignore_eos_gives_exactly_max_tokens(server):
    assert complete(server, ignore_eos=True, max_tokens=33)["usage"]["completion_tokens"] == 33
    assert chat(server, ignore_eos=True, max_tokens=33)["usage"]["completion_tokens"] == 33
    body = server.post("/generate", {"text": "x", "sampling_params": {"ignore_eos": True, "max_new_tokens": 33}})
    assert body["meta_info"]["completion_tokens"] == 33 == len(body["output_ids"])
    assert body["meta_info"]["finish_reason"] == {"type": "length", "length": 33}


def test_min_tokens(server):
    for _ in range(3):
        assert (
            complete(server, "Hello.", min_tokens=30, max_tokens=40, temperature=1)["usage"]["completion_tokens"] >= 30
        )


def test_echo_and_logprobs_as_lm_eval_wants_them(server):
    ids = server.post("/tokenize", {"prompt": "The cat sat on the mat."})["tokens"]
    body = {"prompt": [ids], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    choice = server.post("/v1/completions", body)["choices"][0]
    lp = choice["logprobs"]
    for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert len(lp[key]) == len(ids) + 1
    assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
    for token, value, top in list(zip(lp["tokens"], lp["token_logprobs"], lp["top_logprobs"]))[1:]:
        assert top[token] >= value and max(top.values()) >= value
    assert lp["token_logprobs"][-1] == max(lp["top_logprobs"][-1].values())
    assert choice["text"].startswith("The cat sat on the mat.")
    assert lp["text_offset"] == sorted(lp["text_offset"]) and lp["text_offset"][0] == 0
    events = server.stream("/v1/completions", body)
    assert text_of(events)[0] == choice["text"]
    streamed = [x for e in events for c in e["choices"] if c["logprobs"] for x in c["logprobs"]["token_logprobs"]]
    assert streamed == lp["token_logprobs"]


def test_scoring_without_generating(server):
    """max_tokens 0 with echo: the prompt and its log-probabilities, and nothing else."""
    ids = server.post("/tokenize", {"prompt": "The cat sat on the mat."})["tokens"]
    body = {"prompt": [ids, ids], "temperature": 0, "max_tokens": 0, "logprobs": 1, "echo": True}
    answer = server.post("/v1/completions", body)
    want = server.post("/v1/completions", {**body, "max_tokens": 1})["choices"][0]["logprobs"]
    for choice in answer["choices"]:
        assert choice["text"] == "The cat sat on the mat." and choice["finish_reason"] == "length"
        assert choice["matched_stop"] is None
        assert choice["logprobs"] == {k: v[:-1] for k, v in want.items()} and len(want["tokens"]) == len(ids) + 1
    assert answer["usage"]["completion_tokens"] == 0
    events = server.stream("/v1/completions", body)
    assert text_of(events) == {0: "The cat sat on the mat.", 1: "The cat sat on the mat."}
    ends = "What is 17 + 25?<|im_end|><|im_assistant|>assistant<|im_middle|><think></think>42<|im_end|>"
    stop = server.post("/tokenize", {"prompt": "<|im_end|>"})["tokens"][0]
    forced = {"prompt": ends, "max_tokens": 0, "echo": True, "logit_bias": {str(stop): 100}}
    assert server.post("/v1/completions", forced)["choices"][0]["finish_reason"] == "length", "an end that is not shown"
    assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 0}, 400)["error"]["param"] == "max_tokens"


def test_logprobs_equal_those_of_eval(server, tmp_path):
    ids = server.post("/tokenize", {"prompt": "Three birds and four cats are seven animals."})["tokens"]
    file = tmp_path / "ids.jsonl"
    file.write_text(json.dumps({"ids": ids}) + "\n")
    done = subprocess.run([MOONLET, "eval", "logprobs", "-m", str(NANO), "--data", str(file)], capture_output=True)
    want = json.loads(done.stdout)["logprobs"]
    body = {"prompt": ids, "temperature": 0, "max_tokens": 1, "logprobs": 0, "echo": True}
    got = server.post("/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"][:-1]
    assert got[0] is None is want[0]
    assert got[1:] == pytest.approx(want[1:], rel=1e-6, abs=1e-6)


def test_stop_strings(server):
    """Cut out of the model's own words, at every place and length: across tokens, in streams and whole."""
    text = complete(server, ignore_eos=True, max_tokens=40)["choices"][0]["text"]
    for at in range(1, len(text) - 5, 9):
        for length in (1, 2, 5):
            stop = text[at : at + length]
            body = {"prompt": "What is 17", **GREEDY, "ignore_eos": True, "max_tokens": 40, "stop": [stop, "\x01never"]}
            choice = server.post("/v1/completions", body)["choices"][0]
            assert choice["text"] == text[: text.index(stop)]
            assert choice["finish_reason"] == "stop" and choice["matched_stop"] == stop
            assert text_of(server.stream("/v1/completions", body))[0] == choice["text"]
    kept = complete(server, ignore_eos=True, max_tokens=40, stop=text[3:6], include_stop_str_in_output=True)
    assert kept["choices"][0]["text"] == text[: text.index(text[3:6]) + 3]


def test_stop_token_ids_and_bias(server):
    first = complete(server, return_token_ids=True, ignore_eos=True)["choices"][0]
    assert (
        len(first["token_ids"]) == 48
        and first["prompt_token_ids"] == server.post("/tokenize", {"prompt": "What is 17"})["tokens"]
    )
    stop = first["token_ids"][5]
    choice = complete(server, ignore_eos=True, stop_token_ids=[stop], return_token_ids=True)["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["matched_stop"] == stop == choice["token_ids"][-1]
    banned = complete(server, ignore_eos=True, return_token_ids=True, logit_bias={str(first["token_ids"][0]): -100})
    assert banned["choices"][0]["token_ids"][0] != first["token_ids"][0]
    forced = complete(server, ignore_eos=True, return_token_ids=True, max_tokens=5, logit_bias={"65": 100})
    assert forced["choices"][0]["token_ids"] == [65] * 5


def test_sampling_fields_do_something(server):
    base = complete(server, ignore_eos=True, return_token_ids=True)["choices"][0]["token_ids"]
    for field in ({"repetition_penalty": 5.0}, {"frequency_penalty": 2.0}, {"temperature": 5.0, "seed": 1}):
        assert complete(server, ignore_eos=True, return_token_ids=True, **field)["choices"][0]["token_ids"] != base
    for field in ({"top_k": 1}, {"min_p": 1.0}, {"top_p": 0.0001}):
        same = complete(server, ignore_eos=True, return_token_ids=True, temperature=2.0, **field)
        assert same["choices"][0]["token_ids"] == base


# ---- /generate, tokenizer, levers ----


def test_generate(server):
    ids = server.post("/tokenize", {"prompt": "What is 17"})["tokens"]
    params = {"temperature": 0, "max_new_tokens": 20, "ignore_eos": True}
    one = server.post("/generate", {"text": "What is 17", "sampling_params": params})
    assert one["meta_info"]["prompt_tokens"] == len(ids) and one["meta_info"]["id"]
    many = server.post("/generate", {"input_ids": [ids, ids], "sampling_params": params, "rid": "mine"})
    assert [m["text"] for m in many] == [one["text"]] * 2 and many[0]["meta_info"]["id"] == "mine-0"
    events = server.stream("/generate", {"input_ids": ids, "sampling_params": params})
    texts, counts = [e["text"] for e in events], [e["meta_info"]["completion_tokens"] for e in events]
    assert all(b.startswith(a) for a, b in zip(texts, texts[1:])) and texts[-1] == one["text"]
    assert counts == sorted(counts) and counts[-1] == 20
    assert events[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 20}
    assert all(e["meta_info"]["finish_reason"] is None for e in events[:-1])
    lp = server.post(
        "/generate",
        {
            "input_ids": ids,
            "sampling_params": params,
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": 2,
            "return_text_in_logprobs": True,
        },
    )
    meta = lp["meta_info"]
    assert [t[1] for t in meta["output_token_logprobs"]] == lp["output_ids"]
    assert [t[1] for t in meta["input_token_logprobs"]] == ids and meta["input_token_logprobs"][0][0] is None
    assert all(len(t) == 2 for t in meta["output_top_logprobs"])


def test_tokenize_and_back(server):
    text = "Grüße, 世界! 👋 <|im_end|>"
    body = server.post("/tokenize", {"prompt": text, "return_token_strs": True})
    assert body["count"] == len(body["tokens"]) == len(body["token_strs"]) and body["max_model_len"] > 0
    back = server.post("/detokenize", {"tokens": body["tokens"]})
    assert back["prompt"] == text == back["text"]
    assert server.post("/detokenize", {"tokens": body["tokens"], "skip_special_tokens": True})["text"] == text[:-10]
    lists = server.post("/v1/tokenize", {"prompt": ["a", "bc"]})
    assert len(lists["tokens"]) == 2 == len(lists["count"])


def test_too_many_values_for_the_memory_they_would_take(server):
    error = server.post("/v1/completions", '{"prompt":[' + "1," * (1 << 22) + "1]}", 400)["error"]
    assert "values" in error["message"]


def test_prefix_cache_and_flush(server):
    prompt = "All work and no play makes a very dull day. " * 12
    assert server.get("/flush_cache")[0] == 200
    assert complete(server, prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert complete(server, prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64
    assert complete(server, prompt, cache_salt="me")["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert complete(server, prompt, cache_salt="me")["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64
    assert server.request("POST", "/flush_cache?timeout=5")[0] == 200
    assert complete(server, prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_abort_request(server):
    got = []
    body = {"prompt": "x", "max_tokens": 1500, "ignore_eos": True, "rid": "long one"}
    t = threading.Thread(target=lambda: got.append(server.request("POST", "/v1/completions", body)))
    t.start()
    end = time.time() + 30 * SLOW
    while not server.post("/abort_request", {"rid": "long one"})["aborted"]:
        assert t.is_alive() and time.time() < end, "it was never there to be aborted"
        time.sleep(0.005)
    t.join(30 * SLOW)
    assert not t.is_alive() and got[0][0] == 503 and got[0][1]["error"]["code"] == "aborted"
    assert server.post("/abort_request", {"rid": "no such"}) == {"aborted": 0}
    assert server.post("/abort_request", {}, 400)["error"]["param"] == "rid"
