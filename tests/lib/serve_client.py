"""A server under test and plain clients for it (standard library only)."""
import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
NANO = ROOT / "models/nano"
SLOW = 10 if os.environ.get("MOONLET_SLOW") else 1
JSON = {"Content-Type": "application/json"}


def wait_until(what, seconds=20 * SLOW):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


class Server:
    """`moonlet serve` on a free port; what it says on stderr is in self.log."""

    def __init__(self, *args, model=NANO, under=()):
        """under: words in front of the command, as of mpirun."""
        command = [*under, MOONLET, "serve", "-m", str(model), "--port", "0", *args]
        # a file, not a pipe that a thread reads: a line is in it when the call that wrote it returns
        self.stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.stderr)
        self.ready = self.process.stdout.readline().decode()
        match = re.search(r"ready on http://(?:127\.0\.0\.1|0\.0\.0\.0):(\d+) ", self.ready)
        if not match:
            self.process.wait(30)
            raise RuntimeError(self.ready + "".join(self.log))
        self.port = int(match[1])

    @property
    def log(self):
        """What the server has said so far, line by line; the plan comes before the ready line."""
        size = os.fstat(self.stderr.fileno()).st_size
        return os.pread(self.stderr.fileno(), size, 0).decode().splitlines(keepends=True)

    def connect(self, timeout=60 * SLOW):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=JSON):
        """(status, body, headers); JSON bodies come back parsed."""
        c = self.connect()
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        c.request(method, path, data, headers)
        r = c.getresponse()
        raw, head = r.read(), {k.lower(): v for k, v in r.getheaders()}
        c.close()
        is_json = head.get("content-type", "").startswith("application/json")
        return r.status, json.loads(raw) if is_json and raw else raw.decode(), head

    def get(self, path, **headers):
        return self.request("GET", path, headers=headers)

    def post(self, path, body, status=200):
        got, answer, _ = self.request("POST", path, body)
        assert got == status, answer
        return answer

    def stream(self, path, body):
        """The events' JSON, after checking the form of the stream."""
        c = self.connect()
        c.request("POST", path, json.dumps({**body, "stream": True}), JSON)
        r = c.getresponse()
        raw = r.read().decode()
        c.close()
        assert r.status == 200, raw
        assert r.getheader("Content-Type").startswith("text/event-stream")
        assert "\r" not in raw and raw.endswith("data: [DONE]\n\n")
        lines = raw.split("\n")
        assert all(line == "" or line.startswith("data: ") for line in lines), raw
        events = [line[6:] for line in lines if line]
        assert events.count("[DONE]") == 1
        return [json.loads(e) for e in events[:-1]]

    def events(self, path, body):
        """The events of a stream that names them (`event:` and `data:`), after checking its form."""
        c = self.connect()
        c.request("POST", path, json.dumps({**body, "stream": True}), JSON)
        r = c.getresponse()
        raw = r.read().decode()
        c.close()
        assert r.status == 200, raw
        assert r.getheader("Content-Type").startswith("text/event-stream")
        assert "\r" not in raw and raw.endswith("\n\n") and "[DONE]" not in raw
        out = []
        for block in raw[:-2].split("\n\n"):
            name, data = block.split("\n")
            assert name.startswith("event: ") and data.startswith("data: ")
            out.append(json.loads(data[6:]))
            assert out[-1]["type"] == name[7:]
        return out

    def stats(self):
        return self.get("/server_info")[1]["internal_states"][0]

    def metric(self, name):
        text = self.get("/metrics")[1]
        return float(re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.M)[1])

    def stop(self, sig=signal.SIGTERM, timeout=30 * SLOW):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.process.wait(timeout)


def text_of(events):
    """The text of each choice of a /v1/completions stream."""
    out = {}
    for e in events:
        for c in e["choices"]:
            out[c["index"]] = out.get(c["index"], "") + c["text"]
    return out


def message_of(events, index=0):
    """The message that a chat stream's deltas add up to, put together as OpenAI's own client does."""
    message = {"content": "", "reasoning_content": "", "tool_calls": [], "finish_reason": None}
    for e in events:
        for c in e["choices"]:
            if c["index"] != index:
                continue
            assert message["finish_reason"] is None, "a chunk after the finish chunk"
            delta = c["delta"]
            for key in ("content", "reasoning_content"):
                message[key] += delta.get(key) or ""
            for call in delta.get("tool_calls", []):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": "", "name": "", "arguments": ""})
                mine = message["tool_calls"][call["index"]]
                mine["id"] += call.get("id") or ""
                mine["name"] += call["function"].get("name") or ""
                mine["arguments"] += call["function"].get("arguments") or ""
            message["finish_reason"] = c["finish_reason"]
    return message
