"""lm-evaluation-harness against `moonlet serve`: local tasks, no tokenizer and no data set from elsewhere. Its scores
must be those of `moonlet eval`, or of a computation that is done here."""
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from serve_client import MOONLET, NANO, ROOT, SLOW

HERE = Path(__file__).resolve().parent
LM_EVAL = Path(sys.executable).with_name("lm_eval")


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def lm_eval(tmp, model, url, tasks, *options):
    """{task: (results, samples)}"""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp / "cache")}
    done = subprocess.run(
        [
            LM_EVAL,
            "run",
            "--model",
            model,
            "--model_args",
            f"base_url={url},model=nano,num_concurrent=4",
            "--include_path",
            HERE / "tasks",
            "--tasks",
            ",".join(tasks),
            "--output_path",
            tmp,
            "--log_samples",
            *options,
        ],
        cwd=ROOT,
        env={**os.environ, **offline},
        capture_output=True,
        timeout=300 * SLOW,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    (results,) = (tmp / "nano").glob("results_*.json")
    results = json.loads(results.read_text())["results"]
    out = {}
    for task in tasks:
        (samples,) = (tmp / "nano").glob(f"samples_{task}_*.jsonl")
        out[task] = results[task], lines(samples)
    return out


@pytest.fixture(scope="module")
def completions(server, tmp_path_factory):
    return lm_eval(
        tmp_path_factory.mktemp("completions"),
        "local-completions",
        f"http://127.0.0.1:{server.port}/v1/completions",
        ["completions_choice", "completions_gsm8k"],
        "--limit",
        "12",
    )


def test_log_likelihoods_and_choices(server, completions, tmp_path):
    """Every log-likelihood is the sum that `moonlet eval logprobs` gives for the same ids, and the choice follows."""
    result, samples = completions["completions_choice"]
    cases = []
    for s in samples:
        for choice in s["doc"]["choices"]:
            context, both = (
                server.post("/tokenize", {"prompt": p})["tokens"] for p in (s["doc"]["text"], s["doc"]["text"] + choice)
            )
            cases.append({"ids": both, "context": len(context), "doc": s["doc_id"]})
    file = tmp_path / "ids.jsonl"
    file.write_text("".join(json.dumps({"ids": c["ids"]}) + "\n" for c in cases))
    done = subprocess.run(
        [MOONLET, "eval", "logprobs", "-m", str(NANO), "--data", str(file)], capture_output=True, check=True
    )
    for case, line in zip(cases, done.stdout.decode().splitlines()):
        case["sum"] = sum(json.loads(line)["logprobs"][case["context"] :])
    right = 0
    for s in samples:
        mine = [c["sum"] for c in cases if c["doc"] == s["doc_id"]]
        theirs = [float(r[0][0]) for r in s["resps"]]
        assert theirs == pytest.approx(mine, rel=1e-5, abs=1e-5)
        right += max(range(len(mine)), key=mine.__getitem__) == s["doc"]["target"]
    assert len(samples) == 8 and 0 < right
    assert result["acc,none"] == pytest.approx(right / len(samples))


def test_gsm8k_equals_moonlet_eval(server, completions, tmp_path):
    """The same prompts, answers, extracted numbers and scores; the shots are drawn alike, too."""
    result, samples = completions["completions_gsm8k"]
    golden = ROOT / "tests/golden/gsm8k"
    done = subprocess.run(
        [
            MOONLET,
            "eval",
            "gsm8k",
            "--data",
            golden / "docs.jsonl",
            "--shots-data",
            golden / "shots.jsonl",
            "--shots",
            "2",
            "--limit",
            "12",
            "--base-url",
            f"http://127.0.0.1:{server.port}",
            "--details",
            tmp_path / "d",
            "--json",
            tmp_path / "j",
        ],
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    mine, details = json.loads((tmp_path / "j").read_text()), lines(tmp_path / "d")
    assert len(details) == 12 and any(re.search("[0-9]", d["answer"]) for d in details)
    for name in ("strict-match", "flexible-extract"):
        assert result[f"exact_match,{name}"] == pytest.approx(mine[f"exact_match,{name}"])
        theirs = {s["doc_id"]: s for s in samples if s["filter"] == name}
        for i, d in enumerate(details):
            assert theirs[i]["arguments"]["gen_args_0"]["arg_0"] == d["prompt"]
            assert theirs[i]["resps"][0][0] == d["answer"]
            assert theirs[i]["filtered_resps"][0] == d[name][0]


def test_chat(server, tmp_path):
    result, samples = lm_eval(
        tmp_path,
        "local-chat-completions",
        f"http://127.0.0.1:{server.port}/v1/chat/completions",
        ["chat_sums"],
        "--apply_chat_template",
    )["chat_sums"]
    right = 0
    for s in samples:
        body = {
            "messages": [{"role": "user", "content": s["doc"]["question"]}],
            "temperature": 0,
            "max_tokens": 200,
            "seed": 1234,
        }
        said = server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
        assert s["resps"][0][0] == said
        right += (re.findall("-?[0-9]+", said) or [""])[-1] == s["doc"]["answer"]
    assert len(samples) == 12 and right > 6, "the small model can add"
    assert result["exact_match,last-number"] == pytest.approx(right / 12)
    stderr = math.sqrt(right / 12 * (1 - right / 12) / 11)
    assert result["exact_match_stderr,last-number"] == pytest.approx(stderr, abs=1e-9)
