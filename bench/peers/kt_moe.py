"""KTransformers' side: kt-kernel's RAWINT4 experts, as its Python wrapper makes them, without PyTorch.

The compiled module is loaded by itself (it needs no PyTorch; the package's __init__ does). --layout blocked is the
second weight layout that kt-kernel ships for the same method (KT_RAWINT4_BACKEND=amx_blocked there).

Besides its workers kt-kernel keeps the calling thread busy: it spins until they are done. Where the workers have every
core, it takes time from them. --real-time avoids that in kt-kernel's favour: the workers run at priority 2, the caller
at 1, so it gets no core before the workers go to sleep, about 51 ms after their work. A call with next to nothing to
compute measures that wait, which is then subtracted from every time.
"""
import importlib.metadata
import importlib.util
import os
import pathlib

import numpy as np

import common

CLASSES = {"rows": "AMXInt4_KGroup_MOE", "blocked": "AMXInt4_KGroupBlocked_MOE", "avx2": "AVX2RawInt4_MOE"}


def load(variant):
    folder = pathlib.Path(importlib.metadata.distribution("kt-kernel").locate_file("kt_kernel"))
    files = sorted(folder.glob(f"_kt_kernel_ext_{variant}.*.so"))
    if not files:
        raise SystemExit(f"kt-kernel has no variant {variant}")
    spec = importlib.util.spec_from_file_location("kt_kernel_ext", files[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stack(which, shape, experts):
    """Contiguous nibbles and bf16 scales of one matrix of all experts."""
    rows, cols = shape
    pairs = np.empty((experts, rows, cols // 2), np.uint8)
    scales = np.empty((experts, rows, cols // common.GROUP), np.uint16)
    for x in range(experts):
        pairs[x], values = common.expert(x, which)
        scales[x] = common.bf16_bits(values)
    return pairs, scales


def aligned(like, dtype):
    """A copy whose memory begins at a multiple of 64 bytes: kt-kernel stores whole vectors."""
    like = np.asarray(like, dtype)
    raw = np.empty(like.nbytes + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    copy = raw[skip : skip + like.nbytes].view(dtype).reshape(like.shape)
    copy[...] = like
    return copy


class Layer:
    """held: which -> (nibbles, scales); copied by kt-kernel, so it may go afterwards."""

    def __init__(self, kt, cpu, layout, held, experts, topk, dim, inter, most):
        self.topk = topk
        config = kt.moe.MOEConfig(experts, topk, dim, inter, 0)
        config.max_len = most
        config.quant_config.bits = 4
        config.quant_config.group_size, config.quant_config.zero_point = common.GROUP, False
        config.pool = cpu.backend_
        for which, (pairs, scales) in held.items():
            setattr(config, which + "_proj", pairs.ctypes.data)
            setattr(config, which + "_scale", scales.ctypes.data)
        order = np.arange(experts, dtype=np.int64)
        self.moe = getattr(kt.moe, CLASSES[layout])(config)
        cpu.submit(self.moe.load_weights_task(order.ctypes.data))
        cpu.sync()

    def call(self, ids, weights, x, out):
        """ids int64 [n, k], weights float32, x and out bf16 bits [n, dim], aligned -> a function that computes out."""
        count = np.array([len(ids)], np.int32)
        return lambda: self.moe.forward(
            count.ctypes.data, self.topk, ids.ctypes.data, weights.ctypes.data, x.ctypes.data, out.ctypes.data, False
        )


def idle_call(kt, cpu, layout):
    """Milliseconds of a call that has next to nothing to compute: one expert of 512 x 512."""
    n = 512
    pairs, scales = np.full((1, n, n // 2), 0x88, np.uint8), np.zeros((1, n, n // common.GROUP), np.uint16)
    layer = Layer(kt, cpu, layout, {w: (pairs, scales) for w in common.SHAPES}, 1, 1, n, n, 64)
    x, out = aligned(np.zeros((1, n)), np.uint16), aligned(np.zeros((1, n)), np.uint16)
    call = layer.call(aligned([[0]], np.int64), aligned([[1.0]], np.float32), x, out)
    return float(np.median(common.timed(call, 21)))


def main():
    p = common.arguments(__doc__)
    p.add_argument("--layout", choices=CLASSES, default="rows")
    p.add_argument("--variant", default="avx512_bf16", help="compiled variant: avx2, avx512_bf16, amx, ...")
    args = p.parse_args()
    kt = load(args.variant)
    held = {w: stack(w, shape, common.EXPERTS) for w, shape in common.SHAPES.items()}
    if args.real_time:
        common.real_time(2)
    pool = kt.WorkerPoolConfig()
    pool.subpool_count, pool.subpool_numa_map, pool.subpool_thread_count = 1, [0], [args.threads]
    cpu = kt.CPUInfer(pool)
    layer = Layer(kt, cpu, args.layout, held, common.EXPERTS, common.TOPK, common.DIM, common.INTER, max(args.tokens))
    held.clear()
    idle = 0.0
    if args.real_time:  # the calling thread below the workers
        common.real_time(1)
        idle = idle_call(kt, cpu, args.layout)

    def prepare(tokens, ids, weights, x):
        out = aligned(np.zeros(x.shape), np.uint16)
        call = layer.call(aligned(ids, np.int64), aligned(weights, np.float32), aligned(x, np.uint16), out)
        return call, lambda: common.bf16_values(out)

    common.measure(f"KTransformers {args.layout}", args, prepare, common.in_order, idle)


if __name__ == "__main__":
    main()
