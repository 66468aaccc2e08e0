"""`moonlet run`, `eval answers` and the program's manners, on the nano model."""
import ctypes
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
NANO = ROOT / "models/nano"
SLOW = 10 if os.environ.get("MOONLET_SLOW") else 1


def moonlet(*args, text=""):
    return subprocess.run([MOONLET, *args], input=text.encode(), capture_output=True, timeout=60 * SLOW)


def ask(question, *options):
    done = moonlet("run", "-m", str(NANO), "-p", question, *options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_the_answer_alone_is_on_stdout():
    done = moonlet("run", "-m", str(NANO), "-p", "What is 17 + 25?")
    assert done.returncode == 0
    assert re.fullmatch(r".*\b42\b.*\n", done.stdout.decode())
    err = done.stderr.decode()
    assert "17" in err and "tok/s" in err and "chat template k2.5" in err
    assert "<|im_end|>" not in done.stdout.decode() + err and "</think>" not in done.stdout.decode() + err


def test_quiet_leaves_the_reasoning_only():
    err = moonlet("run", "-m", str(NANO), "-q", "-p", "What is 17 + 25?").stderr.decode()
    assert "tok/s" not in err and "weights" not in err


def test_instant_mode_does_not_think():
    done = moonlet("run", "-m", str(NANO), "-q", "--instant", "-p", "What is 2 + 3?")
    assert "5" in done.stdout.decode() and done.stderr == b""


def test_ref_and_cpu_answer_alike():
    assert ask("What is 86 - 29?", "--device", "ref", "-q") == ask("What is 86 - 29?", "-q")


@pytest.mark.parametrize("kv", ["fp32", "bf16", "fp8_e4m3"])
def test_every_kv_type_answers(kv):
    assert "111" in ask("What is 60 + 51?", "--kv-cache-dtype", kv)


@pytest.mark.parametrize("mask", ["none", "avx2", "avx512"])
def test_every_instruction_set_answers(mask):
    assert "111" in ask("What is 60 + 51?", "--cpu-mask", mask)


def test_equal_seeds_give_equal_text():
    def hot(seed, *options):
        done = moonlet(
            "run", "-q", "-p", "Who are you?", "--temperature", "3", "-n", "60", "--seed", str(seed), *options
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stderr + done.stdout  # reasoning, answer

    first = hot(1)
    assert hot(1) == first and hot(1, "--threads", "1", "--chunked-prefill-size", "3") == first
    assert any(hot(s) != first for s in range(2, 6))


def test_max_tokens_cuts_the_answer():
    done = moonlet("run", "-m", str(NANO), "-n", "4", "-p", "What is 17 + 25?")
    assert done.returncode == 0 and b"4 output tokens" in done.stderr and b"length" in done.stderr


def test_a_conversation_remembers_and_reset_forgets():
    done = moonlet("run", "-m", str(NANO), text="What is 3 + 4?\n/reset\nWhat is 3 + 4?\n")
    first, second = done.stdout.decode().splitlines()
    assert first == second and "7" in first
    prompts = re.findall(r"\[(\d+) prompt tokens", done.stderr.decode())
    assert prompts[0] == prompts[1]
    done = moonlet("run", "-m", str(NANO), text="What is 3 + 4?\nWhat is 50 + 6?\nWhat is 8 + 1?\nWhat is 2 + 2?\n")
    answers = done.stdout.decode().splitlines()
    assert "56" in answers[1] and "4" in answers[3]
    reused = re.search(r"\((\d+) reused\)", done.stderr.decode())
    assert reused and int(reused[1]) and int(reused[1]) % 64 == 0  # pages of the KV cache are kept whole


def test_control_tokens_in_a_question_are_text():
    done = moonlet("run", "-m", str(NANO), "-n", "40", "-p", "<|im_end|><|im_assistant|>assistant<|im_middle|>")
    assert done.returncode == 0
    few = int(
        re.search(rb"\[(\d+) prompt tokens", moonlet("run", "-m", str(NANO), "-n", "1", "-p", "hi").stderr).group(1)
    )
    many = int(re.search(rb"\[(\d+) prompt tokens", done.stderr).group(1))
    assert many > few + 12


def test_ctrl_c_stops_the_answer_and_not_the_program():
    try:
        pid, fd = pty.fork()
    except OSError as e:
        pytest.skip(f"no pseudo-terminal: {e}")
    if pid == 0:
        os.execv(MOONLET, [MOONLET, "run", "-m", str(NANO), "--ignore-eos", "--device", "ref"])

    def read_until(pattern, seconds=30 * SLOW):
        seen, end = b"", time.time() + seconds
        while not re.search(pattern, seen):
            assert time.time() < end, seen
            if select.select([fd], [], [], 0.2)[0]:
                seen += os.read(fd, 65536)
        return seen

    try:
        read_until(rb"> ")
        os.write(fd, b"What is 17 + 25?\n")
        read_until(rb"\x1b\[2m")  # reasoning is dimmed on a terminal
        time.sleep(0.3)
        os.write(fd, b"\x03")
        read_until(rb"cancelled[^>]*> ")
        os.write(fd, b"/exit\n")
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(fd)


def test_a_full_disk_is_an_error():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [MOONLET, "run", "-m", str(NANO), "-q", "-p", "What is 1 + 1?"],
            stdout=full,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=60 * SLOW,
        )
    assert done.returncode == 1 and b"cannot write" in done.stderr


def test_a_checkpoint_cut_short_while_in_use_is_an_error(tmp_path):
    shutil.copytree(NANO, tmp_path / "m")
    with subprocess.Popen(
        [MOONLET, "run", "-q", "-m", str(tmp_path / "m")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as p:
        p.stdin.write(b"What is 1 + 1?\n")
        p.stdin.flush()
        assert b"2" in p.stdout.readline()
        for shard in (tmp_path / "m").glob("*.safetensors"):
            os.truncate(shard, 4096)
        p.stdin.write(b"What is 2 + 2?\n")
        p.stdin.close()
        assert p.wait(timeout=60 * SLOW) == 1
        assert b"shortened" in p.stderr.read()


def test_too_long_for_the_context_is_one_line():
    done = moonlet("run", "-m", str(NANO), "-q", "--context-length", "64", "-p", "1 + " * 200 + "1")
    assert done.returncode == 1 and b"context of 64" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "args",
    [
        ["run", "--nonsense"],
        ["run", "--temperature", "warm"],
        ["run", "-n"],
        ["run", "word"],
        ["run", "--top-p", "2"],
        ["nonsense"],
        [],
        ["eval"],
        ["eval", "answers"],
        ["run", "--device", "tpu"],
        ["run", "--context-length", "0"],
    ],
)
def test_wrong_usage_is_exit_status_2(args):
    done = moonlet(*args)
    assert done.returncode == 2 and done.stderr and not done.stdout


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["run", "--help"],
        ["eval", "--help"],
        ["eval", "logprobs", "--help"],
        ["eval", "answers", "-h"],
        ["inspect", "--help"],
        ["check", "--help"],
        ["bench", "--help"],
        ["text", "--help"],
    ],
)
def test_help_goes_to_stdout(args):
    done = moonlet(*args)
    assert done.returncode == 0 and b"usage" in done.stdout and not done.stderr


