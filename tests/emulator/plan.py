"""Loading on the emulated GPU (LD_LIBRARY_PATH names its driver): the plan is said and checked before, and host memory
does not grow with the weights. Prints one summary line."""
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import safetensors_writer as sw

MOONLET = os.environ.get("MOONLET", "build/moonlet")
LAYERS, done, failed = 12, 0, 0
PLAN = re.compile(
    r"plan: weights ([\d.]+) MB \+ KV ([\d.]+) MB for (\d+) tokens \+ working memory ([\d.]+) MB \+ reserve 500\.0 MB = "
    r"([\d.]+) [MG]B of the 8\.\d GB free on emulated GPU\n"
)


def expect(what, ok, shown):
    global done, failed
    done += 1
    failed += not ok
    print(f"{'ok' if ok else 'FAIL'}: {what}" + ("" if ok else f"\n{shown}"))


def load(folder, *args):
    """What a server says that loads the model and then finds no tokenizer; the most memory of its own, MB."""
    most = 0
    p = subprocess.Popen(
        [
            MOONLET,
            "serve",
            "-m",
            folder,
            "--port",
            "0",
            "--device",
            "cuda",
            "--max-running-requests",
            "2",
            "--context-length",
            "1024",
            *args,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while p.poll() is None:
        own = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{p.pid}/status").read_text())
        most = max(most, int(own[1]) / 1000 if own else 0)
        time.sleep(0.003)
    return p.stderr.read(), most


with tempfile.TemporaryDirectory() as folder:
    # 24 MB a layer; the last one cannot be loaded
    sw.TEXT.update(
        hidden_size=1024,
        num_hidden_layers=LAYERS,
        moe_intermediate_size=768,
        kv_lora_rank=64,
        max_position_embeddings=1 << 20,
    )
    sw.write_checkpoint(
        folder, "plain", values={f"model.layers.{LAYERS - 1}.input_layernorm.weight": b"\xc0\x7f" * 1024}
    )
    sizes = {
        l: sum(
            sw.n_bytes(*t)
            for n, t in sw.model_tensors(sw.config("plain")).items()
            if not re.search(r"layers\.(\d+)", n) or int(re.search(r"layers\.(\d+)", n)[1]) < l
        )
        / 1e6
        for l in (2, LAYERS - 1)
    }
    said = {l: load(folder, "--override", f"num_hidden_layers={l}") for l in sizes}
    plans = {l: PLAN.search(s[0]) for l, s in said.items()}
    # the driver hands out pages of 2 MiB
    expect(
        "the plan counts the layers that are kept",
        all(p and sizes[l] <= float(p[1]) < sizes[l] * 1.3 + 8 for l, p in plans.items()),
        (sizes, said),
    )
    expect(
        "nothing of the layers that are dropped is looked at",
        all("tiktoken.model" in s[0] for s in said.values()),
        said,
    )
    more = said[LAYERS - 1][1] - said[2][1]
    expect(
        f"host memory is the same for {sizes[2]:.0f} MB and {sizes[LAYERS - 1]:.0f} MB of weights ({said[2][1]:.0f} MB of its own, {more:+.0f} MB)",
        sizes[LAYERS - 1] > sizes[2] + 200 and more < 12,
        said,
    )
    bad = load(folder)
    expect(
        "the plan is said before weights are read",
        PLAN.search(bad[0]) and "input_layernorm.weight holds NaN" in bad[0][PLAN.search(bad[0]).end() :],
        bad,
    )
    large = load(folder, "--max-total-tokens", "8000000")
    expect(
        "a KV cache that is too large is refused before that, with the numbers",
        "NaN" not in large[0]
        and re.search(
            r"weights of [\d.]+ MB, a KV cache of 13\.8 GB for 8000000 tokens, .* reserve of 500\.0 MB do not fit",
            large[0],
        ),
        large,
    )
print(f"{done - failed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
