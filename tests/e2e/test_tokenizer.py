"""`moonlet text encode|decode` against the official encoder's vectors (tests/golden/make_tokenizer_vectors.py) and
with lines and files that cannot be handled."""
import base64
import gzip
import hashlib
import json
import os
import struct
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
MOONLET = os.environ.get("MOONLET", str(HERE.parent / "build/moonlet"))
KIMI = HERE / "data/kimi-k2.5"


def text(verb, lines, folder=KIMI, status=0):
    given = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
    done = subprocess.run(
        [MOONLET, "text", verb, "-m", str(folder)], input=given.encode(), capture_output=True, timeout=120
    )
    assert done.returncode == status, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def vectors():
    return [json.loads(line) for line in (HERE / "golden/tokenizer/vectors.jsonl").read_text().split("\n")[:-1]]


def question(v):
    if "parts" in v:
        return {"text": "".join(unit * times for unit, times in v["parts"]), "specials": v["specials"]}
    return {k: v[k] for k in ("text", "text_b64", "specials") if k in v}


def test_vectors_of_the_official_encoder():
    known = vectors()
    answers = text("encode", [question(v) for v in known])
    assert len(answers) == len(known) > 800
    for v, a in zip(known, answers):
        ids = a["ids"]
        if "ids" in v:
            assert ids == v["ids"], question(v)
        else:
            digest = hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()
            assert (len(ids), digest) == (v["n"], v["sha256"]), v.get("parts", v)


def test_decoding_gives_the_text_back():
    known = [v for v in vectors() if "ids" in v]
    for v, a in zip(known, text("decode", [{"ids": v["ids"]} for v in known])):
        given = base64.b64decode(v["text_b64"]).decode("utf-8", "replace") if "text_b64" in v else question(v)["text"]
        assert base64.b64decode(a["text_b64"]).decode() == given
        assert len(a["deltas"]) == len(v["ids"]) and "".join(a["deltas"]) == given


def test_published_ids():
    named = {
        "<|im_user|>": 163587,
        "<|im_end|>": 163586,
        "<|im_middle|>": 163601,
        "<think>": 163606,
        "[PAD]": 163839,
        "<|reserved_token_163589|>": 163589,
        "<|reserved_token_163837|>": 163837,
    }
    assert text("encode", [{"text": t, "specials": True} for t in named]) == [{"ids": [i]} for i in named.values()]
    assert text("encode", [{"text": "user"}, {"text": "hello"}, {"text": "assistant"}, {"text": "1234567890"}]) == [
        {"ids": [2482]},
        {"ids": [22931]},
        {"ids": [69702]},
        {"ids": [6694, 12972, 16242, 15]},
    ]


def test_skip_special_keeps_tool_think_and_reserved_tokens():
    ids = [163584, 2482, 163586, 163595, 163606, 163589, 163603, 163839]
    assert text("decode", [{"ids": ids, "skip_special": True}])[0]["deltas"] == [
        "",
        "user",
        "",
        "<|tool_calls_section_begin|>",
        "<think>",
        "<|reserved_token_163589|>",
        "",
        "",
    ]


def test_deltas_never_hold_half_a_character():
    by_byte = [b[0] for b in struct.iter_unpack("B", "é中🙂".encode())]
    rank = {
        base64.b64decode(t)[0]: int(r)
        for t, r in (x.split() for x in gzip.decompress((KIMI / "tiktoken.model.gz").read_bytes()).splitlines()[:400])
        if len(base64.b64decode(t)) == 1
    }
    ids = [rank[b] for b in by_byte]
    cut = ids[:-1]
    a, b, c = text(
        "decode", [{"ids": ids}, {"ids": cut}, {"ids": [rank[0xE4], rank[0x41], rank[0xFF], rank[0xF0], 163586]}]
    )
    assert a["deltas"] == ["", "é", "", "", "中", "", "", "", "🙂"]
    assert b["deltas"] == ["", "é", "", "", "中", "", "", "\ufffd"]
    assert base64.b64decode(b["text_b64"]) == "é中🙂".encode()[:-1]
    assert c["deltas"] == ["", "\ufffdA", "\ufffd", "", "\ufffd<|im_end|>"]


@pytest.mark.parametrize(
    "verb,line",
    [
        ("encode", "{"),
        ("encode", "[1]"),
        ("encode", "{}"),
        ("encode", '{"text": 1}'),
        ("encode", '{"text": "a", "text_b64": "YQ=="}'),
        ("encode", '{"text_b64": "YQ="}'),
        ("encode", '{"text_b64": "Y Q="}'),
        ("encode", '{"text_b64": "YR=="}'),
        ("encode", '{"text": "a", "specials": 1}'),
        ("encode", '{"text": "a", "special": true}'),
        ("encode", "[" * 100000),
        ("encode", '{"text": "a", "text": "b"}'),
        ("decode", "{}"),
        ("decode", '{"ids": "1"}'),
        ("decode", '{"ids": [1, -1]}'),
        ("decode", '{"ids": [163840]}'),
        ("decode", '{"ids": [1.5]}'),
        ("decode", '{"ids": [4294967296]}'),
        ("decode", '{"ids": [true]}'),
        ("decode", '{"ids": [99999999999999999999999]}'),
        ("decode", '{"ids": [], "skip_special": 0}'),
    ],
)
def test_a_bad_line_answers_an_error_and_the_others_go_on(verb, line):
    good = {"text": "user"} if verb == "encode" else {"ids": [2482]}
    first, bad, last = text(verb, [good, line, good], status=1)
    assert list(bad) == ["error"] and bad["error"]
    assert first == last and "error" not in first


def test_surrogates_and_nul_in_json():
    pair, lone, nul = text("encode", ['{"text": "\\ud83d\\ude42"}', '{"text": "a\\ud83d"}', '{"text": "a\\u0000b"}'])
    assert [pair, lone, nul] == text("encode", [{"text": "🙂"}, {"text": "a\ufffd"}, {"text_b64": "YQBi"}])


def test_answers_come_before_the_next_question():
    p = subprocess.Popen([MOONLET, "text", "encode", "-m", str(KIMI)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(3):
        p.stdin.write(b'{"text": "user"}\n')
        p.stdin.flush()
        assert json.loads(p.stdout.readline()) == {"ids": [2482]}
    p.stdin.close()
    assert p.wait(10) == 0
    p.stdout.close()


@pytest.mark.parametrize("args", [[], ["enc"], ["encode", "--bogus"], ["encode", "word"], ["encode", "-m"]])
def test_wrong_usage(args):
    assert subprocess.run([MOONLET, "text", *args], input=b"", capture_output=True, timeout=20).returncode == 2


def test_a_missing_folder_is_one_line(tmp_path):
    done = subprocess.run([MOONLET, "text", "encode", "-m", str(tmp_path)], input=b"", capture_output=True, timeout=20)
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"tiktoken.model" in done.stderr
