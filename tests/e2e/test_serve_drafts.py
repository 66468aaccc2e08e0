"""Speculative decoding: the same answers with and without, whoever proposes; flags that do not fit together; drafts
that do not fit the model."""
import json
import os
import shutil
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice

import pytest
from safetensors_writer import write_file
from serve_client import MOONLET, NANO, Server, wait_until

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


def requests(tokens):
    for i in range(12):
        draw = {"temperature": [0, 1][i % 2], "seed": i, "max_tokens": tokens}
        if i % 3 == 0:
            yield "/v1/completions", {"prompt": ITEM * 5, "ignore_eos": True, "logprobs": 2, **draw}
        elif i % 3 == 1:
            yield "/v1/completions", {"prompt": ITEM * 3, "ignore_eos": True, "frequency_penalty": 0.1, **draw}
        else:
            asked = {"messages": [{"role": "user", "content": "Note nine words."}], "tools": [TOOL], **draw}
            yield "/v1/chat/completions", {**asked, "tool_choice": "required", "max_tokens": 300}


def answers_of(server, asked=12, tokens=90):
    with ThreadPoolExecutor(12) as pool:
        got = list(pool.map(lambda x: server.post(*x)["choices"][0], islice(requests(tokens), asked)))
    wait_until(lambda: server.stats()["num_running_reqs"] == 0)
    return got


def answers(*flags, **some):
    s = Server("--max-running-requests", "4", *flags)
    try:
        got = answers_of(s, **some)
        return got, s.metric("moonlet:draft_tokens_total"), s.metric("moonlet:draft_tokens_accepted_total")
    finally:
        assert s.stop() == 0


def test_no_answer_changes():
    without, proposed, _ = answers("--speculative-algorithm", "NONE")
    assert proposed == 0
    for flags in (
        ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "2"),
        ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "7"),
        ("--speculative-num-steps", "1"),
        ("--speculative-algorithm", "EAGLE3", "--speculative-num-draft-tokens", "6"),
        (),  # nano's own draft
        ("--speculative-eagle-topk", "4", "--speculative-num-steps", "4", "--speculative-num-draft-tokens", "12"),
    ):
        got, proposed, accepted = answers(*flags)
        assert got == without, flags
        assert 0 < accepted <= proposed


def said(choice):
    return choice.get("text") or choice["message"]


