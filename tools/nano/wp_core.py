"""How a word problem gets its words: structured facts, templates with alternatives, persons, tenses, order.

A family makes a `Story`: values, the steps of the solution, a formula (`truth`) that says the result independently,
and templates. In a template
    [x|y|]       one of these; they nest
    {a}          a value: a number, a noun in the plural ({o.1}: singular, {o.a}: with a or an), or other text
    {a o}        so many of a noun: 1 apple, 2 apples;  {a $}: money;  {$}: dollars or whatever the money is
    {P} {P.o} {P.s} {P.n} {P.S}   a person as subject, as object (him), possessive (his), by name, possessive of the
                                  name
    <buy>        the verb for P in the tense of the story; <Q buy> for Q, <it cost> and <they cost> for things;
                 <buy!> always present, <buy'> always past
"""

import re
from functools import lru_cache
from typing import NamedTuple

import arithmetic as ar
from phrases import NUMBER_WORDS
from wp_words import HE, RELATIVES, ROLES, SHE, SYLLABLES, Noun, conjugate


class Who(NamedTuple):
    """A person: first mention, later mentions by name, pronouns, and how the answer names them."""

    name: str
    later: str
    subject: str
    object: str
    possessive: str
    reply: str
    plural: bool = False
    first: bool = False


I = Who("I", "I", "I", "me", "my", "you", True, True)
WE = Who("we", "we", "we", "us", "our", "you", True)
YOU = Who("you", "you", "you", "you", "your", "you", True)
REPLY = Who("you", "you", "you", "you", "your", "you", True)
IT = Who("it", "it", "it", "it", "its", "it")
THEY = Who("they", "they", "they", "them", "their", "they", True)


def someone(name, later, he, reply=None):
    s, o, p = ("he", "him", "his") if he else ("she", "her", "her")
    return Who(name, later, s, o, p, reply or later)


def named(rng, but=()):
    while True:
        he = rng.random() < 0.5
        if rng.random() < 0.06:
            name = "".join(rng.choice(SYLLABLES) for _ in range(rng.randrange(2, 4))).capitalize()
        else:
            name = rng.choice(HE if he else SHE)
        if name not in [w.name for w in but]:
            return someone(name, name, he)


def who(rng, me=True, group=True):
    r = rng.random()
    if me:
        if r < 0.17:
            return I
        if group and r < 0.21:
            return WE
        if r < 0.25:
            return YOU
    if r < 0.36:
        role = Noun(rng.choice(ROLES))
        return someone(rng.choice([role.a(), "the " + role]), "the " + role, rng.random() < 0.5 or role == "fisherman")
    if r < 0.43:
        rel, p = rng.choice(RELATIVES)
        return someone("my " + rel, "my " + rel, p == "he", "your " + rel)
    return named(rng)


class Story(NamedTuple):
    vals: dict
    steps: list  # (label template, "a*b=c"), the last gives r; a//b=q:m keeps the remainder
    truth: str  # the result from the values, as a Python expression
    facts: list  # clause templates
    ask: str
    answer: str
    cast: dict = {}
    shuffle: bool = False  # the facts may come in any order
    tense: str = ""  # "pres" or "past"; "": either
    plain: bool = False  # sentences only, no "if"
    extra: bool = True  # irrelevant facts may be put in


@lru_cache(maxsize=None)
def parse(template):
    """A template as nested tuples: str, ("alt", options), ("slot", words), ("verb", person, verb, mark)."""
    stack = [[[]]]
    for t in re.findall(r"[\[\]|]|\{[^}]*\}|<[^>]*>|[^\[\]|{<]+", template):
        if t == "[":
            stack.append([[]])
        elif t == "|":
            stack[-1].append([])
        elif t == "]":
            options = stack.pop()
            stack[-1][-1].append(("alt", tuple(tuple(o) for o in options)))
        elif t[0] == "{":
            stack[-1][-1].append(("slot", *re.split(r"[ .]", t[1:-1], maxsplit=1), "." if "." in t else " "))
        elif t[0] == "<":
            m = re.fullmatch(r"<(?:([A-Z]|it|they) )?(.*?)([!']?)>", t)
            stack[-1][-1].append(("verb", m[1] or "P", m[2], m[3]))
        else:
            stack[-1][-1].append(t)
    assert len(stack) == 1 and len(stack[0]) == 1, template
    return tuple(stack[0][0])


def in_words(n):
    return NUMBER_WORDS.get(n, str(n)) if isinstance(NUMBER_WORDS, dict) else NUMBER_WORDS[n]