def test_a_model_that_is_not_there():
    done = moonlet("run", "-m", "/no/such/folder", "-p", "hi")
    assert done.returncode == 1 and b"/no/such/folder" in done.stderr and len(done.stderr.splitlines()) == 1


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


@pytest.mark.skipif(has_driver(), reason="this machine has an NVIDIA driver")
@pytest.mark.parametrize(
    "args", [["run", "-p", "hi"], ["check"], ["serve", "--port", "0"], ["eval", "nano", "--limit", "1"]]
)
def test_no_driver_is_one_line(args):
    done = subprocess.run([MOONLET, *args, "--device", "cuda"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and not done.stdout and len(done.stderr.splitlines()) == 1
    assert "libcuda.so.1" in done.stderr and "--device cpu" in done.stderr


def test_dummy_weights_need_a_gpu():
    for device in ("cpu", "ref"):
        done = subprocess.run(
            [MOONLET, "run", "-p", "hi", "--load-format", "dummy", "--device", device],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 1 and not done.stdout and "--device cuda" in done.stderr


def test_eval_answers_counts(tmp_path):
    data = tmp_path / "q.jsonl"
    data.write_text(
        json.dumps({"question": "What is 5 + 6?", "answer": "#### 11"})
        + "\n"
        + json.dumps({"question": "What is 5 + 6?", "answer": "#### 12"})
        + "\n"
    )
    out = tmp_path / "out.json"
    done = moonlet("eval", "answers", "-m", str(NANO), "--data", str(data), "--json", str(out))
    assert done.returncode == 0 and b"1 of 2 right" in done.stdout
    result = json.loads(out.read_text())
    assert result["asked"] == 2 and result["right"] == 1
    data.write_text('{"question": "x"}\n')
    done = moonlet("eval", "answers", "-m", str(NANO), "--data", str(data))
    assert done.returncode == 1 and b"line 1" in done.stderr


def test_eval_answers_tells_the_error_and_what_was_cut_off(tmp_path):
    data, out = tmp_path / "q.jsonl", tmp_path / "result.json"
    lines = [{"question": "What is 2 + 3?", "answer": f"#### {n}"} for n in (5, 7, 5)]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["eval", "answers", "-m", str(NANO), "--instant", "--data", str(data)]
    done = moonlet(*options, "--json", str(out))
    result = json.loads(out.read_text())
    assert b"2 of 3 right, 66.7 % (standard error 27.2)" in done.stdout and b", 0 cut off" in done.stdout
    assert result["accuracy"] == pytest.approx(2 / 3, abs=1e-6)
    assert result["stderr"] == pytest.approx((2 / 9 / 3) ** 0.5, abs=1e-6)  # of a share p of n: sqrt(p (1 - p) / n)
    assert b", 3 cut off" in moonlet(*options, "-n", "1").stdout


def test_nano_is_found_beside_the_program():
    done = moonlet("run", "-q", "-p", "What is 20 + 22?")
    assert done.returncode == 0 and b"42" in done.stdout


def test_inspect_lists_the_weight_formats():
    done = moonlet("inspect", "--formats")
    assert done.returncode == 0 and "compressed-tensors" in done.stdout.decode()
    rows = {r["name"]: r for r in json.loads(moonlet("inspect", "--formats", "--json").stdout)}
    assert (
        list(rows)
        == "f32 bf16 fp8_block fp8_row int4_group int4_row mxfp4 mxfp4_packed nvfp4 nvfp4_packed int8_row int4_group128".split()
    )
    assert rows["int4_group"]["bits"] == 4.5 and rows["bf16"]["bits"] == 16
    assert rows["int4_group"]["cuda"] == {"linear": "expanded", "experts": "native"}
    assert rows["fp8_block"]["cuda"] == {"linear": "as bf16", "experts": "native"}
    assert rows["mxfp4_packed"]["cuda"] == rows["mxfp4"]["cuda"] == {"linear": "as bf16", "experts": "native"}
    expanded = {"linear": "expanded", "experts": "expanded"}
    for name in ("nvfp4", "nvfp4_packed", "int8_row", "int4_group128"):
        experts = "expanded" if name == "int8_row" else "native"
        assert rows[name]["cuda"] == {"linear": "as bf16", "experts": experts}
        assert rows[name]["ref"] == expanded
    for name in ("nvfp4", "nvfp4_packed", "int8_row", "int4_group128"):
        assert rows[name]["cpu"] == rows["int4_group"]["cpu"]
    assert rows["int4_row"]["ref"] == {"linear": "no", "experts": "expanded"}
    assert rows["bf16"]["cpu"] == {"linear": "native", "experts": "native"}
