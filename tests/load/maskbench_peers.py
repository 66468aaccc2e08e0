#!/usr/bin/env python3
"""MaskBench's schemas and texts through llguidance or xgrammar, token by token, with Kimi's vocabulary.

    pip install llguidance tiktoken numpy; pip install xgrammar    (the latter wants torch)
    tests/load/maskbench_peers.py llguidance|xgrammar jsonschemabench/maskbench/data KIMI_TOKENIZER_DIR OUT.jsonl

One line a schema in OUT, to which a run that was cut off goes on; --sum prints what OUT has. As in MaskBench itself a
text passes if each of its tokens is in the mask and the end may follow; a mask's time includes taking the token.
xgrammar runs with strict_mode off, which MaskBench calls compliant."""
import base64
import json
import sys
import time
from pathlib import Path

import numpy

SPLIT = "|".join(
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


def vocabulary(folder):
    import tiktoken

    lines = (Path(folder) / "tiktoken.model").read_text().split("\n")
    ranks = {base64.b64decode(a): int(b) for a, b in (x.split() for x in lines if x)}
    pieces = [b for b, _ in sorted(ranks.items(), key=lambda x: x[1])]
    return tiktoken.Encoding("kimi", pat_str=SPLIT, mergeable_ranks=ranks, special_tokens={"<eos>": len(ranks)}), pieces


class Llguidance:
    def __init__(self, encoding, pieces):
        import llguidance
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        class Tokens:
            eos_token_id = len(pieces)
            bos_token_id = None
            tokens = pieces + [b"\xff[eos]"]
            special_token_ids = [len(pieces)]

            def __call__(self, text):
                text = text if isinstance(text, str) else text.decode("utf8", "replace")
                return encoding.encode(text, disallowed_special=())

        self.matcher, self.fill = llguidance.LLMatcher, fill_next_token_bitmask
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens()))
        self.mask = allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, schema):
        self.fresh = self.matcher(self.tokenizer, self.matcher.grammar_from_json_schema(json.dumps(schema)))
        if self.fresh.is_error():
            raise ValueError(self.fresh.get_error())

    def begin(self):
        self.at = self.fresh.deep_copy()

    def take(self, token):
        self.fill(self.at, self.mask, 0)
        return bool(self.mask[0, token // 32] >> (token % 32) & 1) and self.at.consume_token(token)

    def ends(self):
        return self.at.is_accepting()


class Xgrammar:
    def __init__(self, encoding, pieces):
        import xgrammar

        self.matcher, self.end = xgrammar.GrammarMatcher, len(pieces)
        tokens = xgrammar.TokenizerInfo(
            pieces + [b"<eos>"],
            vocab_type=xgrammar.VocabType.RAW,
            vocab_size=len(pieces) + 1,
            stop_token_ids=[self.end],
        )
        self.compiler = xgrammar.GrammarCompiler(tokens, max_threads=1, cache_enabled=False)
        self.mask = numpy.zeros((1, (len(pieces) + 32) // 32), dtype=numpy.int32)

    def compile(self, schema):
        self.grammar = self.compiler.compile_json_schema(json.dumps(schema), strict_mode=False)

    def begin(self):
        self.at = self.matcher(self.grammar)

    def take(self, token):
        self.at.fill_next_token_bitmask(self.mask)
        return self.at.accept_token(token)

    def ends(self):
        return self.at.accept_token(self.end)


def judge(engine, encoding, data):
    out, masks, wrong = {}, [], ""
    began = time.perf_counter()
    try:
        engine.compile(data["schema"])
    except Exception as e:  # whatever the engine calls a refusal
        return {"error": str(e)[:100]}
    out["compile_us"] = (time.perf_counter() - began) * 1e6
    for test in data["tests"] or []:
        engine.begin()
        ok = True
        for token in encoding.encode(json.dumps(test["data"], ensure_ascii=False), disallowed_special=()):
            began = time.perf_counter()
            ok = engine.take(token)
            masks.append((time.perf_counter() - began) * 1e6)
            if not ok:
                break
        if (ok and engine.ends()) != test["valid"]:
            wrong += "v" if test["valid"] else "i"
    return out | {"masks": len(masks), "mask_us": sum(masks), "wrong": wrong, "texts": len(data["tests"] or [])}


def summary(rows):
    refused, wrong = [r for r in rows if "error" in r], [r for r in rows if r.get("wrong")]
    times = sorted(r["compile_us"] for r in rows if "compile_us" in r)
    each = sum(r.get("mask_us", 0) for r in rows) / max(1, sum(r.get("masks", 0) for r in rows))
    print(f"{len(rows)} schemas: {len(rows) - len(refused) - len(wrong)} pass, {len(refused)} refused")
    print(f"  invalid texts accepted {sum(r['wrong'].count('i') for r in wrong)}, ", end="")
    print(f"valid rejected {sum(r['wrong'].count('v') for r in wrong)}")
    print(f"  compile ms: mean {sum(times) / len(times) / 1e3:.2f}, P50 {times[len(times) // 2] / 1e3:.2f}, ", end="")
    print(f"P99 {times[len(times) * 99 // 100] / 1e3:.1f}, worst {times[-1] / 1e3:.0f}; a mask {each:.1f} us")


def main():
    name, data, folder, out = sys.argv[1:5]
    out = Path(out)
    done = [json.loads(x) for x in out.read_text().split("\n") if x] if out.exists() else []
    if "--sum" in sys.argv:
        return summary(done)
    encoding, pieces = vocabulary(folder)
    engine = {"llguidance": Llguidance, "xgrammar": Xgrammar}[name](encoding, pieces)
    with out.open("a") as f:
        for path in sorted(Path(data).glob("*.json"))[len(done) :]:
            row = judge(engine, encoding, json.loads(path.read_text()))
            f.write(json.dumps({"file": path.name} | row) + "\n")
            f.flush()


if __name__ == "__main__":
    main()