class Tell:
    """Writes templates for one problem, keeping its style: tense, money, numbers, who was mentioned."""

    def __init__(self, rng, vals, cast, tense):
        self.rng, self.vals, self.cast, self.past = rng, vals, cast, tense == "past"
        r = rng.random()
        self.sign, self.unit = (
            ("$", "dollars")
            if r < 0.2
            else ("", "dollars" if r < 0.87 else "euros" if r < 0.94 else "pounds" if r < 0.97 else "bucks")
        )
        r = rng.random()
        self.words = 20 if r < 0.08 else 99 if r < 0.11 else 0
        self.met, self.used, self.reply = set(), set(), False
        third = {k: w for k, w in cast.items() if w.subject in ("he", "she")}
        # a pronoun says who is meant if everybody else is known to be of the other sex
        self.clear = {
            k
            for k, w in cast.items()
            if all(o.name in (HE if w.subject == "she" else SHE) for j, o in third.items() if j != k)
        }

    def number(self, n):
        if self.reply:
            return str(n)
        if n <= self.words or (0 < n < 4 and self.rng.random() < 0.1):
            return in_words(n)
        if n >= 1000 and self.rng.random() < 0.2:
            return f"{n:,}"
        return str(n)

    def money(self, n):
        unit = "dollars" if self.reply and self.unit == "bucks" else self.unit
        if self.sign and not self.reply:
            return f"${n:,}" if n >= 1000 and self.rng.random() < 0.3 else f"${n}"
        return f"{self.number(n)} {unit.removesuffix('s') if n == 1 else unit}"

    def person(self, key, how):
        w = self.cast[key]
        if self.reply and w.reply == "you":
            return "your" if how in ("s", "S") else "you"
        again = key in self.met or (self.reply and how == "s")
        self.met.add(key)
        mine = w.subject in ("I", "we", "you")
        short = mine or (
            again
            and key in self.clear
            and (self.rng.random() < 0.8 if not self.reply else key == "P" and self.rng.random() < 0.1)
        )
        full = w.reply if self.reply else w.later if again else w.name
        if how == "n":
            return full
        if how == "S":
            return w.possessive if mine else full + "'s"
        if how == "o":
            return w.object if short else full
        if how == "s":
            return w.possessive if short or (self.reply and key in self.clear) else full + "'s"
        return w.subject if short else full

    def slot(self, name, arg, kind, out):
        if name in self.cast:
            out.append(self.person(name, arg if kind == "." else ""))
            return
        if name == "$":
            out.append("dollars" if self.unit == "bucks" and self.reply else self.unit)
            return
        v = self.vals[name]
        self.used.add(name)
        if kind == "." and arg:
            out.append(v.one() if arg == "1" else v.a() if arg == "a" else str(v))
        elif isinstance(v, Noun):
            out.append(v.many())
        elif not isinstance(v, int):
            out.append(v)
        elif arg == "$":
            out.append(self.money(v))
        elif arg:
            o = self.vals[arg] if arg in self.vals else Noun(arg)
            out.append(f"{self.number(v)} {o.one() if v == 1 else o.many()}")
        else:
            out.append(self.number(v))

    def _put(self, nodes, out):
        for n in nodes:
            if isinstance(n, str):
                out.append(n)
            elif n[0] == "alt":
                options = n[1]
                self._put(options[int(self.rng.random() * len(options))], out)
            elif n[0] == "slot":
                self.slot(n[1], n[2] if len(n) > 3 else "", n[-1], out)
            else:
                w = self.cast.get(n[1]) or (IT if n[1] == "it" else THEY)
                if self.reply and w.reply == "you":
                    w = REPLY
                out.append(conjugate(n[2], w.plural, w.first, (self.past or n[3] == "'") and n[3] != "!"))

    def write(self, template):
        out = []
        self._put(parse(template), out)
        text = re.sub(r" +", " ", "".join(out)).strip().replace(" .", ".").replace(" ,", ",")
        return re.sub(r"\b([Aa]) (?=[aei]|o(?!ne\b)|u(?!ni|s))", r"\1n ", text)


def solve(story, tell):
    """Does the steps: (result, lines of working, keys). Labels are written as in the answer."""
    v, keys, lines = story.vals, [], []
    tell.reply = True
    for label, step in story.steps:
        a, op, b, c = re.fullmatch(r"(\w+)(//|[-+*/])(\w+)=(\S+)", step).groups()
        x, y = (int(n) if n.isdigit() else v[n] for n in (a, b))
        if op[0] == "/":
            (q, rest), text = ar.div(x, y, keys)
            if op == "/":
                assert rest == 0, (story.truth, step, v)
            else:
                c, _, more = c.partition(":")
                v[more] = rest
            v[c] = q
        else:
            v[c], text = {"+": ar.add, "-": ar.sub, "*": ar.mul}[op](x, y, keys)
        lines.append(f"{tell.write(label)}: {text}.")
    return v["r"], lines, keys


