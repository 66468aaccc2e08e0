"""The web page's files, and who may use the server from a browser: origins, host names, preflights."""
import re
import subprocess
import time

import pytest
from serve_client import JSON, MOONLET, NANO, ROOT, SLOW, Server

ASK = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
APP = "https://app.example"
FOLDER = ROOT / "src/server/page"


@pytest.fixture(scope="module")
def server():
    s = Server("--allow-origin", APP, "--allow-origin", "http://localhost:3000", "--allow-host", "moon.example")
    yield s
    assert s.stop() == 0


def page_files(server):
    html = server.get("/")[1]
    return html, re.findall(r'(?:src|href)="(page/[^"]+)"', html)


# ---- The page ----


def test_page(server):
    status, html, head = server.get("/")
    assert status == 200 and html.lstrip().lower().startswith("<!doctype html>")
    assert head["content-type"] == "text/html; charset=utf-8"
    assert head["x-content-type-options"] == "nosniff" and head["referrer-policy"] == "no-referrer"
    policy = dict(p.strip().split(" ", 1) for p in head["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    for kind in ("script-src", "style-src", "img-src", "connect-src"):
        assert policy[kind] == "'self'", "nothing from elsewhere, nothing inline"


def test_files_are_the_repositorys(server):
    types = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    for f in sorted(FOLDER.iterdir()):
        status, text, head = server.get(f"/page/{f.name}")
        assert status == 200 and text == f.read_text(), f.name
        assert head["content-type"].split(";")[0] == types[f.suffix]
    assert server.get("/")[1] == (FOLDER / "index.html").read_text()


def test_page_names_nobody_else(server):
    """No address of another server in any file: all that is loaded lies under page/. (The browser test watches the
    requests.)"""
    html, files = page_files(server)
    assert len(files) >= 3
    for text in [html] + [f.read_text() for f in FOLDER.iterdir()]:
        for scheme in ("http://", "https://", "//cdn"):
            rest = text.replace("http://www.w3.org/2000/svg", "")
            assert scheme not in rest, rest[max(0, rest.find(scheme) - 40) :][:90]
    assert "<style" not in html and "style=" not in html and "onclick" not in html


def test_page_etag(server):
    _, _, head = server.get("/")
    assert head["cache-control"] == "no-cache"
    for tag in (head["etag"], f'"other", W/{head["etag"]}', "*"):
        status, body, again = server.get("/", **{"If-None-Match": tag})
        assert status == 304 and body == "" and again["etag"] == head["etag"]
    assert server.get("/", **{"If-None-Match": '"0"'})[0] == 200
    assert server.get("/page/icon.svg")[2]["etag"] != head["etag"]
    status, body, again = server.request("HEAD", "/", headers={})
    assert status == 200 and body == "" and again["etag"] == head["etag"]


def test_page_wrong_requests(server):
    for path in (
        "/page",
        "/page/",
        "/page/none.js",
        "/page/../routes.c",
        "/page/icon.svg/x",
        "/page//icon.svg",
        "/index.html",
    ):
        assert server.get(path)[0] == 404, path
    assert server.request("POST", "/", {})[0] == 405


def test_page_needs_no_key():
    s = Server("--api-key", "secret")
    try:
        html, files = page_files(s)
        assert all(s.get("/" + f)[0] == 200 for f in files)
        assert s.get("/v1/models")[0] == 401
    finally:
        assert s.stop() == 0


# ---- Origins ----


def chat(server, **headers):
    return server.request("POST", "/v1/chat/completions", ASK, {**JSON, **headers})


def test_no_browser_notices_nothing(server):
    status, _, head = chat(server)
    assert status == 200 and "access-control-allow-origin" not in head and head["vary"] == "Origin"


@pytest.mark.parametrize("origin", [APP, "http://localhost:3000"])
def test_allowed_origin(server, origin):
    for status, _, head in (chat(server, Origin=origin), server.get("/health", Origin=origin)):
        assert status == 200 and head["access-control-allow-origin"] == origin and head["vary"] == "Origin"
        assert "access-control-allow-credentials" not in head
    status, _, head = server.request("POST", "/v1/chat/completions", {"messages": 5}, {**JSON, "Origin": origin})
    assert status == 400 and head["access-control-allow-origin"] == origin, "errors can be read, too"


def test_allowed_origin_streams(server):
    c = server.connect()
    c.request(
        "POST",
        "/v1/chat/completions",
        '{"stream":true,"max_tokens":2,"messages":[{"role":"user","content":"hi"}]}',
        {**JSON, "Origin": APP},
    )
    r = c.getresponse()
    assert r.status == 200 and r.getheader("Access-Control-Allow-Origin") == APP and b"[DONE]" in r.read()


def test_own_origin(server):
    for scheme in ("http", "https"):
        status, _, head = chat(server, Origin=f"{scheme}://127.0.0.1:{server.port}")
        assert status == 200 and "access-control-allow-origin" not in head


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://127.0.0.1:1",
        "http://app.example",
        "https://app.example.evil",
        "https://app.example, https://evil.example",
    ],
)
def test_foreign_origin(server, origin):
    before = server.metric("sglang:num_requests_total")
    for got in (
        chat(server, Origin=origin),
        server.get("/metrics", Origin=origin),
        server.get("/", Origin=origin),
        server.request("POST", "/generate", '{"text":"a"}', {"Origin": origin}),
    ):
        status, body, head = got
        assert status == 403 and body["error"]["code"] == "origin_not_allowed", body
        assert "--allow-origin" in body["error"]["message"] and "access-control-allow-origin" not in head
    assert server.metric("sglang:num_requests_total") == before, "nothing was computed for it"


