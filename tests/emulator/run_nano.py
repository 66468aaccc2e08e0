"""nano through the whole program on the emulated GPU (LD_LIBRARY_PATH names its driver): the text is the CPU's. Prints
one summary line."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.dom.minidom
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
from serve_client import Server

MOONLET = os.environ.get("MOONLET", "build/moonlet")
TWO_LAYERS = (
    "--override",
    "num_hidden_layers=2",
)  # where what is said does not matter: one dense layer, one with experts
failed = total = 0
begin = time.time()


def run(*args, stdin=None):
    return subprocess.run([MOONLET, *args], input=stdin, capture_output=True, text=True, timeout=600)


def expect(what, ok, shown):
    global failed, total, begin
    failed += not ok
    total += 1
    print(f"{'ok' if ok else 'FAIL'}: {what}, {time.time() - begin:.1f} s" + ("" if ok else f"\n{shown}"))
    begin = time.time()


text = [run("run", "--device", d, "-p", "What is 2 + 3?", "-n", "12", "--temp", "0") for d in ("cpu", "cuda")]
expect(
    "nano says the same as on the CPU",
    text[0].returncode == text[1].returncode == 0
    and text[0].stdout == text[1].stdout
    and text[0].stdout + text[0].stderr
    and "emulated GPU" in text[1].stderr,
    [t.stdout + t.stderr for t in text],
)
two = dict(os.environ, EMU_GPUS="2")
asked = ("-c", "256", "--instant", "-n", "8", "--temp", "0", "-p", "What is 2 + 3?")
for ranks in (("--tp", "2"), ("--pp", "2", "--speculative-num-steps", "3")):
    split = ("run", "--device", "cuda", *ranks, "--chunked-prefill-size", "64", *asked)
    pair = subprocess.run([MOONLET, *split], capture_output=True, text=True, timeout=600, env=two)
    expect(
        f"two ranks ({ranks[0]}) with drafts say it, too",
        pair.returncode == 0
        and pair.stdout == run("run", *asked).stdout != ""
        and "a draft of 3 tokens" in pair.stderr,
        pair.stdout + pair.stderr,
    )
apples = (
    "-c",
    "256",
    "--instant",
    "-n",
    "24",
    "--temp",
    "0",
    "-p",
    "Anna has 46 apples and gives 18 to Tom. How many?",
)
tree = ("--speculative-eagle-topk", "3", "--speculative-num-steps", "4")
trees = [
    run("run", "--device", "cuda", "--deterministic", *more, *apples)
    for more in (
        ("--speculative-algorithm", "NONE"),
        tree,
        (*tree, "--speculative-draft-model-path", "models/nano-eagle3-mla"),
    )
]
expect(
    "trees of drafts change no answer",
    len({t.stdout for t in trees}) == 1 and "4 tokens deep, trees of 7" in trees[1].stderr,
    [t.stdout + t.stderr for t in trees],
)
flags = ("-p", "Tell me about the sea.", "-n", "8", "--temp", "1", "--seed", "7")
same = [run("run", "--device", "cuda", *more, *flags) for more in ((), ("--disable-cuda-graph",))]
expect(
    "recorded steps and launches one by one say the same",
    same[0].returncode == same[1].returncode == 0 and same[0].stdout == same[1].stdout,
    [t.stdout + t.stderr for t in same],
)
capital = ("-p", "What is the capital of France?", "-n", "20", "--temp", "0")
plain = [run("run", "--device", "cuda", *more, *capital) for more in ((), ("--disable-fused",))]
expect(
    "primitive operations alone say the same",
    plain[0].stdout == plain[1].stdout and "Paris" in plain[0].stdout,
    [p.stdout + p.stderr for p in plain],
)
bad = run("run", "--disable-fused", "-p", "x")
expect("--disable-fused is refused on the CPU", bad.returncode == 1 and "--disable-fused" in bad.stderr, bad.stderr)
sums = run("bench", "allreduce", "--gpus", "0,0", "--dim", "64", "--rows", "1,3")
expect("two ranks of one GPU sum", sums.returncode == 0 and "several have a part of a GPU" in sums.stdout, sums.stderr)
bad = run("bench", "allreduce", "--gpus", "0")
expect("one rank is none", bad.returncode == 1 and "--gpus: two ranks or more" in bad.stderr, bad.stderr)
ids = json.dumps({"ids": list(range(300, 370))}) + "\n"  # more than a page, in one prefill
scores = [run("eval", "logprobs", "--device", d, "--data", "/dev/stdin", stdin=ids) for d in ("ref", "cuda")]
values = [json.loads(s.stdout.splitlines()[-1])["logprobs"][1:] if s.returncode == 0 else [] for s in scores]
far = [abs(a - b) for a, b in zip(*values)]
expect(
    "log-probabilities are ref's to bf16", len(far) == 69 and sorted(far)[34] < 0.05, [s.stderr for s in scores] + far
)
bad = run("run", "--device", "cuda", "--cpu-mask", "avx2", "-p", "x")
expect("--cpu-mask is refused", bad.returncode == 1 and "--cpu-mask" in bad.stderr, bad.stderr)
fp32 = run("run", "--device", "cuda", "-m", "build/golden/plain-fp32", "-p", "x")
expect("an FP32 checkpoint is refused", fp32.returncode == 1 and "float32" in fp32.stderr, fp32.stderr)
dummy = run(
    "run",
    "--device",
    "cuda",
    "--load-format",
    "dummy",
    "--override",
    "num_hidden_layers=2",
    "-p",
    "hi",
    "-n",
    "2",
    "--temp",
    "1",
)
expect(
    "dummy weights run and say what they are", dummy.returncode == 0 and "DUMMY WEIGHTS" in dummy.stderr, dummy.stderr
)
sliced = run(
    "run",
    "--device",
    "cuda",
    "--load-format",
    "dummy",
    "--tp-slice",
    "2",
    "--override",
    "num_hidden_layers=2",
    "-p",
    "hi",
    "-n",
    "4",
    "--temp",
    "1",
)
expect(
    "a slice of dummy weights runs and says so",
    sliced.returncode == 0 and "slice 1 of 2, dummy" in sliced.stderr,
    sliced.stderr,
)
odd = run("run", "--device", "cuda", "--load-format", "dummy", "--tp-slice", "7", "-p", "hi")
expect("a slice that does not divide is refused", odd.returncode == 1 and "--tp-slice 7: " in odd.stderr, odd.stderr)
real = run("run", "--device", "cuda", "--tp-slice", "2", "-p", "hi")
expect(
    "a slice of real weights is refused",
    real.returncode == 1 and "needs --load-format dummy" in real.stderr,
    real.stderr,
)
large = run("run", "--device", "cuda", "--load-format", "dummy", "-m", "tests/data/kimi-k2.5", "-p", "x")
expect(
    "Kimi-K2.5 is refused before anything is allocated",
    large.returncode == 1 and "594.5 GB of weights do not fit in the 8.6 GB" in large.stderr,
    large.stderr,
)
bench = run("bench", "moe", "--device", "cuda", "--shape", "4,256,64,8,2", "--runs", "1", "--json", "/dev/stdout")
row = json.loads(bench.stdout.splitlines()[-1]) if bench.returncode == 0 else {}
expect(
    "bench moe agrees with ref",
    row.get("device") == "emulated GPU" and 0 < row.get("error", 1) < 4e-3,
    bench.stdout + bench.stderr,
)
# Pages that the pool has no room for leave the GPU's memory and come back.
pool = ("--max-total-tokens", "512", "--context-length", "256", "--max-running-requests", "2", "--hicache-size", "0.01")
server, turns = Server("--device", "cuda", *pool, *TWO_LAYERS, "--deterministic", "--skip-server-warmup"), []
for first in (300, 300, 500, 700, 300):
    asked = {"prompt": list(range(first, first + 200)), "max_tokens": 2, "temperature": 0, "logprobs": 1}
    a = server.post("/v1/completions", asked)
    turns.append((a["choices"][0]["logprobs"], a["usage"]["prompt_tokens_details"]["cached_tokens"]))
loaded = server.metric("moonlet:host_cache_tokens_loaded_total")
expect(
    "pages come back from the host's memory",
    server.stop() == 0
    and turns[0][0] == turns[1][0] == turns[4][0]
    and [cached for _, cached in turns] == [0, 192, 0, 0, 192]
    and loaded >= 128,
    (turns, loaded),
)
# With a bias a token is drawn on the host from the logits, without one on the GPU, alone or beside one that is not;
# log-probabilities likewise.
server, answers = Server("--device", "cuda", *TWO_LAYERS, "--max-running-requests", "2", "--skip-server-warmup"), []
ask = {
    "model": "nano",
    "prompt": list(range(300, 306)),
    "max_tokens": 3,
    "seed": 3,
    "return_token_ids": True,
    "ignore_eos": True,
}
draws = (
    {"temperature": 0},
    {"temperature": 1},
    {"temperature": 1.5, "top_p": 0.8},
    {"temperature": 2, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
)
for draw in draws:
    there, here = (
        [c["token_ids"] for c in server.post("/v1/completions", {**ask, **draw, **more})["choices"]]
        for more in ({}, {"logit_bias": {"1": 0}})
    )
    answers.append((there, here))
mixed = [
    server.post("/v1/completions", {**ask, "temperature": 1, "n": 2, **more}) for more in ({}, {"logit_bias": {"1": 0}})
]
answers.append(tuple([c["token_ids"] for c in m["choices"]] for m in mixed))
told = [
    server.post("/v1/completions", {**ask, "temperature": 1, "logprobs": 3, "echo": True, **more})["choices"][0][
        "logprobs"
    ]
    for more in ({}, {"logit_bias": {"1": 0}})
]
server.stop()
far = [abs(a - b) for a, b in zip(*(t["token_logprobs"][1:] for t in told))]
expect(
    "the GPU's log-probabilities are the host's",
    len(far) == 8
    and max(far) < 1e-5
    and told[0]["top_logprobs"][1:] != []
    and [list(t or {}) for t in told[0]["top_logprobs"]] == [list(t or {}) for t in told[1]["top_logprobs"]],
    told,
)
expect("the GPU draws the tokens that the host draws", all(a == b and len(a[0]) == 3 for a, b in answers), answers)
wrong = run("run", "--disable-cuda-graph", "-p", "x")
expect(
    "--disable-cuda-graph without a GPU is refused",
    wrong.returncode == 1 and "--disable-cuda-graph is for --device cuda" in wrong.stderr,
    wrong.stderr,
)
steps = ("profile", "--device", "cuda", "--batch", "1", "--prompt", "8", "--context", "10", "--steps", "1", *TWO_LAYERS)
cupti = str(Path("build/tests/emulator/libfake_cupti.so").resolve())
picture = Path(tempfile.mkdtemp()) / "timeline.svg"
os.environ["MOONLET_CUPTI"] = cupti
times = run(*steps, "--timeline", str(picture), "--json", "/dev/stderr")
rows = [json.loads(line) for line in times.stderr.splitlines() if line.startswith('{"profile"')]
expect(
    "profile times a prompt and a decode step and lists the experts",
    times.returncode == 0
    and [r["profile"] for r in rows] == ["prompt", "decode", "experts"]
    and rows[2]["min"] == rows[2]["max"] == 8
    and "experts touched in a layer: 8.0 of 64" in times.stdout
    and "steps that only decode: 3 steps of 1.0 tokens" in times.stdout
    and times.stdout.count("  experts 64 x 64 x 256") == 1
    and times.stdout.count("  feed-forward, experts 64 x 64 x 256") == 1,
    times.stdout + times.stderr,
)
launches = re.findall(r"in (\d+) launches", times.stdout)
seen = re.findall(r"on the GPU's clock: (\d+) launches, ([0-9.]+) us", times.stdout)
drawn = xml.dom.minidom.parse(str(picture)).getElementsByTagName("title") if times.returncode == 0 else []
told = [t.firstChild.data.split("\n") for t in drawn]
expect(
    "its timeline has the launches of its table, each with its operation",
    [n for n, us in seen] == launches != []
    and all(abs(float(us) - 1.5 * int(n) - 0.5) < 0.11 for n, us in seen)  # fake_cupti.cc: 2 us each, 0.5 before
    and "other kernels" not in times.stdout
    and ": feed-forward, experts 64 x 64 x 256" in times.stdout
    and sum(len(t) == 3 for t in told) > sum(map(int, launches))  # the step, and a layer again
    and ["feed-forward, experts 64 x 64 x 256", "k_ffn_fused_1"] in [t[:2] for t in told],
    times.stdout + times.stderr,
)
blocks = re.findall(r"by what blocks write down: (\d+) launches", times.stdout)
behind = re.findall(r"    (begin|end) +(-?[0-9.]+) \( *(-?[0-9.]+) \.\. *(-?[0-9.]+)\)", times.stdout)
expect(
    "and the blocks of the recorded step, all but its draw",
    blocks == [str(int(launches[1]) - 3)]
    and len(behind) > 8
    and all(float(first) <= float(mean) <= float(last) for _, mean, first, last in behind)
    and all(float(first) >= 0 for name, _, first, _ in behind if name == "begin")  # the emulator overlaps nothing
    and times.stdout.count(": feed-forward, experts 64 x 64 x 256") == 2  # of the launches, of the blocks
    and "The same layer by multiprocessor" in picture.read_text(),
    times.stdout,
)
pair = subprocess.run(
    [MOONLET, *steps, "--no-table", "--tp", "2", "--timeline", str(picture)],
    capture_output=True,
    text=True,
    timeout=600,
    env=two | {"MOONLET_CUPTI": cupti},
)
expect(
    "of two ranks it has one's",
    pair.returncode == 0
    and pair.stdout.count("on the GPU's clock") == 2
    and "other kernels" not in pair.stdout
    and "k_all_reduce" in pair.stdout,
    pair.stdout + pair.stderr,
)
faults = [
    subprocess.run([MOONLET, *steps, "--timeline", to], capture_output=True, text=True, env=dict(os.environ, **how))
    for to, how in (
        (str(picture), {"FAKE_CUPTI": "old"}),
        (str(picture), {"FAKE_CUPTI": "refuses"}),
        (str(picture), {"FAKE_CUPTI": "drops"}),
        (str(picture), {"MOONLET_CUPTI": "/nowhere.so"}),
        ("/nowhere/t.svg", {}),
        ("/dev/full", {}),
    )
]
wanted = ("18 is needed", "INSUFFICIENT_PRIVILEGES", "lost launches", "/nowhere.so", "/nowhere/t.svg", "No space left")
expect(
    "what a timeline lacks is named",
    all(f.returncode == 1 and why in f.stderr for f, why in zip(faults, wanted)),
    [f.stderr for f in faults],
)
times = run(
    "profile",
    "--device",
    "cuda",
    "--moe-format",
    "w4a8",
    "--batch",
    "1",
    "--prompt",
    "200",
    "--context",
    "10",
    "--steps",
    "1",
    *TWO_LAYERS,
)
expect(
    "profile of experts in W4A8 says so",
    times.returncode == 0
    and "  W4A8 experts 64 x 64 x 256" in times.stdout
    and "  feed-forward, W4A8 (bf16) experts 64 x 64 x 256" in times.stdout,
    times.stdout + times.stderr,
)
forecast = run(
    "profile",
    "--device",
    "cuda",
    "--forecast",
    "tp2",
    "--workload",
    "8,2,2",
    "--steps",
    "1",
    "--links",
    "tuned/links/nvidia-h200.csv",
    *TWO_LAYERS,
    "--json",
    "/dev/stderr",
)
rows = [json.loads(line) for line in forecast.stderr.splitlines() if line.startswith('{"profile"')]
expect(
    "a forecast of two GPUs from a slice of one",
    forecast.returncode == 0
    and "slice 1 of 2, exchanging with itself, dummy" in forecast.stdout
    and "FORECAST of 2 GPUs, not a run of them" in forecast.stdout
    and [r.get("kv_ranks") for r in rows] == [1, 2, 1, None]
    and [r.get("dp_attention") for r in rows] == [False, False, True, None]
    and rows[3]["whole_ms"][1] > 0 < rows[3]["divided_ms"][1]
    and all(r[k] >= r[k.replace("ms", "own_ms")] > 0 for r in rows[:3] for k in ("prompt_ms", "step_ms"))
    and rows[0]["ranks"] == 2,
    forecast.stdout + forecast.stderr,
)
staged = run(
    "profile",
    "--device",
    "cuda",
    "--forecast",
    "tp2pp2",
    "--network",
    "100",
    "--dcp",
    "1",
    "--workload",
    "8,2,4",
    "--steps",
    "1",
    "--links",
    "tuned/links/nvidia-h200.csv",
    *TWO_LAYERS,
    "--json",
    "/dev/stderr",
)
rows = [json.loads(line) for line in staged.stderr.splitlines() if line.startswith('{"profile"')]
expect(
    "a forecast of two stages of two GPUs",
    staged.returncode == 0
    and "FORECAST of 4 GPUs, not a run of them" in staged.stdout
    and "Rows of 100 Gb/s a GPU and 20 us, both of them assumed" in staged.stdout
    and [(r["ranks"], r["stages"], r["kv_ranks"]) for r in rows] == [(2, 2, 1)]
    and rows[0]["step_ms"] >= rows[0]["step_own_ms"] + 2 * 0.0199,
    staged.stdout + staged.stderr,
)
several = run("eval", "nano", "--device", "cuda", "--pp", "2", "--parallel", "2", *TWO_LAYERS)
expect(
    "several engines do not share GPUs whose ranks wait for each other",
    several.returncode == 1 and "--parallel 2 with --tp or --pp on GPUs" in several.stderr,
    several.stdout + several.stderr,
)
print(f"{total - failed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
