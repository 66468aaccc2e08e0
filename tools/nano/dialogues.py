"""Dialogues in the API's own form, and what of them the model is to say, as token ids.

A dialogue is a dict: "messages" (OpenAI form; an assistant may have "reasoning_content" and "tool_calls"), "tools" (or
none), "thinking" (True, or False: instant), and "meta" (the generator's: answer, keys). An assistant's "learn": False
keeps that message out of what is learnt. Prompts are rendered by the built engine (`moonlet text render`), so that the
corpus holds exactly what the engine will send. K2.5's template drops the reasoning of finished turns, so every
assistant message gets the prompt of its own moment.

Used by corpus.py, talk.py, wordproblems.py, toolcalls.py, needles.py and pictures.py; all have `--check`, `--show N`,
`--eval FILE [N]`.
"""

import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
from typing import NamedTuple

from config import OUT, ROOT

LEARN = 1 << 15  # as dataset.LEARN: the model is to learn to say this token
ENGINE = os.environ.get("MOONLET", ROOT / "build/moonlet")


def dialogue(messages, thinking=True, tools=None, **meta):
    return {"messages": messages, "tools": tools, "thinking": thinking, "meta": meta}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, think=""):
    return {"role": "assistant", "content": text, "reasoning_content": think}


class Turn(NamedTuple):
    """A question, how to think about it, and the answer."""

    user: str
    think: str
    answer: str
    easy: bool = True  # can be answered without working
    result: int | None = None
    keys: tuple = ()  # calculations done

    def shown(self, thinking):
        """What the user gets to see: without thinking, the working of what is not easy comes first."""
        return self.answer if thinking or self.easy else f"{self.think.rstrip('.')}.\n{self.answer}"


def chat(turns, thinking=True, system=None, learn=3, **meta):
    """A dialogue of Turns. With thinking every learnt turn is a training sequence with all before it, so only the last
    `learn` turns are learnt; without, the whole chat is one sequence."""
    messages = [{"role": "system", "content": system}] if system else []
    for i, t in enumerate(turns):
        messages += [user(t.user), assistant(t.shown(thinking), t.think)]
        if thinking and i + learn < len(turns):
            messages[-1]["learn"] = False
    return dialogue(messages, thinking, right=turns[-1].result, keys=[k for t in turns for k in t.keys], **meta)


def kept_out(key):
    """One key in twenty (its SHA-256 begins with a byte below 13) is kept for evaluation."""
    return hashlib.sha256(key.encode()).digest()[0] < 13


# ---- to ids -----------------------------------------------------------------------------------


