"""Times Moonlet and its peers in turn on the same routings and prints medians.

Every peer is a process that has its weights ready and waits; in each round every program runs all sizes once, so that
what else happens on the machine hits all of them. See README.md for the set-up.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import common

HERE = pathlib.Path(__file__).resolve().parent


class Peer:
    def __init__(self, script, *options, args):
        command = [
            sys.executable,
            str(HERE / script),
            "--serve",
            "--check",
            "--threads",
            str(args.threads),
            *options,
        ] + (["--real-time"] if args.real_time else [])
        print("peer:", script, *command[2:], flush=True)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.until("READY")

    def until(self, word):
        results = []
        for line in self.process.stdout:
            if line.startswith("RESULT "):
                results.append(json.loads(line[7:]))
            elif line.strip() == word:
                return results
        sys.exit(f"{self.process.args} ended before {word}")

    def round(self, number):
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        return self.until("DONE")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()


class Moonlet:
    def __init__(self, args):
        self.args = args

    def round(self, number):
        results = []
        with tempfile.TemporaryDirectory() as tmp:
            for tokens in common.TOKENS:
                files = {n: f"{tmp}/{n}" for n in ("ids", "topk-weights", "x", "json")}
                ids, weights = common.routing(tokens, number)
                ids.tofile(files["ids"]), weights.tofile(files["topk-weights"])
                common.inputs(tokens).tofile(files["x"])
                command = ["chrt", "-r", "1"] if self.args.real_time else []
                command += [
                    self.args.moonlet,
                    "bench",
                    "moe",
                    "--cpu-mask",
                    "avx2" if self.args.avx2 else "all",
                    "--threads",
                    str(self.args.threads),
                    "--tokens",
                    str(tokens),
                    "--runs",
                    str(common.RUNS[tokens]),
                ]
                for name, file in files.items():
                    command += ["--" + name, file]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                line = json.loads(pathlib.Path(files["json"]).read_text())
                results.append(
                    {
                        "name": "Moonlet",
                        "tokens": tokens,
                        "touched": line["touched"],
                        "ms": line["ms_median"],
                        "least": line["ms_min"],
                        "error": line["error"],
                        "read": line["read_gb_s"],
                    }
                )
        return results

    def close(self):
        pass


def table(lines):
    names = list(dict.fromkeys(r["name"] for r in lines))
    print(f"\n{'tokens':>6} {'touched':>8} " + " ".join(f"{n:>26}" for n in names))
    for tokens in common.TOKENS:
        cells, ours = [], None
        here = [r for r in lines if r["tokens"] == tokens]
        for name in names:
            mine = [r for r in here if r["name"] == name]
            ms = statistics.median(r["ms"] for r in mine)
            low, high = min(r["ms"] for r in mine), max(r["ms"] for r in mine)
            ours = ours or ms
            cells.append(f"{ms:8.1f} ({low:.1f}..{high:.1f})".rjust(26))
        print(f"{tokens:6} {statistics.mean(r['touched'] for r in here):8.1f} " + " ".join(cells))
        medians = [statistics.median(r["ms"] for r in here if r["name"] == n) for n in names]
        print(f"{'':15} " + " ".join(f"x {m / medians[0]:.2f}".rjust(26) for m in medians))
    for name in names:
        errors = [r["error"] for r in lines if r["name"] == name and "error" in r]
        idles = [r["idle"] for r in lines if r["name"] == name and "idle" in r]
        print(
            f"{name}: error against float32 {min(errors):.2e} to {max(errors):.2e}"
            + (f"; wait subtracted {idles[0]:.2f} ms" if idles else "")
        )
    reads = [r["read"] for r in lines if "read" in r]
    print(f"read bandwidth that Moonlet measured beside its lines: {min(reads):.1f} to {max(reads):.1f} GB/s")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--moonlet", default=str(HERE.parent.parent / "build/moonlet"))
    p.add_argument("--peers", nargs="*", choices=("llama.cpp", "KTransformers"), default=("llama.cpp", "KTransformers"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--real-time", action="store_true", help="round-robin real-time priority for all (as root)")
    p.add_argument("--all-layouts", action="store_true", help="both layouts of each peer")
    p.add_argument("--avx2", action="store_true", help="as on a processor without AVX-512 (llama.cpp: as it was built)")
    p.add_argument("--log", help="every line as JSON")
    args = p.parse_args()
    count = 2 if args.all_layouts else 1
    programs = [Moonlet(args)]
    if "llama.cpp" in args.peers:
        programs += [Peer("ggml_moe.py", *o, args=args) for o in (["--repack"], [])[:count]]
    if "KTransformers" in args.peers:
        layouts = (("avx2", "--variant", "avx2"),) if args.avx2 else (("rows",), ("blocked",))[:count]
        programs += [Peer("kt_moe.py", "--layout", *o, args=args) for o in layouts]
    lines = []
    for number in range(args.rounds):
        for program in programs:
            lines += program.round(number)
        print(f"round {number + 1} of {args.rounds} done", flush=True)
    for program in programs:
        program.close()
    if args.log:
        pathlib.Path(args.log).write_text("".join(json.dumps(r) + "\n" for r in lines))
    table(lines)


if __name__ == "__main__":
    main()
