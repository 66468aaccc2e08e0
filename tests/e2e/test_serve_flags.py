"""Launch commands of SGLang, pasted behind `moonlet serve` and `moonlet bench serving`: each flag works, says that it
changes nothing, or is refused with what to write instead; docs/guide/flags.md has them all. And --numa-node."""
import contextlib
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from serve_client import MOONLET, NANO, ROOT, SLOW, Server

GUIDE = (ROOT / "docs/guide/flags.md").read_text()
TABLES = [ROOT / "cmd/lib/model_opts.c", ROOT / "cmd/serve/elsewhere.c"]
NUMA = Path("/sys/devices/system/node")

# behind `python -m sglang.launch_server`; MODEL stands for the model's path
BASELINE = """--model MODEL --tp 8 --attention-backend aiter --host 0.0.0.0 --port 9527 --mem-fraction-static 0.9
    --trust-remote-code --disable-custom-all-reduce"""
COMPILED = """--model MODEL --tp 8 --attention-backend aiter --host 0.0.0.0 --port 9527 --mem-fraction-static 0.9
    --trust-remote-code --disable-radix-cache --enable-torch-compile --disable-custom-all-reduce"""
EAGLE3 = """--model MODEL --tp 8 --attention-backend aiter --host 0.0.0.0 --port 9527 --mem-fraction-static 0.80
    --trust-remote-code --disable-radix-cache --enable-torch-compile --numa-node 0 0 0 0 1 1 1 1
    --speculative-algorithm EAGLE3 --speculative-draft-model-path /path/to/kimi-k2.5-eagle3
    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"""
# behind `python3 -m sglang.bench_serving`
BENCHES = [
    f"""--model MODEL --dataset-name random --random-input 10240 --random-output 512 --num-prompts {n}
    --max-concurrency {c} --request-rate inf --port 9527 --random-range-ratio 1.0"""
    for n, c in ((10, 2), (160, 40))
]
NOTICES = {
    "--attention-backend": "device, type and shape choose the kernel; measured choices: --tuned",
    "--trust-remote-code": "no code of a model's folder is ever run",
    "--enable-torch-compile": "kernels are compiled when Moonlet is built",
}
ALL_REDUCE = "--disable-custom-all-reduce is for --device cuda with --tp: leave it out"


def serve(*words):
    return subprocess.run(
        [MOONLET, "serve", *words], capture_output=True, text=True, timeout=30 * SLOW, stdin=subprocess.DEVNULL
    )


def pasted(text, tp):
    """The words; --tp and the list of nodes as this host has them: nano has 4 heads, and a host may have one node."""
    text = text.replace("MODEL", str(NANO)).replace("--tp 8", f"--tp {tp}")
    text = text.replace("/path/to/kimi-k2.5-eagle3", f"{NANO}-eagle3-mla")
    return text.replace("--numa-node 0 0 0 0 1 1 1 1", "--numa-node " + " ".join("0" * tp)).split()


def without(words, prefix):
    """Leaves out the options that begin so, with their values."""
    out = []
    for w in words:
        if w.startswith("--") or not skipping:
            skipping = w.startswith(prefix)
        if not skipping:
            out.append(w)
    return out


@pytest.mark.parametrize("command", [BASELINE, COMPILED])
def test_custom_all_reduce_is_refused_on_a_processor(command):
    done = serve(*pasted(command, 2))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == f"moonlet serve: {ALL_REDUCE}"


def test_other_speculative_flags_are_refused():
    done = serve("--speculative-attention-mode", "decode")
    assert done.returncode == 2
    assert "--speculative-attention-mode: not one of Moonlet's" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", [BASELINE, COMPILED, EAGLE3], ids=["baseline", "compiled", "eagle3"])
def test_the_rest_of_each_command_starts(command):
    words = without(pasted(command, 2), "--disable-custom-all-reduce")
    if "--numa-node" in words and not may_bind():
        words = without(words, "--numa-node")
    s = Server(*words, "--port", "0")
    try:
        info = s.get("/server_info")[1]
        assert info["tp_size"] == 2 and info["host"] == "0.0.0.0"
        assert info["disable_radix_cache"] == ("--disable-radix-cache" in words)
        assert info["numa_node"] == ([0, 0] if "--numa-node" in words else None)
        answer = s.post("/v1/completions", {"prompt": [300, 301, 302], "max_tokens": 4, "temperature": 0})
        assert answer["usage"]["completion_tokens"] >= 1
    finally:
        assert s.stop() == 0
    said = [line.rstrip() for line in s.log if "changes nothing here" in line]
    assert said == [f"{w} changes nothing here: {NOTICES[w]}" for w in words if w in NOTICES]


