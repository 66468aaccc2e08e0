"""`moonlet serve --tp 2`: the answers of one rank's server, under load, streams and aborted requests too."""
from concurrent.futures import ThreadPoolExecutor

import pytest

from serve_client import Server

PROMPTS = [{"prompt": [300 + i] * (5 + 17 * i), "max_tokens": 4 + i, "temperature": 0, "logprobs": 2} for i in range(6)]


def answers(server):
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda p: server.post("/v1/completions", p)["choices"][0], PROMPTS))


@pytest.fixture(scope="module")
def servers():
    kinds = [["--tp", "1"], ["--tp", "2"], ["--tp", "2", "--dcp", "2"], ["--tp", "2", "--enable-dp-attention"]]
    kinds += [["--pp", "3", "--pp-layers", "1,3,2"], ["--tp", "2", "-pp", "2"]]
    all_of_them = [Server("--device", "ref", "--max-total-tokens", "4096", *k) for k in kinds]
    yield all_of_them
    assert [s.stop() for s in all_of_them] == [0] * len(all_of_them)


def test_the_answers_of_one_rank(servers):
    one, *others = (answers(s) for s in servers)
    for server, other in zip(servers[1:], others):
        for a, b in zip(one, other):
            assert a["text"] == b["text"] and a["finish_reason"] == b["finish_reason"]
            for x, y in zip(a["logprobs"]["token_logprobs"], b["logprobs"]["token_logprobs"]):
                assert abs(x - y) < 1e-3
        assert [c["text"] for c in answers(server)] == [c["text"] for c in other]


def test_the_server_says_how_many(servers):
    assert [s.get("/server_info")[1]["tp_size"] for s in servers] == [1, 2, 2, 2, 1, 2]
    assert [s.get("/server_info")[1]["pp_size"] for s in servers] == [1, 1, 1, 1, 3, 2]
    assert [s.get("/server_info")[1]["dcp_size"] for s in servers] == [1, 1, 2, 1, 1, 1]
    assert [s.get("/server_info")[1]["enable_dp_attention"] for s in servers] == [i == 3 for i in range(6)]
    assert "3 ranks, stages of 1, 3, 2 layers; ref" in servers[4].ready + "".join(servers[4].log)
    assert "4 ranks, stages of 3, 3 layers; ref" in servers[5].ready + "".join(servers[5].log)
    assert "each for sequences of its own" in servers[3].ready + "".join(servers[3].log)
    assert "its pages divided among them" in servers[2].ready + "".join(servers[2].log)
    assert "2 ranks; ref" in servers[1].ready + "".join(servers[1].log)


def test_the_pool_is_whole(servers):
    assert all(s.get("/kv_check")[1]["ok"] is True for s in servers)
