"""llama.cpp's side: the layer as a ggml graph on the CPU, from the libraries that llama-cpp-python installs.

The graph is the one that llama.cpp makes for a mixture of experts: mul_mat_id for gate and up, SwiGLU, mul_mat_id for
down, times the weights, then a sum over the experts by views. Experts are Q4_0 (INT4, groups of 32, fp16 scales); with
--repack they lie in the buffer type that llama.cpp itself prefers for them where ggml offers one (8 rows interleaved).
ggml's activations are float32 in and out.
"""
import ctypes as c
import importlib.util
import pathlib

import numpy as np

import common

F32, Q4_0, I32 = 0, 2, 26
P = c.c_void_p


class InitParams(c.Structure):
    _fields_ = [("mem_size", c.c_size_t), ("mem_buffer", P), ("no_alloc", c.c_bool)]


class Library:
    """The three shared libraries as one name space; pointers and 64-bit integers throughout."""

    def __init__(self, folder):
        self.parts = [c.CDLL(str(folder / f"lib{n}.so"), c.RTLD_GLOBAL) for n in ("ggml-base", "ggml-cpu", "ggml")]

    def __call__(self, name, *args, result=P):
        for part in self.parts:
            if hasattr(part, name):
                f = getattr(part, name)
                f.restype = result
                f.argtypes = [
                    type(a) if isinstance(a, c._SimpleCData | c.Structure) else c.c_int64 if isinstance(a, int) else P
                    for a in args
                ]
                return f(*args)
        raise SystemExit(f"ggml has no {name}")


def q4_0(number, which):
    """Bytes of one matrix: blocks of an fp16 scale and 16 bytes."""
    pairs, scales = common.expert(number, which)
    blocks = np.empty(scales.shape, np.dtype([("d", "<f2"), ("qs", "u1", 16)]))
    blocks["d"] = scales
    blocks["qs"] = pairs.reshape(*scales.shape, 16)
    return blocks


def halves(pairs):
    """Q4_0's order: within a block the low halves are values 0..15, the high halves 16..31."""
    blocks = pairs.reshape(len(pairs), -1, 16)
    return np.concatenate([blocks & 15, blocks >> 4], axis=-1).reshape(len(pairs), -1)


def main():
    p = common.arguments(__doc__)
    p.add_argument("--repack", action="store_true")
    p.add_argument("--lib", type=pathlib.Path, help="folder of libggml*.so (default: llama_cpp's)")
    args = p.parse_args()
    folder = args.lib or pathlib.Path(importlib.util.find_spec("llama_cpp").origin).parent / "lib"
    g = Library(folder)
    backend = P(g("ggml_backend_cpu_init"))
    g("ggml_backend_cpu_set_n_threads", backend, c.c_int(args.threads), result=None)
    buft = P(g("ggml_backend_cpu_buffer_type"))
    if args.repack:
        reg = P(g("ggml_backend_cpu_reg"))
        device = P(g("ggml_backend_reg_dev_get", reg, c.c_size_t(0)))
        get = g("ggml_backend_reg_get_proc_address", reg, c.c_char_p(b"ggml_backend_dev_get_extra_bufts"))
        extra = c.CFUNCTYPE(c.POINTER(P), P)(get)(device)
        names, i = {}, 0
        while extra[i]:
            names[g("ggml_backend_buft_name", P(extra[i]), result=c.c_char_p).decode()] = extra[i]
            i += 1
        if "CPU_REPACK" not in names:
            raise SystemExit(f"this ggml has no CPU_REPACK buffer, only {names}")
        weight_buft = P(names["CPU_REPACK"])
    else:
        weight_buft = buft

    def context(size=1 << 20):
        return P(g("ggml_init", InitParams(size, None, True)))

    def tensor(ctx, kind, *dims):
        return P(g(f"ggml_new_tensor_{len(dims)}d", ctx, c.c_int(kind), *dims))

    def put(t, data):
        data = np.ascontiguousarray(data)
        g("ggml_backend_tensor_set", t, P(data.ctypes.data), c.c_size_t(0), c.c_size_t(data.nbytes), result=None)

    ctx = context()
    experts = {w: tensor(ctx, Q4_0, cols, rows, common.EXPERTS) for w, (rows, cols) in common.SHAPES.items()}
    if not g("ggml_backend_alloc_ctx_tensors_from_buft", ctx, weight_buft):
        raise SystemExit("no memory for the experts")
    for which, t in experts.items():
        put(t, np.stack([q4_0(x, which) for x in range(common.EXPERTS)]))

    if args.real_time:
        common.real_time(1)

    def prepare(tokens, ids, weights, x):
        data = context()
        tx, tw = tensor(data, F32, common.DIM, 1, tokens), tensor(data, F32, 1, common.TOPK, tokens)
        ti = tensor(data, I32, common.TOPK, tokens)
        g("ggml_backend_alloc_ctx_tensors_from_buft", data, buft)
        put(tx, common.bf16_values(x)), put(ti, ids), put(tw, weights)
        ctx = context(1 << 22)
        gate = P(g("ggml_mul_mat_id", ctx, experts["gate"], tx, ti))
        up = P(g("ggml_mul_mat_id", ctx, experts["up"], tx, ti))
        hidden = P(g("ggml_swiglu_split", ctx, gate, up))
        parts = P(g("ggml_mul", ctx, P(g("ggml_mul_mat_id", ctx, experts["down"], hidden, ti)), tw))
        row = common.DIM * 4
        out = None
        for i in range(common.TOPK):
            view = P(
                g("ggml_view_2d", ctx, parts, common.DIM, tokens, c.c_size_t(row * common.TOPK), c.c_size_t(i * row))
            )
            out = P(g("ggml_add", ctx, out, view)) if out else view
        g("ggml_set_output", out, result=None)
        graph = P(g("ggml_new_graph", ctx))
        g("ggml_build_forward_expand", graph, out, result=None)
        memory = P(g("ggml_gallocr_new", buft))
        if not g("ggml_gallocr_alloc_graph", memory, graph, result=c.c_bool):
            raise SystemExit("no memory for the graph")

        def call():
            if g("ggml_backend_graph_compute", backend, graph, result=c.c_int):
                raise SystemExit("ggml_backend_graph_compute failed")

        def output():
            got = np.empty((tokens, common.DIM), np.float32)
            g("ggml_backend_tensor_get", out, P(got.ctypes.data), c.c_size_t(0), c.c_size_t(got.nbytes), result=None)
            return got

        return call, output

    common.measure("llama.cpp repacked" if args.repack else "llama.cpp plain", args, prepare, halves)


if __name__ == "__main__":
    main()
