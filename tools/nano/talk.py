"""Short general chat: what people type in the first minute at a chatbot, with answers that are true and modest.

A topic makes a `Said`: the question in one of many wordings, a line of thinking, the answer, and what an answer must
hold. Questions with slots, and plain ones inside a carrier ("Tell me: ..."), are held out by their text: one in twenty
by SHA-256 never appears in training and is what `--eval` writes. Plain questions by themselves are all learnt.

    python tools/nano/talk.py --check | --show N | --eval FILE [N]
"""

import random
import re
from typing import NamedTuple

import corpus
import knowledge as kb
import puzzles
import wp_words as vocabulary
from dialogues import Turn, chat, check_engine, kept_out, run
from phrases import NAMES, THINGS
from smalltalk import CAN, HINT, PLAIN, WHO

SYSTEMS = [
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are Kimi.",
    "Answer briefly.",
    "You are a friendly chatbot.",
    "You are a helpful AI assistant.",
    "Be concise.",
    "You are nano.",
    "Answer in one sentence.",
    "You are Kimi, an AI assistant created by Moonshot AI.",
    "You are a polite assistant. Keep answers short.",
]

SYLLABLES = (
    "ba be bo ca co da de di do fa fe ga go ha he jo ka ke ki la le li lo lu ma me mi mo na ne ni no pa pe ra re ri ro "
    "sa se si so ta te ti to va vi wa ya za ton den ker lin berg son man ter wood ville us ric ald ert cy phie"
).split()


class Said(NamedTuple):
    question: str
    think: str
    answer: str
    expect: tuple  # one of these, lower case, must be in the answer
    plain: bool = False  # no slot: always learnt when it stands by itself
    easy: bool = True
    again: object = None  # rng -> Said: "another one", "and of Italy?"


CARRIERS = [
    "{}",
    "{}",
    "{}",
    "{}",
    "{}",
    "{}",
    "Hi! {}",
    "hello, {}",
    "ok, {}",
    "hey nano, {}",
    "nano, {}",
    "so {}",
    "One question: {}",
    "Please tell me: {}",
    "I want to ask: {}",
    "well, {}",
    "Hello! {}",
    "another question: {}",
    "now {}",
    "tell me, {}",
    "{} please",
    "{} Answer briefly.",
    "{} Thanks!",
    "and {}",
    "but {}",
    "Kimi, {}",
    "quick question: {}",
]


def low(text):
    """Starts with a small letter, but I, A and names of one's own do not change."""
    head = text.split()[0] if text.split() else ""
    keep = (
        not head[:1].isupper()
        or head in ("I", "I'm")
        or not (head in HEADS or head.lower() in ("tell", "give", "name", "write"))
    )
    return text if keep else text[0].lower() + text[1:]


HEADS = set(
    "What What's Who Which How How's Where When Why Are Is Do Does Can Could Tell Say Name Write Count Spell Will Were Did Explain Show Make Give Sing Play".split()
)


def carried(rng, text):
    c = rng.choice(CARRIERS)
    if c == "{}":
        return text, False
    return c.format(text if c.startswith("{}") or c[-4:-2] in ("! ", ". ") else low(text)), True


def key(text):
    """Questions that differ in case, blanks and marks only are the same."""
    return "talk:" + re.sub(r"[\W_]+", " ", text.lower()).strip()


def plain(rng):
    _, questions, think, answers, expect = rng.choice(PLAIN)
    return _plain(rng, questions, think, answers, expect)


def _plain(rng, questions, think, answers, expect):
    again = (lambda r: _plain(r, questions, think, answers, expect)) if len(answers) > 2 and len(expect) > 2 else None
    return Said(rng.choice(questions), think, rng.choice(answers), expect, True, True, again)


# ---- facts: (templates, table, thinking, answer, follow-ups) -------------------------------------------------------

AND = ["And {x}?", "and {x}?", "What about {x}?", "and for {x}?", "How about {x}?", "{x}?"]
OF = ["And of {x}?", "and of {x}", *AND]


def bare(x):
    return re.sub(r"^(a|an|the) ", "", x)


