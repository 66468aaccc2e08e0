"""Makes docs/page.png: a conversation with nano while a varying number of other answers is written (75 seconds).

    python3 tests/browser/picture.py [docs/page.png]
"""
import math
import random
import struct
import sys
import threading
import time
import zlib
from pathlib import Path

from check_page import APPLES, ROOT, Chromium, Page, Server, answered, ask

random.seed(5)
GREETING = list(range(200, 328))  # what all prompts begin with: two pages


def load(server, i, stop):
    """Client i is awake for a part of each wave."""
    begun = time.time()
    while not stop.is_set():
        if math.sin((time.time() - begun) / 9) * 6 + 6 < i % 13:
            time.sleep(0.1)
            continue
        prompt = GREETING + [random.randrange(300, 1700) for _ in range(random.randrange(20, 300))]
        server.post("/v1/completions", {"prompt": prompt, "max_tokens": random.randrange(20, 250), "ignore_eos": True})
        time.sleep(random.random() / 2)


def packed(png):
    """The same picture; its data compressed as far as zlib can."""
    chunks, at = [], 8
    while at < len(png):
        n = struct.unpack(">I", png[at : at + 4])[0]
        chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + n]))
        at += n + 12
    data = zlib.compress(zlib.decompress(b"".join(d for kind, d in chunks if kind == b"IDAT")), 9)
    keep = [c for c in chunks if c[0] == b"IHDR"] + [(b"IDAT", data), (b"IEND", b"")]
    return png[:8] + b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in keep)


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/page.png")
    server, browser, stop = (
        Server("--max-total-tokens", "16384", "--max-running-requests", "8"),
        Chromium(),
        threading.Event(),
    )
    threads = [threading.Thread(target=load, args=(server, i, stop)) for i in range(11)]
    for t in threads:
        t.start()
    try:
        page = Page(browser, 1200, 800)
        page.open(f"http://127.0.0.1:{server.port}/")
        time.sleep(70)
        ask(page, APPLES)
        answered(page)
        page.click("#calculator")
        ask(page, "What is 4831 * 27?")
        page.until("document.querySelectorAll('.answer').length === 3")
        answered(page)
        page.js("document.activeElement.blur(), 0")
        time.sleep(1.2)
        page.screenshot(out)
        out.write_bytes(packed(out.read_bytes()))
    finally:
        stop.set()
        for t in threads:
            t.join()
        browser.close()
        server.stop()


if __name__ == "__main__":
    main()
