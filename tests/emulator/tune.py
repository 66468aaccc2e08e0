#!/usr/bin/env python3
"""`moonlet tune moe|gemm` and their tables on a GPU, which may be the emulated one: written, gone on with, used,
missed, refused."""
import json
import os
import subprocess
import sys
import tempfile

MOONLET = os.environ.get("MOONLET", "build/moonlet")
SHAPE, passed, failed = "256,64,8,2", 0, 0


def run(*args):
    return subprocess.run([MOONLET, *map(str, args)], capture_output=True, text=True, timeout=600)


def expect(what, ok, done):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    print(
        ("PASS " if ok else "FAIL ") + what,
        "" if ok else f"{done.returncode} {done.stdout[-400:]} {done.stderr[-400:]}",
    )


def bench(folder, table, shape):
    out = os.path.join(folder, "json")
    done = run(
        "bench",
        "moe",
        "--device",
        "cuda",
        "--format",
        "w4a16",
        "--runs",
        1,
        "--sets",
        2,
        "--tuned",
        table,
        "--shape",
        shape,
        "--json",
        out,
    )
    return done, json.loads(open(out).read() or "{}") if done.returncode == 0 else {}


def product(folder, table, shape):
    out = os.path.join(folder, "json")
    done = run("bench", "gemm", "--runs", 1, "--tuned", table, "--shape", shape, "--json", out)
    return done, json.loads(open(out).read() or "{}") if done.returncode == 0 else {}


def products(folder):
    """The table of matrix products is the one beside the experts' that ends in -gemm.csv. Without cuBLASLt there are
    two kernels of our own."""
    experts, table = os.path.join(folder, "p.csv"), os.path.join(folder, "p-gemm.csv")
    tune = ["tune", "gemm", "--shape", "256,256", "--tokens", 96, "--out", table]
    done = run(*tune)
    rows = open(table).read().splitlines()
    expect(
        "a product's row is written",
        done.returncode == 0 and len(rows) == 2 and ",linear,bf16,bf16,256,256,1,96," in rows[1],
        done,
    )
    done = run(*tune)
    expect(
        "it is not timed again either",
        done.returncode == 0 and "0 of 0 products" in done.stdout and open(table).read().splitlines() == rows,
        done,
    )
    head = rows[0].split(",")
    made = dict(zip(head, rows[1].split(",")))
    library = made["cublas"]
    open(experts, "w").write("chip,sms,format,dim,inter,experts,topk,tokens,path,us,default_us\n")

    def put(**changes):
        open(table, "w").write(rows[0] + "\n" + ",".join(dict(made, **changes)[c] for c in head) + "\n")

    nothing = {c: "0" for c in head[head.index("path") + 1 : -2]}
    for path in ["wide", "first" if int(library) else "tile"]:
        put(path=path, **nothing)
        done, line = product(folder, experts, "80,256,256")
        expect(
            f"{path} where the table says so",
            line.get("choice") == path and line["error"] < 4e-3 and "no row" not in done.stderr,
            done,
        )
    done, line = product(folder, experts, "80,264,256")
    expect(
        "a product without a row is named once",
        done.returncode == 0 and done.stderr.count("has no row for linear 264 x 256 to bf16 of 80 rows") == 1,
        done,
    )
    put(path="wide", cublas="120000", **nothing)
    done, line = product(folder, experts, "80,256,256")
    expect(
        "rows of another library do not count, which is said",
        line.get("choice") != "wide" and done.stderr.count("measured with another library") == 1,
        done,
    )
    done, line = product(folder, "none", "80,256,256")
    expect("--tuned none", line.get("choice") != "wide" and "another library" not in done.stderr, done)
    put(path="cublas", cublas="0")
    done, line = product(folder, experts, "80,256,256")
    expect(
        "a row that cannot be",
        done.returncode == 1 and "p-gemm.csv: line 2: this path" in done.stderr and done.stderr.count("line 2") == 1,
        done,
    )
    done = run("tune", "gemm", "--only", "nobody")
    expect("a shape that is none", done.returncode == 1 and '--only "nobody" is no name' in done.stderr, done)


with tempfile.TemporaryDirectory() as folder:
    table = os.path.join(folder, "t.csv")
    tune = ["tune", "moe", "--shape", SHAPE, "--format", "w4a16", "--tokens", 4, "--out", table]
    done = run(*tune)
    rows = open(table).read().splitlines()
    expect("a row is written", done.returncode == 0 and len(rows) == 2 and ",256,64,8,2,4,decode," in rows[1], done)
    done = run(*tune)
    expect(
        "it is not timed again",
        done.returncode == 0 and "0 of 0 calls" in done.stdout and open(table).read().splitlines() == rows,
        done,
    )
    fields = rows[1].split(",")
    at = rows[0].split(",").index("path")
    for path, knobs, want in (("decode", ["8", "0"], "decode group 8"), ("grouped", ["0", "64"], "grouped tile 64")):
        open(table, "w").write(rows[0] + "\n" + ",".join(fields[:at] + [path] + knobs + ["1", "2"]) + "\n")
        done, line = bench(folder, table, "3," + SHAPE)
        expect(
            f"{path} where the table says so",
            line.get("choice") == want and line["error"] < 4e-3 and "no row" not in done.stderr,
            done,
        )
    done, line = bench(folder, table, "3,256,128,8,2")
    expect(
        "a shape without a row is named once",
        done.returncode == 0
        and done.stderr.count("has no row for w4a16 experts, 8 x 128 x 256, top-2, of 3 tokens") == 1,
        done,
    )
    open(table, "a").write(rows[1][:-3])
    done, line = bench(folder, table, "3," + SHAPE)
    expect(
        "a table that was cut off",
        done.returncode == 1 and "line 3: cut off" in done.stderr and done.stderr.count("\n") == 1,
        done,
    )
    done, line = bench(folder, folder, "3," + SHAPE)
    expect(
        "a folder without a table for this chip",
        done.returncode == 0 and done.stderr.count("does not exist") == 1,
        done,
    )
    products(folder)
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
