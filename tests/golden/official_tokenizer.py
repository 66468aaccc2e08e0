"""The official encoder, for making golden vectors and for differential tests. Needs the package tiktoken.

It is tiktoken.Encoding with Kimi's pattern and special names, fed as the published tokenization_kimi.py feeds it
(huggingface.co/moonshotai/Kimi-K2-Instruct): text in windows of 400,000 characters, cut again where a run of
whitespace or of anything else passes 25,000."""
import base64
import gzip
import json
from pathlib import Path

import tiktoken

CAPITAL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
BEFORE, ENDING = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        BEFORE + CAPITAL + "*" + SMALL + "+" + ENDING,
        BEFORE + CAPITAL + "+" + SMALL + "*" + ENDING,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
WINDOW, RUN = 400_000, 25_000


def ranks_file(folder):
    """The bytes of folder's tiktoken.model, or of its .gz where only that is there."""
    packed = Path(folder) / "tiktoken.model.gz"
    return gzip.decompress(packed.read_bytes()) if packed.exists() else (Path(folder) / "tiktoken.model").read_bytes()


class Official:
    def __init__(self, folder):
        folder = Path(folder)
        lines = ranks_file(folder).splitlines()
        ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in lines if line)}
        listed = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
        self.n_ranks = len(ranks)
        self.names = {
            i: listed.get(str(i), {}).get("content", f"<|reserved_token_{i}|>")
            for i in range(self.n_ranks, self.n_ranks + 256)
        }
        self.skipped = {int(i) for i, entry in listed.items() if entry["special"]}
        self.encoding = tiktoken.Encoding(
            "kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={name: i for i, name in self.names.items()}
        )

    def encode(self, text, specials):
        ids = []
        for part in slices(text):
            ids += (
                self.encoding.encode(part, allowed_special="all")
                if specials
                else self.encoding.encode(part, disallowed_special=())
            )
        return ids

    def decode_bytes(self, ids, skip_special):
        return self.encoding.decode_bytes([i for i in ids if not (skip_special and i in self.skipped)])


def slices(text):
    for at in range(0, len(text), WINDOW):
        window = text[at : at + WINDOW]
        start = run = 0
        space = None
        for i, c in enumerate(window):
            run = run + 1 if c.isspace() == space else 1
            space = c.isspace()
            if run > RUN:
                yield window[start:i]
                start, run = i, 1
        yield window[start:]