TREES = ("--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "12")


@cache
def on_ref(*flags):
    adaptive = () if "NONE" in flags else ("--speculative-disable-adaptive",)
    return answers("--device", "ref", *adaptive, *flags, asked=6, tokens=40)


# ranks are watched in tests/unit and test_serve_ranks.py
plain_alone = pytest.mark.skipif("MOONLET_SLOW" in os.environ, reason="ranks' answers are asked of the plain program")


@plain_alone
@pytest.mark.parametrize(
    "split",
    [("--tp", "2", "--dcp", "2"), ("--tp", "2", "--enable-dp-attention"), ("--pp", "3", "--pp-layers", "1,3,2")],
)
@pytest.mark.parametrize("drafts", [("--speculative-num-steps", "3"), TREES], ids=["chains", "trees"])
def test_no_answer_changes_where_ranks_have_a_share_of_the_kv_cache_or_layers(split, drafts):
    """ref's sums may differ there by 1e-5, cpu's by where pages happen to lie: texts are compared, of ref, and which
    drafts came true."""
    without = on_ref("--speculative-algorithm", "NONE")[0]
    one = on_ref(*drafts)
    got = answers("--device", "ref", "--speculative-disable-adaptive", *split, *drafts, asked=6, tokens=40)
    assert [said(c) for c in got[0]] == [said(c) for c in one[0]] == [said(c) for c in without]
    assert got[1:] == one[1:] and 0 < got[2] < got[1]


def test_a_pinned_acceptance_is_kept_and_said():
    s = Server("--speculative-num-steps", "3", "--speculative-pinned-accept", "2.3", "--speculative-disable-adaptive")
    try:
        for i in range(4):
            s.post("/v1/completions", {"prompt": [300 + i], "max_tokens": 200, "ignore_eos": True})
        info = s.get("/server_info")[1]
        assert info["speculative_pinned_accept"] == 2.3 and info["speculative_num_steps"] == 3
        assert abs(info["internal_states"][0]["avg_spec_accept_length"] - 2.3) < 0.02
        rounds, accepted = s.metric("moonlet:draft_rounds_total"), s.metric("moonlet:draft_tokens_accepted_total")
        assert rounds > 300 and abs(1 + accepted / rounds - 2.3) < 0.02
        for seed in range(4):  # what a grammar lets pass is not pinned
            held = {"prompt": "Words:", "regex": "[a-z]{3,9}( [a-z]{3,9}){9}", "max_tokens": 100, "seed": seed}
            assert s.post("/v1/completions", held)["choices"][0]["text"].count(" ") <= 9
    finally:
        assert s.stop() == 0
    assert any("ACCEPTANCE PINNED TO 2.3 TOKENS A STEP" in line for line in s.log)


def test_rounds_decoded_again_are_counted():
    s = Server("--speculative-verify-rate", "0.5", "--speculative-disable-adaptive")
    try:
        for i in range(4):
            s.post("/v1/completions", {"prompt": [300 + i], "max_tokens": 100, "ignore_eos": True, "seed": i})
        assert s.metric("moonlet:draft_tokens_checked_total") > 50
        assert s.metric("moonlet:draft_tokens_differ_total") == 0
    finally:
        assert s.stop() == 0


def refused(*flags):
    done = subprocess.run([MOONLET, "serve", "--port", "0", *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and done.stdout == ""
    return done.stderr.splitlines()[-1].removeprefix("moonlet serve: ")


@pytest.mark.parametrize(
    "flags, why",
    [
        ("--speculative-eagle-topk 9", "--speculative-eagle-topk 9: at most 8"),
        (
            "--speculative-eagle-topk 2 --speculative-num-steps 2 --speculative-num-draft-tokens 8",
            "--speculative-num-draft-tokens 8: 2 steps with 2 guesses each make trees of 7 rows at most, and 32 is the "
            "limit",
        ),
        (
            "--speculative-eagle-topk 4 --speculative-num-draft-tokens 33",
            "3 steps with 4 guesses each make trees of 37 rows at most, and 32 is the limit",
        ),
        (
            "--speculative-eagle-topk 4 --speculative-pinned-accept 4.5",
            "--speculative-pinned-accept 4.5: 3 drafts give no more than 4 tokens a step",
        ),
        ("--speculative-algorithm NGRAM --speculative-eagle-topk 2", "is for --speculative-algorithm EAGLE3"),
        (
            "--speculative-num-steps 3 --speculative-num-draft-tokens 8",
            "--speculative-num-draft-tokens 8 with --speculative-num-steps 3: a chain has 4 rows, its steps and the last "
            "token's own",
        ),
        (
            "--speculative-algorithm NONE --speculative-num-steps 3",
            "--speculative-algorithm NONE goes without the other --speculative-*",
        ),
        (
            "--speculative-algorithm NGRAM --speculative-num-steps 3",
            "--speculative-num-steps is for --speculative-algorithm EAGLE3",
        ),
        ("--speculative-draft-model-path /nowhere", "/nowhere/config.json: No such file or directory"),
        (
            "--speculative-pinned-accept 4.5",
            "--speculative-pinned-accept 4.5: 3 drafts give no more than 4 tokens a step",
        ),
        (
            "--speculative-pinned-accept 1 --speculative-algorithm NONE",
            "--speculative-pinned-accept: nothing proposes tokens",
        ),
        (
            "--speculative-pinned-accept 2 --speculative-verify-rate 0.1",
            "--speculative-verify-rate with --speculative-pinned-accept: what is pinned is not what is drawn",
        ),
    ],
)
def test_contradictory_flags(flags, why):
    assert why in refused(*flags.split())


@pytest.mark.parametrize("given", ["pinned-accept 2", "disable-adaptive", "verify-rate 0.5"])
@pytest.mark.parametrize("command", ["run -p Hello", "profile"])
def test_flags_of_serving_alone(command, given):
    flags = f"{command} -m {NANO} --speculative-{given}".split()
    done = subprocess.run([MOONLET, *flags], capture_output=True, text=True, timeout=60)
    why = f"moonlet {flags[0]}: --speculative-{given.split()[0]} is for serve and bench serving\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", why)


@pytest.mark.parametrize(
    "change, why",
    [
        ({"hidden_size": 512}, "hidden_size is 512, the model's 256: this draft is for another"),
        ({"vocab_size": 4096}, "vocab_size is 4096, the model's 2048: this draft is for another"),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}},
            "eagle_aux_hidden_state_layer_ids: features before layer 30, of a model of 6 layers: this draft is for another",
        ),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 2]}}, "does not ascend"),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2**63 - 1]}},
            "features before layer 2147483648, of a",
        ),
        ({"architectures": ["DeepseekV3ForCausalLM"]}, 'architecture "DeepseekV3ForCausalLM" is no EAGLE-3 draft'),
        ({"num_hidden_layers": 2}, "num_hidden_layers 2 is not supported, only 1"),
        ({"kv_lora_rank": 256}, "tensor layers.0.self_attn.kv_a_proj_with_mqa.weight has shape [576, 512], "),
        ({"draft_vocab_size": 1024}, "tensor lm_head.weight has shape [2048, 256], config.json asks for [1024, 256]"),
        (None, "model.safetensors"),  # cut short
    ],
)
def test_a_draft_that_does_not_fit(tmp_path, change, why):
    shutil.copytree(NANO.parent / "nano-eagle3-mla", tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **(change or {})}))
    if change is None:
        data = (tmp_path / "model.safetensors").read_bytes()
        (tmp_path / "model.safetensors").write_bytes(data[: len(data) // 2])
    assert why in refused("--speculative-draft-model-path", str(tmp_path))


def tensors_of(file):
    """{name: (dtype, shape)} and {name: bytes}."""
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors, parts = {}, {}
    for name, t in header.items():
        begin, end = (8 + size + at for at in t["data_offsets"])
        tensors[name], parts[name] = (t["dtype"], t["shape"]), data[begin:end]
    return tensors, parts


def draft_with_an_embedding(folder):
    """nano's draft with a table of its own, in which every fourth token is another than in the model's."""
    source = NANO.parent / "nano-eagle3"
    tensors, parts = tensors_of(source / "model.safetensors")
    name = "language_model.model.embed_tokens.weight"
    model = next(found for found in map(tensors_of, sorted(NANO.glob("*.safetensors"))) if name in found[0])
    n, row = model[0][name][1][0], 2 * model[0][name][1][1]
    rows = [model[1][name][i * row : (i + 1) * row] for i in range(n)]
    tensors["embed_tokens.weight"] = model[0][name]
    parts["embed_tokens.weight"] = b"".join(rows[(i + (i % 4 == 0)) % n] for i in range(n))
    write_file(folder / "model.safetensors", tensors, parts)
    shutil.copy(source / "config.json", folder)


def trimmed_draft(folder, keep):
    """nano's draft whose head knows the tokens `keep` alone, ascending; d2t says what to add to its ids."""
    source = NANO.parent / "nano-eagle3"
    tensors, parts = tensors_of(source / "model.safetensors")
    row = 2 * tensors["lm_head.weight"][1][1]
    parts["lm_head.weight"] = b"".join(parts["lm_head.weight"][i * row : (i + 1) * row] for i in keep)
    tensors["lm_head.weight"] = ("BF16", [len(keep), row // 2])
    tensors["d2t"], parts["d2t"] = ("I64", [len(keep)]), struct.pack(
        f"<{len(keep)}q", *(t - i for i, t in enumerate(keep))
    )
    write_file(folder / "model.safetensors", tensors, parts)
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "draft_vocab_size": len(keep)}))


def beside_a_model(folder):
    """nano under another name, and the folder that its draft is looked for in, with a copy of nano's."""
    (folder / "small").symlink_to(NANO)
    shutil.copytree(NANO.parent / "nano-eagle3", folder / "small-eagle3")
    return folder / "small", folder / "small-eagle3"


def spoil_config(draft):
    (draft / "config.json").write_text('{"architectures": [')


def spoil_for_another(draft):
    config = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps({**config, "hidden_size": 512}))