@pytest.mark.parametrize("command", BENCHES)
def test_the_benchmarks_run(command):
    """As they are, but for fewer and shorter requests, against a server on another port."""
    words = command.replace("MODEL", str(NANO)).split()
    help_of_it = subprocess.run([MOONLET, "bench", "serving", *words, "--help"], capture_output=True, text=True)
    assert help_of_it.returncode == 0 and help_of_it.stderr == ""
    s = Server("--simulate-step", "100", "--max-running-requests", "40")
    try:
        few = ["--num-prompts", "4", "--port", str(s.port), "--random-input", "24", "--random-output", "8"]
        done = subprocess.run(
            [MOONLET, "bench", "serving", *words, *few], capture_output=True, text=True, timeout=60 * SLOW
        )
        assert done.returncode == 0, done.stderr
        assert re.search(r"Successful requests:\s+4\s", done.stdout), done.stdout
        assert re.search(r"Total input tokens:\s+96\s", done.stdout), done.stdout
    finally:
        s.stop()


def test_other_names():
    s = Server(
        "--tensor-parallel-size", "2", "--max-model-len", "512", "--max-num-seqs", "3", "--max-num-batched-tokens=64",
        "--no-enable-prefix-caching", "--gpu_memory_utilization", "0.7", "--scheduling-policy", "fcfs",
        "--served-model-name", "K"
    )  # fmt: skip
    try:
        info = s.get("/server_info")[1]
        want = {
            "tp_size": 2,
            "context_length": 512,
            "max_running_requests": 3,
            "chunked_prefill_size": 64,
            "disable_radix_cache": True,
            "served_model_name": "K",
        }
        assert {k: info[k] for k in want} == want
    finally:
        assert s.stop() == 0


