"""What `make check` and `make check-all` consist of: a table that tools/suite.py reads, a row a part.

name      what is printed; {file} is the file's name without its ending
run       the command, split as a shell splits words. {build} is the build folder, {python} one that has pytest, {here}
          the repository
each      a pattern: the row stands for every file that matches ({path}; {stem}: without its ending, {test}: the last
          two parts of that, {file}: the last);
          without: those that it leaves out
needs     parts that must have passed before; when one failed this one counts as failed, when one was skipped as skipped
after     parts that must have ended before, whatever came of them
tools     programs without which the part is skipped; "a|b": one of them
count     how the output is counted: by exit status (one test), cmocka, pytest, summary (a last line "N passed, ...") or
          kernels
cores     how many processors it keeps busy (1; 0: it waits for the network); alone: nothing else runs beside it,
          because it measures time; waits: files of `each` that wait for deadlines half of the time
env       more environment; skip_status: the exit status that says "cannot be run here", the last line says why
timeout   seconds (1200)

Parts start in this order as far as processors are free, so what others wait for stands first."""

with open("/proc/cpuinfo") as cpuinfo:
    FLAGS = next((line.split() for line in cpuinfo if line.startswith("flags")), [])
# Where AVX2 is the best of this processor, its operations are those of "best" and are not run twice.
AVX2_IS_BEST = "avx2" in FLAGS and "avx512f" not in FLAGS and "avx_vnni" not in FLAGS
HAS_AMX = "amx_bf16" in FLAGS
NO_AMX = "sh -c 'echo skipped: this processor has no AMX; exit 77'"
SAME = "sh -c 'echo skipped: AVX2 is the best of this processor; exit 77'"

PYTEST = "{python} -m pytest -q -rs -p no:cacheprovider "
BUILD_ENV = {"MOONLET": "{here}/{build}/moonlet"}

WAITS = [
    f"tests/e2e/test_{name}.py"
    for name in (
        *("serve_door", "serve_limits", "serve_page", "serve_roles", "serve_messages", "serve_responses"),
        *("serve_hostile", "bench_serving"),
    )
]

CHECK = [
    dict(name="lint", run="python3 tools/lint.py"),
    dict(name="operations, best of this processor", run="{build}/moonlet check --cpu-mask all", count="summary"),
    dict(
        name="operations, AVX2",
        run=SAME if AVX2_IS_BEST else "{build}/moonlet check --cpu-mask avx2",
        count="summary",
        skip_status=77,
    ),
    dict(name="{test}", each="tests/unit/*/test_*.c", run="{build}/{stem}", count="cmocka"),
    dict(name="bits", run="{build}/moonlet check bits", count="summary"),
    dict(name="example {file}", each="examples/*.c", run="{build}/{stem}"),
    dict(
        name="{file}.py",
        each="tests/e2e/test_*.py",
        waits=WAITS,
        run=PYTEST + "{path}",
        count="pytest",
        env=BUILD_ENV,
    ),
]

LEVELS = (
    ("avx2", "AVX2"),
    ("avxvnni", "AVX-VNNI"),
    ("avx512", "AVX-512"),
    ("all", "best of this processor"),
)
EMULATED_OPS = "build/moonlet check --device cuda "
EXPERTS = "moe,moe_norm,moe_ffn"
TILED = "linear,swiglu,linear_norm,unabsorb_v,mla_decode,mla_decode_values,mla_prefill"
ATTENTION = "mla_decode,mla_prefill,mla_decode_values,mla_queries,heads_write,heads_decode"
EMULATED = {
    "LD_LIBRARY_PATH": "{here}/build/tests/emulator",
    # its thread-local memory, __shared__ among it, where no call finds it: a tenth of the time
    "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=400000",
}
BITS_CUDA = "build/moonlet check bits --device cuda --override num_hidden_layers=2 --requests 3 --tokens 2 --prompt 24"
# clang's objects serve three ends: they compile without warnings, they are watched by ASan and UBSan, and fuzzers link
# them. Kernels are watched in moonlet-watched and in their unit tests (Makefile).
SANITIZE = "make --no-print-directory CC=clang-14 SAN=1 KERNELS_FROM=build 'CFLAGS=-O1 -g1' "
SAN_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "OMP_NUM_THREADS": "2",
    "KMP_BLOCKTIME": "0",  # who waits for the other thread leaves the processor to the part beside it
}
# What asks how good the small model's answers are asks it of the same arithmetic again.
NOT_SANITIZED = [
    f"tests/e2e/test_{name}.py" for name in ("nano_skills", "nano_golden", "golden_files", "vision_files", "text_match")
]
TSAN = "make --no-print-directory B=build-tsan KERNELS_FROM=build 'CFLAGS=-O1 -g -fsanitize=thread' LDFLAGS=-fsanitize=thread "

