#!/usr/bin/env python3
"""What the server costs beside the model: microseconds of processor time per generated token, by kind of thread, with a
model that computes nothing (`--simulate-step`), many streams over HTTP, and `moonlet bench serving` as the client.

    bench/server/token_cost.py [--moonlet build/moonlet] [--streams 64] [--tokens 2000] [--requests 128]
                               [--backend moonlet] [--step-us 0] [-- options for bench serving]

With --step-us 0 the engine is always ahead: events pile up, and a write takes many tokens. A step of some milliseconds
is what a served model looks like: every token is a write of its own, which is the dear case, and the one that counts.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TICK = os.sysconf("SC_CLK_TCK")


def seconds(stat):
    """User and system seconds of a /proc/.../stat."""
    fields = Path(stat).read_text().rpartition(")")[2].split()
    return [int(fields[11]) / TICK, int(fields[12]) / TICK]


def by_thread(pid):
    """(user, system) of the process and of its engine: the thread and its helpers, which bear its name. Threads of
    connections end with these: they are the rest."""
    out = {"all": seconds(f"/proc/{pid}/stat"), "engine": [0, 0]}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if (task / "comm").read_text().strip() == "engine":
                out["engine"] = [a + b for a, b in zip(out["engine"], seconds(task / "stat"))]
        except (FileNotFoundError, ProcessLookupError):
            pass  # a connection that ends
    return out


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--moonlet", default=str(ROOT / "build/moonlet"))
    a.add_argument("--model", default=str(ROOT / "models/nano"))
    a.add_argument("--streams", type=int, default=64)
    a.add_argument("--tokens", type=int, default=2000)
    a.add_argument("--requests", type=int, default=128)
    a.add_argument("--backend", default="moonlet")
    a.add_argument("--step-us", type=int, default=0)
    a.add_argument("rest", nargs="*")
    o = a.parse_args()
    server = subprocess.Popen(
        [
            o.moonlet,
            "serve",
            "-m",
            o.model,
            "--port",
            "0",
            "--simulate-step",
            str(o.step_us),
            "--max-running-requests",
            str(o.streams),
            "--context-length",
            "4096",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = re.search(r"http://127.0.0.1:(\d+) .*SIMULATED", server.stdout.readline().decode())[1]
        with tempfile.NamedTemporaryFile() as result:
            before, client = by_thread(server.pid), resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                [
                    o.moonlet,
                    "bench",
                    "serving",
                    "--port",
                    port,
                    "--backend",
                    o.backend,
                    "--tokenizer",
                    o.model,
                    "--dataset-name",
                    "random-ids" if o.backend == "moonlet" else "random",
                    "--dataset-path",
                    __file__,
                    "--random-input-len",
                    "32",
                    "--random-output-len",
                    str(o.tokens),
                    "--random-range-ratio",
                    "1",
                    "--max-concurrency",
                    str(o.streams),
                    "--num-prompts",
                    str(o.requests),
                    "--warmup-requests",
                    "0",
                    "--disable-tqdm",
                    "--output-file",
                    result.name,
                    *o.rest,
                ],
                capture_output=True,
            )
            after, client_after = by_thread(server.pid), resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode:
                sys.exit(done.stderr.decode())
            r = json.loads(Path(result.name).read_text())
    finally:
        server.terminate()
        server.wait(30)
    assert r["simulated"] and r["completed"] == o.requests and r["total_output_tokens"] == o.requests * o.tokens, r
    n = r["total_output_tokens"]
    spent = {k: [after[k][i] - before[k][i] for i in (0, 1)] for k in before}
    spent["connections"] = [spent["all"][i] - spent["engine"][i] for i in (0, 1)]
    spent["client"] = [client_after.ru_utime - client.ru_utime, client_after.ru_stime - client.ru_stime]
    print(
        f"SIMULATED model, step {o.step_us} us; {o.streams} streams, {o.requests} answers of {o.tokens} tokens, {o.backend}"
    )
    print(
        f"{r['output_throughput']:.0f} tok/s in {r['duration']:.1f} s, median ITL {r['median_itl_ms']:.2f} ms, "
        f"P99 {r['p99_itl_ms']:.2f} ms"
    )
    print("us of processor time a token        user  system     sum")
    for name, label in [
        ("engine", "engine threads"),
        ("connections", "connection threads"),
        ("all", "server, all"),
        ("client", "client (bench serving)"),
    ]:
        user, system = (1e6 * s / n for s in spent[name])
        print(f"{label:30s} {user:9.2f} {system:7.2f} {user + system:7.2f}")


main()
