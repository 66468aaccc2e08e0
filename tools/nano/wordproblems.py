"""Grade-school word problems of one to five steps with every step worked out.

Written by families (wp_*.py) in the template language of wp_core.py; a seventh of them are wp_classic.py's, the first
nano's. Persons stay who they are: "If I have 20 dollars and spend 7" is answered with "You have 13 dollars", Anna is
"she" throughout. Calculations held out by corpus.py never appear in training, as in the first nano.

    python tools/nano/wordproblems.py --check | --show N | --eval FILE [N]     (FILE has GSM8K's schema)
"""

import random
import re
import time
from collections import Counter

import corpus
import talk
import wp_change
import wp_classic
import wp_compare
import wp_mixed
import wp_money
import wp_parts
import wp_rates
import wp_space
from dialogues import Turn, chat, check_engine, run
from phrases import NUMBER_WORDS
from wp_classic import HE, SHE, Problem
from wp_core import Tell, cap, phrase, solve, typed
from wp_words import FOOD, SMALL, made_up

CLASSIC = 0.14
COUNTED = frozenset(SMALL) | frozenset(FOOD)
FAMILIES = (
    wp_change.FAMILIES
    | wp_money.FAMILIES
    | wp_compare.FAMILIES
    | wp_rates.FAMILIES
    | wp_parts.FAMILIES
    | wp_space.FAMILIES
    | wp_mixed.FAMILIES
)
_NAMES, _WEIGHTS = list(FAMILIES), list(FAMILIES.values())


def told(rng, family):
    """A problem of a family with its story, or None where the numbers do not suit."""
    story = family(rng)
    if story is None:
        return None
    if rng.random() < 0.06 and story.vals.get("o") in COUNTED:
        story.vals["o"] = made_up(rng)
    tell = Tell(rng, dict(story.vals), story.cast, story.tense or rng.choice(["pres", "past"]))
    story = story._replace(vals=tell.vals)
    question = phrase(rng, story, tell)
    result, lines, keys = solve(story, tell)
    if not 0 <= result < 10000 or len(lines) > 6 or max(v for v in tell.vals.values() if isinstance(v, int)) > 99999:
        return None
    tell.vals.setdefault("r", result)
    answer = cap(tell.write(story.answer)) + "."
    return Problem(typed(rng, question), "\n".join(lines), answer, result, tuple(keys), len(lines)), story, tell


def problem(rng):
    if rng.random() < CLASSIC:
        return wp_classic.problem(rng)
    while True:
        t = told(rng, rng.choices(_NAMES, _WEIGHTS)[0])
        if t is not None:
            return t[0]


def turn(rng):
    """A problem as a turn, nothing of it held out; and the problem."""
    while True:
        p = problem(rng)
        if not any(corpus.held_out(k) for k in p.keys):
            return Turn(p.question, p.think, p.answer, False, p.result, p.keys), p


def make(rng):
    """One problem; now and then there was something before it: another one, a sum, or talk."""
    last, p = turn(rng)
    before = []
    while rng.random() < 0.09:
        before.append(rng.choice([lambda r: turn(r)[0], corpus.turn, talk.turn])(rng))
    return chat(
        [*before, last], rng.random() < 0.75, rng.choice(talk.SYSTEMS) if rng.random() < 0.05 else None, problem=p
    )


def evaluation(number=500, seed="evaluation"):
    """Problems of two steps or more with at least one held-out calculation, GSM8K's schema."""
    rng, out, seen = random.Random(seed), [], set()
    while len(out) < number:
        p = problem(rng)
        if p.steps > 1 and any(corpus.tested(k) for k in p.keys) and p.question not in seen:
            seen.add(p.question)
            out.append({"question": p.question, "answer": f"{p.think}\n{p.answer}\n#### {p.result}"})
    return out


def numbers(text):
    """All numbers of a question, digits or words, as a set."""
    text = text.lower().replace("-", " ")
    out = {int(n.replace(",", "")) for n in re.findall(r"\d+(?:,\d{3})*", text)}
    for n, w in NUMBER_WORDS.items():
        if n < 100 and re.search(rf"\b{w.replace('-', ' ')}\b", text):
            out.add(n)
    return out


FIXED = {"two", "four", "one", "h", "k12"}  # names of values that belong to the formula and not to the question


