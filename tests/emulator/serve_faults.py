"""A server on the emulated GPU (LD_LIBRARY_PATH names its driver) meets NaNs, a GPU without room for recordings, one
that fails and one that hangs; commands get Ctrl-C while it hangs. Prints one summary line."""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
from serve_client import MOONLET, NANO, Server  # noqa: E402

WARM = ("--device", "cuda", "--context-length", "256", "--max-running-requests", "4", "--deterministic")
FLAGS = (*WARM, "--skip-server-warmup")
ABOUT = r"rank 0, emulated GPU: the host (launches|waits) .*; what it queued or recorded last: k_\w+"
failed = total = 0


def expect(what, ok, shown):
    global failed, total
    failed += not ok
    total += 1
    print(f"{'ok' if ok else 'FAIL'}: {what}" + ("" if ok else f"\n{shown}"))


def ask(server, out, prompt, n=3):
    try:
        out.append(
            server.request(
                "POST", "/v1/completions", {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True}
            )
        )
    except OSError as gone:
        out.append((0, str(gone), {}))


def ask_all(server, prompts, n):
    """The answers to prompts that are asked at the same time, in their order."""
    outs = [[] for _ in prompts]
    threads = [threading.Thread(target=ask, args=(server, out, p, n)) for out, p in zip(outs, prompts)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return [out[0] for out in outs]


def text(answer):
    return answer[1]["choices"][0]["text"] if answer[0] == 200 else answer


def nan_model(folder, tensor, row):
    """nano with a NaN at the beginning of one row of a bf16 tensor."""
    for f in NANO.iterdir():
        if f.is_file():
            shutil.copy(f, folder)
    for shard in folder.glob("*.safetensors"):
        data = bytearray(shard.read_bytes())
        (n,) = struct.unpack("<Q", data[:8])
        for name, t in json.loads(data[8 : 8 + n]).items():
            if name.endswith(tensor):
                at = 8 + n + t["data_offsets"][0] + row * t["shape"][1] * 2
                data[at : at + 2] = b"\xc0\x7f"
                shard.write_bytes(data)
                return
    raise SystemExit(f"nano has no {tensor}")


class Breaking:
    """A server whose GPU breaks when told to."""

    def __init__(self, *flags):
        self.folder = tempfile.TemporaryDirectory()
        os.environ["EMU_FAULT"] = self.folder.name + "/fault"
        self.server = Server(*FLAGS, *flags)
        del os.environ["EMU_FAULT"]

    def fault(self, what):
        Path(self.folder.name, "fault").write_text(what)

    def end(self):
        """Its exit status, what it said."""
        status = self.server.process.wait(120)
        self.folder.cleanup()
        return status, "".join(self.server.log)


def broken_gpu(what, *flags, stop=False):
    """Answers, exit status and words of a server whose GPU breaks during a request; seconds from SIGTERM, if it is to
    stop then."""
    gpu, answers = Breaking(*flags), []
    ask(gpu.server, answers, [300, 301])
    t = threading.Thread(target=ask, args=(gpu.server, answers, [300, 301], 100))
    t.start()
    while gpu.server.stats()["num_running_reqs"] == 0:
        time.sleep(0.01)
    gpu.fault(what)
    if stop:
        time.sleep(0.5)
        gpu.server.process.terminate()
    began = time.monotonic()
    t.join(120)
    return answers, *gpu.end(), time.monotonic() - began


def interrupted(*args, times=1):
    """The exit status of a command that gets SIGINT while its GPU hangs."""
    with tempfile.TemporaryDirectory() as d:
        path = Path(d) / "fault"
        p = subprocess.Popen(
            [MOONLET, *args],
            env={**os.environ, "EMU_FAULT": str(path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        if times > 1:
            p.stdout.read(1)  # an answer has begun
        path.write_text("hang")
        for _ in range(times):
            time.sleep(2)
            p.send_signal(signal.SIGINT)
        try:
            return p.wait(20)
        except subprocess.TimeoutExpired:
            p.kill()
            return "goes on"


with tempfile.TemporaryDirectory() as d:
    nan_model(Path(d), "embed_tokens.weight", 777)
    server = Server(*FLAGS, model=d)
    bad, good = [], []
    both = [
        threading.Thread(target=ask, args=(server, bad, [300, 777, 301])),
        threading.Thread(target=ask, args=(server, good, [300, 301, 302], 6)),
    ]
    [t.start() for t in both]
    [t.join() for t in both]
    expect(
        "a NaN fails its own request and is named",
        bad[0][0] == 500 and "embedding of token 777 (position 1)" in json.dumps(bad[0][1]),
        bad,
    )
    expect("the other request goes on", good[0][0] == 200 and good[0][1]["usage"]["completion_tokens"] == 6, good)
    check = server.request("GET", "/kv_check")
    expect("no KV page is lost", check[0] == 200, check)
    server.process.terminate()
    expect("and the server ends well", server.process.wait(60) == 0, server.log)

with tempfile.TemporaryDirectory() as d:
    # an expert of a middle layer, which 309 is sent to as a prompt, 301 in the second token of its answer, the others
    # never
    prompts = [[309], [303], [301], [307]]
    # the same device, and the same bits whatever is proposed: nano's answers to such prompts are near ties
    server = Server(*FLAGS)
    healthy = ask_all(server, prompts, 4)
    server.stop()
    expect("a server that was told so starts without a warm-up", "warmed up" not in "".join(server.log), server.log)
    server = Server(*WARM, "--chunked-prefill-size", "80")
    got = ask_all(server, prompts, 4)
    expect("one that has warmed up answers alike", [text(g) for g in got] == [text(h) for h in healthy], (got, healthy))
    expect(
        "and has no page taken", server.get("/kv_check")[0] == 200 and server.stats()["pages_used"] == 0, server.stats()
    )
    server.stop()
    expect("and says how long it took", re.search(r"warmed up in [\d.]+ s, 17 steps", "".join(server.log)), server.log)
    with tempfile.TemporaryDirectory() as fault:
        started = subprocess.Popen(
            [MOONLET, "serve", "-m", NANO, "--port", "0", *WARM, "--watchdog-timeout", "2"],
            env={**os.environ, "EMU_FAULT": fault + "/fault"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = ""
        while "ready in" not in said:
            said += started.stderr.readline()
        Path(fault, "fault").write_text("hang")
        said += started.communicate(timeout=120)[1]
    expect(
        "a GPU that hangs while it warms up ends the server",
        started.returncode == 1 and "has not finished warming up for 2 s (--watchdog-timeout)" in said,
        said,
    )
    expect(
        "and says what its host is about",
        re.search(ABOUT, said),
        said,
    )
    nan_model(Path(d), "layers.3.mlp.experts.5.up_proj.weight_scale", 7)
    server = Server(*WARM, "--chunked-prefill-size", "80", model=d)
    got = ask_all(server, prompts, 4)
    expect(
        "a NaN in a weight fails the requests that meet it, naming the layer",
        all(
            got[i][0] == 500 and f"in the output of layer 3 at position {at}" in json.dumps(got[i][1])
            for i, at in ((0, 0), (2, 1))
        ),
        got,
    )
    expect(
        "the others get what they get without it",
        all(got[i][0] == 200 and text(got[i]) == text(healthy[i]) for i in (1, 3)),
        (got, healthy),
    )
    expect(
        "no KV page is lost", server.get("/kv_check")[0] == 200 and server.stats()["pages_used"] == 0, server.stats()
    )
    expect("and the server ends well", server.stop() == 0, server.log)

gpu = Breaking()
alone = [[], []]
for out in alone:  # a step of one sequence is recorded; later ones of several cannot be
    ask(gpu.server, out, [300, 301], 4)
    gpu.fault("full")
several = ask_all(gpu.server, [[300, 301], [300, 301, 302], [300, 777]], 4)
expect(
    "no room for a recorded step: the step runs",
    text(alone[0][0]) == text(alone[1][0]) == text(several[0]) and all(s[0] == 200 for s in several),
    several,
)
expect("no KV page is lost", gpu.server.get("/kv_check")[0] == 200, gpu.server.log)
gpu.server.process.terminate()
status, log = gpu.end()
said = [len(re.findall(f"has no room for a recorded step .{of}", log)) for of in ("[0-9]", "guesses")]
expect(
    "it is said once of steps and once of guesses, and the server ends well",
    status == 0 and said == [1, 1],
    log,
)

# Prompts computed by another server: its pages by copies beside the steps, drafts' rows, too, in chunks.
prompts = [list(range(9 * n, 10 * n)) for n in (70, 129, 190)]
there = Server("--role", "prefill", *FLAGS, "--chunked-prefill-size", "64")
url = ("--role", "decode", "--prefill-url", f"http://127.0.0.1:{there.port}", "--prefill-min-tokens", "64")
here, alone = Server(*url, *FLAGS), Server(*FLAGS)
fetched, own = ([text(a) for a in ask_all(s, prompts, 4)] for s in (here, alone))
expect("pages of another server's GPU: the texts of one server", fetched == own, (fetched, own))
expect("they came from there", here.metric("moonlet:kv_tokens_fetched_total") == sum(map(len, prompts)) - 3, here.log)
sound = [s.get("/kv_check")[1]["ok"] for s in (here, there)], [s.stop() for s in (here, there, alone)]
expect("all pages are where they belong, at the end", sound == ([True, True], [0, 0, 0]), sound)

# Drafts in two stages: parts of a deterministic batch hand on what they keep for the draft at their own rows.
os.environ["EMU_GPUS"] = "2"
drafts = ("--speculative-num-steps", "3", "--speculative-disable-adaptive", "--disable-radix-cache")
staged = Server(*FLAGS, "--pp", "2", "--chunked-prefill-size", "64", *drafts)
del os.environ["EMU_GPUS"]
prompts = [list(range(300 + n, 300 + 2 * n)) for n in (10, 50, 90, 130)]  # some of which others' answers go along with
names = ["moonlet:draft_tokens_total", "moonlet:draft_tokens_accepted_total"]
counts = [[0, 0]]
for together in (1, 4):
    for at in range(0, 4, together):
        ask_all(staged, prompts[at : at + together], 24)
    counts.append([staged.metric(name) for name in names])
alone, at_once = ([b - a for a, b in zip(*pair)] for pair in zip(counts, counts[1:]))
expect("drafts in two stages: as many come true at once as one by one", alone == at_once and alone[1] > 0, counts)
expect("and their server ends well", staged.stop() == 0, staged.log)

answers, status, log, _ = broken_gpu("fail")
expect("a GPU that fails: the request gets an error", answers[0][0] == 200 and answers[1][0] in (0, 500, 503), answers)
expect("and the server ends with one message", status == 1 and log.count("failed: CUDA error 700") == 1, log)
answers, status, log, _ = broken_gpu("hang", "--watchdog-timeout", "10")
expect(
    "a GPU that hangs takes the server down with one message",
    status == 1 and log.count("it hangs, the server ends") == 1,
    log,
)
expect("and says what its host is about", re.search(ABOUT, log), log)
answers, status, log, s = broken_gpu("hang", "--watchdog-timeout", "10", stop=True)
expect(
    "also while it drains",
    status == 1 and log.count("it hangs, the server ends") == 1 and "finished a step" in log and s < 40,
    (s, log),
)
answers, status, log, s = broken_gpu("hang", "--watchdog-timeout", "10", "--drain-timeout", "1", stop=True)
expect(
    "and while it closes",
    status == 1 and log.count("it hangs, the server ends") == 1 and "let go" in log and s < 40,
    (s, log),
)
ends = [
    interrupted("run", "--device", "cuda", "-p", "Tell me about the sea.", "--ignore-eos", "-n", "200", times=2),
    interrupted("bench", "moe", "--device", "cuda"),
    interrupted("eval", "logprobs", "--device", "cuda", "--data", "/dev/stdin"),
]
expect("Ctrl-C ends the other commands, twice an answer", ends == [1, -signal.SIGINT, -signal.SIGINT], ends)
print(f"{total - failed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
