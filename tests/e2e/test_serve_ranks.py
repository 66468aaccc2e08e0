"""`moonlet serve --tp 2`: the answers of one rank's server, under load, streams and aborted requests too."""
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from serve_client import MOONLET, Server

PROMPTS = [{"prompt": [300 + i] * (5 + 17 * i), "max_tokens": 4 + i, "temperature": 0, "logprobs": 2} for i in range(6)]


def answers(server):
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda p: server.post("/v1/completions", p)["choices"][0], PROMPTS))


@pytest.fixture(scope="module")
def servers():
    kinds = [["--tp", "1"], ["--tp", "2"], ["--tp", "2", "--dcp", "2"], ["--tp", "2", "--enable-dp-attention"]]
    kinds += [["--pp", "3", "--pp-layers", "1,3,2"], ["--tp", "2", "-pp", "2"], ["--tp", "2", "--ep-size", "2"]]
    kinds += [["--tp", "4", "--ep", "4", "--enable-dp-attention", "--ep-num-redundant-experts", "8"]]
    kinds += [["--tp", "2", "--ep", "2", "--pp", "2", "--deterministic"]]
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
    assert [s.get("/server_info")[1]["tp_size"] for s in servers] == [1, 2, 2, 2, 1, 2, 2, 4, 2]
    assert [s.get("/server_info")[1]["pp_size"] for s in servers] == [1, 1, 1, 1, 3, 2, 1, 1, 2]
    assert [s.get("/server_info")[1]["dcp_size"] for s in servers] == [1, 1, 2, 1, 1, 1, 1, 1, 1]
    assert [s.get("/server_info")[1]["ep_size"] for s in servers] == [1, 1, 1, 1, 1, 1, 2, 4, 2]
    assert [s.get("/server_info")[1]["enable_dp_attention"] for s in servers] == [i in (3, 7) for i in range(9)]
    assert "3 ranks, stages of 1, 3, 2 layers; ref" in servers[4].ready + "".join(servers[4].log)
    assert "4 ranks, stages of 3, 3 layers; ref" in servers[5].ready + "".join(servers[5].log)
    assert "4 ranks, experts in 4 groups of 18; ref" in servers[7].ready + "".join(servers[7].log)
    assert "each for sequences of its own" in servers[3].ready + "".join(servers[3].log)
    assert "its pages divided among them" in servers[2].ready + "".join(servers[2].log)
    assert "2 ranks; ref" in servers[1].ready + "".join(servers[1].log)


def test_the_pool_is_whole(servers):
    assert all(s.get("/kv_check")[1]["ok"] is True for s in servers)


def test_experts_move_while_they_serve():
    """--enable-eplb: nano's own traffic is uneven over eight groups, experts go to where it is not, and no answer has
    another bit."""
    flags = ["--tp", "8", "--enable-dp-attention", "--ep", "8", "--deterministic", "--max-total-tokens", "8192"]
    moving = ["--enable-eplb", "--eplb-rebalance-num-iterations", "12", "--ep-num-redundant-experts", "8"]
    still, moves = Server(*flags), Server(*flags, *moving)
    shares = []
    for _ in range(8):
        assert answers(still) == answers(moves)
        shares.append(moves.metric("moonlet:expert_busiest_share"))
    assert moves.metric("moonlet:expert_rebalances_total") > 0 and moves.metric("moonlet:experts_moved_total") > 8
    assert moves.metric("moonlet:expert_groups") == 8
    counted = [s for s in shares if s]
    assert 1 <= counted[-1] < 1 + 0.7 * (counted[0] - 1), shares
    assert [s.stop() for s in (still, moves)] == [0, 0]
    assert "slots have another expert" in "".join(moves.log) and "slots have" not in "".join(still.log)


def test_where_experts_lie(tmp_path):
    """SGLang's files: places, and counts; and what is wrong with others is said."""
    places, counts, bad = (tmp_path / name for name in ("places.json", "counts.json", "bad.json"))
    layers = [list(range(63, -1, -1))] * 6
    places.write_text(json.dumps({"physical_to_logical_map": layers}))
    counts.write_text(json.dumps({"logical_count": [[i % 7 for i in range(64)]] * 6}))
    bad.write_text(json.dumps({"physical_to_logical_map": layers[:5]}))
    flags = ["--tp", "2", "--ep", "2", "--deterministic", "--init-expert-location"]
    servers = [Server(*flags, name) for name in ("trivial", str(places), str(counts))]
    servers += [Server(*flags[:4], *more) for more in ([], flags[5:] + [str(places)])]  # bits follow the placement
    one, *others, plain, placed = (answers(s) for s in servers)
    assert [s.stop() for s in servers] == [0] * 5
    assert all(o == one for o in others) and plain != placed
    r = subprocess.run([MOONLET, "serve", "--port", "0", *flags, str(bad)], capture_output=True, text=True)
    assert r.returncode == 1 and 'bad.json: "physical_to_logical_map" is no list of 6 layers' in r.stderr
