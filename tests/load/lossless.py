"""Answers with and without drafts, token for token: servers of one model side by side, the same requests to each.

    python3 tests/load/lossless.py [--count 1000] [--device cpu] [--parallel 16] [--serve "--deterministic"]

Half of the requests are greedy, half drawn at temperature 1 with a seed. Without --deterministic a GPU's sums differ in
rounding with the number of rows, so that an exact tie may fall either way: then the two likeliest tokens at the first
difference are printed with their distance.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
WORDS = "apples trains red 7 12 buy sells left more than per hour each twice total what is how many and the a".split()


def prompts(count):
    rng = random.Random(5)
    for i in range(count):
        kind = i % 4
        if kind == 0:
            yield f"What is {rng.randrange(200)} {rng.choice('+-*')} {rng.randrange(100)}?"
        elif kind == 1:
            a, b = rng.randrange(5, 90), rng.randrange(2, 9)
            yield f"Anna has {a} apples and buys {b} bags with {rng.randrange(2, 12)} each. How many has she now?"
        elif kind == 2:
            yield f"Hello! My name is {rng.choice(['Tom', 'Mia', 'Ben', 'Eva'])}. Who are you?"
        else:
            yield " ".join(rng.choice(WORDS) for _ in range(rng.randrange(3, 30)))


class Server:
    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [MOONLET, "serve", "-m", str(ROOT / "models/nano"), "--port", "0", *flags],
            stdout=subprocess.PIPE,
            text=True,
        )
        for line in self.process.stdout:
            if "http://" in line:
                self.url = "http://" + line.split("http://")[1].split()[0].rstrip("/,;")
                break
        else:
            sys.exit("the server did not start")

    def get(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=600).read().decode()

    def answer(self, item):
        i, text = item
        sampling = {"temperature": i % 2, "seed": i, "max_tokens": 200, "logprobs": True, "top_logprobs": 2}
        body = {"messages": [{"role": "user", "content": text}], **sampling}
        choice = json.loads(self.get("/v1/chat/completions", body))["choices"][0]
        return [(t["token"], t["logprob"], t["top_logprobs"]) for t in choice["logprobs"]["content"]]

    def metric(self, name):
        for line in self.get("/metrics").splitlines():
            if line.startswith(name):
                return float(line.split()[-1])


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--count", type=int, default=1000)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--parallel", type=int, default=16)
    ap.add_argument("--serve", default="", help="more flags for both servers")
    ap.add_argument("--drafts", default="", help="flags for the one with drafts")
    a = ap.parse_args()
    common = ["--device", a.device, "--max-running-requests", str(a.parallel), *a.serve.split()]
    asked, got = list(enumerate(prompts(a.count))), []
    for flags in (["--speculative-algorithm", "NONE"], a.drafts.split()):
        s = Server(*common, *flags)
        with ThreadPoolExecutor(a.parallel) as pool:
            got.append(list(pool.map(s.answer, asked)))
        length = s.metric("sglang:spec_accept_length")
        s.process.terminate()
        s.process.wait()
    different = {True: 0, False: 0}
    for (i, text), plain, drafted in zip(asked, *got):
        if [t[0] for t in plain] == [t[0] for t in drafted]:
            continue
        different[i % 2 == 0] += 1
        n = next((k for k, (x, y) in enumerate(zip(plain, drafted)) if x[0] != y[0]), min(len(plain), len(drafted)))
        tops = plain[n][2] if n < len(plain) else []
        gap = tops[0]["logprob"] - tops[1]["logprob"] if len(tops) > 1 else float("nan")
        print(f"{i} {text[:40]!r} token {n}: the two likeliest are {gap:.4f} apart")
    same = all(x[1] == y[1] for p, d in zip(*got) for x, y in zip(p, d))
    tokens = sum(map(len, got[0]))
    print(
        f"{a.count} requests, {tokens} tokens, {length:.2f} tokens a step with drafts: {different[True]} greedy and "
        f"{different[False]} drawn answers differ; log-probabilities {'equal bit for bit' if same else 'differ'}"
    )
    return int(any(different.values()))


if __name__ == "__main__":
    sys.exit(main())
