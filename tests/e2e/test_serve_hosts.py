"""`moonlet serve --nnodes 2` under mpirun: the answers of one process, and what becomes of clients when a process ends,
stands still, or is not like the others. All processes are of this machine."""
import http.client
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from serve_client import MOONLET, NANO, SLOW, Server, wait_until
from test_serve_drafts import answers_of
from test_serve_pictures import CHATS, ask

MPIRUN = shutil.which("mpirun")
PLUGIN = Path(MOONLET).with_name("moonlet-mpi.so")
pytestmark = pytest.mark.skipif(not MPIRUN or not PLUGIN.exists(), reason="no mpirun, or no moonlet-mpi.so was built")
# MPI keeps memory at its end, which is not what sanitizers are to find.
KEEPS = "ASAN_OPTIONS=" + ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "detect_leaks=0"]))
FLAGS = ["env", KEEPS, MPIRUN or "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
NO_DRAFTS = ["--speculative-algorithm", "NONE"]
two = lambda *more: [*FLAGS, *more, "-n", "2"]
STAGES = ["--pp", "2", *NO_DRAFTS]


class Hosts(Server):
    """Two processes, or `processes`; self.pids are theirs, in order."""

    def __init__(self, *args, processes=2, **kwargs):
        n = str(processes)
        super().__init__("--nnodes", n, "--tp", "2", *args, under=[*FLAGS, "-n", n], **kwargs)
        at = lambda pid: int(dict(l.partition("=")[::2] for l in environment(pid))["OMPI_COMM_WORLD_RANK"])
        self.pids = sorted(children(self.process.pid), key=at)

    def stop(self, **_):
        """As an operator would, so that answers under way end: mpirun's own end gives them two seconds."""
        os.kill(self.pids[0], signal.SIGTERM)
        return self.process.wait(30 * SLOW)


def environment(pid):
    return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")


def children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(p) for p in out if "OMPI_COMM_WORLD_RANK" in "".join(environment(int(p)))]


def gone(pids):
    return all(not Path(f"/proc/{p}").exists() or "\nState:\tZ" in Path(f"/proc/{p}/status").read_text() for p in pids)


@pytest.fixture(scope="module")
def pair():
    all_of_them = [Server("--tp", "2", "--max-running-requests", "4"), Hosts("--max-running-requests", "4")]
    yield all_of_them
    assert [s.stop() for s in all_of_them] == [0, 0]
    said = "".join(all_of_them[1].log)
    assert "2 processes, " in said and " told in " in said


def test_the_answers_of_one_process(pair):
    """Drafts, penalties, log-probabilities, forced calls: the same bits."""
    one, several = (answers_of(s) for s in pair)
    assert one == several
    assert pair[1].metric("moonlet:draft_tokens_accepted_total") > 0


def test_pictures(pair):
    for i in range(min(3, len(CHATS))):
        one, several = (ask(s, i)["choices"][0]["message"] for s in pair)
        assert one == several


def test_the_server_says_how_many(pair):
    assert [s.get("/server_info")[1]["nnodes"] for s in pair] == [1, 2]
    assert [s.metric("moonlet:processes") for s in pair] == [1, 2]
    assert pair[1].metric("moonlet:host_told_bytes_total") > 0
    assert "2 ranks in 2 processes" in "".join(pair[1].log)
    assert all(s.get("/kv_check")[1]["ok"] is True for s in pair)


@pytest.mark.parametrize("flags", [["--dcp", "2"], ["--enable-dp-attention"], ["--ep", "2"]])
def test_other_ways_to_divide(flags):
    flags = ["--device", "ref", "--max-running-requests", "4", "--speculative-algorithm", "NONE", *flags]
    servers = [Server("--tp", "2", *flags), Hosts(*flags)]
    one, several = (answers_of(s, 3) for s in servers)
    assert [s.stop() for s in servers] == [0, 0]
    assert [c.get("text") or c["message"] for c in one] == [c.get("text") or c["message"] for c in several]