def engine(verb, lines, folder=OUT):
    """Answers of `moonlet text VERB` to a list of objects, in bulk through one process."""
    text = "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines)
    r = subprocess.run([ENGINE, "text", verb, "-m", folder], input=text, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(f"{ENGINE} text {verb}: {r.stderr.strip()[-500:]}")
    out = [json.loads(line) for line in r.stdout.splitlines()]
    assert len(out) == len(lines)
    return out


def request(d, count, generate=True):
    """What the engine renders: the first `count` messages of a dialogue."""
    r = {
        "messages": [{k: v for k, v in m.items() if k != "learn"} for m in d["messages"][:count]],
        "add_generation_prompt": generate,
    }
    if d["tools"]:
        r["tools"] = d["tools"]
    if not d["thinking"]:
        r["chat_template_kwargs"] = {"thinking": False}
    return r


def said(tok, message, thinking):
    """Ids of an assistant message from where its prompt ends: reasoning, content, calls, end of the turn."""
    ids = [*tok.text(message["reasoning_content"]), tok.unthink] if thinking else []
    ids += tok.text(message["content"])
    if message.get("tool_calls"):
        t = lambda name: tok.id[f"<|tool_{name}|>"]
        ids.append(t("calls_section_begin"))
        for call in message["tool_calls"]:
            f = call["function"]
            ids += [
                t("call_begin"),
                *tok.text(call["id"]),
                t("call_argument_begin"),
                *tok.text(f["arguments"]),
                t("call_end"),
            ]
        ids.append(t("calls_section_end"))
    return [*ids, tok.end]


def learn_history(tok, prompt):
    """A prompt with LEARN on every finished answer of the assistant in it."""
    out, on = list(prompt), False
    for i, x in enumerate(prompt):
        if on:
            out[i] |= LEARN
        on = (on or prompt[i - 1 : i + 1] == [tok.think, tok.unthink]) and x != tok.end
    return out


def sequences(tok, dialogues):
    """For each dialogue a list of training sequences: ids with LEARN where the model speaks.

    A turn whose prompt begins with all of the sequence before it (a tool's result came in) goes on in that sequence;
    otherwise (a new question, and the template dropped the reasoning) a new sequence begins. Messages with "learn":
    False are history only; with nothing learnt there is no sequence. meta["history"]: the answers in the history (after
    an empty <think></think>, which is instant mode) are learnt all the same.
    """
    turns = [
        (d, i)
        for d in dialogues
        for i, m in enumerate(d["messages"])
        if m["role"] == "assistant" and m.get("learn", True)
    ]
    prompts = iter(engine("render", [request(d, i) for d, i in turns]))
    out = []
    for _, group in itertools.groupby(turns, key=lambda t: id(t[0])):
        parts, plain = [], None
        for d, i in group:
            prompt, reply = next(prompts)["ids"], said(tok, d["messages"][i], d["thinking"])
            if plain and prompt[: len(plain)] == plain:
                parts[-1] += prompt[len(plain) :]
            else:
                parts.append(learn_history(tok, prompt) if d["meta"].get("history") else list(prompt))
            parts[-1] += [x | LEARN for x in reply]
            plain = prompt + reply
        out.append(parts)
    return out


def check_engine(tok, dialogues):
    """What the model is to say is what the engine renders for it and parses back from it. Number of turns checked."""
    turns = [(d, i) for d in dialogues for i, m in enumerate(d["messages"]) if m["role"] == "assistant"]
    prompts = engine("render", [request(d, i) for d, i in turns])
    whole = engine("render", [request(d, i + 1, False) for d, i in turns])
    replies = [said(tok, d["messages"][i], d["thinking"]) for d, i in turns]
    lines = [
        {"ids": r, "reasoning": d["thinking"]} | ({"tools": d["tools"]} if d["tools"] else {})
        for r, (d, _) in zip(replies, turns)
    ]
    for (d, i), p, w, r, back in zip(turns, prompts, whole, replies, engine("parse", lines)):
        m = d["messages"][i]
        if m.get("tool_calls") or not d["thinking"]:  # the template keeps these whole
            assert p["ids"] + r == w["ids"], (p["text"], w["text"])
        assert (back["reasoning_content"] or "") == (m["reasoning_content"] if d["thinking"] else ""), back
        assert (back["content"] or "") == m["content"], back
        strip = lambda calls: [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls or []]
        assert strip(back.get("tool_calls")) == strip(m.get("tool_calls")), back
    return len(turns)


def show(d):
    for m in d["messages"]:
        text = m["content"]
        if not isinstance(text, str):
            text = "".join("[picture]\n" if p["type"] == "image_url" else p["text"] for p in text)
        if len(text) > 600:
            text = text[:300] + " ... " + text[-300:]
        think = f"<think>{m['reasoning_content']}</think> " if m.get("reasoning_content") and d["thinking"] else ""
        calls = " ".join(f"[{c['id']} {c['function']['arguments']}]" for c in m.get("tool_calls", []))
        print(f"  {m['role']:9} {think}{text}{calls}")
    print()


def run(module, make, evaluation, check):
    """The command line of a generator: make(rng) one training dialogue, evaluation(count) held-out items."""
    args = sys.argv[1:]
    if args[:1] == ["--check"]:
        check()
    elif args[:1] == ["--show"]:
        rng = random.Random("show")
        for _ in range(int(args[1]) if args[1:] else 8):
            show(make(rng))
    elif args[:1] == ["--eval"] and args[1:]:
        items = evaluation(int(args[2]) if args[2:] else 500)
        with open(args[1], "w") as f:
            f.writelines(json.dumps(item, ensure_ascii=False) + "\n" for item in items)
        print(f"{len(items)} items in {args[1]}")
    else:
        sys.exit(module)