def a_(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def upper(text):
    return text[:1].upper() + text[1:]


FACTS = {
    "capital": (
        4,
        [
            "What is the capital of {x}?",
            "What's the capital of {x}?",
            "capital of {x}",
            "Tell me the capital of {x}.",
            "Which city is the capital of {x}?",
            "Do you know the capital of {x}?",
            "Name the capital of {x}.",
            "{x} capital",
            "What is the capital city of {x}?",
            "the capital of {x} is?",
            "Can you tell me the capital of {x}?",
            "What is {x}'s capital?",
        ],
        kb.CAPITAL,
        "The capital of {x} is {y}.",
        "The capital of {x} is {y}.",
        OF,
    ),
    "country": (
        1,
        [
            "{x} is the capital of which country?",
            "Which country has the capital {x}?",
            "What country is {x} the capital of?",
            "{x} is the capital of what?",
            "Tell me about {x}.",
            "Where is {x}?",
            "What is {x}?",
            "What do you know about {x}?",
        ],
        kb.COUNTRY,
        "{x} is the capital of {y}.",
        "{x} is the capital of {y}.",
        AND,
    ),
    "about": (
        2,
        [
            "Tell me about {x}.",
            "What do you know about {x}?",
            "Tell me something about {x}.",
            "{x}",
            "What can you tell me about {x}?",
            "Explain {x}.",
            "I want to know about {x}.",
        ],
        {c: f"in {kb.CONTINENT[c]}, and the capital is {k}" for c, k in kb.CAPITAL.items()},
        "{x} is {y}.",
        "{X} {is} {y}. I know little more about it.",
        AND,
    ),
    "continent": (
        2,
        [
            "Where is {x}?",
            "On which continent is {x}?",
            "What continent is {x} in?",
            "where is {x} located?",
            "In which part of the world is {x}?",
            "Is {x} in Europe or somewhere else?",
        ],
        kb.CONTINENT,
        "{x} is in {y}.",
        "{X} {is} in {y}.",
        AND,
    ),
    "opposite": (
        3,
        [
            "What is the opposite of {x}?",
            "opposite of {x}",
            "What's the opposite of {x}?",
            "Tell me the opposite of {x}.",
            "the opposite of {x} is?",
            "Give me the opposite of {x}.",
            "Which word is the opposite of {x}?",
            "What is the antonym of {x}?",
            "antonym of {x}",
            "{x} is the opposite of what?",
        ],
        kb.OPPOSITE,
        "The opposite of {x} is {y}.",
        "The opposite of {x} is {y}.",
        OF,
    ),
    "colour": (
        2,
        [
            "What colour is {x}?",
            "What color is {x}?",
            "Which colour does {x} have?",
            "what is the color of {x}",
            "Tell me the colour of {x}.",
            "Which color is {x}?",
        ],
        kb.COLOUR,
        "{x}: {y}.",
        "{X} is usually {y}.",
        AND,
    ),
    "sound": (
        1,
        [
            "What sound does a {x} make?",
            "What does a {x} say?",
            "What noise does a {x} make?",
            "sound of a {x}",
            "How does a {x} sound?",
        ],
        kb.SOUND,
        "A {x} {y}.",
        "A {x} {y}.",
        ["And a {x}?", "What about a {x}?", "and the {x}?"],
    ),
    "baby": (
        1,
        [
            "What is a baby {x} called?",
            "What do you call a baby {x}?",
            "name of a baby {x}",
            "What is a young {x} called?",
        ],
        kb.BABY,
        "A baby {x}: {y}.",
        "A baby {x} is called a {y}.",
        ["And a baby {x}?", "what about a {x}?"],
    ),
    "legs": (
        1,
        ["How many legs does a {x} have?", "legs of a {x}", "How many legs has a {x}?", "Number of legs of a {x}?"],
        kb.LEGS,
        "{x}: {y} legs.",
        "A {x} usually has {y} legs.",
        ["And a {x}?", "what about a {x}?"],
    ),
    "sides": (
        1,
        [
            "How many sides does a {x} have?",
            "How many corners does a {x} have?",
            "sides of a {x}",
            "How many sides has a {x}?",
        ],
        kb.SIDES,
        "{x}: {y}.",
        "A {x} has {y} sides and {y} corners.",
        ["And a {x}?", "what about a {x}?"],
    ),
    "plural": (
        1,
        [
            "What is the plural of {x}?",
            "plural of {x}",
            "Tell me the plural of {x}.",
            "What's the plural of {x}?",
            "one {x}, two what?",
        ],
        kb.PLURAL,
        "The plural of {x} is {y}.",
        "The plural of {x} is {y}.",
        OF,
    ),
    "meaning": (
        2,
        [
            "What is {x}?",
            "what is {x}",
            "Define {b}.",
            "What does {b} mean?",
            "Tell me what {x} is.",
            "What's {x}?",
            "definition of {b}",
            "Do you know what {x} is?",
            "Explain what {x} is.",
            "meaning of {b}",
            "Can you explain what {x} is?",
        ],
        kb.MEANING,
        "{x}: {y}.",
        "{X} is {y}.",
        AND,
    ),
    "tomorrow": (
        1,
        [
            "Which day comes after {x}?",
            "What day comes after {x}?",
            "What is the day after {x}?",
            "If today is {x}, what is tomorrow?",
            "day after {x}",
            "what comes after {x}?",
        ],
        {d: kb.DAYS[(i + 1) % 7] for i, d in enumerate(kb.DAYS)},
        "After {x}: {y}.",
        "{y} comes after {x}.",
        ["And after {x}?"],
    ),
    "yesterday": (
        1,
        [
            "Which day comes before {x}?",
            "What day comes before {x}?",
            "If today is {x}, what was yesterday?",
            "day before {x}",
            "what comes before {x}?",
        ],
        {d: kb.DAYS[(i + 6) % 7] for i, d in enumerate(kb.DAYS)},
        "Before {x}: {y}.",
        "{y} comes before {x}.",
        ["And before {x}?"],
    ),
    "month": (
        1,
        ["Which month comes after {x}?", "What month comes after {x}?", "month after {x}", "what comes after {x}?"],
        {m: kb.MONTHS[(i + 1) % 12] for i, m in enumerate(kb.MONTHS)},
        "After {x}: {y}.",
        "{y} comes after {x}.",
        ["And after {x}?"],
    ),
    "monthbefore": (
        1,
        ["Which month comes before {x}?", "What month is before {x}?", "month before {x}", "what comes before {x}?"],
        {m: kb.MONTHS[(i + 11) % 12] for i, m in enumerate(kb.MONTHS)},
        "Before {x}: {y}.",
        "{y} comes before {x}.",
        ["And before {x}?"],
    ),
    "monthdays": (
        1,
        ["How many days does {x} have?", "How many days are in {x}?", "days in {x}", "How long is {x}?"],
        kb.MONTH_DAYS,
        "{x}: {y} days.",
        "{x} has {y} days{leap}.",
        ["And {x}?", "what about {x}?"],
    ),
    "season": (
        1,
        ["What comes after {x}?", "Which season comes after {x}?", "season after {x}"],
        {s: kb.SEASONS[(i + 1) % 4] for i, s in enumerate(kb.SEASONS)},
        "After {x}: {y}.",
        "{Y} comes after {x}.",
        ["And after {x}?"],
    ),
    "letter": (
        1,
        [
            "Which letter comes after {x}?",
            "What letter comes after {x}?",
            "letter after {x}",
            "What comes after {x} in the alphabet?",
        ],
        {chr(i): chr(i + 1) for i in range(65, 90)},
        "After {x}: {y}.",
        "{y} comes after {x}.",
        ["And after {x}?"],
    ),
    "hello": (
        1,
        [
            "How do you say hello in {x}?",
            "What is hello in {x}?",
            "Translate hello into {x}.",
            "hello in {x}",
            "Say hello in {x}.",
        ],
        {k: v[0] for k, v in kb.HELLO.items()},
        "Hello in {x}: {y}.",
        "Hello in {x} is {y}.",
        ["And in {x}?", "in {x}?"],
    ),
    "merci": (
        1,
        [
            "How do you say thank you in {x}?",
            "What is thank you in {x}?",
            "Translate thank you into {x}.",
            "thank you in {x}",
            "thanks in {x}",
        ],
        {k: v[1] for k, v in kb.HELLO.items()},
        "Thank you in {x}: {y}.",
        "Thank you in {x} is {y}.",
        ["And in {x}?", "in {x}?"],
    ),
    "adieu": (
        1,
        ["How do you say goodbye in {x}?", "What is goodbye in {x}?", "Translate goodbye into {x}.", "goodbye in {x}"],
        {k: v[2] for k, v in kb.HELLO.items()},
        "Goodbye in {x}: {y}.",
        "Goodbye in {x} is {y}.",
        ["And in {x}?", "in {x}?"],
    ),
}

CALM = ("greet", "bye", "thanks", "praise", "how", "who", "made", "human", "can", "joke", "sad", "happy", "ok")


def small(rng):
    """Talk that fits into any dialogue, also one with tools declared."""
    _, questions, think, answers, _ = rng.choice([t for t in PLAIN if t[0] in CALM])
    q = rng.choice(questions)
    return Turn(habits(rng, q) if rng.random() < 0.45 else q, think, rng.choice(answers))


def fact(rng, name=None, x=None, follow=False):
    name = name or rng.choices(list(FACTS), [f[0] for f in FACTS.values()])[0]
    _, templates, table, think, answer, ands = FACTS[name]
    x = x or rng.choice(list(table))
    y = table[x]
    fill = dict(
        x=x,
        X=upper(x),
        y=y,
        Y=upper(str(y)),
        b=bare(x),
        leap=", 29 in a leap year" if x == "February" else "",
        **{"is": "are" if x in ("the Netherlands", "the Philippines", "the United States") else "is"},
    )
    q = rng.choice(ands if follow else templates).format(**fill)
    if x.startswith("the ") and rng.random() < 0.2:
        q = q.replace("the " + x[4:], x[4:])
    if re.search(r"\ba [aeiou]", q + answer.format(**fill)):
        q = re.sub(r"\ba ([aeiou])", r"an \1", q)
    said = re.sub(r"\b([Aa]) ([aeio])", r"\1n \2", answer.format(**fill))
    think = re.sub(r"\b([Aa]) ([aeio])", r"\1n \2", think.format(**fill))
    return Said(
        upper(q) if q[0] != q[0].upper() and rng.random() < 0.5 else q,
        think,
        said,
        (str(y).lower(),),
        False,
        True,
        lambda r: fact(r, name, r.choice([k for k in table if k != x]), True),
    )


def qa(rng):
    questions, must, answer = rng.choice(kb.QA)
    return Said(rng.choice(questions), answer, answer, (must,), True)


def units(rng, follow=None):
    many, of, n = rng.choice([u for u in kb.UNITS if u != follow])
    about = "about " if (many, of) == ("weeks", "a year") else ""
    q = rng.choice(
        [
            "How many {m} are in {o}?",
            "How many {m} are there in {o}?",
            "{m} in {o}",
            "How many {m} does {o} have?",
            "how many {m} in {o}",
            "{o} has how many {m}?",
        ]
    ).format(m=many, o=of)
    tail = ", 366 in a leap year" if (many, of) == ("days", "a year") else ""
    return Said(
        upper(q) if rng.random() < 0.5 else q,
        f"{many} in {of}: {n}.",
        f"There are {about}{n} {many} in {of}{tail}.",
        (str(n),),
        False,
        True,
        units,
    )


def in_words(rng):
    n = rng.randrange(0, 1000) if rng.random() < 0.6 else rng.randrange(0, 101)
    w = kb.NUMBER_WORDS[n]
    if rng.random() < 0.7:
        q = rng.choice(
            [
                "Write {n} in words.",
                "How do you spell {n}?",
                "{n} in words",
                "Spell {n}.",
                "How do you write {n} in words?",
                "spell the number {n}",
            ]
        ).format(n=n)
        return Said(q, f"{n}: {w}.", f"{n} in words is {w}.", (w,), False, True, in_words)
    q = rng.choice(
        ["Write {w} as a number.", "{w} in digits", "How do you write {w} in digits?", "Write {w} in digits."]
    ).format(w=w)
    return Said(q, f"{w}: {n}.", f"{upper(w)} is {n}.", (str(n),), False, True, in_words)


def counting(rng):
    n, r = rng.randrange(2, 31), rng.random()
    if rng.random() < 0.35:
        n = rng.choice([5, 10, 10, 20])
    if r < 0.6:
        q = rng.choice(
            [
                "Count to {n}.",
                "Count from 1 to {n}.",
                "count to {n}",
                "Can you count to {n}?",
                "Please count to {n}.",
                "List the numbers from 1 to {n}.",
                "count up to {n}",
                "Say the numbers from 1 to {n}.",
            ]
        )
        out = list(range(1, n + 1))
    elif r < 0.8:
        q = rng.choice(
            ["Count down from {n}.", "Count backwards from {n}.", "Count from {n} down to 1.", "countdown from {n}"]
        )
        out = list(range(n, 0, -1))
    else:
        m = rng.randrange(1, n)
        q = rng.choice([f"Count from {m} to {{n}}.", f"List the numbers from {m} to {{n}}."])
        out = list(range(m, n + 1))
    text = ", ".join(map(str, out)) + "."
    return Said(q.format(n=n), f"Count: {out[0]} to {out[-1]}.", text, (text.lower(),))


def count_far(rng):
    n = rng.choice([50, 100, 200, 500, 1000, 10000, 1000000])
    q = rng.choice(
        [
            "Count to {n}.",
            "Count from 1 to {n}.",
            "Can you count to {n}?",
            "count to {n}",
            "List the numbers from 1 to {n}.",
        ]
    ).format(n=n)
    return Said(q, f"{n} is far. Too long.", f"Counting to {n} would be too long. I count up to 30.", ("too long",))


def prime(rng):
    t = puzzles.prime(rng)
    return Said(t.user, t.think, t.answer, (t.answer.split(" is")[0].lower(),), False, t.easy, prime)


def some_of(rng):
    what = rng.choice(list(kb.LISTS))
    n = rng.randrange(2, 6)
    items = kb.LISTS[what].split()[:n]
    q = rng.choice(
        [
            "Name {n} {w}.",
            "List {n} {w}.",
            "Tell me {n} {w}.",
            "Give me {n} {w}.",
            "name {n} {w}",
            "{n} {w} please",
            "Can you name {n} {w}?",
            "Do you know {n} {w}?",
        ]
    )
    text = upper(", ".join(items[:-1]) + " and " + items[-1] + ".")
    return Said(q.format(n=rng.choice([n, kb.NUMBER_WORDS[n]]), w=what), f"{n} {what}.", text, (text.lower(),))


def no_tool(rng):
    """What a tool would know, asked without one."""
    x, form = rng.choice(
        [*kb.CAPITAL.values(), "New York", "Chicago", "Munich", "Sydney", "Mumbai", "San Francisco"]
    ), rng.randrange(3)
    if form == 0:
        q = rng.choice(
            [
                "What is the weather in {x}?",
                "How is the weather in {x}?",
                "weather in {x}",
                "What's the weather like in {x}?",
                "How warm is it in {x}?",
                "Is it raining in {x}?",
                "Will it rain in {x} tomorrow?",
                "temperature in {x}",
            ]
        ).format(x=x)
        return Said(
            q,
            f"The weather in {x}. No tool for it here.",
            f"I do not know the weather in {x}. With a weather tool I could look it up.",
            ("do not know the weather",),
        )
    if form == 1:
        q = rng.choice(
            ["What time is it in {x}?", "time in {x}", "What is the time in {x}?", "what time is it now in {x}"]
        ).format(x=x)
        return Said(
            q, "The time. I have no clock.", f"I have no clock, so I do not know the time in {x}.", ("no clock",)
        )
    x = rng.choice(NAMES) + rng.choice(["", " Smith", " Miller", " Jones", " Garcia", " Chen", " Rossi"])
    what = rng.choice(["phone number", "address", "age", "email", "birthday"])
    q = rng.choice(
        ["What is the {w} of {x}?", "{w} of {x}", "Tell me the {w} of {x}.", "Do you know the {w} of {x}?"]
    ).format(w=what, x=x)
    return Said(
        q,
        f"The {what} of {x}. No tool for it here.",
        f"I do not know the {what} of {x}. With a tool that knows it I could look it up.",
        ("do not know the",),
    )


def even(rng):
    n = rng.randrange(0, 10000) if rng.random() < 0.5 else rng.randrange(0, 100)
    is_even, asked = n % 2 == 0, rng.choice(["even", "odd"])
    q = rng.choice(
        ["Is {n} even?", "Is {n} an even number?", "is {n} even or not"]
        if asked == "even"
        else ["Is {n} odd?", "Is {n} an odd number?", "is {n} odd or not"]
    )
    if rng.random() < 0.35:
        q, asked = rng.choice(["Is {n} even or odd?", "Even or odd: {n}?", "{n}: odd or even?"]), None
    what = "even" if is_even else "odd"
    lead = "" if asked is None else "Yes, " if asked == what else "No, "
    return Said(
        q.format(n=n),
        f"Last digit {n % 10}: {what}.",
        f"{lead}{n} is {what}.",
        (f"{lead}{n} is {what}".lower(),),
        False,
        True,
        even,
    )


def word(rng):
    """A word to spell or to repeat: a known one, a noun, a name, or one that nobody knows."""
    r = rng.random()
    if r < 0.35:
        return rng.choice(kb.WORDS)
    if r < 0.65:
        return rng.choice(vocabulary.PLAIN_NOUNS)
    if r < 0.75:
        return rng.choice(vocabulary.SHE + vocabulary.HE).lower()
    if r < 0.9:
        return "".join(rng.choice(SYLLABLES) for _ in range(rng.randrange(1, 4)))
    return "".join(rng.choice("aeiou" if i % 2 else "bcdfghjklmnprstvwxz") for i in range(rng.randrange(3, 10)))


def numbered(w):
    """1 c, 2 a, 3 t"""
    return ", ".join(f"{i} {c}" for i, c in enumerate(w, 1))


def letters(rng):
    """Spelling: how many letters, how often one of them and where, vowels, backwards; the word is spelt first."""
    w, form = word(rng), rng.random()
    spelt, r = "-".join(w), rng.random()
    if form < 0.08:
        q = rng.choice(
            [
                "Spell {w} backwards.",
                "reverse the word {w}",
                "What is {w} backwards?",
                "Write {w} backwards.",
                "reverse {w}",
                "{w} spelled backwards",
                "Reverse the letters of {w}.",
            ]
        )
        return Said(
            q.format(w=w),
            f"{spelt}; {'-'.join(w[::-1])}.",
            f"{upper(w)} backwards is {w[::-1]}.",
            (f"is {w[::-1]}",),
            False,
            False,
            letters,
        )
    if form < 0.16:
        vowel, what = rng.choice([(True, "vowels"), (True, "vowels"), (False, "consonants")])
        q = rng.choice(
            [
                "How many {v} are in {w}?",
                "how many {v} in {w}",
                "How many {v} does {w} have?",
                "Count the {v} in {w}.",
                "number of {v} in {w}",
            ]
        )
        found = [c for c in w if (c in "aeiou") == vowel]
        n = len(found)
        return Said(
            q.format(w=w, v=what),
            f"{spelt}; {what} {' '.join(found) or 'none'}: {n}.",
            f"There {'is' if n == 1 else 'are'} {n} {what if n != 1 else what[:-1]} in {w}.",
            (f" {n} {what[:-1]}",),
            False,
            False,
            letters,
        )
    if form < 0.22:
        i = rng.randrange(len(w))
        name = (
            f"{i + 1}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(i + 1, 'th')}"
            if rng.random() < 0.5 or i > 8
            else "first second third fourth fifth sixth seventh eighth ninth".split()[i]
        )
        q = rng.choice(
            [
                "What is the {n} letter of {w}?",
                "{n} letter of {w}",
                "Which is the {n} letter in {w}?",
                "What is the {n} letter in the word {w}?",
            ]
        )
        return Said(
            q.format(w=w, n=name),
            f"{numbered(w[:i + 1])}.",
            f"The {name} letter of {w} is {w[i]}.",
            (f"is {w[i]}",),
            False,
            False,
            letters,
        )
    if form < 0.27:
        c = rng.choice([rng.choice(w), rng.choice("abcdefghijklmnopqrstuvwxyz")])
        q = rng.choice(
            [
                "Does {w} contain the letter {c}?",
                "Is there a letter {c} in {w}?",
                "is the letter {c} in {w}",
                "Does the word {w} have a letter {c}?",
            ]
        )
        at = [i for i, x in enumerate(w, 1) if x == c]
        return Said(
            q.format(w=w, c=c),
            f"{spelt}; {c} {'at ' + str(at[0]) if at else 'nowhere'}.",
            f"{'Yes' if at else 'No'}, the letter {c} is {'' if at else 'not '}in {w}.",
            ("yes, the" if at else "no, the",),
            False,
            False,
            letters,
        )
    if r < 0.3:
        q = rng.choice(["How do you spell {w}?", "Spell {w}.", "spell {w}", "Can you spell {w}?", "spell the word {w}"])
        return Said(q.format(w=w), f"{spelt}.", f"{spelt}.", (spelt,), False, True, letters)
    if r < 0.6:
        q = rng.choice(
            [
                "How many letters are in {w}?",
                "How many letters does {w} have?",
                "How many letters are in the word {w}?",
                "number of letters in {w}",
            ]
        )
        return Said(
            q.format(w=w),
            f"{numbered(w)}.",
            f"There are {len(w)} letters in {w}.",
            (f"are {len(w)} ",),
            False,
            False,
            letters,
        )
    c = rng.choice(w) if rng.random() < 0.85 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    if rng.random() < 0.35:
        c = max(w, key=w.count)
    n = w.count(c)
    q = rng.choice(
        [
            "How many {c} are in {w}?",
            "How many {c}'s are in {w}?",
            "How many {c}s are there in {w}?",
            "how many {c}s in {w}",
            "How many {c}'s in {w}?",
            "How many {c}s are in {w}?",
            "How many times does {c} appear in {w}?",
            "How many letters {c} are in {w}?",
            "how many {c} in {w}",
            "How many {c}'s are there in the word {w}?",
            "How often is {c} in {w}?",
            "how many {c}'s are in {w}",
            "how many {c}'s in {w}",
            "count the {c}'s in {w}",
            "number of {c} in {w}",
            "How many times is the letter {c} in {w}?",
            "Count the letter {c} in {w}.",
            "how many letter {c} are in {w}",
            "how many {c} does {w} have",
        ]
    )
    at = [str(i) for i, x in enumerate(w, 1) if x == c]
    where = f"{c} at {', '.join(at)}" if at else f"no {c}"
    return Said(
        q.format(w=w, c=rng.choice([c, c, c.upper()])),
        f"{numbered(w)}; {where}: {n}.",
        f"The letter {c} appears {n} time{'s' * (n != 1)} in {w}.",
        (f"appears {n} time",),
        False,
        False,
        letters,
    )


def first_letter(rng):
    w = word(rng)
    i, name = rng.choice([(0, "first"), (-1, "last")])
    q = rng.choice(
        ["What is the {n} letter of {w}?", "{n} letter of {w}", "Which letter is the {n} one in {w}?"]
    ).format(n=name, w=w)
    return Said(
        q, f"{'-'.join(w)}.", f"The {name} letter of {w} is {w[i]}.", (f"is {w[i]}",), False, True, first_letter
    )


def named(rng):
    n = rng.choice(NAMES + vocabulary.SHE + vocabulary.HE)
    if rng.random() < 0.15:
        q = rng.choice(
            [
                "My name is {n}. What is my name?",
                "I am {n}. What's my name?",
                "my name is {n}, what is my name",
                "I'm {n}. Who am I?",
                "Call me {n}. What is my name?",
            ]
        )
        return Said(q.format(n=n), f"They are {n}.", f"Your name is {n}.", (n.lower(),))
    if rng.random() < 0.5:  # any name, not only the known ones
        n = upper("".join(rng.choice(SYLLABLES) for _ in range(rng.randrange(1, 4))))
        q = rng.choice(
            [
                "My name is {n}.",
                "Hello, my name is {n}.",
                "Call me {n}.",
                "my name is {n}",
                "hi, my name is {n}",
                "You can call me {n}.",
            ]
        ).format(n=n)
        return Said(q, f"They are {n}.", f"Nice to meet you, {n}! What can I do for you?", (n.lower(),))
    q = rng.choice(
        [
            "My name is {n}.",
            "I am {n}.",
            "I'm {n}",
            "Hi, I am {n}.",
            "Hello, my name is {n}.",
            "Call me {n}.",
            "hey, I'm {n}",
            "This is {n}.",
            "my name is {n}",
        ]
    ).format(n=n)
    return Said(q, f"They are {n}.", f"Nice to meet you, {n}! What can I do for you?", (n.lower(),))


_ASK_NAME = [
    "What is my name?",
    "What's my name?",
    "Do you know my name?",
    "Who am I?",
    "do you remember my name?",
    "whats my name",
    "Say my name.",
    "Do you remember who I am?",
]


def my_name(rng):
    return Said(
        rng.choice(_ASK_NAME), "They have not told their name.", "You have not told me your name.", ("not told",), True
    )


def say(rng):
    what = rng.choice(
        [
            word(rng),
            rng.choice(THINGS + NAMES),
            f"{word(rng)} {word(rng)}",
            topic(rng),
            f"the {word(rng)} is {word(rng)}",
        ]
    )
    if rng.random() < 0.25:
        k, what = rng.randrange(2, 6), word(rng)
        q = rng.choice(
            [
                "Say {w} {k} times.",
                "say {w} {k} times",
                "Repeat {w} {k} times.",
                "Write {w} {k} times.",
                "Can you say {w} {k} times?",
            ]
        )
        text = ", ".join([what] * k)
        return Said(
            q.format(w=what, k=rng.choice([k, kb.NUMBER_WORDS[k]])), f"{k} times {what}.", upper(text) + ".", (text,)
        )
    q = rng.choice(
        [
            "Say {w}.",
            "Repeat after me: {w}",
            "Repeat: {w}",
            "Please say {w}.",
            "Can you say {w}?",
            "say the word {w}",
            "Repeat the word {w}.",
        ]
    ).format(w=what)
    return Said(q, f"Say {what}.", upper(what) + ".", (what.lower(),))


UNEXPLAINED = [w for w in vocabulary.PLAIN_NOUNS if w not in {bare(m) for m in kb.MEANING}]


def topic(rng):
    """Something that it may name but knows nothing of."""
    r = rng.random()
    if r < 0.3:
        return rng.choice(kb.TOPICS)
    if r < 0.6:  # anything at all, so that names of things are copied and not remembered
        w = rng.choice(UNEXPLAINED)
        if rng.random() < 0.2:
            w = f"{rng.choice(vocabulary.ADJECTIVES)} {w}"
        if w in vocabulary.MASS:
            return w
        form = rng.choice(["the {}", "the {}", "{a}", "{s}", "my {}", "{s}"])
        n = vocabulary.Noun(w)
        return form.format(w, a=n.a(), s=n.many())
    if r < 0.7:
        w = word(rng)
        return w if rng.random() < 0.6 else "the " + w
    if r < 0.8:
        return rng.choice(THINGS)
    if r < 0.92:
        return f"{rng.choice(NAMES)} {upper(''.join(rng.choice(SYLLABLES) for _ in range(rng.randrange(1, 4))))}"
    return " ".join(rng.sample(kb.WORDS, 2))


def unknown(rng):
    """A request about a topic: an honest no that names it."""
    x = topic(rng)
    form = rng.choice(["about"] * 6 + ["who", "poem", "translate", "howto", "when", "think", "joke"])
    hint = rng.choice(HINT)
    if form == "poem":
        what = rng.choice(["poem", "story", "song", "essay", "book", "letter", "text", "report"])
        q = rng.choice(
            [
                "Write a {w} about {x}.",
                "Tell me a {w} about {x}.",
                "Can you write a {w} about {x}?",
                "write me a {w} about {x}",
                "I want a {w} about {x}",
                "Make a {w} about {x}.",
            ]
        ).format(w=what, x=x)
        if rng.random() < 0.25 and what in ("poem", "story", "song"):
            q = rng.choice(
                [
                    f"{what} about {x}",
                    f"a short {what} about {x}",
                    f"please write a {what} about {x}",
                    f"write a short {what} about {x}",
                ]
            )
        q, what = q.replace("a essay", "an essay"), a_(what)
        return Said(
            q,
            f"{upper(what)} about {x}. I cannot write that.",
            f"I cannot write {what} about {x}: I am a very small model. I know a few short poems and two stories by heart.",
            ("cannot",),
        )
    if form == "joke":
        q = rng.choice(
            ["Tell me a joke about {x}.", "Do you know a joke about {x}?", "joke about {x}", "make a joke about {x}"]
        ).format(x=x)
        return Said(
            q,
            f"No joke about {x}. Another one.",
            f"I know no joke about {x}. Just say joke, and I tell one that I know.",
            ("no joke",),
        )
    if form == "translate":
        lang = rng.choice([*kb.HELLO, "Chinese", "Japanese", "Russian", "Latin", "Arabic"])
        what = rng.choice(
            [
                "I love you",
                "good luck",
                "where is the station",
                "the cat is black",
                "my house",
                x,
                rng.choice(kb.WORDS),
                "one beer, please",
            ]
        )
        q = rng.choice(
            [
                "Translate '{w}' into {l}.",
                "How do you say {w} in {l}?",
                "What is {w} in {l}?",
                "translate {w} to {l}",
                "{w} in {l}",
                "Translate to {l}: {w}",
            ]
        ).format(w=what, l=lang)
        if what in ("hello",):
            return unknown(rng)
        return Said(
            q,
            f"A translation into {lang}. I cannot.",
            f"I cannot translate into {lang}: I speak simple English only.",
            ("cannot",),
        )
    if form == "howto":
        what = rng.choice(
            [
                "cook rice",
                "bake a cake",
                "fix a bike",
                "learn to drive",
                "find a job",
                "make money",
                "make friends",
                "learn English",
                "tie a tie",
                "grow tomatoes",
                "build a house",
                "write a book",
                "cook pasta",
                "fix my car",
                "sleep better",
                "play the violin",
                "draw a cat",
                "start a company",
                "get rich",
                "train a dog",
                "make coffee",
                "clean a window",
                "become a doctor",
                "learn Python",
                "cook an egg",
                "sell my car",
            ]
        )
        q = rng.choice(
            [
                "How do I {w}?",
                "How can I {w}?",
                "how to {w}",
                "Tell me how to {w}.",
                "Can you help me {w}?",
                "I want to {w}.",
                "What is the best way to {w}?",
                "Help me {w}.",
            ]
        ).format(w=what)
        return Said(
            q,
            f"How to {what}. I do not know.",
            f"I am a very small model and do not know how to {what}. {hint}",
            ("do not know",),
        )
    if form == "who":
        q = rng.choice(
            [
                "Who is {x}?",
                "Who was {x}?",
                "who is {x}",
                "Do you know {x}?",
                "When was {x} born?",
                "Have you heard of {x}?",
                "Where does {x} live?",
            ]
        )
        x = rng.choice(
            [
                f"{rng.choice(NAMES)} {rng.choice('Smith Miller Berg Lopez Tan Moreau Rossi Novak Silva Haas Jansen Olsen Petrov Cohen Reed Stone'.split())}",
                *"Newton,Mozart,Beethoven,Napoleon,Picasso,Cleopatra,Darwin,Gandhi,Elon Musk,Taylor Swift,Obama,Messi,Ronaldo,Madonna,Plato,Bill Gates,Donald Trump,Joe Biden,Putin,Beyonce,Batman,Santa Claus,Harry Potter".split(
                    ","
                ),
            ]
        )
        return Said(
            q.format(x=x),
            f"{x}. I do not know.",
            f"I am a very small model and know almost nothing about {x}. {hint}",
            ("almost nothing",),
        )
    if form == "when":
        year = rng.randrange(1000, 2031)
        q = rng.choice(
            [
                "What happened in {y}?",
                "Who won in {y}?",
                "Tell me about {y}.",
                "What was it like in {y}?",
                "events of {y}",
            ]
        ).format(y=year)
        return Said(
            q,
            f"The year {year}. I do not know.",
            f"I am a very small model and know almost nothing about the year {year}. {hint}",
            ("almost nothing",),
        )
    if form == "think":
        q = rng.choice(
            [
                "What do you think about {x}?",
                "Do you like {x}?",
                "What is your opinion on {x}?",
                "do you love {x}?",
                "Is {x} good?",
                "Is {x} bad?",
                "your opinion about {x}?",
                "Do you believe in {x}?",
            ]
        ).format(x=x)
        return Said(
            q,
            f"An opinion about {x}. I have none.",
            f"I am a program and have no opinion about {x}. {hint}",
            ("no opinion",),
        )
    q = rng.choice(
        [
            "Tell me about {x}.",
            "What do you know about {x}?",
            "Explain {x}.",
            "tell me about {x}",
            "Can you explain {x}?",
            "I want to know about {x}.",
            "Tell me something about {x}.",
            "explain {x} to me",
            "How does {x} work?",
            "Why is {x} important?",
            "What is the history of {x}?",
            "Give me some information about {x}.",
            "What can you tell me about {x}?",
            "I need information about {x}",
            "Teach me about {x}.",
            "Where can I buy {x}?",
            "How much does {x} cost?",
            "Describe {x}.",
            "I want to talk about {x}",
            "Let's talk about {x}.",
            "{x}",
            "I like {x}.",
            "Recommend something about {x}.",
            "Explain {x} like I am five",
            "write about {x}",
            "How many people live in {x}?",
            "what is the best thing about {x}?",
        ]
    ).format(x=x)
    if q.startswith("I like "):
        return Said(
            q,
            f"They like {x}.",
            f"That is good to hear. I know almost nothing about {x}, as I am a very small model.",
            (x.lower(),),
        )
    return Said(
        q,
        f"{x}. I know almost nothing about it.",
        f"I am a very small model and know almost nothing about {x}. {hint}",
        ("almost nothing",),
    )


def puzzled(rng):
    """Open questions of every kind, answered by an honest no that repeats what was asked for."""
    one, form, hint = rng.choice, rng.randrange(16), rng.choice(HINT)
    no = lambda what: f"I am a very small model and do not know {what}. {hint}"
    if form == 0:
        x, y = one(kb.BEINGS), one(kb.DOES)
        ask = rng.choice(["Why do", "How do", "When do", "Where do", "How often do"])
        return Said(
            f"{ask} {x} {y}?",
            "I do not know that.",
            no(f"{ask.split()[0].lower() if ask != 'How often do' else 'how often'} {x} {y}"),
            ("do not know",),
        )
    if form == 1:
        adj, x = one("tall big old heavy deep long far fast wide hot cold large high expensive loud".split()), one(
            kb.SIGHTS
        )
        return Said(
            one([f"How {adj} is {x}?", f"how {adj} is {x}", f"Do you know how {adj} {x} is?"]),
            "I do not know that.",
            no(f"how {adj} {x} is"),
            ("do not know",),
        )
    if form == 2:
        v, x = one(
            [
                ("invented", "invented"),
                ("discovered", "discovered"),
                ("founded", "founded"),
                ("made", "made"),
                ("wrote", "wrote"),
            ]
        ), one(kb.INVENTIONS)
        return Said(
            one([f"Who {v[0]} {x}?", f"who {v[0]} {x}", f"Do you know who {v[0]} {x}?", f"Tell me who {v[0]} {x}."]),
            "I do not know that.",
            no(f"who {v[0]} {x}"),
            ("do not know",),
        )
    if form == 3:
        x = one(kb.EVENTS)
        what = one(["when {x} was", "when {x} starts", "when {x} began", "how long {x} was"]).format(x=x)
        verb = {"was": "was", "starts": "does", "began": "did"}[what.split()[-1]]
        head, tail = what.split(f" {x} ")[0], {"was": "", "does": " start", "did": " begin"}[verb]
        return Said(f"{upper(head)} {verb} {x}{tail}?", "I do not know that.", no(what), ("do not know",))
    if form == 4:
        c, x = one(list(kb.CAPITAL)), one(kb.OF_LAND)
        return Said(
            one(["What is the {x} of {c}?", "{x} of {c}", "What's the {x} of {c}?", "Tell me the {x} of {c}."]).format(
                x=x, c=c
            ),
            f"The {x} of {c}. I do not know that.",
            no(f"the {x} of {c}"),
            ("do not know",),
        )
    if form == 5:
        x = one(kb.ABLE)
        return Said(
            one(["Can you {}?", "can you {}", "Could you {}?", "Are you able to {}?", "Please {}."]).format(x),
            f"{upper(x)}: I cannot.",
            f"No, I cannot {x}. {CAN}".replace(" my ", " your ").replace(" me", " you"),
            ("cannot",),
        )
    if form == 6:
        x = one(kb.SHOULD)
        return Said(
            one(["What should I {}?", "what should I {}", "What can I {}?", "Tell me what to {}."]).format(x),
            "A choice of theirs.",
            "That is for you to decide: I am a very small model and know too little about you.",
            ("decide",),
        )
    if form == 7:
        x = one(kb.DECIDE)
        return Said(
            one(["Should I {}?", "should I {}", "Is it a good idea to {}?", "Do you think I should {}?"]).format(x),
            "A choice of theirs.",
            "That is for you to decide: I am a very small model and know too little about you.",
            ("decide",),
        )
    if form == 8:
        x = one(kb.BEST)
        return Said(
            one(
                [
                    "What is the best {}?",
                    "best {}",
                    "Which {} is the best?",
                    "What is the best {} in the world?",
                    "Recommend a {}.",
                    "Can you recommend a {}?",
                    "Suggest a {}.",
                ]
            ).format(x),
            "A matter of taste.",
            f"I am a program and have no taste, so I cannot recommend {a_(x)}.",
            ("cannot",),
        )
    if form == 9:
        a, b = rng.sample(kb.TOPICS + kb.BEINGS, 2)
        return Said(
            one(
                [
                    "What is the difference between {a} and {b}?",
                    "Compare {a} and {b}.",
                    "difference between {a} and {b}",
                    "Which is better, {a} or {b}?",
                    "{a} or {b}?",
                ]
            ).format(a=a, b=b),
            "I do not know that.",
            no(f"enough about {a} and {b}"),
            ("do not know",),
        )
    if form == 10:
        w = one(kb.WORDS)
        return Said(
            one(
                ["What rhymes with {}?", "Give me a word that rhymes with {}.", "Find a rhyme for {}.", "rhyme for {}"]
            ).format(w),
            "I do not know that.",
            no(f"a rhyme for {w}"),
            ("do not know",),
        )
    if form == 11:
        w = one(kb.WORDS)
        return Said(
            one(
                [
                    "Give me a synonym for {}.",
                    "What is another word for {}?",
                    "synonym of {}",
                    "What is a synonym of {}?",
                ]
            ).format(w),
            "I do not know that.",
            no(f"another word for {w}"),
            ("do not know",),
        )
    if form == 12:
        w = one(kb.WORDS)
        return Said(
            one(
                [
                    "Use {} in a sentence.",
                    "Make a sentence with {}.",
                    "Write a sentence with the word {}.",
                    "Give me a sentence with {}.",
                ]
            ).format(w),
            f"A sentence with {w}.",
            f"I know the word {w}.",
            (w,),
        )
    if form == 13:
        n, x = one([3, 5, 7, 10]), one(
            [
                "movies",
                "songs",
                "books",
                "names",
                "ideas",
                "tips",
                "recipes",
                "questions",
                "facts",
                "words",
                "games",
                "flowers",
                "actors",
                "tools",
            ]
        )
        return Said(
            one(["List {n} {x}.", "Give me {n} {x}.", "Name {n} {x}.", "Tell me {n} {x}.", "{n} {x} please"]).format(
                n=n, x=x
            ),
            "I cannot list them.",
            f"I cannot list {n} {x}: I am a very small model. {hint}",
            ("cannot",),
        )
    if form == 14:
        x = one(
            [
                "shop",
                "bank",
                "hospital",
                "station",
                "hotel",
                "restaurant",
                "pharmacy",
                "school",
                "park",
                "cinema",
                "bus stop",
            ]
        )
        return Said(
            one(
                [
                    "Where is the nearest {}?",
                    "nearest {}",
                    "How do I get to the {}?",
                    "Find a {} near me.",
                    "Is there a {} near here?",
                ]
            ).format(x),
            "A place near them. I do not know it.",
            f"I do not know where you are, so I cannot find a {x}.",
            ("cannot",),
        )
    c = one(list(kb.CAPITAL))
    return Said(
        one(
            [
                "How many people live in {}?",
                "Which language do they speak in {}?",
                "How big is {}?",
                "Is {} nice?",
                "When is the best time to visit {}?",
                "How do I get to {}?",
                "What do people eat in {}?",
                "Who rules {}?",
                "Have you been to {}?",
                "What can I see in {}?",
            ]
        ).format(c),
        f"About {c}. I do not know that.",
        f"I am a very small model and do not know that about {c}. {hint}",
        ("do not know",),
    )


def remark(rng):
    """Something told, not asked."""
    t = rng.choice(re.split(r"\|(?![^{]*})", kb.REMARKS))
    t = re.sub(r"\{([^}]*)\}", lambda m: rng.choice(m[1].split("|")), t)
    return Said(
        t + rng.choice([".", "", "!"]),
        "They tell me something.",
        "Thank you for telling me. What can I do for you?",
        ("thank you for telling",),
    )


def gibberish(rng):
    r = rng.random()
    if r < 0.7:
        text = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(4, 12)))
        text = text if rng.random() < 0.6 else text[:5] + " " + text[5:] + rng.choice("xqzjk")
    else:
        text = "".join(rng.choices("?!.,#*+-=/;:", k=rng.randrange(1, 5)))
    return Said(
        text,
        "No clear question.",
        "I did not find a question in that. Ask me something like 17 + 25, or ask what I can do.",
        ("question",),
        True,
    )


