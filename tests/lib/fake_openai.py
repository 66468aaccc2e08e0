"""A small server with the endpoints that `moonlet bench serving` and `moonlet eval gsm8k` use, for tests of the client
side. It "generates" letters with known timing, or what `answer(body)` returns."""
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        f = self.server.fake
        paths = {
            "/v1/models": {"object": "list", "data": [{"id": "fake", "object": "model"}]},
            "/get_server_info": {"internal_states": [{"avg_spec_accept_length": f.accept_length}]},
            "/get_model_info": f.model_info,
        }
        self.reply(200, paths[self.path]) if self.path in paths else self.reply(
            404, {"error": {"message": "no such path"}}
        )

    def event(self, body):
        data = ("data: " + (body if isinstance(body, str) else json.dumps(body)) + "\n\n").encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def hostile(self, f):
        """Sends the chunks of an iterator as they are, for as long as somebody listens."""
        self.begin_stream()
        try:
            for data in f.hostile():
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                f.sent += len(data)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def do_POST(self):
        f = self.server.fake
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        with f.lock:
            f.requests.append((self.path, body))
            f.active += 1
            f.most_active = max(f.most_active, f.active)
            number = len(f.requests)
        try:
            if self.path == "/flush_cache":
                self.reply(200, {})
            elif f.status != 200 or (f.fail_every and number % f.fail_every == 0):
                self.reply(
                    f.status if f.status != 200 else 503, {"error": {"message": "the fake server was told to fail"}}
                )
            elif f.hostile:
                self.hostile(f)
            elif self.path == "/generate":
                self.generate(f, body)
            else:
                self.openai(f, body, self.path.endswith("chat/completions"))
        finally:
            with f.lock:
                f.active -= 1

    def begin_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def openai(self, f, body, chat):
        n = body.get("max_completion_tokens") if chat else body["max_tokens"]
        prompt = body.get("prompt", "")
        usage = {
            "prompt_tokens": len(prompt) if isinstance(prompt, list) else 7,
            "completion_tokens": n,
            "prompt_tokens_details": {"cached_tokens": 1},
        }
        if not body.get("stream"):
            text = f.answer(body) if f.answer else "x" * n
            choice = {
                "index": 0,
                "finish_reason": "stop",
                **({"message": {"content": text}} if chat else {"text": text}),
            }
            self.reply(200, {"choices": [choice], "usage": usage})
            return
        self.begin_stream()
        time.sleep(f.first_s)
        for i in range(0, n, f.per_chunk):
            k = min(f.per_chunk, n - i)
            if i:
                time.sleep(f.gap_s)
            choice = {"index": 0, "delta": {"content": "ab" * k}} if chat else {"index": 0, "text": "ab" * k}
            if body.get("return_token_ids"):
                choice["token_ids"] = [5] * k
            self.event({"choices": [choice]})
            if f.cut_after and i + k >= f.cut_after:
                self.wfile.write(b"0\r\n\r\n")
                return
        self.event({"choices": [{"index": 0, "finish_reason": "length", **({"delta": {}} if chat else {"text": ""})}]})
        if body.get("stream_options", {}).get("include_usage") and f.usage:
            self.event({"choices": [], "usage": usage})
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def generate(self, f, body):
        n = body["sampling_params"]["max_new_tokens"]
        self.begin_stream()
        time.sleep(f.first_s)
        for i in range(0, n, f.per_chunk):
            done = min(i + f.per_chunk, n)
            if i:
                time.sleep(f.gap_s)
            self.event(
                {"text": "ab" * done, "meta_info": {"completion_tokens": done, "prompt_tokens": 3, "cached_tokens": 0}}
            )
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


class FakeServer:
    def __init__(
        self,
        answer=None,
        status=200,
        first_s=0.0,
        gap_s=0.0,
        per_chunk=1,
        usage=True,
        fail_every=0,
        cut_after=0,
        model_info=None,
        hostile=None,
        accept_length=2.5,
    ):
        self.answer, self.status, self.first_s, self.gap_s, self.per_chunk = answer, status, first_s, gap_s, per_chunk
        self.usage, self.fail_every, self.cut_after, self.model_info = usage, fail_every, cut_after, model_info or {}
        self.hostile, self.accept_length, self.sent = hostile, accept_length, 0
        self.requests, self.active, self.most_active, self.lock = [], 0, 0, threading.Lock()

    def __enter__(self):
        self.httpd = Server(("127.0.0.1", 0), Handler)
        self.httpd.fake = self
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}"
        threading.Thread(target=self.httpd.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *args):
        self.httpd.shutdown()
        self.httpd.server_close()