def check_family(rng, family, count):
    """Results by an independent formula; every value in it is told; English. Returns the wordings without numbers and
    nouns."""
    shapes = set()
    while count:
        t = told(rng, family)
        if t is None:
            continue
        count -= 1
        p, story, tell = t
        assert eval(story.truth, {"abs": abs}, tell.vals) == p.result, (story.truth, tell.vals, p)
        known, inside = numbers(p.question), re.sub(r"[\d,]+", "", p.question)
        for name in compile(story.truth, "", "eval").co_names:
            v = tell.vals.get(name)
            if name != "abs" and v not in known:  # twice, half as old, three quarters
                assert re.search(
                    r"twice|two times|three times|four times|half|third|quarter|fourth|dozen|one|each|fift|sixth|eighth|tenth|\d/\d|an? ",
                    p.question.lower(),
                ), (name, v, p)
        text = p.question + " " + p.answer
        assert re.search(rf"\b{p.result}\b", p.answer), p
        assert not re.search(r"[{}<>\[\]|]|  |\.\.|,,|\bNone\b| [.,?]|\?\?|['’]s's", text), p
        low = text.lower()
        assert not re.search(
            r"\ba (?!uni|us|one)[aeiou]|\ban (?![aeiou]|hour|8|11|18)|\b(she|he|it|\w+er) have\b(?! to)|\bi has\b|\byou has\b|\bi is\b",
            re.sub(r"(do|does|did|will|can|would|could|must|until) (\w+ )?\w+ have|how many .*? have", "", low),
        ), p
        assert not re.search(
            r"\b1 (?!of\b|more\b|and\b|to\b|fewer\b|left\b|full\b|in\b|from\b|for\b|are\b|is\b|square\b|other)\w+[^s\W]s\b(?<!loss)(?<!is)(?<!was)",
            p.answer,
        ), p
        cast = [w.subject for w in story.cast.values()]
        for he, words in (("he", "he|his|him"), ("she", "she|her|hers")):
            assert he in cast or not re.search(rf"\b({words})\b", low), p
        if cast[:1] == ["I"] and not story.cast.get("Q"):
            assert "You" in p.answer or "you" in p.answer or not re.search(r"\b(I|my)\b", p.answer), p
        shapes.add(re.sub(r"\d+", "#", inside)[:60])
    return len(shapes)


def check():
    from tokenizer import Tokenizer

    assert make(random.Random(5)) == make(random.Random(5))
    rng = random.Random("check")
    shapes = {f.__name__: check_family(rng, f, 400) for f in FAMILIES}
    steps, first, questions = Counter(), Counter(), set()
    for _ in range(4000):
        p = problem(rng)
        steps[p.steps] += 1
        questions.add(p.question)
        assert re.search(rf"\b{p.result}\b", p.answer), p
        last = p.think.split("\n")[-1]
        assert re.search(rf"so {p.result}\b|remainder {p.result}\b", last), p
        if re.match(r"(if )?i (have|buy|earn|work)\b", p.question.lower()):  # the asker is answered as "you"
            first[p.answer.split()[0]] += 1
        for a, op, b, c in re.findall(
            r"(?<![\d+*-])(\d+)([+*])(\d+)=(\d+)(?![\d*])", p.think
        ):  # every a+b=c of the working holds
            assert int(c) == (int(a) + int(b) if op == "+" else int(a) * int(b)), (a, op, b, c, p.think)
    assert set(steps) >= {1, 2, 3, 4, 5} and first["You"] > 50, (steps, first)
    ds = [make(rng) for _ in range(150)]
    assert not any(corpus.held_out(k) for d in ds for k in d["meta"]["keys"])
    items = evaluation(60)
    assert items == evaluation(60) and all(set(it) == {"question", "answer"} for it in items)
    start = time.process_time()
    for _ in range(2000):
        make(rng)
    spent = (time.process_time() - start) / 2
    turns = check_engine(Tokenizer(), ds)
    print(
        f"wordproblems: {len(FAMILIES)} families and {len(wp_classic.FAMILIES)} classic ones, {400 * len(FAMILIES)} results by formula; "
        f"4000 problems of {dict(sorted(steps.items()))} steps, {len(questions)} of them different; {spent:.2f} ms a dialogue; "
        f"{turns} turns through the engine's template and back"
    )


if __name__ == "__main__":
    run(__doc__, make, evaluation, check)
