"""One layer of K2.5's routed experts: shapes, weights, routings and the answer that every program must give.

Weights are INT4 in groups of 32 along the input: value = (nibble - 8) * scale, nibbles 1..15 (zero mean), scales that
bf16 and fp16 both hold exactly. An expert's bytes depend on its number alone, so a driver need not keep a second copy
to check its program: `answer` makes the experts of one token again.
"""
import argparse
import json
import os
import sys
import time

import numpy as np

DIM, INTER, EXPERTS, TOPK, GROUP = 7168, 2048, 48, 8, 32
RUNS = {1: 15, 8: 9, 64: 5, 512: 3}  # tokens -> calls that are timed, after one to warm up
TOKENS = tuple(RUNS)
SHAPES = {"gate": (INTER, DIM), "up": (INTER, DIM), "down": (DIM, INTER)}
NO_ZERO = np.array([b | (8 if b & 15 == 0 else 0) | (128 if b >> 4 == 0 else 0) for b in range(256)], np.uint8)


def bf16_bits(x):
    """float32 array -> bf16 bit patterns, rounded to nearest even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_values(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def expert(number, which):
    """(nibble pairs uint8 [rows, cols/2], scales float32 [rows, cols/32]) of one matrix of one expert."""
    rows, cols = SHAPES[which]
    rng = np.random.default_rng([number, list(SHAPES).index(which)])
    pairs = NO_ZERO[rng.integers(0, 256, (rows, cols // 2), np.uint8)]
    unit = 1 / (np.sqrt(cols) * 4.32)  # 4.32: standard deviation of 1..15
    scales = (unit * rng.uniform(0.5, 1.5, (rows, cols // GROUP))).astype(np.float32)
    return pairs, bf16_values(bf16_bits(scales))


def routing(tokens, number):
    """Uniform random expert ids int32 [tokens, TOPK], distinct in a token, and their weights float32."""
    rng = np.random.default_rng([tokens, number])
    ids = np.argsort(rng.random((tokens, EXPERTS)), axis=1)[:, :TOPK].astype(np.int32)
    return np.ascontiguousarray(ids), (rng.uniform(0.5, 1.5, (tokens, TOPK)) / TOPK).astype(np.float32)


def inputs(tokens):
    """Activations as bf16 bit patterns uint16 [tokens, DIM]."""
    return bf16_bits(np.random.default_rng(tokens).standard_normal((tokens, DIM), np.float32))


def answer(x, ids, weights, unpack):
    """Float32 output of one token. unpack(pairs) -> nibbles [rows, cols] in the order in which a program reads them."""

    def matrix(number, which):
        pairs, scales = expert(number, which)
        return (unpack(pairs).astype(np.float32) - 8) * np.repeat(scales, GROUP, axis=1)

    out = np.zeros(DIM, np.float32)
    for number, weight in zip(ids, weights):
        gate, up = matrix(number, "gate") @ x, matrix(number, "up") @ x
        out += weight * (matrix(number, "down") @ (gate / (1 + np.exp(-gate)) * up))
    return out


def in_order(pairs):
    """Kimi's order: the low half of byte i is value 2i, the high half 2i + 1."""
    return np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(len(pairs), -1)


def distance(got, want):
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def arguments(doc):
    p = argparse.ArgumentParser(description=doc)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--routing", type=int, default=0, help="number of the random routing")
    p.add_argument("--serve", action="store_true", help="read numbers of routings from standard input instead")
    p.add_argument("--tokens", type=int, nargs="*", default=TOKENS, choices=TOKENS)
    p.add_argument("--check", action="store_true", help="the first time, compare one row with float32")
    p.add_argument("--real-time", action="store_true", help="time with round-robin real-time priority")
    return p


def real_time(priority):
    """This thread's, and that of threads which it makes from now on."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))


def timed(call, runs):
    """Milliseconds of each call but the first."""
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times[1:]


def measure(name, args, prepare, unpack, idle=0.0):
    """prepare(tokens, ids, weights, x) -> (call, output): call() computes, output() gives float32 [tokens, DIM].

    Prints one JSON line for each size: the median and the least time in milliseconds, less `idle`."""
    print("READY", flush=True)
    check = args.check
    for number in map(int, sys.stdin) if args.serve else [args.routing]:
        for tokens in args.tokens:
            ids, weights = routing(tokens, number)
            x = inputs(tokens)
            call, output = prepare(tokens, ids, weights, x)
            times = [t - idle for t in timed(call, RUNS[tokens])]
            line = {
                "name": name,
                "tokens": tokens,
                "touched": len(np.unique(ids)),
                "threads": args.threads,
                "ms": float(np.median(times)),
                "least": min(times),
            }
            if idle:
                line["idle"] = idle
            if check:
                row = tokens - 1
                line["error"] = distance(output()[row], answer(bf16_values(x[row]), ids[row], weights[row], unpack))
            print("RESULT " + json.dumps(line), flush=True)
        check = False
        print("DONE", flush=True)
