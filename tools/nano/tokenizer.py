"""Nano's tokenizer: learn a small tiktoken.model from all sources of text, load it, and render chats to ids.

    python tools/nano/tokenizer.py     writes tiktoken.model, tokenizer_config.json and config.json into config.OUT
"""

import base64
import collections
import json
import random

from config import OUT, Nano, config_json, tokenizer_config_json

# Kimi's split pattern (tokenization_kimi.py of the published checkpoints), in its own order.
_UP = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOW = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UP}*{_LOW}+{_TAIL}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UP}+{_LOW}*{_TAIL}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def learn(texts, n_ranks):
    """Byte-pair encoding: bytes are ranks 0..255; then the commonest adjacent pair, again and again.

    Pieces of digits are left out, so every number is spelt digit by digit. Ties go to the smaller pair. Counts of
    pairs are kept up to date; only the words that hold the merged pair are visited.
    """
    import regex

    split = regex.compile(PATTERN, regex.VERSION1)
    counts = collections.Counter()
    for text in texts:
        counts.update(split.findall(text))
    words = [
        ([bytes([b]) for b in piece.encode()], n)
        for piece, n in sorted(counts.items())
        if not any(ch.isnumeric() for ch in piece)
    ]
    ranks = [bytes([b]) for b in range(256)]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for w, (parts, n) in enumerate(words):
        for pair in zip(parts, parts[1:]):
            pairs[pair] += n
            where[pair].add(w)
    while len(ranks) < n_ranks:
        best = min(pairs, key=lambda p: (-pairs[p], p))
        if pairs[best] < 1:
            raise ValueError(f"the texts give only {len(ranks)} tokens; {n_ranks} are wanted")
        merged = best[0] + best[1]
        ranks.append(merged)
        for w in where.pop(best):
            parts, n = words[w]
            for pair in zip(parts, parts[1:]):
                pairs[pair] -= n
            i = 0
            while i + 1 < len(parts):
                if (parts[i], parts[i + 1]) == best:
                    parts[i : i + 2] = [merged]
                i += 1
            for pair in zip(parts, parts[1:]):
                pairs[pair] += n
                where[pair].add(w)
        del pairs[best]
    assert len(set(ranks)) == n_ranks
    return ranks


class Tokenizer:
    def __init__(self, folder=OUT):
        import tiktoken

        lines = (folder / "tiktoken.model").read_text().splitlines()
        ranks = {base64.b64decode(tok): int(rank) for tok, rank in (line.split() for line in lines)}
        added = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
        names = {int(k): v["content"] for k, v in added.items()}
        self.n_ranks = len(ranks)
        special = {names.get(i, f"<|reserved_token_{i}|>"): i for i in range(self.n_ranks, self.n_ranks + 256)}
        self.enc = tiktoken.Encoding("nano", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
        self.id = special
        self.text = self.enc.encode_ordinary
        open_turn = lambda who, role: [special[who], *self.text(role), special["<|im_middle|>"]]
        self.user = open_turn("<|im_user|>", "user")
        self.system = open_turn("<|im_system|>", "system")
        self.assistant = open_turn("<|im_assistant|>", "assistant")
        self.end, self.think, self.unthink = special["<|im_end|>"], special["<think>"], special["</think>"]
        self.pad = special["[PAD]"]

    def prompt(self, user, thinking=True, system=None):
        """Ids of a one-question chat up to where the model goes on (K2.5's chat template)."""
        ids = [*self.system, *self.text(system), self.end] if system else []
        ids += [*self.user, *self.text(user), self.end, *self.assistant, self.think]
        return ids if thinking else ids + [self.unthink]


def main():
    import sources

    c = Nano()
    texts = sources.texts(random.Random("tokenizer"), 20000)
    ranks = learn(texts, c.n_ranks)
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / "tiktoken.model", "w") as f:
        for rank, tok in enumerate(ranks):
            f.write(f"{base64.b64encode(tok).decode()} {rank}\n")
    (OUT / "tokenizer_config.json").write_text(json.dumps(tokenizer_config_json(c), indent=2) + "\n")
    # the engine chooses the chat template by this file; the generators' renderings need it before any weights exist
    (OUT / "config.json").write_text(json.dumps(config_json(c), indent=2) + "\n")
    tok = Tokenizer()
    n = sum(len(tok.text(t)) for t in texts)
    print(f"{n_chars(texts) / n:.2f} characters a token; longest: {sorted(ranks, key=len)[-12:]}")


def n_chars(texts):
    return sum(len(t) for t in texts)


if __name__ == "__main__":
    main()
