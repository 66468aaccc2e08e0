"""Long texts with planted facts and questions about them: up to 16k tokens, facts at any depth.

The text around is generated and says nothing of the planted kinds. One to twelve facts are planted and up to eight are
asked for, one after the other; some questions have no answer in the text. A fact whose key hashes into the held-out
twentieth never appears in training, neither asked for nor beside it.

A text is written as the engine's evaluation builds it (`text`): `n` filler sentences from line `start` of a list on,
wrapping around at its end; then each planted sentence is inserted at its index, in ascending order of the indices,
which are those of the finished list; then all are joined by one blank. A form says where the text goes: "system": it is
the system message; "before": the user's message is the question, an empty line, the text; "after": text, empty line,
question.

    python tools/nano/needles.py --check | --show N
    python tools/nano/needles.py --eval FILE [N]     (the filler goes to haystack.txt beside FILE, one sentence a line)
"""

import pathlib
import random
import sys
from collections import Counter

import numpy as np

import dialogues
from dialogues import LEARN, Turn, chat, check_engine, kept_out, run, said
from phrases import NAMES, THINGS

LONGEST = 16384  # tokens of a whole dialogue
NOTHING = "The text does not say."
CITIES = "Paris London Berlin Madrid Rome Oslo Vienna Prague Lisbon Athens Cairo Tokyo Seoul Delhi Sydney Toronto Boston Lima".split()
COLOURS = "red green blue yellow orange purple black white brown pink grey silver".split()
ANIMALS = "cat dog horse rabbit parrot turtle goldfish hamster snake mouse goat pony duck lizard".split()
HIDEOUTS = [
    "under the old bridge",
    "behind the mill",
    "in the blue drawer",
    "below the stairs",
    "on the top shelf",
    "inside the piano",
    "near the gate",
    "at the bakery",
]
JOBS = "teacher baker doctor farmer pilot nurse painter driver gardener singer carpenter lawyer cook dentist".split()
DRINKS = "tea coffee milk water lemonade cocoa cider juice".split()

# kind: (value, sentence, questions)
KINDS = {
    "number": (
        lambda r: str(r.randrange(1000, 10000)),
        "The secret number of {n} is {v}.",
        [
            "What is the secret number of {n}?",
            "Which secret number does {n} have?",
            "{n}'s secret number?",
            "Tell me the secret number of {n}.",
            "What is {n}'s secret number?",
        ],
    ),
    "city": (
        lambda r: r.choice(CITIES),
        "{n} was born in {v}.",
        [
            "Where was {n} born?",
            "In which city was {n} born?",
            "What is the birthplace of {n}?",
            "Which city was {n} born in?",
        ],
    ),
    "colour": (
        lambda r: r.choice(COLOURS),
        "The favourite colour of {n} is {v}.",
        ["What is the favourite colour of {n}?", "Which colour does {n} like best?", "What is {n}'s favorite color?"],
    ),
    "pet": (
        lambda r: r.choice(ANIMALS),
        "The pet of {n} is a {v}.",
        ["What pet does {n} have?", "What is the pet of {n}?", "Which animal does {n} keep?", "What is {n}'s pet?"],
    ),
    "hidden": (
        lambda r: r.choice(HIDEOUTS),
        "{n} hid the treasure {v}.",
        ["Where did {n} hide the treasure?", "Where is the treasure of {n}?", "Where is {n}'s treasure?"],
    ),
    "code": (
        lambda r: "".join(r.choices("ABCDEFGHKLMNPRSTUVWXYZ", k=3)) + str(r.randrange(10, 100)),
        "The code of {n} is {v}.",
        ["What is the code of {n}?", "Tell me the code of {n}.", "{n}'s code?", "What is {n}'s code?"],
    ),
    "job": (
        lambda r: r.choice(JOBS),
        "{n} works as a {v}.",
        ["What is the job of {n}?", "What does {n} work as?", "What does {n} do for a living?", "What is {n}'s job?"],
    ),
    "drink": (
        lambda r: r.choice(DRINKS),
        "The favourite drink of {n} is {v}.",
        ["What is the favourite drink of {n}?", "Which drink does {n} like best?", "What is {n}'s favorite drink?"],
    ),
}


def says(kind, n, v):
    return KINDS[kind][1].format(n=n, v=v)


def held_out(kind, n, v):
    return kept_out(f"needle:{kind}:{n}:{v}")


