#!/usr/bin/env python3
"""A server that costs next to nothing: it streams one token an event to every connection at a steady rate, so that
`moonlet bench serving` itself is what is measured.

    bench/client/stream_source.py PORT TOKENS_PER_SECOND      (of all connections together)
    moonlet bench serving --backend openai --port PORT --tokenizer models/nano --model x --max-concurrency 256 \\
        --num-prompts 512 --random-input-len 32 --random-output-len 512 --random-range-ratio 1 --warmup-requests 0

What to look at: output throughput against TOKENS_PER_SECOND, and "client_cpu_share" of the JSON line."""
import collections
import json
import re
import selectors
import socket
import sys
import time

PORT, RATE = int(sys.argv[1]), float(sys.argv[2])
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(body):
    data = b"data: " + body + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


TOKEN = chunk(
    json.dumps(
        {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": "x",
            "choices": [{"index": 0, "text": " token", "logprobs": None, "finish_reason": None}],
        }
    ).encode()
)
sel = selectors.EpollSelector()
listener = socket.create_server(("127.0.0.1", PORT), backlog=1024)
listener.setblocking(False)
sel.register(listener, selectors.EVENT_READ)
received, active = {}, collections.deque()  # active: [socket, tokens left, tokens asked for]


def read(conn):
    data = conn.recv(1 << 20)
    if not data:
        sel.unregister(conn)
        conn.close()
        return
    received[conn] = received.get(conn, b"") + data
    head, _, body = received[conn].partition(b"\r\n\r\n")
    if head.startswith(b"GET"):
        del received[conn]
        conn.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        return
    length = re.search(rb"(?i)content-length: (\d+)", head)
    if length and len(body) >= int(length[1]):
        del received[conn]
        n = json.loads(body)["max_tokens"]
        conn.sendall(HEAD)
        active.append([conn, n, n])


def send_next():
    stream = active.popleft()
    conn, left, n = stream
    conn.sendall(TOKEN)
    stream[1] -= 1
    if stream[1]:
        active.append(stream)
        return
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": n}}).encode()
    conn.sendall(chunk(usage) + chunk(b"[DONE]") + b"0\r\n\r\n")


due = time.monotonic()
while True:
    for key, _ in sel.select(0 if active else 0.05):
        if key.fileobj is listener:
            conn, _ = listener.accept()
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sel.register(conn, selectors.EVENT_READ)
        else:
            read(key.fileobj)
    now = time.monotonic()
    if not active or now - due > 0.1:
        due = now
    while active and due <= now:
        send_next()
        due += 1 / RATE
    if active and due > now:
        time.sleep(min(due - now, 0.0005))