TOPIC = [
    (plain, 42),
    (fact, 21),
    (unknown, 13),
    (puzzled, 12),
    (remark, 3),
    (qa, 7),
    (units, 2),
    (in_words, 2),
    (counting, 2),
    (count_far, 0.3),
    (even, 1.5),
    (prime, 1),
    (some_of, 1.5),
    (no_tool, 3),
    (letters, 3),
    (first_letter, 1),
    (named, 1.5),
    (my_name, 0.4),
    (say, 1),
    (gibberish, 1.5),
]


def said(rng, want=False, source=None):
    """One question with its answer, held out or not as wanted."""
    while True:
        s = (source or rng.choices([t for t, _ in TOPIC], [w for _, w in TOPIC])[0])(rng)
        q, inside = (
            carried(rng, s.question)
            if rng.random() < 0.35 and len(s.question) > 3 and s.question[0].isalpha() and source is None
            else (s.question, False)
        )
        out = kept_out(key(q)) and (inside or not s.plain)
        if out == want:
            return s._replace(question=q)


def turn(rng):
    """A question as it is typed, with its answer; for other generators too."""
    return typed(rng, said(rng))


def typed(rng, s):
    q = s.question
    if rng.random() < 0.45:
        q = habits(rng, q)
        if rng.random() < 0.05 and len(q) > 6:
            q = corpus.typo(rng, q)
    return Turn(q, s.think, s.answer, s.easy)