ALL = [
    dict(name="lint, with formatters", run="python3 tools/lint.py --strict"),
    dict(name="clients from PyPI", run="python3 tools/clients", skip_status=77, cores=0),
    dict(
        name="clang-14 with sanitizers",
        run=SANITIZE + "all tests examples fuzzers",
        tools=["clang-14"],
        after=["program with them"],
    ),
    # the GPU's kernels: compiled, then run as C++ on this processor
    dict(
        name="CUDA compiler", run="sh -c 'case $(tools/find-nvcc) in -*) exec tools/setup --cuda;; esac'", skip_status=3
    ),
    dict(name="CUDA kernels", needs=["CUDA compiler"], run="make --no-print-directory cubins", count="kernels"),
    dict(  # those that name points, one that waits first and has no register left, one whose warps trade registers
        name="kernels that write down their times",
        needs=["CUDA kernels"],
        run="make --no-print-directory TIMES=1 "
        + " ".join(
            f"build-times/gpu/{k}.cubin"
            for k in (
                "moe/ffn_fused",
                "gemm/skinny_few",
                "gemm/skinny_splitk",
                "mla/query_fused",
                "mla/decode_mma",
                "mla/combine_unabsorb",
                "comm/all_reduce_parts",
                "gemm/invariant",
            )
        ),
    ),
    dict(
        name="program with them",
        needs=["CUDA kernels"],
        run="make --no-print-directory all build/tests/unit/device/test_cuda_h build/tests/unit/model/test_vision",
    ),
    dict(
        name="prototypes against cuda.h",
        needs=["program with them"],
        run="build/tests/unit/device/test_cuda_h",
        count="cmocka",
    ),
    dict(name="emulated GPU", needs=["program with them"], run="make --no-print-directory emulator"),
    dict(
        name="Hopper's instructions, emulated",
        needs=["emulated GPU"],
        run="build/tests/emulator/test_hopper",
        count="summary",
    ),
    dict(
        name="experts, emulated", needs=["emulated GPU"], run=EMULATED_OPS + "--op moe", count="summary", env=EMULATED
    ),
    dict(
        name="attention, emulated",
        needs=["emulated GPU"],
        run=EMULATED_OPS + "--op " + ATTENTION,
        count="summary",
        env=EMULATED,
    ),
    dict(
        name="other operations, emulated",
        needs=["emulated GPU"],
        run=EMULATED_OPS + "--not-op moe," + ATTENTION,
        count="summary",
        env=EMULATED,
    ),
    dict(
        name="products, attention and experts emulated, --deterministic",
        needs=["emulated GPU"],
        count="summary",
        env=EMULATED,
        run=EMULATED_OPS
        + "--deterministic --op linear_group,mla_decode_values,linear,linear_norm,swiglu,moe_norm,moe_ffn",
    ),
    dict(
        name="nano, emulated",
        needs=["emulated GPU"],
        run="{python} tests/emulator/run_nano.py",
        count="summary",
        env=EMULATED,
    ),
    dict(
        name="vision tower, emulated",
        needs=["emulated GPU"],
        run="build/tests/unit/model/test_vision",
        count="cmocka",
        env=EMULATED,
    ),
    dict(
        name="two GPUs and the processor at once, emulated",
        needs=["emulated GPU"],
        run="build/tests/emulator/several_gpus",
        count="cmocka",
        env=dict(EMULATED, EMU_GPUS="2"),
    ),
    dict(
        name="exchanges between GPUs, emulated",
        needs=["emulated GPU"],
        run="build/tests/emulator/gpu_exchanges",
        count="cmocka",
        env=dict(EMULATED, EMU_GPUS="8"),
    ),
    dict(
        name="models on ranks of GPUs, emulated",
        needs=["emulated GPU"],
        run="build/tests/emulator/gpu_ranks",
        count="cmocka",
        env=dict(EMULATED, EMU_GPUS="8"),
    ),
    dict(
        name="weights read once, emulated",
        needs=["emulated GPU"],
        run="build/tests/emulator/gpu_loading",
        count="cmocka",
        env=dict(EMULATED, EMU_GPUS="4"),
    ),
    dict(
        name="plan and loading, emulated",
        needs=["emulated GPU"],
        run="{python} tests/emulator/plan.py",
        count="summary",
        env=EMULATED,
    ),
    dict(name="bits, emulated", needs=["emulated GPU"], run=BITS_CUDA, count="summary", env=EMULATED),
    dict(
        name="bits emulated, --deterministic",
        needs=["emulated GPU"],
        run=BITS_CUDA + " --deterministic",
        count="summary",
        env=EMULATED,
    ),
    dict(
        name="tables of choices, emulated",
        needs=["emulated GPU"],
        run="{python} tests/emulator/tune.py",
        count="summary",
        env=EMULATED,
    ),
    dict(
        name="faults of a GPU under a server, emulated",
        needs=["emulated GPU"],
        run="{python} tests/emulator/serve_faults.py",
        count="summary",
        cores=0.5,
        env=EMULATED,
    ),
    dict(
        name="generic kernels for one of AMD's GPUs",
        run="make --no-print-directory amd AMD_CHIPS=gfx942",
        tools=["clang-22", "ld.lld-22"],
        count="kernels",
    ),
    # the sanitized program
    # At the levels that have code of their own, where it is vectors that could leave a row: "vnni" and "bf16" mix that
    # of others, "none" is the same templates by one number at a time.
    *(
        dict(
            name=f"sanitized {which}, {level}",
            needs=["clang-14 with sanitizers"],
            count="summary",
            env=SAN_ENV,
            timeout=2400,
            skip_status=77,
            run=(
                SAME
                if AVX2_IS_BEST and mask == "avx2"
                else f"build-san/moonlet-watched check --device cpu --cpu-mask {mask} {ops} {EXPERTS}"
            ),
        )
        for which, ops, masks in (
            ("experts", "--op", ("avx2", "avxvnni", "avx512", "all")),
            ("other operations", "--not-op", ("avx2", "all")),
        )
        for mask, level in LEVELS
        if mask in masks
    ),
    dict(
        name="sanitized {test}",
        each="tests/unit/*/test_*.c",
        needs=["clang-14 with sanitizers"],
        run="build-san/{stem}",
        count="cmocka",
        env=SAN_ENV,
    ),
    dict(
        name="sanitized {file}.py",
        each="tests/e2e/test_*.py",
        without=NOT_SANITIZED,
        waits=WAITS,
        needs=["clang-14 with sanitizers"],
        run=PYTEST + "{path}",
        count="pytest",
        env=dict(SAN_ENV, MOONLET="{here}/build-san/moonlet", MOONLET_SLOW="1"),
    ),
    dict(
        name="openai, anthropic, lm_eval",
        needs=["clients from PyPI"],
        count="pytest",
        # Modules are compiled when they are met: a quarter of what the packages bring is.
        env=dict(BUILD_ENV, MOONLET_CLIENTS="1", PYTHONDONTWRITEBYTECODE=""),
        run="build/venv-clients/bin/python -m pytest -q -rs -p no:cacheprovider tests/clients",
    ),
    dict(
        name="{file}, {fuzz_s} s",
        each="tests/fuzz/fuzz_*.c",
        needs=["clang-14 with sanitizers"],
        run="tools/fuzz build-san/{stem} {fuzz_s}",
    ),
    # The tests run one thread of OpenMP or simulated steps: the compilers' runtimes are not instrumented, their
    # barriers would be reported.
    dict(
        name="ThreadSanitizer build",
        after=["program with them"],
        run=TSAN + "build-tsan/tests/unit/runtime/test_sched_threads build-tsan/tests/unit/server/test_server"
        " build-tsan/tests/unit/device/test_comm build-tsan/tests/unit/runtime/test_rank_threads"
        " build-tsan/tests/unit/runtime/test_host_cache",
    ),
    dict(
        name="threads sanitized: scheduler",
        needs=["ThreadSanitizer build"],
        run="build-tsan/tests/unit/runtime/test_sched_threads",
        count="cmocka",
    ),
    dict(
        name="threads sanitized: exchanges of ranks",
        needs=["ThreadSanitizer build"],
        run="build-tsan/tests/unit/device/test_comm",
        count="cmocka",
    ),
    dict(
        name="threads sanitized: ranks",
        needs=["ThreadSanitizer build"],
        run="build-tsan/tests/unit/runtime/test_rank_threads",
        count="cmocka",
    ),
    dict(
        name="threads sanitized: the host's KV pages",
        needs=["ThreadSanitizer build"],
        run="build-tsan/tests/unit/runtime/test_host_cache",
        count="cmocka",
    ),
    dict(
        name="sanitized operations, without AMX",
        needs=["clang-14 with sanitizers"],
        count="summary",
        env=SAN_ENV,
        timeout=2400,
        skip_status=77,
        run=f"build-san/moonlet-watched check --device cpu --cpu-mask noamx --op {TILED}" if HAS_AMX else NO_AMX,
    ),
    dict(
        name="threads sanitized: server",
        needs=["ThreadSanitizer build"],
        run="build-tsan/tests/unit/server/test_server",
        count="cmocka",
    ),
    dict(name="operations, no vector instructions", run="build/moonlet check --cpu-mask none", count="summary"),
    dict(name="operations, AVX-512", run="build/moonlet check --cpu-mask avx512", count="summary"),
    # others than experts are those of "AVX-512" or of the best here
    dict(name="experts, AVX-512 VNNI", run="build/moonlet check --cpu-mask vnni --op " + EXPERTS, count="summary"),
    dict(name="experts, AVX-512 BF16", run="build/moonlet check --cpu-mask bf16 --op " + EXPERTS, count="summary"),
    dict(
        name="operations, without AMX",
        run=("build/moonlet check --cpu-mask noamx --op " + TILED) if HAS_AMX else NO_AMX,
        count="summary",
        skip_status=77,
    ),
    dict(
        name="bits, without AMX",
        run="build/moonlet check bits --cpu-mask noamx" if HAS_AMX else NO_AMX,
        count="summary",
        skip_status=77,
    ),
    dict(name="every header compiles alone", run="tools/headers"),
    dict(name="make dist", after=["program with them"], run="make --no-print-directory dist"),
    dict(
        name="the web page in Chromium",
        run=PYTEST + "tests/browser/check_page.py",
        count="pytest",
        env=BUILD_ENV,
        tools=["chromium|chromium-browser|google-chrome"],
        timeout=400,
    ),
    dict(
        name="what is drawn, with drafts and without",
        run="{python} tests/load/distribution.py",
        count="summary",
        env=BUILD_ENV,
        cores=2,
        timeout=600,
    ),
    dict(name="load", run="{python} tests/load/load.py", count="summary", alone=True, timeout=600),
    dict(name="attacks", run="{python} tests/load/attacks.py --seconds 3", count="summary", alone=True, timeout=300),
]
