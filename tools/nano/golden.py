"""Golden values of the exported checkpoint for the C engine's tests, in float32 from the files on disk.

    python tools/nano/golden.py      writes tests/data/nano/golden.jsonl

One JSON object a line: "text" (the rendered chat, for reading), "ids" (the prompt), "greedy" (its greedy
continuation, at most 48 ids, ending with <|im_end|> where it got there) and, over prompt and continuation
together, per position the token that the model would say next: "argmax" (ids), "logprob" (of the argmax)
and "top5" ([[id, logprob] x 5]). "next" is the logprob of the token that really follows (n - 1 of them).
"""

import json

import torch

import evaluate
from config import ROOT
from tokenizer import Tokenizer

CHATS = [  # (system, [(user, answer of an earlier turn or None)], thinking)
    (None, [("What is 17 + 25?", None)], True),
    (None, [("whats 86 x 47", None)], True),
    (None, [("9 * 8", None)], False),
    ("You are a helpful assistant.", [("Who are you?", None)], True),
    (None, [("Calculate 512 - 1000 please", None)], True),
    (None, [("12 + 30", "12 + 30 = 42."), ("and times 3?", None)], True),
    (None, [("Anna has 46 apples and gives 18 to Tom. How many apples are left?", None)], True),
    (None, [("caf\u00e9 \u4f60\u597d \U0001f600 100 / 7 =", None)], True),
    (None, [(f"{i} + {i + 7}", f"{i} + {i + 7} = {2 * i + 7}.") for i in range(10, 38)] + [("144 / 12", None)], True),
]


def render(tok, system, turns, thinking):
    ids = [*tok.system, *tok.text(system), tok.end] if system else []
    for user, answer in turns:
        ids += [*tok.user, *tok.text(user), tok.end, *tok.assistant, tok.think]
        if answer is not None:
            ids += [tok.unthink, *tok.text(answer), tok.end]
    return ids if thinking else ids + [tok.unthink]


@torch.no_grad()
def main():
    tok, model = Tokenizer(), evaluate.load()
    path = ROOT / "tests/data/nano/golden.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as f:
        for chat in CHATS:
            ids = render(tok, *chat)
            greedy = evaluate.generate(model, [ids], tok.end, 48)[0]
            logprobs = model.logits(torch.tensor([ids + greedy]))[0].log_softmax(-1)
            assert logprobs[len(ids) - 1 : -1].argmax(-1).tolist() == greedy  # cached and whole pass agree
            top = logprobs.topk(5, -1)
            margin = (top.values[:, 0] - top.values[:, 1]).min().item()
            following = logprobs[:-1].gather(1, torch.tensor((ids + greedy)[1:])[:, None])[:, 0]
            say = lambda x: float(f"{x:.9g}")
            f.write(
                json.dumps(
                    {
                        "text": tok.enc.decode(ids),
                        "ids": ids,
                        "greedy": greedy,
                        "argmax": top.indices[:, 0].tolist(),
                        "logprob": [say(x) for x in top.values[:, 0].tolist()],
                        "next": [say(x) for x in following.tolist()],
                        "top5": [
                            [[i, say(x)] for i, x in zip(a, b)]
                            for a, b in zip(top.indices.tolist(), top.values.tolist())
                        ],
                    },
                    ensure_ascii=False,
                    separators=(",", ":"),
                )
                + "\n"
            )
            print(len(ids), "ids", repr(tok.enc.decode(greedy)), f"smallest margin {margin:.4f}")


if __name__ == "__main__":
    main()