EXTRAS = [
    "it <it be> a [sunny|rainy|cold|warm|windy|beautiful] day",
    "{P.s} [sister|brother|best friend|cousin] is {z} years old",
    "{P.s} house has {z} windows",
    "the [shop|market|school|library] <it be> {z} minutes away",
    "{P.s} favorite color is [blue|green|red|purple]",
    "{P.s} favorite number is {z}",
    "it <it be> {z} degrees outside",
    "{P} <live!> in [Paris|Boston|Rome|a small village|Chicago|Dublin]",
    "{P} <have!> {z} cousins",
    "{P} <wear> a [red|green|yellow] [hat|shirt|jacket]",
    "{P.s} [dog|cat] is {z} years old",
]


def cap(text):
    """A sentence, or several, with capitals."""
    return re.sub(r"(^|[.?] )([a-z])", lambda m: m[1] + m[2].upper(), text)


def join(parts, rng):
    if len(parts) == 1:
        return parts[0]
    return ", ".join(parts[:-1]) + rng.choice([" and ", " and ", ", and "]) + parts[-1]


def phrase(rng, story, tell):
    """The question in one of many forms."""
    facts = list(story.facts)
    if not facts:
        ask = cap(tell.write(story.ask))
        return ask + ("." if re.match("Find|Calc|Comp|Give|Conv", ask) else "?")
    if story.shuffle:
        rng.shuffle(facts)
    if story.extra and "P" in story.cast and rng.random() < 0.07:
        tell.vals["z"] = rng.randrange(4, 20)
        facts.insert(rng.randrange(1, len(facts) + 1), rng.choice(EXTRAS))
        form = 0
    else:
        form = rng.choices([0, 1, 2, 3, 4], [50, 18, 17, 12, 3])[0]
    if (story.plain and form in (1, 2, 3)) or (form in (3, 4) and "find " in story.ask):
        form = 0
    if form in (3, 4):  # the question comes first
        ask = tell.write(story.ask)
        said = [tell.write(f) for f in facts]
        if form == 4 or any(". " in s for s in said):
            return cap(ask) + "? " + " ".join(cap(s) + "." for s in said)
        return cap(ask) + rng.choice([" if ", " if ", " when "]) + join(said, rng) + "?"
    said = [tell.write(f) for f in facts]
    ask = tell.write(story.ask)
    if rng.random() < 0.25:
        ask = otherwise(rng, ask)
    end = "." if ask.startswith(("find ", "tell ")) else "?"
    if any(". " in s for s in said) and form:
        form = 0
    if form == 2:
        start = rng.choice(["if ", "if ", "if ", "suppose ", "say ", "let's say "])
        if start == "if ":
            return cap(start + join(said, rng)) + rng.choice([", ", ", ", ", then "]) + ask + end
        return cap(start + join(said, rng)) + ". " + cap(ask) + end
    if form == 1 and len(said) > 1:
        i = rng.randrange(1, len(said))
        said = [*said[: i - 1], said[i - 1] + rng.choice([" and ", " and ", ", and "]) + said[i], *said[i + 1 :]]
    return " ".join(cap(s) + "." for s in said) + " " + cap(ask) + (end if rng.random() < 0.9 else "")


