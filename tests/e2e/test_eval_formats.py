"""`moonlet eval formats` from outside: its numbers against the same computed here from `eval logprobs --top` of the
whole vocabulary, and what it refuses. Parts by themselves: tests/unit/cmd/test_compare.c."""
import json
import math
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
NANO, GOLDEN = ROOT / "models/nano", ROOT / "build/golden"
MASTER, PROMPTS = GOLDEN / "plain-bf16", ROOT / "tests/golden/plain-bf16/prompts.jsonl"
T_975 = {1: 12.706, 2: 4.303, 3: 3.182}  # Student's t by degrees of freedom


def moonlet(*args, **more):
    return subprocess.run([MOONLET, *map(str, args)], capture_output=True, text=True, timeout=300, **more)


def formats(master, *args):
    return moonlet("eval", "formats", "-m", master, *args)


def refused(*args, named, code=1):
    done = formats(*args)
    assert done.returncode == code and not done.stdout, (done.returncode, done.stdout)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("moonlet eval formats: "), done.stderr
    for word in named:
        assert word in last, f"{word!r} is not in {last}"


@pytest.fixture(scope="module")
def fp8(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats") / "fp8"
    done = moonlet("quantize", "-q", "-m", MASTER, "-o", folder, "--format", "fp8")
    assert done.returncode == 0, done.stderr
    return folder


def whole_rows(model, device):
    """Of each document the next tokens and, for each, {id: log-probability} of the whole vocabulary."""
    args = ["eval", "logprobs", "-m", model, "--data", PROMPTS, "--top", 1000, "--device", device]
    done = moonlet(*args)
    assert done.returncode == 0, done.stderr
    for line in map(json.loads, done.stdout.splitlines()):
        if len(line["ids"]) > 1:
            yield line["ids"][1:], [dict(top) for top in line["top"][1:-1]]


def cluster_mean(values):
    """Mean over all tokens, and half of its 95 % interval with documents as clusters."""
    n, k = sum(map(len, values)), len(values)
    mean = sum(map(sum, values)) / n
    squares = sum((sum(v) - mean * len(v)) ** 2 for v in values)
    return mean, T_975[k - 1] * math.sqrt(squares * k / (k - 1)) / n


@pytest.mark.parametrize("device", ["ref", "cpu"])
def test_numbers_are_those_of_whole_distributions(fp8, device, tmp_path):
    out, table = tmp_path / "out.json", tmp_path / "table.md"
    done = formats(MASTER, fp8, "--text", PROMPTS, "--device", device, "--json", out, "--markdown", table)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert result["documents"] == 4 and result["tokens"] == 6 + 63 + 299 + 600 and result["vocabulary"] == 157
    master, other = result["checkpoints"]
    kl, same, change, logprobs = [], [], [], []
    for (ids, p_rows), (_, q_rows) in zip(whole_rows(MASTER, device), whole_rows(fp8, device)):
        pairs = list(zip(ids, p_rows, q_rows))
        assert all(len(p) == len(q) == 157 for _, p, q in pairs)
        kl.append([sum(math.exp(x) * (x - q[i]) for i, x in p.items()) for _, p, q in pairs])
        same.append([max(p, key=p.get) == max(q, key=q.get) for _, p, q in pairs])
        change.append([q[t] - p[t] for t, p, q in pairs])
        logprobs.append([p[t] for t, p, _ in pairs])
    want = {"kl": kl, "top1_agreement": same, "logprob_change": change}
    want["abs_logprob_change"] = [[abs(x) for x in d] for d in change]
    for key, values in want.items():
        mean, half = cluster_mean(values)
        assert math.isclose(other[key]["mean"], mean, rel_tol=1e-6, abs_tol=1e-9), key
        assert math.isclose(other[key]["half_95"], half, rel_tol=1e-5), key
    assert other["kl"]["mean"] > 1e-5 and other["top1_agreement"]["mean"] < 1  # there was something to compare
    mean = cluster_mean(logprobs)[0]
    assert math.isclose(master["perplexity"], math.exp(-mean), rel_tol=1e-6)
    assert math.isclose(other["perplexity"], math.exp(-mean - cluster_mean(change)[0]), rel_tol=1e-6)
    assert math.isclose(
        other["perplexity_change"]["mean"], other["perplexity"] / master["perplexity"] - 1, rel_tol=1e-6
    )
    assert done.stdout == table.read_text() and done.stdout.splitlines()[3].startswith(
        "| fp8 | fp8_block experts, bf16 + "
    )


def test_the_master_beside_itself_and_a_folder_of_checkpoints(fp8, tmp_path):
    (tmp_path / "b").symlink_to(fp8)
    (tmp_path / "a").symlink_to(MASTER)  # not compared with itself when it is met among others
    (tmp_path / "notes").mkdir()
    out = tmp_path / "out.json"
    done = formats(MASTER, tmp_path, MASTER, "--text", PROMPTS, "--json", out)
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["checkpoints"]
    assert [r["name"] for r in rows] == ["plain-bf16", "b", "plain-bf16"]
    assert rows[2]["kl"] == rows[2]["abs_logprob_change"] == {"mean": 0, "half_95": 0}
    assert rows[2]["top1_agreement"] == {"mean": 1, "half_95": 0}


def test_one_document_has_no_interval(tmp_path):
    text, out = tmp_path / "one.jsonl", tmp_path / "out.json"
    text.write_text('{"ids": [1, 2, 3]}')
    done = formats(MASTER, MASTER, "--text", text, "--json", out)
    assert done.returncode == 0 and "no intervals" in done.stdout, done.stderr
    assert json.loads(out.read_text())["checkpoints"][1]["kl"] == {"mean": 0, "half_95": None}


def test_the_text_that_comes_along_and_a_plain_one(tmp_path):
    out, text = tmp_path / "out.json", tmp_path / "text"
    done = formats(NANO, NANO, "--tokens", 700, "--json", out)
    assert done.returncode == 0 and "word problems" in done.stderr, done.stderr
    assert json.loads(out.read_text())["checkpoints"][0]["perplexity"] < 1.1  # it was taught such answers
    text.write_text("What is 17 + 25? It is 42. " * 9)
    done = formats(NANO, NANO, "--text", text, "--window", 16, "--tokens", 60, "--json", out)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert (result["documents"], result["tokens"]) == (4, 56)


# ---- what is refused ----


def test_wrong_arguments(tmp_path):
    refused(MASTER, named=["which checkpoints?"], code=2)
    refused(MASTER, tmp_path / "none", "--text", PROMPTS, named=["none: No such file"])
    refused(tmp_path / "none", MASTER, named=["none: No such file"])
    refused(MASTER, tmp_path, "--text", PROMPTS, named=["neither a checkpoint nor a folder"])
    refused(MASTER, MASTER, "--text", PROMPTS, "--scratch", tmp_path / "none", named=["none", "--scratch"])
    refused(MASTER, MASTER, "--text", PROMPTS, "--json", tmp_path / "none/x", named=["none/x"])
    refused(MASTER, GOLDEN / "plain-fp32", "--text", PROMPTS, named=["another vocabulary", "139 ids, not 157"])


@pytest.mark.parametrize("text, named", [("", "empty"), ('{"ids": [1]}', "too short"), ('{"ids": [1, 999]}', "ids[1]")])
def test_wrong_texts(tmp_path, text, named):
    path = tmp_path / "text"
    path.write_text(text)
    refused(MASTER, MASTER, "--text", path, named=[str(path), named])


def test_a_document_beyond_the_context(tmp_path):
    refused(MASTER, MASTER, "--text", PROMPTS, "-c", 512, named=["document 4: 601 tokens", "context"])


def test_other_words_of_the_same_number(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for file in NANO.iterdir():
        if file.is_file():
            (other / file.name).symlink_to(file)
    lines = (NANO / "tiktoken.model").read_text().splitlines()
    words = [line.split()[0] for line in lines]
    words[300], words[301] = words[301], words[300]
    (other / "tiktoken.model").unlink()
    (other / "tiktoken.model").write_text("".join(f"{w} {i}\n" for i, w in enumerate(words)))
    refused(NANO, other, "--tokens", 300, named=["another vocabulary", "the id 300"])


def test_a_logit_that_is_no_number(tmp_path):
    bad = tmp_path / "bad"
    shutil.copytree(MASTER, bad)
    with open(bad / "model.safetensors", "r+b") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        f.seek(8 + n + header["lm_head.weight"]["data_offsets"][0])
        f.write(struct.pack("<H", 0x7FC0))
    refused(MASTER, bad, "--text", PROMPTS, named=[f"{bad}: document 1: NaN or infinity in the logits at position 0"])
    refused(bad, MASTER, "--text", PROMPTS, named=[f"{bad}: document 1: NaN or infinity in the logits at position 0"])


# ---- quantize --evaluate ----


def quantize(folder, *args):
    return moonlet("quantize", "-m", NANO, "-o", folder, "--format", "mxfp4", *args)


def test_quantize_evaluates(tmp_path):
    folder, options = tmp_path / "q", ["--tokens", 500]
    done = quantize(folder, "--evaluate", *options)
    assert done.returncode == 0, done.stderr
    table = formats(NANO, folder, *options)
    assert table.returncode == 0 and "| q | mxfp4 experts, bf16 | 21.7 MB |" in table.stdout, table.stdout
    assert done.stdout.endswith("\n\n" + table.stdout)  # the same comparison
    report = (folder / "quantize-report.md").read_text()
    assert report.endswith("\n\n" + table.stdout) and "| together |" in report
    assert "; perplexity 1.0" in (folder / "quantize-report.svg").read_text()


def test_an_evaluation_that_failed_is_made_again(tmp_path):
    folder, options = tmp_path / "q", ["--tokens", 300]
    done = quantize(folder, "--evaluate", *options, "--scratch", tmp_path / "none")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "is whole, but for its report" in last and "--scratch" in last, done.stderr
    there = sorted(p.name for p in folder.iterdir())
    assert "model.safetensors.index.json" in there and "quantize-job.jsonl" in there
    assert not any("report" in name for name in there)
    (folder / "quantize-report.md").write_text("of a run without --evaluate that was stopped behind it\n")
    done = quantize(folder, "--evaluate", *options)
    assert done.returncode == 0, done.stderr
    assert not (folder / "quantize-job.jsonl").exists()
    assert "| q | mxfp4 experts, bf16 |" in (folder / "quantize-report.md").read_text()


def test_what_is_wrong_is_said_before_anything_is_written(tmp_path):
    done = quantize(tmp_path / "q", "--evaluate", "--text", tmp_path / "none")
    assert done.returncode == 1 and "none: No such file" in done.stderr and not (tmp_path / "q").exists()
    done = quantize(tmp_path / "q", "--tokens", 300)
    assert done.returncode == 2 and "are for --evaluate" in done.stderr