CHAINS = ["--speculative-num-steps", "3", "--speculative-disable-adaptive"]
TREES = ["--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "12", "--speculative-disable-adaptive"]


@pytest.mark.parametrize("processes, drafts", [(2, NO_DRAFTS), (2, CHAINS), (4, CHAINS), (4, TREES)])
def test_stages(processes, drafts):
    """Layers divided among processes, and with four of them each stage, too: the bits of one process, and of one
    stage. Drafts are made where the first process has no part of the model that could."""
    drafts = [*drafts, "--max-running-requests", "4"]
    servers = [Server("--tp", "2", *drafts), Hosts("--pp", "2", *drafts, processes=processes)]
    few = [answers_of(s, 6, 40) for s in servers]  # as many at once as give the same batches in every run
    true = [s.metric("moonlet:draft_tokens_accepted_total") for s in servers]
    one, several = (answers_of(s, tokens=40) for s in servers)
    shown = [[ask(s, i)["choices"][0]["message"] for i in range(min(2, len(CHATS)))] for s in servers]
    told = [servers[1].get("/server_info")[1][key] for key in ("tp_size", "pp_size", "nnodes")]
    assert [s.stop() for s in servers] == [0, 0]
    assert one == several and few[0] == few[1] and shown[0] == shown[1] and told == [2, 2, processes]
    assert f"4 ranks in {processes} processes, stages of 3, 3 layers" in "".join(servers[1].log)
    assert true[0] == true[1] and (true[0] > 0) == ("NONE" not in drafts)


def test_experts_move():
    """Every process finds the same places from the first one's counts, and takes experts from its own checkpoint."""
    flags = ["--ep", "2", "--deterministic", *NO_DRAFTS]
    moving = ["--enable-eplb", "--eplb-rebalance-num-iterations", "12"]
    servers = [Server("--tp", "2", *flags), Hosts(*flags, *moving), Hosts(*flags, *moving, "--pp", "2", processes=4)]
    one, several, staged = ([answers_of(s, tokens=40) for _ in range(3)] for s in servers)
    moved = [s.metric("moonlet:experts_moved_total") for s in servers]
    assert [s.stop() for s in servers] == [0, 0, 0]
    assert one == several == staged
    assert moved[0] == 0 < min(moved[1:])


# ---- faults ----


def stream_until_it_ends(server, out):
    body = {"text": "one two three", "stream": True, "sampling_params": {"max_new_tokens": 4000, "ignore_eos": True}}
    try:
        c = server.connect()
        c.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        for line in r:
            out.append(line.decode())
    except (OSError, http.client.HTTPException) as e:
        out.append(f"cut: {e!r}")


def during_an_answer(act, *flags):
    """(what the client read, mpirun's exit status, its log, seconds until it had ended) when act(server) comes in the
    middle of an answer."""
    server = Hosts("--device", "ref", "--context-length", "8192", "--speculative-algorithm", "NONE", *flags)
    out = []
    client = threading.Thread(target=stream_until_it_ends, args=(server, out))
    client.start()
    wait_until(lambda: len(out) > 20)
    began = time.monotonic()
    act(server)
    code = server.process.wait(60 * SLOW)
    took = time.monotonic() - began
    client.join(30 * SLOW)
    wait_until(lambda: gone(server.pids))
    return "".join(out), code, "".join(server.log), took


def no_answer_ended_well(read):
    assert '"finish_reason":{"type"' not in read and '"finish_reason": {"type"' not in read, read[-500:]


def test_a_process_stands_still():
    read, code, said, took = during_an_answer(lambda s: os.kill(s.pids[1], signal.SIGSTOP), "--dist-timeout", "1")
    no_answer_ended_well(read)
    why = ", rank 1) did not come to "
    assert "process 1 (" in read and why in read and '"code":500' in read, read[-500:]
    assert code != 0 and why in said
    assert took < 30 * SLOW


def test_a_process_is_killed():
    read, code, said, took = during_an_answer(lambda s: os.kill(s.pids[1], signal.SIGKILL))
    no_answer_ended_well(read)
    # where the machine is busy, mpirun's own two seconds may be over before the client is told
    assert "does not answer: it has ended, or stands still" in read or "cut: " in read, read[-500:]
    assert code != 0 and "process rank 1 with PID" in said and "exited on signal 9" in said
    assert took < 30 * SLOW


def test_a_stage_stands_still():
    read, code, said, _ = during_an_answer(lambda s: os.kill(s.pids[1], signal.SIGSTOP), "--dist-timeout", "1", *STAGES)
    no_answer_ended_well(read)
    assert "process 1 (" in read and ", ranks 2 to 3) did not come to " in read and '"code":500' in read, read[-500:]
    assert code != 0


def test_a_stage_is_killed():
    read, code, said, _ = during_an_answer(lambda s: os.kill(s.pids[1], signal.SIGKILL), *STAGES)
    no_answer_ended_well(read)
    assert "does not answer: it has ended, or stands still" in read or "cut: " in read, read[-500:]
    assert code != 0 and "exited on signal 9" in said


def test_the_first_process_is_killed():
    read, code, _, took = during_an_answer(lambda s: os.kill(s.pids[0], signal.SIGKILL))
    no_answer_ended_well(read)
    assert code != 0 and took < 30 * SLOW


def test_mpirun_is_killed():
    read, _, _, _ = during_an_answer(lambda s: s.process.kill())
    no_answer_ended_well(read)
    assert "mpirun has ended" in read, read[-500:]


def test_one_that_stands_still_does_not_stop_the_end():
    """Nor does one that was still for a moment make an end of others' answers."""
    server = Hosts("--dist-timeout", "2", *NO_DRAFTS)
    os.kill(server.pids[1], signal.SIGSTOP)
    os.kill(server.pids[0], signal.SIGTERM)
    began = time.monotonic()
    assert server.process.wait(60 * SLOW) != 0
    assert time.monotonic() - began < 30 * SLOW
    assert ", rank 1) did not come to the end within 2 s" in "".join(server.log)
    wait_until(lambda: gone(server.pids))
    server = Hosts(*NO_DRAFTS)
    os.kill(server.pids[1], signal.SIGSTOP)
    os.kill(server.pids[0], signal.SIGTERM)
    time.sleep(1)
    os.kill(server.pids[1], signal.SIGCONT)
    assert server.process.wait(60 * SLOW) == 0


def refused(command, env=None):
    r = subprocess.run(command, capture_output=True, text=True, timeout=60 * SLOW, env={**os.environ, **(env or {})})
    assert r.returncode != 0, r.stdout
    return r.stdout + r.stderr


def serve(*flags, model=NANO):
    return [MOONLET, "serve", "-m", str(model), "--port", "0", "--nnodes", "2", "--tp", "2", *NO_DRAFTS, *flags]


def test_processes_that_differ(tmp_path):
    one = [*FLAGS, "-n", "1"]
    said = refused([*one, *serve("--context-length", "1024"), ":", "-n", "1", *serve("--context-length", "2048")])
    assert "process 1 (" in said and "--context-length is 2048 here and 1024 for process 0" in said, said
    other = tmp_path / "nano"
    shutil.copytree(NANO, other)
    shard = next(other.glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    shard.write_bytes(data)
    said = refused([*one, *serve(), ":", "-n", "1", *serve(model=other)])
    assert "the checkpoint is " in said and "all processes need the same" in said, said


def test_a_process_that_cannot_start(tmp_path):
    """The others learn its reason at once."""
    began = time.monotonic()
    said = refused([*FLAGS, "-n", "1", *serve(), ":", "-n", "1", *serve(model=tmp_path / "none")])
    assert "process 1 (" in said and "none/config.json: No such file" in said, said
    assert time.monotonic() - began < 30 * SLOW


def test_what_is_refused(tmp_path):
    assert "mpirun has started 1: mpirun -n 2 moonlet" in refused(serve())
    assert "--nnodes 2 shares a model among them" in refused([*two(), MOONLET, "serve", "-m", str(NANO), "--port", "0"])
    assert "--nnodes 2 is for --tp" in refused([*two(), MOONLET, "serve", "--nnodes", "2", "--port", "0"])
    assert "--nnodes 3 needs as many processes" in refused([*two(), *serve(), "--nnodes", "3"])
    none = str(tmp_path / "moonlet-mpi.so")
    assert f"{none}: cannot open" in refused([*two(), *serve()], {"MOONLET_MPI": none})