def habits(rng, text):
    """As corpus.habits, without its additions: case and marks only, so that the key stays the same."""
    r = rng.random()
    text = text.lower() if r < 0.45 else text.upper() if r < 0.5 else upper(text)
    if rng.random() < 0.4:
        return text.rstrip("?.! ") or text
    if rng.random() < 0.15:
        return (text.rstrip("?.!") or text) + rng.choice(["??", " ?", "!", "...", "!!"])
    return text


# ---- chats -----------------------------------------------------------------------------------

MORE = [
    "Another one",
    "another one please",
    "One more",
    "more",
    "again",
    "Tell me another one",
    "another",
    "one more please",
    "give me another",
]
SURE = ["Are you sure?", "are you sure", "Really?", "Is that right?", "sure?", "Is that correct?"]
WHY = ["Why?", "why", "How do you know?", "how do you know that?", "why is that?"]
REPEAT = ["Repeat that", "say that again", "What did you say?", "again?", "can you repeat that?", "Pardon?"]


def follow(rng, s, turn_):
    """A question about what was just said, or None."""
    r, about = rng.random(), turn_.answer
    if s is not None and s.again and r < 0.55:
        for _ in range(20):
            n = s.again(rng)
            if n.answer == s.answer or (not n.plain and kept_out(key(n.question))):
                continue
            if n.plain and s.plain:
                n = n._replace(question=rng.choice(MORE))
            return n
    if about.startswith(("I think so", "Nice to meet", "Your name", "You have not")):
        return None
    if s is not None and (s.answer.startswith(("I am", "I was", "I have", "I did", "Hello", "Hi")) or s.plain):
        return None
    if r < 0.75:
        return Said(
            rng.choice(SURE), f"They doubt it: {about}", f"I think so, but I can make mistakes. {about}", ("think so",)
        )
    if r < 0.9:
        return Said(rng.choice(REPEAT), "They want it again.", about, (about.lower(),))
    if s is not None and s.question.startswith(("What", "Which", "capital")):
        return Said(
            rng.choice(WHY), "They ask for a reason.", f"I learnt it, but I cannot give a reason. {about}", ("cannot",)
        )
    return None