def test_the_folder_alone():
    """As `vllm serve DIR`: one word, and not beside --model."""
    process = subprocess.Popen([MOONLET, "serve", str(NANO), "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert "(nano, " in process.stdout.readline()
    process.terminate()
    assert process.wait(30 * SLOW) == 0
    for words in ([str(NANO), "more"], ["-m", str(NANO), "more"]):
        done = serve(*words)
        assert done.returncode == 2 and done.stderr == 'moonlet serve: unexpected word "more"\n'


# ---- the guide and the tables are one ----


def rows():
    """(kind, name, value) of the tables' rows."""
    for table in TABLES:
        text = re.sub(r'"\s*\n\s*"', "", table.read_text())
        for name in re.findall(r'OPT_SAME\("([^"]+)"', text):
            yield "SAME", name, None
        for name, kind, value in re.findall(r'{"([^"]+)", ELSEWHERE_(\w+), \w+, (?:"(\w+)"|NULL)', text):
            yield kind, name, value or None


def guide_flags():
    """{section: flags of its first column}, a flag with its value if it has one."""
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", GUIDE, re.M | re.S))
    return {
        title: re.findall(r"`(-[^`]+)`", "\n".join(re.findall(r"^\| (.*?) \|", text, re.M)))
        for title, text in sections.items()
    }


SECTIONS = {
    "SAME": "Under another name",
    "NOTHING": "Taken, with a notice that nothing changes",
    "REFUSED": "Refused",
}


def test_the_guide_has_every_row():
    flags = guide_flags()
    assert len(list(rows())) > 90
    for kind, name, value in rows():
        dashed = name if name.startswith("-") else f"--{name}"
        there = [f.split() for f in flags[SECTIONS[kind]]]
        assert any(f[0] == dashed and (not value or f[1] == value) for f in there), (kind, name, value)


def sample(flag):
    """A flag of the guide as words that can be given."""
    name, _, value = flag.partition(" ")
    values = {"N": "7", "F": "0.5", "P": "lpm", "DIR": str(NANO), "X": "x", "L": "info", "": None}
    word = values.get(value, value)
    return [name.replace("*", "keyfile")] + ([word] if word else [])


@pytest.mark.parametrize("kind,flag", [(k, f) for k in SECTIONS for f in guide_flags()[SECTIONS[k]]])
def test_a_flag_does_what_the_guide_says(kind, flag):
    done = serve(*sample(flag), "--help")
    name = sample(flag)[0]
    if kind == "SAME":
        assert done.returncode == 0 and done.stderr == ""
    elif kind == "NOTHING":
        assert done.returncode == 0
        assert re.fullmatch(re.escape(name) + r" changes nothing here: .*\n", done.stderr)
    else:
        assert done.returncode == 2 and done.stdout == ""
        assert re.fullmatch("moonlet serve: " + re.escape(name) + r"(:| is) .*\n", done.stderr), done.stderr


def test_what_is_named_instead_is_there():
    """Our own options that the tables' texts name."""
    helped = serve("--help").stdout
    for table in TABLES:
        text = re.sub(r'"\s*\n\s*"', "", table.read_text())
        named = set(re.findall(r'OPT_SAME\("[^"]+", "([^"]+)"', text))
        named |= {m for m in re.findall(r"(?<!/)--([a-z][a-z0-9-]+)", text) if not m.startswith("speculative-")}
        assert named
        for name in named - {"help"}:
            assert f"--{name} " in helped, (table.name, name)


# ---- NUMA nodes ----


def may_bind():
    """Containers may forbid it."""
    return (
        subprocess.run([MOONLET, "run", "--numa-node", "0", "-p", "1", "-n", "1"], capture_output=True).returncode == 0
    )


def threads_of(pid):
    """{thread: (its processors, its memory's policy)}"""
    out = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a connection's has ended meanwhile
            cpus = re.search(r"^Cpus_allowed_list:\t(.*)$", (task / "status").read_text(), re.M)[1]
            line = (task / "numa_maps").read_text().splitlines()[0]
            out[int(task.name)] = (set(cpus_of(cpus)), line.split()[1])
    return out


needs_numa = pytest.mark.skipif(not NUMA.exists() or not may_bind(), reason="this host or container binds nothing")


def cpus_of(text):
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


@needs_numa
@pytest.mark.parametrize("tp,most", [(1, 1024), (2, 1024), (2, 1)])
def test_each_rank_is_bound(tp, most):
    """The ranks' threads (with their teams) and the engine's are bound, to what the process was given of the node's
    processors; the server's own are not."""
    before = os.sched_getaffinity(0)
    node = before & set(cpus_of((NUMA / "node0/cpulist").read_text()))
    node = set(sorted(node)[-most:])
    os.sched_setaffinity(0, node)
    try:
        s = Server("--tp", str(tp), "--numa-node", "0", "--device", "cpu")
    finally:
        os.sched_setaffinity(0, before)
    try:
        assert s.get("/server_info")[1]["numa_node"] == [0] * tp
        s.post("/v1/completions", {"prompt": [300] * 40, "max_tokens": 4, "temperature": 0})
        threads = threads_of(s.process.pid)
        bound = [t for t, (_, policy) in threads.items() if policy.startswith("bind:0")]
        assert len(bound) >= tp + 1
        assert threads[s.process.pid][1] == "default"
        assert all(threads[t][0] == node for t in bound)
    finally:
        assert s.stop() == 0
    assert "NUMA nodes " + ",".join("0" * tp) + "; cpu" in s.ready + "".join(s.log)


@pytest.mark.skipif(not (NUMA / "online").exists(), reason="this host tells of no nodes")
@pytest.mark.parametrize(
    "words,message",
    [
        (["--numa-node", "900"], r"--numa-node 900: this host has nodes? [\d,-]+"),
        (["--numa-node", "0", "900", "--tp", "2"], r"--numa-node 900: this host has nodes? [\d,-]+"),
        (["--numa-node", "0,0", "0", "--tp", "2"], r"--numa-node 0,0,0: one node .* each of 2 ranks, as 0,0,1,1"),
        (["--numa-node", "0", "0"], r"--numa-node 0,0: one node is wanted, as 0"),
        (["--numa-node", "x"], r"--numa-node x: one node is wanted, as 0"),
        (["--numa-node", "99999999999999999999"], r"--numa-node 9{20}: one node is wanted, as 0"),
        (["--numa-node="], r"--numa-node : one node is wanted, as 0"),
    ],
)
def test_nodes_that_are_refused(words, message):
    done = serve(*words)
    assert done.returncode == 1 and re.fullmatch(f"moonlet serve: {message}\n", done.stderr), done.stderr


def test_openmp_binds_already():
    done = subprocess.run(
        [MOONLET, "serve", "--numa-node", "0"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_PROC_BIND": "true"},
    )
    assert done.returncode == 1 and "unset OMP_PROC_BIND" in done.stderr


def test_the_words_of_the_guide():
    """The command that the guide shows is one that is taken."""
    command = re.search(r"^```sh\n(moonlet serve .*?)^```", GUIDE, re.M | re.S)[1].replace("\\\n", " ")
    done = serve(*shlex.split(command)[2:], "--help")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stderr.splitlines()] == [w for w in command.split() if w in NOTICES]
