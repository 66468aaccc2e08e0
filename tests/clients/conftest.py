"""Clients from PyPI against `moonlet serve`. They need packages that `make check` does without, so they are collected
only when `make check-all` runs them in their own environment (tools/clients)."""
import os
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
collect_ignore_glob = [] if os.environ.get("MOONLET_CLIENTS") else ["test_*.py"]


@pytest.fixture(scope="session")
def server():
    from serve_client import Server

    s = Server("--max-running-requests", "16", "--max-queued-requests", "64")
    yield s
    stats = s.stats()
    assert stats["num_running_reqs"] == 0 == stats["num_queue_reqs"] and stats["pages_used"] == 0
    assert s.stop() == 0


@pytest.fixture(scope="session")
def strict_server():
    """One that wants a key and gives a request two seconds."""
    from serve_client import Server

    s = Server(
        "--api-key", "secret", "--request-timeout", "2", "--max-running-requests", "2", "--max-queued-requests", "4"
    )
    yield s
    assert s.stop() == 0


@pytest.fixture
def full_queue(strict_server):
    """Every place of the strict server and its whole queue are taken until the requests' time is over. A request's
    share is three answers."""
    key = {"x-api-key": "secret"}
    body = {"prompt": ["x"] * 3, "max_tokens": 3000, "ignore_eos": True, "stream": True}
    threads = [
        threading.Thread(
            target=strict_server.request,
            args=("POST", "/v1/completions", body, {"Content-Type": "application/json", **key}),
        )
        for _ in range(2)
    ]
    [t.start() for t in threads]
    until = time.monotonic() + 30
    while strict_server.get("/server_info", **key)[1]["internal_states"][0]["num_queue_reqs"] < 4:
        assert time.monotonic() < until, "the queue does not fill"
        time.sleep(0.005)
    yield
    [t.join() for t in threads]