OTHERWISE = [
    (re.compile(a), b)
    for a, b in [  # other words for a question or a fact, by what stands there
        (
            r"^how many (.+?) (?:do|does) (.+?) have (left|now)$",
            ["how many {0} [has|have] {1} got {2}", "how many {0} does that leave"],
        ),
        (
            r"^how much (?:money )?(?:do|does) (.+?) have (left|now)$",
            [
                "how much [has|have] {0} got {1}",
                "how much money remains",
                "what remains",
                "how much cash [do|does] {0} have {1}",
            ],
        ),
        (
            r"^how many (.+?) are (?:left|still left|left over)$",
            [
                "how many {0} remain",
                "how many {0} are remaining",
                "what number of {0} remains",
                "how many {0} are still there",
            ],
        ),
        (
            r"^how many (.+?) are there (in total|altogether|in all)$",
            [
                "what is the total number of {0}",
                "find the total number of {0}",
                "how many {0} are there {1}, please",
                "what's the number of {0} {1}",
                "tell me how many {0} there are {1}",
            ],
        ),
        (
            r"^how many (.+?) are there$",
            [
                "what is the number of {0}",
                "tell me how many {0} there are",
                "find the number of {0}",
                "what's the number of {0}",
            ],
        ),
        (
            r"^how many (.+?) is that(.*)$",
            ["how many {0} would that be{1}", "how many {0} does that make{1}", "how many {0} are that{1}"],
        ),
        (r"^how much (?:money )?is left(?: over)?$", ["what's left", "how much remains", "what remains"]),
        (r"^what is ((?:the|its|one) .+)$", ["what's {0}", "tell me {0}", "find {0}"]),
        (
            r"^how old is (.+?)(?: now)?$",
            [
                "what's the age of {0}",
                "can you tell how old {0} is",
                "how many years old is {0}",
                "how old is {0}, then",
            ],
        ),
        (
            r"^how many (.+?) (?:are needed|do they need)$",
            ["how many {0} will be needed", "how many {0} must there be"],
        ),
    ]
]
SHORTER = [
    (re.compile(a), b)
    for a, b in [
        (r"\bI have (?=[\d$])", "I've got "),
        (r"\b(He|She|It) has (?=[\d$])", r"\1's got "),
        (r"\bI am\b", "I'm"),
        (r"\b(He|She|It) is\b", r"\1's"),
        (r"\bWe have (?=[\d$])", "We've got "),
        (r"\b([A-Z][a-z]+) has (?=[\d$])", r"\1 has got "),
        (r"\bWhat is\b", "What's"),
        (r"\bin total\b", "all in all"),
        (r"\baltogether\b", "all told"),
        (r"\baltogether\b", "overall"),
        (
            r"^([A-Z][a-z]+) (has|had|earns|saves|saved|earned|starts|started|bought|buys) ([^.?,]+)\. (?:He|She) (?!is|was|does|did)",
            r"\1, who \2 \3, ",
        ),
        (r"\beach\?", "apiece?"),
        (r"\bevery day\b", "daily"),
        (r"\bequally\b", "in equal parts"),
        (r"\bHow much money\b", "How much cash"),
    ]
]
INTRO = [
    "It is market day",
    "Summer is here",
    "It's a busy week",
    "Here is a puzzle",
    "School starts next week",
    "It is raining outside",
    "Today is a holiday",
    "The sun is shining",
    "My teacher gave us this problem",
    "The weather is nice",
    "There is a big party tomorrow",
    "It's almost Christmas",
    "We are learning math",
    "A new store opened in town",
    "Spring has come",
    "This is from my homework",
    "Listen carefully",
    "Here is a story",
    "It was a long day",
]


def otherwise(rng, ask):
    """The same question in other words, where there are any."""
    for pattern, forms in OTHERWISE:
        m = pattern.match(ask)
        if m:
            form = rng.choice(forms)
            if "[" in form:
                who_ = m[2] if "{1}" in form and "{2}" in form else m[1]
                many = who_ in ("I", "we", "you", "they")
                form = form.replace("[has|have]", "have" if many else "has").replace(
                    "[do|does]", "do" if many else "does"
                )
            return form.format(*m.groups())
    return ask


ASKING = [
    "{q}",
    "{q}",
    "{q}",
    "{q}",
    "{q}",
    "{q}",
    "{q}",
    "{q}",
    "{q}",
    "{q}",
    "{q}",
    "{q}",
    "{q} Please help.",
    "Help me: {q}",
    "Solve this: {q}",
    "{q} Show your work.",
    "Question: {q}",
    "Math problem: {q}",
    "Can you solve this? {q}",
    "Hi! {q}",
    "{q} thanks",
    "{q} Think step by step.",
]


def typed(rng, q):
    """Case and marks as people type them."""
    q = rng.choice(ASKING).format(q=q) if rng.random() < 0.5 else q
    if rng.random() < 0.12:
        for pattern, short in rng.sample(SHORTER, 4):
            q = pattern.sub(short, q, count=1)
    if rng.random() < 0.03:
        q = rng.choice(INTRO) + ". " + q
    r = rng.random()
    if r < 0.14:
        q = q.lower()
        if rng.random() < 0.5:
            q = q.replace("?", "").replace("'", "").rstrip()
        if rng.random() < 0.2:
            q = q.replace(". ", " ")
    elif r < 0.18:
        q = q.rstrip("?.")
    elif r < 0.2:
        q = q.replace(". ", ", ").lower()
    elif r < 0.22:
        q = q.replace(". ", ".\n")
    return q
