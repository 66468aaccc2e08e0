"""A server on the emulated GPU (LD_LIBRARY_PATH names its driver) meets a NaN, a GPU that fails and one that hangs. Prints one
summary line."""
import json
import os
import shutil
import struct
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from serve_client import NANO, Server  # noqa: E402

FLAGS = ("--device", "cuda", "--context-length", "256", "--max-running-requests", "4")
failed = total = 0


def expect(what, ok, shown):
    global failed, total
    failed += not ok
    total += 1
    print(f"{'ok' if ok else 'FAIL'}: {what}" + ("" if ok else f"\n{shown}"))


def ask(server, out, prompt, n=3):
    try:
        out.append(server.request("POST", "/v1/completions", {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True}))
    except OSError as gone:
        out.append((0, str(gone), {}))


def nan_model(folder, token):
    """nano with a NaN in the embedding of one token."""
    for f in NANO.iterdir():
        if f.is_file():
            shutil.copy(f, folder)
    for shard in folder.glob("*.safetensors"):
        data = bytearray(shard.read_bytes())
        (n,) = struct.unpack("<Q", data[:8])
        for name, t in json.loads(data[8:8 + n]).items():
            if name.endswith("embed_tokens.weight"):
                at = 8 + n + t["data_offsets"][0] + token * t["shape"][1] * 2
                data[at:at + 2] = b"\xc0\x7f"
                shard.write_bytes(data)
                return
    raise SystemExit("nano has no embedding")


def broken_gpu(what, *flags):
    """What the server says and answers when the GPU breaks during a request; its exit status."""
    with tempfile.TemporaryDirectory() as d:
        os.environ["EMU_FAULT"] = str(Path(d) / "fault")
        server = Server(*FLAGS, *flags)
        del os.environ["EMU_FAULT"]
        answers = []
        ask(server, answers, [300, 301])
        t = threading.Thread(target=ask, args=(server, answers, [300, 301], 100))
        t.start()
        (Path(d) / "fault").write_text(what)
        t.join(120)
        status = server.process.wait(120)
        server.reader.join(10)
        return answers, status, "".join(server.log)


with tempfile.TemporaryDirectory() as d:
    nan_model(Path(d), 777)
    server = Server(*FLAGS, model=d)
    bad, good = [], []
    both = [threading.Thread(target=ask, args=(server, bad, [300, 777, 301])), threading.Thread(target=ask, args=(server, good, [300, 301, 302], 6))]
    [t.start() for t in both]
    [t.join() for t in both]
    expect("a NaN fails its own request and is named", bad[0][0] == 500 and "embedding of token 777 (position 1)" in json.dumps(bad[0][1]), bad)
    expect("the other request goes on", good[0][0] == 200 and good[0][1]["usage"]["completion_tokens"] == 6, good)
    check = server.request("GET", "/kv_check")
    expect("no KV page is lost", check[0] == 200, check)
    server.process.terminate()
    expect("and the server ends well", server.process.wait(60) == 0, server.log)

answers, status, log = broken_gpu("fail")
expect("a GPU that fails: the request gets an error", answers[0][0] == 200 and answers[1][0] in (0, 500, 503), answers)
expect("and the server ends with one message", status == 1 and log.count("failed: CUDA error 700") == 1, log)
answers, status, log = broken_gpu("hang", "--watchdog-timeout", "2")
expect("a GPU that hangs takes the server down with one message", status == 1 and log.count("it hangs, the server ends") == 1, log)
print(f"{total - failed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