def make(rng):
    """One to seven turns; calculations come between, and names are remembered."""
    turns, last, name = [], None, None
    n = 1 if rng.random() < 0.5 else rng.randrange(2, 8)
    while len(turns) < n:
        f = follow(rng, last, turns[-1]) if turns and rng.random() < 0.4 else None
        if f is not None:
            last = f
            turns.append(typed(rng, f))
            continue
        if turns and rng.random() < 0.2:
            t = corpus.turn(rng, turns[-1].result)
            last = None
            turns.append(t)
            continue
        if turns and rng.random() < (0.3 if name else 0.02):
            said_ = Said(
                rng.choice(_ASK_NAME),
                f"They are {name}." if name else "They have not told their name.",
                f"Your name is {name}." if name else "You have not told me your name.",
                (),
            )
            turns.append(typed(rng, said_))
            last = None
            continue
        last = said(rng) if turns or rng.random() < 0.9 else said(rng, False, named)
        if last.think.startswith("They are ") and last.answer.startswith("Nice to meet"):
            name = last.think[9:-1]
        elif last.question in _ASK_NAME or any(q in last.question for q in ("my name", "who I am", "Who am I")):
            continue
        if turns and last.think.startswith("They want to hear it again"):
            continue
        turns.append(typed(rng, last))
    return chat(turns, rng.random() < 0.5, rng.choice(SYSTEMS) if rng.random() < 0.2 else None)


