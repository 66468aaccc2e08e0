"""Clients from PyPI against `moonlet serve`. They need packages that `make check` does without, so they are collected only
when tools/check-all runs them in their own environment (tools/clients)."""
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
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
    """One that wants a key and gives a request half a second."""
    from serve_client import Server

    s = Server("--api-key", "secret", "--request-timeout", "0.5", "--max-running-requests", "2", "--max-queued-requests", "4")
    yield s
    assert s.stop() == 0