def spoil_file(draft):
    data = (draft / "model.safetensors").read_bytes()
    (draft / "model.safetensors").write_bytes(data[: len(data) // 2])


def spoil_norm(draft):  # seen when weights are loaded, not before
    data = bytearray((draft / "model.safetensors").read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    at = 8 + size + json.loads(data[8 : 8 + size])["norm.weight"]["data_offsets"][0]
    data[at : at + 2] = b"\xc0\x7f"
    (draft / "model.safetensors").write_bytes(data)


@pytest.mark.parametrize(
    "spoil, flags, why",
    [
        (spoil_config, "", "small-eagle3/config.json: "),
        (spoil_for_another, "", "hidden_size is 512, the model's 256: this draft is for another"),
        (spoil_file, "", "model.safetensors"),
        (spoil_norm, "", "tensor norm.weight holds NaN"),
        (spoil_norm, "--tp 2", "tensor norm.weight holds NaN"),
    ],
    ids=["config", "another", "file", "norm", "norm of two ranks"],
)
def test_a_draft_that_nobody_asked_for_stops_nothing(tmp_path, spoil, flags, why):
    model, draft = beside_a_model(tmp_path)
    asked = {"prompt": ITEM, "ignore_eos": True, "max_tokens": 40, "temperature": 0}
    s = Server(*flags.split(), model=model)
    try:
        want = s.post("/v1/completions", asked)["choices"]
        assert s.metric("moonlet:draft_tokens_total") > 0
    finally:
        assert s.stop() == 0
    spoil(draft)
    s = Server(*flags.split(), model=model)
    try:
        assert s.post("/v1/completions", asked)["choices"] == want
        info = s.get("/server_info")[1]
        assert info["speculative_draft_model_path"] is None and info["speculative_num_steps"] == 0
        assert s.metric("moonlet:draft_tokens_total") == 0
    finally:
        assert s.stop() == 0
    said = [line for line in s.log if "no drafts" in line]
    assert len(said) == 1 and why in said[0] and str(draft) in said[0], s.log
    assert why in refused("-m", str(model), *flags.split(), "--speculative-draft-model-path", str(draft))
    assert why in refused("-m", str(model), *flags.split(), "--speculative-num-steps", "2")
    done = subprocess.run(
        [MOONLET, "run", "-m", str(model), "-p", "2+3", "--max-tokens", "4", *flags.split()],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stderr.count("no drafts") == 1 and why in done.stderr


def test_a_draft_with_a_vocabulary_of_its_own(tmp_path):
    """Answers stay; what it can say it says as well as the whole draft. Its ids are not the model's."""
    asked = {"messages": [{"role": "user", "content": "What is 17 + 25?"}], "temperature": 0, "max_tokens": 100}
    got = []
    plain = ("--speculative-algorithm", "NONE")
    s = Server(*plain)
    try:
        want = s.post("/v1/chat/completions", {**asked, "logprobs": True})["choices"][0]
        said = {t["token"] for t in want["logprobs"]["content"]}
        ids = {i for text in said for i in s.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]}
    finally:
        assert s.stop() == 0
    trimmed_draft(tmp_path, sorted(ids | set(range(100, 400, 3))))
    for draft in (NANO.parent / "nano-eagle3", tmp_path):
        s = Server("--speculative-draft-model-path", str(draft), "--speculative-disable-adaptive")
        try:
            got.append(s.post("/v1/chat/completions", {**asked, "logprobs": True})["choices"][0])
            got.append(s.metric("sglang:spec_accept_length"))
        finally:
            assert s.stop() == 0
    assert got[0] == got[2] == want
    assert got[3] >= got[1] - 0.5 > 2


@plain_alone
@pytest.mark.parametrize(
    "make, drafts",
    [
        (lambda folder: trimmed_draft(folder, range(3, 2048, 2)), TREES),
        (draft_with_an_embedding, ("--speculative-num-steps", "3")),
    ],
    ids=["vocabulary", "embedding"],
)
def test_ranks_divide_a_draft_that_knows_tokens_by_itself(tmp_path, make, drafts):
    make(tmp_path)
    flags = ("--speculative-draft-model-path", str(tmp_path), *drafts)
    one = on_ref(*flags)
    assert one[1:] != on_ref(*drafts)[1:] and one[2] > 0
    for split in (("--tp", "2"), ("--tp", "2", "--pp", "2")):
        several = on_ref(*flags, *split)
        assert [said(c) for c in several[0]] == [said(c) for c in one[0]]
        assert several[1:] == one[1:]