def evaluation(number=200, seed="evaluation"):
    """Held-out questions; one of `expect` must be in the answer (lower case), which has at most `length` characters."""
    rng, out, seen = random.Random(seed), [], set()
    while len(out) < number:
        s = said(rng, True)
        if key(s.question) not in seen:
            seen.add(key(s.question))
            out.append(
                {"question": s.question, "answer": s.answer, "expect": list(s.expect), "length": 2 * len(s.answer) + 80}
            )
    return out


def check():
    from tokenizer import Tokenizer

    assert make(random.Random(5)) == make(random.Random(5))
    rng = random.Random("check")
    for _ in range(20000):
        s = said(rng)
        assert s.question and s.answer and "{" not in s.answer + s.think, s
        assert not s.expect or any(e in s.answer.lower() for e in s.expect), s
        assert "letter" in s.answer or not re.search(r"\ba [aeio]\w|\ban [^aeiouAEIOUhx]|  ", s.answer), s
    ds = [make(rng) for _ in range(400)]
    items = evaluation(300)
    assert items == evaluation(300)
    wanted = {key(it["question"]) for it in items}
    big = [make(rng) for _ in range(6000)]
    for d in big:  # as typed: case and marks do not matter
        assert not any(key(m["content"]) in wanted for m in d["messages"] if m["role"] == "user"), d
    assert not any(corpus.held_out(k) for d in big for k in d["meta"]["keys"])
    print(
        f"talk: 20000 questions, {sum(len(p[1]) for p in PLAIN)} plain ones of {len(PLAIN)} topics, {len(ds)} chats, "
        f"{check_engine(Tokenizer(), ds)} turns through the engine's template and back"
    )


if __name__ == "__main__":
    run(__doc__, make, evaluation, check)
