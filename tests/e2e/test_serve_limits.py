"""`moonlet serve` within a machine's limits, its proof of the KV pool, and steps that are simulated."""
import json
import re
import resource
import socket
import subprocess
import threading
import time

from serve_client import JSON, MOONLET, NANO, SLOW, Server


def start(files, *args):
    """The first line on stdout, what stderr says and the exit status of a server that may open so many files."""
    p = subprocess.Popen(
        [MOONLET, "serve", "-m", str(NANO), "--port", "0", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, files),
    )
    ready = p.stdout.readline().decode()
    if ready:
        p.terminate()
    _, log = p.communicate(timeout=120)
    return ready, log.decode(), p.returncode


def test_fewer_files_than_connections():
    ready, log, status = start((96, 96))
    assert ready and status == 0 and "at most 32 connections instead of 1024" in log
    ready, log, status = start((96, 96), "--max-connections", "100")
    assert not ready and status == 1 and "--max-connections 100 needs 164 open files, 96 are allowed" in log
    ready, log, status = start((60, 60))
    assert not ready and status == 1 and "ulimit -n" in log


def test_the_soft_limit_is_raised():
    ready, log, status = start((96, 4096), "--max-connections", "100")
    assert ready and status == 0 and "ulimit" not in log


def test_kv_check():
    s = Server("--max-total-tokens", "4096")
    try:
        s.post("/v1/completions", {"prompt": [300] * 200, "max_tokens": 4})
        check = s.get("/kv_check")[1]
        assert check["ok"] is True and check["fault"] == "" and check["pages"] == 64 and check["pages_used"] == 0
        assert check["pages_cached"] >= 3 and check["pages_cached"] + check["pages_free"] == 64
    finally:
        assert s.stop() == 0


def test_simulated_steps_say_so(tmp_path):
    s = Server("--simulate-step", "0")
    try:
        assert "SIMULATED" in s.ready and s.get("/server_info")[1]["simulated"] is True
        ask = {"prompt": [300], "max_tokens": 5, "temperature": 0, "return_token_ids": True}
        want, ids = [], 300
        for _ in range(5):
            ids = 256 + (ids * 31 + 7) % (2048 * 4 // 5 - 256)
            want.append(ids)
        assert s.post("/v1/completions", ask)["choices"][0]["token_ids"] == want
        out = tmp_path / "r.jsonl"
        done = subprocess.run(
            [
                MOONLET,
                "bench",
                "serving",
                "--port",
                str(s.port),
                "--tokenizer",
                str(NANO),
                "--dataset-name",
                "random-ids",
                "--random-input-len",
                "8",
                "--random-output-len",
                "20",
                "--random-range-ratio",
                "1",
                "--max-concurrency",
                "4",
                "--num-prompts",
                "8",
                "--warmup-requests",
                "0",
                "--output-file",
                str(out),
                "--chart",
                str(tmp_path / "c.svg"),
            ],
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        result = json.loads(out.read_text())
        assert result["simulated"] is True and result["completed"] == 8 and result["total_output_tokens"] == 160
        assert re.search(r"Model: +SIMULATED", done.stdout.decode()) and "SIMULATED" in (tmp_path / "c.svg").read_text()
    finally:
        assert s.stop() == 0
    s = Server()
    try:
        assert "SIMULATED" not in s.ready and s.get("/server_info")[1]["simulated"] is False
    finally:
        assert s.stop() == 0


def test_simulated_in_process(tmp_path):
    out = tmp_path / "r.jsonl"
    command = [
        MOONLET,
        "bench",
        "serving",
        "-m",
        str(NANO),
        "--simulate-step",
        "100",
        "--dataset-name",
        "random-ids",
        "--random-input-len",
        "8",
        "--random-output-len",
        "20",
        "--num-prompts",
        "8",
        "--output-file",
        str(out),
    ]
    done = subprocess.run([*command, "--in-process"], capture_output=True, timeout=120)
    assert done.returncode == 0 and json.loads(out.read_text())["simulated"] is True, done.stderr
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 1 and b"--simulate-step goes with --in-process" in done.stderr
    own = [["--decode-stall", "0.2"], ["--skip-server-warmup"]]
    rest = [*command[:5], *command[7:]]
    for flags in own:
        done = subprocess.run([*rest, *flags], capture_output=True, timeout=120)
        assert done.returncode == 1 and f"{flags[0]} goes with --in-process".encode() in done.stderr
    done = subprocess.run([*command, "--in-process", *own[0], *own[1]], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_image_urls_are_not_fetched():
    """A picture from elsewhere is refused, and nobody is asked for it."""
    s = Server()
    trap = socket.create_server(("127.0.0.1", 0))
    trap.setblocking(False)
    try:
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/x.png"
        part = {"type": "image_url", "image_url": {"url": url}}
        status, answer, _ = s.request(
            "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}]}, JSON
        )
        assert status == 400 and answer["error"]["param"] == "messages[0].content[0]"
        try:
            trap.accept()
            raise AssertionError("somebody came for the picture")
        except BlockingIOError:
            pass
    finally:
        trap.close()
        assert s.stop() == 0


LONG = {"prompt": [300], "max_tokens": 5000, "ignore_eos": True}


def test_a_deadline_in_the_middle_of_a_stream():
    """Steps of 20 ms, a second for a request: the stream gets some tokens, an error and its end; the others go on."""
    s = Server("--simulate-step", "20000", "--request-timeout", str(1 * SLOW))
    try:
        events = s.stream("/v1/completions", LONG)
        assert "error" in events[-1] and events[-1]["error"]["code"] == "timeout" and len(events) > 5
        assert all("choices" in e for e in events[:-1])
        status, answer, head = s.request("POST", "/v1/completions", LONG)
        assert status == 503 and answer["error"]["code"] == "timeout" and int(head["retry-after"]) > 0
        assert s.post("/v1/completions", {**LONG, "max_tokens": 3})["choices"][0]["finish_reason"] == "length"
        assert s.get("/kv_check")[1]["pages_used"] == 0
    finally:
        assert s.stop() == 0


def test_a_deadline_in_the_queue():
    s = Server("--simulate-step", "20000", "--max-running-requests", "1", "--queue-timeout", "0.5")
    first = threading.Thread(target=s.post, args=("/v1/completions", {**LONG, "max_tokens": 100}))
    try:
        first.start()
        while s.stats()["num_running_reqs"] == 0:
            time.sleep(0.01)
        status, answer, head = s.request("POST", "/v1/completions", {**LONG, "max_tokens": 1})
        assert status == 503 and answer["error"]["code"] == "timeout" and int(head["retry-after"]) > 0
        first.join()  # the one that runs is not touched
        assert s.post("/v1/completions", {**LONG, "max_tokens": 1})
    finally:
        first.join()
        assert s.stop() == 0


def test_a_step_that_takes_too_long_fails_health():
    s = Server("--simulate-step", str(2000000 * SLOW), "--watchdog-timeout", str(0.5 * SLOW))
    ask = threading.Thread(target=s.post, args=("/v1/completions", {**LONG, "max_tokens": 1}))
    try:
        assert s.get("/health")[0] == 200
        ask.start()
        seen = set()
        while ask.is_alive():
            status, answer, _ = s.get("/health")
            seen.add((status, answer["status"]))
            time.sleep(0.05)
        assert (503, "stuck") in seen
        assert s.get("/health")[0] == 200
    finally:
        ask.join()
        assert s.stop() == 0