def test_long_and_odd_origins(server):
    for origin in ("http://" + "a" * 5000, '"><script>', "http://\\", "x" * 300):
        status, body, _ = chat(server, Origin=origin)
        assert status == 403 and len(body["error"]["message"]) < 400


def test_pictures_and_links_from_elsewhere(server):
    for site in ("cross-site", "same-site"):
        for path in ("/flush_cache", "/health_generate", "/v1/models", "/metrics"):
            assert server.get(path, **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"})[0] == 403, path
        assert server.get("/", **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"})[0] == 200
    for site in ("same-origin", "none"):
        assert server.get("/v1/models", **{"Sec-Fetch-Site": site})[0] == 200


def test_preflight(server):
    ask = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
        "Access-Control-Request-Private-Network": "true",
    }
    status, body, head = server.request("OPTIONS", "/v1/chat/completions", None, {**ask, "Origin": APP})
    assert status == 204 and body == ""
    assert head["access-control-allow-origin"] == APP and head["access-control-allow-methods"] == "GET, POST"
    assert head["access-control-allow-headers"] == ask["Access-Control-Request-Headers"]
    assert head["access-control-allow-private-network"] == "true" and int(head["access-control-max-age"]) > 0
    status, body, head = server.request(
        "OPTIONS", "/v1/chat/completions", None, {**ask, "Origin": "https://evil.example"}
    )
    assert status == 403 and not [k for k in head if k.startswith("access-control")]
    status, _, head = server.request("OPTIONS", "/v1/chat/completions", None, {})
    assert status == 204 and head["allow"] == "GET, POST, OPTIONS" and "access-control-allow-methods" not in head
    odd = {**ask, "Origin": APP, "Access-Control-Request-Headers": "a; b\x01"}
    assert "access-control-allow-headers" not in server.request("OPTIONS", "/v1/models", None, odd)[2]


def test_any_origin():
    s = Server("--allow-origin", "*", "--api-key", "k")
    try:
        key = {"Authorization": "Bearer k"}
        for origin in ("https://any.example", "null"):
            status, _, head = chat(s, Origin=origin, **key)
            assert status == 200 and head["access-control-allow-origin"] == "*"
        status, _, head = chat(s, Origin="https://any.example")
        assert status == 401 and head["access-control-allow-origin"] == "*"
        status, _, head = s.request(
            "OPTIONS", "/v1/models", None, {"Origin": "null", "Access-Control-Request-Method": "GET"}
        )
        assert status == 204 and head["access-control-allow-origin"] == "*"
        assert chat(s, Host="evil.example", **key)[0] == 403
    finally:
        assert s.stop() == 0


# ---- Host: a foreign name that was made to point here ----


def test_host(server):
    for host in (
        f"localhost:{server.port}",
        "127.0.0.1",
        f"[::1]:{server.port}",
        "moon.example",
        "10.1.2.3:80",
        "a.localhost",
    ):
        assert server.get("/v1/models", Host=host)[0] == 200, host
    for host in (
        "evil.example",
        f"evil.example:{server.port}",
        "127.0.0.1.evil.example",
        "localhost:1:2",
        "moon.example.evil",
    ):
        for path in ("/", "/v1/models", "/metrics", "/health"):
            status, body, _ = server.get(path, Host=host, Origin="http://" + host)
            assert status == 403 and body["error"]["code"] == "host_not_allowed", (host, body)


def test_host_of_a_server_for_the_network():
    s = Server("--host", "0.0.0.0")
    try:
        assert s.get("/v1/models", Host="moon.lan")[0] == 200
        assert s.get("/v1/models", Host="moon.lan", Origin="http://moon.lan")[0] == 200
        assert s.get("/v1/models", Host="moon.lan", Origin="http://other.lan")[0] == 403
    finally:
        assert s.stop() == 0


@pytest.mark.parametrize(
    "flag",
    [
        "--allow-origin=app.example",
        "--allow-origin=https://app.example/",
        "--allow-origin=https://a,https://b",
        "--allow-host=https://a",
        "--allow-host=a:80",
    ],
)
def test_wrong_flags(flag):
    done = subprocess.run(
        [MOONLET, "serve", "-m", str(NANO), "--port", "0", flag], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and flag.split("=")[0] in done.stderr


# ---- GET /live ----


def wait_until(what, seconds=20 * SLOW):
    end = time.time() + seconds
    while not what():
        assert time.time() < end, "it did not happen in time"
        time.sleep(0.05)


def test_live(server):
    def look(since=0):
        status, body, head = server.get(f"/live?since={since}")
        assert status == 200 and head["cache-control"] == "no-store"
        return body

    wait_until(lambda: look()["total"]["generated_tokens"] == server.metric("sglang:generation_tokens_total"))
    first = look()
    assert first["model"] == "nano" and first["status"] == "ok" and first["uptime_s"] >= 0
    now = first["now"]
    assert now["pages_used"] + now["pages_cached"] + now["pages_free"] == first["pages"] > 0
    before = first["total"]
    server.post("/v1/completions", {"prompt": "one two three", "max_tokens": 40, "ignore_eos": True})
    wait_until(lambda: look()["total"]["ended"] > before["ended"])
    after = look()
    assert after["total"]["generated_tokens"] == before["generated_tokens"] + 40
    minute = after["minute"]
    assert 0 < minute["draft_rounds"] and minute["draft_tokens_accepted"] <= minute["draft_tokens"]
    assert minute["ttft_s"]["n"] >= 1 and minute["itl_s"]["n"] >= 39
    for q in (minute["ttft_s"], minute["itl_s"]):
        assert 0 <= q["p50"] <= q["p90"] <= q["p99"] < 60 and q["p99"] > 0  # tokens kept with drafts come at once
    assert minute["steps"] >= 10 and 0 < minute["step_s"] < 10 and 0 < minute["busy"] <= 1.01
    history = after["history"]
    assert max(history["output_per_s"]) > 0 and max(history["prompt_per_s"]) > 0
    lengths = {len(v) for v in history.values() if isinstance(v, list)}
    assert lengths == {history["last"]}, "everything since the start"
    wait_until(lambda: look()["history"]["last"] > history["last"])
    more = look(history["last"])["history"]
    assert len(more["running"]) == more["last"] - history["last"]
    for odd in ("-1", "x", "999999999999999999999999", str(more["last"] + 5)):
        assert look(odd)["history"]["last"] >= more["last"]


def test_live_needs_the_key():
    s = Server("--api-key", "k")
    try:
        assert s.get("/live")[0] == 401 and s.get("/live", Authorization="Bearer k")[0] == 200
    finally:
        assert s.stop() == 0


def test_inter_token_latency(server):
    def counts():
        return [
            server.metric(f"{p}:{n}_seconds_count")
            for p in ("sglang", "vllm")
            for n in ("time_to_first_token", "inter_token_latency")
        ]

    before = counts()
    server.post("/v1/completions", {"prompt": "x", "max_tokens": 9, "ignore_eos": True, "n": 2})
    assert [b - a for a, b in zip(before, counts())] == [2, 16, 2, 16]
    seconds = server.metric("sglang:inter_token_latency_seconds_sum")
    assert 0 < seconds < 60