def filler(rng):
    """One sentence that states none of the planted kinds of fact."""
    n, m = rng.sample(NAMES, 2)
    o, p = rng.sample(THINGS, 2)
    place = rng.choice("market,school,river,library,station,harbour,park,museum,hill,bakery,forest,square".split(","))
    day = rng.choice("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())
    k = rng.randrange(2, 60)
    return rng.choice(
        [
            f"On {day} {n} walked to the {place} and met {m}.",
            f"{n} bought {k} {o} and gave some of them to {m}.",
            f"The {place} was quiet that {day}.",
            f"{m} said that the {o} were better than the {p}.",
            f"It rained for {k} minutes, then the sun came out over the {place}.",
            f"{n} and {m} talked about {o} all afternoon.",
            f"Nobody at the {place} had seen the {p}.",
            f"There were {k} {o} on the table.",
            f"{n} counted the {p} twice.",
            f"After lunch {m} carried the {o} back to the {place}.",
            f"The road to the {place} is {k} miles long.",
            f"{n} forgot the {o} at the {place}.",
            f"A letter for {m} arrived on {day}.",
            f"{n} waited {k} minutes for {m}.",
            f"In the evening they sorted the {o} and the {p}.",
            f"The old house near the {place} has {k} windows.",
            f"{m} asked {n} for the {p}, but there were none left.",
            f"Every {day} the {place} opens early.",
            f"{n} wanted to paint the {o}, but {m} had the brush.",
            f"A bird flew over the {place} and sat down on the {o}.",
            f"{k} people came to the {place} to see {m}.",
            f"{n} put the {o} next to the {p} and went home.",
        ]
    )


def sentences(seed, count):
    rng = random.Random(f"filler {seed}")
    return [filler(rng) for _ in range(count)]


class Pool:
    """The training filler, tokenised once: ids[i] are those of a blank and sentence i."""

    def __init__(self, tok, count=12000):
        self.text = sentences("training", count)
        self.ids = [
            np.array(x, np.uint16) for x in tok.enc.encode_ordinary_batch([" " + s for s in self.text], num_threads=1)
        ]
        self.length = [len(x) for x in self.ids]


_pools = {}


def pool(tok=None):
    tok = tok or tokenizer()
    if id(tok) not in _pools:
        _pools[id(tok)] = Pool(tok)
    return _pools[id(tok)]


_tok = None


def tokenizer():
    global _tok
    if _tok is None:
        from tokenizer import Tokenizer

        _tok = Tokenizer()
    return _tok


def text(lines, start, n, plant):
    """The rule of the heading: the list of sentences of a text."""
    out = [lines[(start + i) % len(lines)] for i in range(n)]
    for at, sentence in sorted(plant):
        out.insert(at, sentence)
    return out


def facts(rng, count, want=False):
    """Distinct (kind, name, value); want: the first is held out. The others never are."""
    out, seen = [], set()
    close = rng.choice(list(KINDS)) if rng.random() < 0.4 else None  # the same kind for other persons: the hard case
    while len(out) < count:
        kind, n = close or rng.choice(list(KINDS)), rng.choice(NAMES)
        v = KINDS[kind][0](rng)
        if (kind, n) in seen or held_out(kind, n, v) != (want and not out):
            continue
        seen.add((kind, n))
        out.append((kind, n, v))
    return out


def ask(rng, fact):
    kind, n, v = fact
    q = rng.choice(KINDS[kind][2]).format(n=n)
    q = q.lower() if rng.random() < 0.08 else q.rstrip("?.") if rng.random() < 0.08 else q
    return Turn(q, f"{n}: {says(*fact)}", says(*fact)) if v else Turn(q, f"{n}: nothing about it.", NOTHING)


def missing(rng, planted):
    """What the text does not say, about a person or of a kind that it has."""
    kinds, names = {k for k, _, _ in planted}, {n for _, n, _ in planted}
    while True:
        kind, n = rng.choice(sorted(kinds) if rng.random() < 0.5 else list(KINDS)), rng.choice(
            sorted(names) if rng.random() < 0.4 else NAMES
        )
        if not any((kind, n) == f[:2] for f in planted):
            return kind, n, None


def together(turns):
    """Several questions in one turn, a line each, answered in order."""
    return Turn(*("\n".join(part) for part in list(zip(*turns))[:3]))


def arrange(rng, form, turns):
    """The turns of a dialogue. A question before the text is the one that is far from its answer: mostly all of them
    stand there, sometimes some, sometimes a single one."""
    if form != "before":
        return turns
    first = rng.choice([1, 1, rng.randrange(1, len(turns) + 1), *[len(turns)] * 5])
    rest = turns[first:] if rng.random() < 0.5 else []
    return [together(turns[:first]), *rest]


def assemble(form, body, turns, thinking, **meta):
    """The dialogue: the text in its place, the questions one after the other. One sequence learns all answers, with
    thinking the last one's reasoning too."""
    first = turns[0]
    if form == "before":
        turns = [first._replace(user=f"{first.user}\n\n{body}"), *turns[1:]]
    if form == "after":
        turns = [first._replace(user=f"{body}\n\n{first.user}"), *turns[1:]]
    return chat(turns, thinking, body if form == "system" else None, learn=1, history=True, **meta)


def needle(rng, length, most=12):
    """A training dialogue of at most `length` tokens (of the current tokenizer): up to `most` facts, asked for two
    thirds."""
    tok = tokenizer()
    p = pool(tok)
    most = max(1, min(most, length // 70))
    planted = facts(rng, rng.randrange(min(4, most), most + 1))
    asked = rng.sample(planted, min(len(planted), rng.randrange(min(3, most), min(max(8, most * 2 // 3), most) + 1)))
    asked = [missing(rng, planted) if rng.random() < 0.1 else f for f in asked]
    turns = [ask(rng, f) for f in asked]
    lines = [says(*f) for f in planted]
    left = (
        length
        - 40
        - sum(2 * len(tok.text(t.answer)) + len(tok.text(t.user)) + 16 for t in turns)
        - sum(len(tok.text(" " + s)) for s in lines)
    )
    take, size = [], len(p.text)
    while True:
        i = rng.randrange(size)
        left -= p.length[i]
        if left < 0:
            break
        take.append(i)
    spots = sorted(rng.sample(range(len(take) + len(lines)), len(lines)))
    body = text(take, 0, len(take), list(zip(spots, lines)))
    whole = " ".join(x if isinstance(x, str) else p.text[x] for x in body)
    form = rng.choice(["system", "before", "before", "after"])
    turns = arrange(rng, form, turns)
    return assemble(form, whole, turns, rng.random() < 0.6, lines=body, whole=whole, asked=asked, planted=planted)


def make(rng, longest=LONGEST, shortest=128):
    """Lengths spread evenly on a logarithmic scale, from 128 tokens up."""
    return needle(rng, int(shortest * (longest / shortest) ** rng.random()))


def sequences(tok, ds):
    """As dialogues.sequences, without tokenising the texts again: they are rendered as `Q.` and put in afterwards.

    A full stop ends every sentence, and nothing else in these dialogues holds the token Q.
    """
    p, short = pool(tok), []
    for d in ds:
        swap = (
            lambda m: m | {"content": m["content"].replace(d["meta"]["whole"], "Q.")} if m["role"] != "assistant" else m
        )
        short.append(d | {"messages": [swap(m) for m in d["messages"]]})
    mark = tok.text("Q")
    assert len(mark) == 1
    out = []
    for d, parts in zip(ds, dialogues.sequences(tok, short)):
        first, *rest = d["meta"]["lines"]
        ids = [np.array(tok.text(first if isinstance(first, str) else p.text[first]), np.uint16)]
        ids += [np.array(tok.text(" " + x), np.uint16) if isinstance(x, str) else p.ids[x] for x in rest]
        ids = np.concatenate(ids)[:-1].tolist()  # the full stop stays: with an empty line after it, it is another token
        got = []
        for part in parts:
            at = part.index(mark[0])
            got.append(part[:at] + ids + part[at + 1 :])
        out.append(got)
    return out


# ---- evaluation set ---------------------------------------------------------------------------


def haystack():
    return sentences("evaluation", 3000)


def item_dialogue(lines, item, fact=None):
    """The dialogue of an evaluation item; sentences joined as `text` says."""
    answer = item["answer"].split("\n####")[0]
    body = " ".join(text(lines, item["start"], item["sentences"], [tuple(x) for x in item["plant"]]))
    return assemble(item["form"], body, [Turn(item["question"], f"{fact[1] if fact else ''}: {answer}", answer)], True)


def evaluation(number=200, seed="evaluation", length=LONGEST, lines=None):
    """Full-length texts, depths in equal steps from first to last sentence; one held-out fact is asked for."""
    rng, tok, out = random.Random(seed), tokenizer(), []
    lines = lines or haystack()
    sizes = [len(x) for x in tok.enc.encode_ordinary_batch([" " + s for s in lines])]
    for i in range(number):
        planted = facts(rng, rng.randrange(4, 13), True)
        t = ask(rng, planted[0])
        left = (
            length
            - 56
            - 2 * len(tok.text(t.answer))
            - len(tok.text(t.user))
            - sum(len(tok.text(" " + says(*f))) for f in planted)
        )
        start, n = rng.randrange(len(lines)), 0
        while (left := left - sizes[(start + n) % len(lines)]) >= 0:
            n += 1
        total = n + len(planted)
        at = round(i / max(1, number - 1) * (total - 1))
        others = rng.sample([x for x in range(total) if x != at], len(planted) - 1)
        plant = sorted(zip([at, *others], [says(*f) for f in planted]))
        it = {
            "start": start,
            "sentences": n,
            "plant": [list(x) for x in plant],
            "form": ("system", "before", "after")[i % 3],
            "question": t.user,
            "answer": f"{t.answer}\n#### {planted[0][2]}",
            "depth": round(at / max(1, total - 1), 4),
        }
        d = item_dialogue(lines, it, planted[0])
        whole = d["messages"][-2]["content"] + (d["messages"][0]["content"] if len(d["messages"]) > 2 else "")
        it["tokens"] = (
            len(tok.text(whole)) + len(said(tok, d["messages"][-1], True)) + 24
        )  # 24: roles and marks, at most
        out.append(it)
    return out


def check():
    tok = tokenizer()
    assert make(random.Random(5), 1000) == make(random.Random(5), 1000)
    rng = random.Random("check")
    ds = [make(rng, 1500) for _ in range(120)]
    tenths, none, questions = Counter(), 0, 0
    for d in ds:
        body = d["meta"]["whole"]
        assert not any(held_out(*f) for f in d["meta"]["planted"])
        replies = [line for m in d["messages"] if m["role"] == "assistant" for line in m["content"].split("\n")]
        assert 0 < len(replies) <= len(d["meta"]["asked"])
        for (kind, n, v), reply in zip(d["meta"]["asked"], replies):
            stem = KINDS[kind][1].split("{v}")[0].format(n=n)
            questions += 1
            if v is None:
                none += 1
                assert stem not in body and reply == NOTHING
                continue
            assert body.count(stem) == 1 and body.count(says(kind, n, v)) == 1 and reply == says(kind, n, v)
            tenths[int(body.index(stem) / len(body) * 9.99)] += 1
    assert len(tenths) == 10 and 0.04 < none / questions < 0.2, (tenths, none, questions)
    turns = check_engine(tok, ds)
    assert sequences(tok, ds) == dialogues.sequences(tok, ds)  # the quick way gives the same ids
    lengths = [len(p[0]) for p in sequences(tok, ds)]
    assert min(lengths) < 256 and 1000 < max(lengths) <= 1500, (min(lengths), max(lengths))
    long = [needle(rng, LONGEST) for _ in range(8)]
    full = [len(p[-1]) for p in sequences(tok, long)]
    assert all(LONGEST - 500 < n <= LONGEST for n in full), full
    learnt = sum(x >= LEARN for parts in sequences(tok, long) for p in parts for x in p)
    lines = haystack()
    items = evaluation(11, length=2000)
    assert items == evaluation(11, length=2000)
    asked = [item_dialogue(lines, it) for it in items]
    for i, (it, d, parts) in enumerate(zip(items, asked, dialogues.sequences(tok, asked))):
        answer = it["answer"].split("\n####")[0]
        body = text(lines, it["start"], it["sentences"], [tuple(x) for x in it["plant"]])
        assert (
            abs(it["depth"] - i / 10) < 0.02
            and body.count(answer) == 1
            and body.index(answer) == round(it["depth"] * (len(body) - 1))
        )
        assert all(body[at] == s for at, s in it["plant"])  # indices are those of the finished list
        assert 1850 < len(parts[0]) <= it["tokens"] <= 2000, (len(parts[0]), it["tokens"])
    print(
        f"needles: 120 dialogues of {min(lengths)} to {max(lengths)} tokens, {questions} questions ({none} without an answer), 8 of "
        f"{min(full)} to {max(full)} with {learnt} learnt tokens, {turns} turns through the engine's template and back"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--eval"] and sys.argv[2:]:
        (pathlib.Path(sys.argv[2]).parent / "haystack.txt").write_text("".join(s + "\n" for s in haystack()))
        sys.argv[3:] = sys.argv[3:] or ["200"]
    run(__doc__, make, evaluation, check)
