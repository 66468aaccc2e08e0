"""The first nano's families of word problems: a seventh of what wordproblems.py makes."""

import random
import re
from typing import NamedTuple

import arithmetic as ar

SHE = "Anna Mia Lily Sara Emma Nina Zoe Kate Ella Alice Mary Lucy Jane Tina Maria Laura Aisha Olivia Sofia Lisa".split()
HE = "Tom Ben Sam Max Leo Jack Paul Omar Ravi Hugo Ivan Bob John Peter Mark David Wei Noah Liam James Mike".split()
THINGS = (
    "apples marbles stickers coins pencils cookies oranges cards eggs stamps shells flowers cups tickets books balloons "
    "buttons beads muffins carrots photos stones"
).split()
BOXES = ["boxes", "bags", "baskets", "packs", "jars", "crates"]
PLACES = ["on the farm", "in the shop", "at the school", "in the library", "in the garden"]


class Who(NamedTuple):
    """How a person is named in a question, and in its answer."""

    name: str  # "Anna", "I", "We", "You", "The baker"
    pronoun: str
    reply: str  # the answer's subject; "" if it is the name
    plural: bool  # have, not has

    def verb(self, base):
        """has / have, buys / buy, ..."""
        if self.plural:
            return base
        if base == "have":
            return "has"
        return base + ("es" if re.search(r"(s|x|ch|sh|o)$", base) else "s")

    def answer(self):
        return self.reply or self.name

    def mid(self, word):
        """A subject inside a sentence: names and I keep their capital."""
        return word if word == "I" or word in SHE + HE else word[0].lower() + word[1:]


def who(rng, group=True):
    r = rng.random()
    if r < 0.16:
        return Who("I", "I", "You", True)
    if group and r < 0.21:
        return Who("We", "we", "You", True)
    if r < 0.26:
        return Who("You", "you", "You", True)
    if r < 0.36:
        name = "The " + rng.choice("baker farmer teacher gardener driver chef".split())
        he = rng.random() < 0.5
        return Who(name, "he" if he else "she", "", False)
    if r < 0.42:
        name, p = rng.choice([("brother", "he"), ("sister", "she"), ("uncle", "he"), ("aunt", "she")])
        return Who(f"My {name}", p, f"Your {name}", False)
    he = rng.random() < 0.5
    return Who(rng.choice(HE if he else SHE), "he" if he else "she", "", False)


def other(rng, w):
    return rng.choice([n for n in HE + SHE if n != w.name])


def cap(text):
    return text[0].upper() + text[1:]


class Work:
    """Calculations one after the other, with their working and their held-out keys."""

    def __init__(self):
        self.keys, self.lines = [], []

    def step(self, why, op, a, b):
        r, text = getattr(ar, op)(a, b, self.keys)
        if op == "div":
            assert r[1] == 0
            r = r[0]
        self.lines.append(f"{why}: {text}.")
        return r

    def text(self):
        return "\n".join(self.lines)


class Problem(NamedTuple):
    question: str
    think: str
    answer: str
    result: int
    keys: tuple
    steps: int


def amount(n, unit):
    """1 apple, 2 apples; dollars likewise."""
    one = {"boxes": "box", "pennies": "penny", "cookies": "cookie"}.get(unit, unit.removesuffix("s"))
    return f"{n} {one if n == 1 else unit}"


def sized(rng, low, high):
    return rng.randrange(low, high + 1)


def holdings(rng):
    """Somebody has some things; the number changes one to four times."""
    w, k, o = who(rng), Work(), rng.choice(THINGS + ["dollars"] * 6)
    money, start = o == "dollars", sized(rng, 5, 120)
    n, parts = start, []
    for i in range(rng.choices([1, 2, 3, 4], [15, 47, 28, 10])[0]):
        friend = other(rng, w)
        form = rng.choices(["gain", "lose", "double", "half"], [40, 44, 8, 8 if n % 2 == 0 and n > 2 else 0])[0]
        if form == "lose" and n < 2:
            form = "gain"
        if form == "gain":
            x = sized(rng, 1, 90)
            verb, tail = rng.choice(
                [("earn", f"{x} dollars"), ("get", f"{x} dollars from {friend}"), ("find", f"{x} dollars")]
                if money
                else [("buy", f"{x} more"), ("get", f"{x} from {friend}"), ("find", f"{x} more")]
            )
            n = k.step(f"{verb} {x}", "add", n, x)
        elif form == "lose":
            x = sized(rng, 1, n - 1)
            verb, tail = rng.choice(
                [("spend", f"{x}"), ("pay", f"{x} dollars to {friend}"), ("give", f"{friend} {x} dollars")]
                if money
                else [("give", f"{x} to {friend}"), ("lose", f"{x}"), ("sell", f"{x}")]
            )
            n = k.step(f"{verb} {x}", "sub", n, x)
        elif form == "double":
            verb, tail = "double", "the amount"
            n = k.step("double", "mul", n, 2)
        else:
            verb, tail = "give", f"half of them to {friend}" if not money else f"half of it to {friend}"
            n = k.step("half", "div", n, 2)
        parts.append((verb, tail))
    have = f"{w.verb('have')} {amount(start, o)}"
    said = [f"{w.verb(v)} {t}" for v, t in parts]
    ends = ["now", "in the end"] + ["left"] * any(v in ("spend", "pay", "give", "lose", "sell") for v, _ in parts)
    what = rng.choice(["How much money", "How much", "How many dollars"]) if money else f"How many {o}"
    ask = f"{what} {'do' if w.plural else 'does'} {{p}} have {rng.choice(ends)}?"
    subject = w.mid(w.name)
    if rng.random() < 0.35:
        q = f"If {subject} {have}" + "".join(f", {s}" for s in said[:-1]) + f" and {said[-1]}, "
        q += ask[0].lower() + ask[1:].format(p=w.pronoun)
    elif rng.random() < 0.5:
        q = f"{w.name} {have}. " + " ".join(
            f"{('Then ' + w.pronoun) if i else cap(w.pronoun)} {s}." for i, s in enumerate(said)
        )
        q += " " + ask.format(p=rng.choice([w.pronoun, subject]))
    else:
        q = (
            f"{w.name} {have}. {cap(w.pronoun)} "
            + ", ".join(said[:-1])
            + (" and then " if said[1:] else "")
            + f"{said[-1]}. "
        )
        q += ask.format(p=rng.choice([w.pronoun, subject]))
    reply = w.answer()
    return q, k, f"{reply} {'have' if w.plural else 'has'} {amount(n, o)}.", n


def shopping(rng):
    """Things at a price; perhaps two kinds; the total or the change."""
    w, k = who(rng), Work()
    a, p, b, r = sized(rng, 2, 12), sized(rng, 2, 25), sized(rng, 2, 9), sized(rng, 2, 20)
    x, y = rng.sample(THINGS, 2)
    cost = k.step(f"{a} {x}", "mul", a, p)
    text = f"{w.name} {w.verb('buy')} {a} {x} for {p} dollars each"
    if rng.random() < 0.6:
        cost2 = k.step(f"{b} {y}", "mul", b, r)
        text += f" and {b} {y} for {r} dollars each"
        cost = k.step("together", "add", cost, cost2)
    do = "do" if w.plural else "does"
    if len(k.lines) == 3 and rng.random() < 0.5:
        return (
            f"{text}. How much {do} {w.pronoun} pay{rng.choice(['', ' in total', ' altogether'])}?",
            k,
            f"{w.answer()} {w.verb('pay')} {amount(cost, 'dollars')}.",
            cost,
        )
    bill = cost + sized(rng, 1, 40) if rng.random() < 0.5 else (cost // 50 + 1) * 50
    left = k.step("change", "sub", bill, cost)
    start = rng.choice(
        [
            f"{w.name} {w.verb('have')} {bill} dollars. {cap(w.pronoun)} " + text.removeprefix(w.name + " "),
            text + f". {cap(w.pronoun)} {w.verb('pay')} with {bill} dollars",
        ]
    )
    ask = rng.choice(["How much money {d} {p} have left?", "How many dollars {d} {p} have left?"]).format(
        d=do, p=w.pronoun
    )
    return f"{start}. {ask}", k, f"{w.answer()} {w.verb('have')} {amount(left, 'dollars')} left.", left


def groups(rng):
    """Boxes of things; some are taken away or added; perhaps the rest is shared."""
    w, k, o, box = who(rng), Work(), rng.choice(THINGS), rng.choice(BOXES)
    a, b = sized(rng, 2, 12), sized(rng, 2, 20)
    n = k.step(f"{a} {box} of {b}", "mul", a, b)
    q = f"{w.name} {w.verb('have')} {a} {box} with {b} {o} in each. "
    up = rng.random() < 0.35
    kids = sized(rng, 2, 9)
    share = rng.random() < 0.5
    x = sized(rng, 1, 30) if up else sized(rng, 1, n - 1)
    if share:  # what is left divides evenly
        x += (-(n + x) % kids) if up else (n - x) % kids
        share = x < n or up
    food = o in ("apples", "cookies", "oranges", "muffins", "carrots")
    verb = rng.choice(["buy", "find"] if up else ["sell", "lose", "eat" if food else "sell"])
    n = k.step(f"{verb} {x}", "add" if up else "sub", n, x)
    q += f"{cap(w.pronoun)} {w.verb(verb)} {x}{' more' if up else ' of them'}. "
    if not share:
        return (
            q + f"How many {o} {'do' if w.plural else 'does'} {w.pronoun} have now?",
            k,
            f"{w.answer()} {w.verb('have')} {amount(n, o)}.",
            n,
        )
    r = k.step(f"shared by {kids}", "div", n, kids)
    q += f"The rest is shared equally by {kids} children. How many {o} does each child get?"
    return q, k, f"Each child gets {amount(r, o)}.", r


def wages(rng):
    """Money an hour, hours a day, days; then some is spent."""
    w, k = who(rng), Work()
    p, h, d = sized(rng, 3, 25), sized(rng, 2, 9), sized(rng, 2, 7)
    day = k.step("a day", "mul", p, h)
    n = k.step(f"{d} days", "mul", day, d)
    q = rng.choice(
        [
            f"{w.name} {w.verb('earn')} {p} dollars an hour and {w.verb('work')} {h} hours a day for {d} days. ",
            f"{w.name} {w.verb('work')} {h} hours a day and {w.verb('get')} {p} dollars an hour. "
            f"{cap(w.pronoun)} {w.verb('work')} for {d} days. ",
        ]
    )
    do, reply = "do" if w.plural else "does", w.answer()
    if rng.random() < 0.5:
        q += f"How much {do} {w.pronoun} earn{rng.choice(['', ' in total'])}?"
        return q, k, f"{reply} {w.verb('earn')} {amount(n, 'dollars')}.", n
    x = sized(rng, 1, n - 1)
    n = k.step(f"spend {x}", "sub", n, x)
    q += f"Then {w.pronoun} {w.verb('spend')} {x} dollars. How much money {do} {w.pronoun} have left?"
    return q, k, f"{reply} {w.verb('have')} {amount(n, 'dollars')} left.", n


def compared(rng):
    """A has some, B more or fewer or times as many; together, or the difference to C."""
    w, k, o = who(rng, False), Work(), rng.choice(THINGS)
    b, c = rng.sample([n for n in HE + SHE if n != w.name], 2)
    a = sized(rng, 3, 80)
    object_ = {"I": "me", "You": "you"}.get(w.name, w.mid(w.name))
    form = rng.choice(["more", "fewer", "times"])
    if form == "more":
        x = sized(rng, 1, 60)
        text, n = f"{b} has {x} more {o} than {object_}", k.step(f"{b}", "add", a, x)
    elif form == "fewer":
        x = sized(rng, 1, a - 1)
        text, n = f"{b} has {x} fewer {o} than {object_}", k.step(f"{b}", "sub", a, x)
    else:
        x = sized(rng, 2, 6)
        text, n = f"{b} has {'twice' if x == 2 else f'{x} times'} as many {o} as {object_}", k.step(f"{b}", "mul", a, x)
    q = f"{w.name} {w.verb('have')} {amount(a, o)}. {text}. "
    if rng.random() < 0.45:
        y = sized(rng, 1, 50)
        q += f"{c} has {y} more than {b}. "
        m = k.step(f"{c}", "add", n, y)
        if rng.random() < 0.5:
            return q + f"How many {o} does {c} have?", k, f"{c} has {amount(m, o)}.", m
        s = k.step("first two", "add", a, n)
        s = k.step("all three", "add", s, m)
        return q + f"How many {o} do the three have together?", k, f"Together the three have {amount(s, o)}.", s
    s = k.step("together", "add", a, n)
    return (
        q + f"How many {o} do {'we' if w.name == 'I' else 'they' if w.name != 'You' else 'you two'} have together?",
        k,
        (f"Together {'you' if w.name in ('I', 'You') else 'they'} have {amount(s, o)}."),
        s,
    )


def portions(rng):
    """Halves, thirds and quarters of a number of things in a place."""
    k, o, place = Work(), rng.choice(THINGS), rng.choice(PLACES)
    part, d = rng.choice([("Half", 2), ("A third", 3), ("A quarter", 4), ("A fifth", 5)])
    n = d * sized(rng, 3, 40)
    first = k.step(part.lower(), "div", n, d)
    q = f"There are {n} {o} {place}. {part} of them are {rng.choice(['red', 'new', 'old', 'small', 'broken'])}. "
    rest = k.step("others", "sub", n, first)
    if rng.random() < 0.5:
        return q + "How many are not?", k, f"{amount(rest, o)} {'is' if rest == 1 else 'are'} not.", rest
    w, x = who(rng), sized(rng, 1, rest - 1) if rest > 1 else 1
    q += f"{w.name} {w.verb('take')} {x} of the others. How many of the others are left?"
    r = k.step(f"take {x}", "sub", rest, x)
    return q, k, f"There {'is' if r == 1 else 'are'} {amount(r, o)} left.", r


def travel(rng):
    """So much a day for some days, of a whole; or two speeds."""
    w, k = who(rng), Work()
    a, d, extra = sized(rng, 3, 40), sized(rng, 2, 9), sized(rng, 2, 40)
    do, reply = "do" if w.plural else "does", w.answer()
    if rng.random() < 0.5:
        unit, verb = rng.choice([("pages", "read"), ("miles", "walk"), ("miles", "drive"), ("laps", "swim")])
        n = k.step(f"{d} days", "mul", a, d)
        n = k.step("and the last day", "add", n, extra)
        q = f"{w.name} {w.verb(verb)} {a} {unit} a day for {d} days and {extra} {unit} on the last day. How many {unit} is that?"
        return q, k, f"That is {amount(n, unit)}.", n
    n = k.step(f"{d} days", "mul", a, d)
    whole = n + extra
    left = k.step("left", "sub", whole, n)
    q = (
        f"A book has {whole} pages. {w.name} {w.verb('read')} {a} pages a day for {d} days. "
        f"How many pages {do} {w.pronoun} still have to read?"
    )
    return q, k, f"{reply} still {w.verb('have')} to read {amount(left, 'pages')}.", left


def ages(rng):
    """How old two or three persons are, from each other."""
    w, k = who(rng, False), Work()
    b, c = rng.sample([n for n in HE + SHE if n != w.name], 2)
    a, x = sized(rng, 6, 50), sized(rng, 2, 15)
    are = "am" if w.name == "I" else "are" if w.plural else "is"
    object_ = {"I": "me", "You": "you"}.get(w.name, w.mid(w.name))
    q = f"{w.name} {are} {a} years old. "
    if rng.random() < 0.4 and a > x:
        q += f"{b} is {x} years younger than {object_}. "
        n = k.step(b, "sub", a, x)
    elif rng.random() < 0.5:
        q += f"{b} is {x} years older than {object_}. "
        n = k.step(b, "add", a, x)
    else:
        t = rng.choice([2, 2, 3])
        q += f"{b} is {'twice' if t == 2 else '3 times'} as old as {object_}. "
        n = k.step(b, "mul", a, t)
    form = rng.choice(["future", "third", "sum"])
    if form == "future":
        y = sized(rng, 2, 20)
        n = k.step(f"in {y} years", "add", n, y)
        return q + f"How old will {b} be in {y} years?", k, f"{b} will be {n} years old.", n
    if form == "third":
        y = sized(rng, 2, 12)
        n = k.step(c, "add", n, y)
        return q + f"{c} is {y} years older than {b}. How old is {c}?", k, f"{c} is {n} years old.", n
    n = k.step("together", "add", a, n)
    they = "we" if w.name == "I" else "you two" if w.name == "You" else "they"
    return (
        q + f"How old are {they} together?",
        k,
        f"Together {'you' if they != 'they' else 'they'} are {n} years old.",
        n,
    )


def field(rng):
    """A rectangle: its area or the way around it; perhaps a price for each meter or square meter."""
    k, a, b = Work(), sized(rng, 3, 60), sized(rng, 2, 40)
    a, b = max(a, b), min(a, b)
    what = rng.choice(["garden", "field", "yard", "park", "room", "floor"])
    q = f"A {what} is {a} meters long and {b} meters wide. "
    if what in ("room", "floor") or rng.random() < 0.4:
        n = k.step("area", "mul", a, b)
        if rng.random() < 0.5:
            return (
                q + rng.choice(["What is its area?", "How many square meters is that?"]),
                k,
                f"The area is {n} square meters.",
                n,
            )
        p = sized(rng, 2, 9)
        n = k.step("price", "mul", n, p)
        return (
            q + f"One square meter costs {p} dollars. How much does the whole {what} cost?",
            k,
            f"It costs {n} dollars.",
            n,
        )
    half = k.step("two sides", "add", a, b)
    n = k.step("all sides", "mul", half, 2)
    if rng.random() < 0.5:
        return q + rng.choice(["How long is a fence around it?", "What is its perimeter?"]), k, f"It is {n} meters.", n
    p = sized(rng, 2, 12)
    n = k.step("price", "mul", n, p)
    return (
        q + f"A fence costs {p} dollars a meter. How much does a fence around it cost?",
        k,
        f"The fence costs {n} dollars.",
        n,
    )


def saving(rng):
    """So much a week until there is enough; or what is there after some weeks."""
    w, k = who(rng), Work()
    x, t, start, time = sized(rng, 2, 40), sized(rng, 3, 20), sized(rng, 1, 90), rng.choice(["week", "month", "day"])
    do, reply = "do" if w.plural else "does", w.answer()
    have = f"{w.name} {w.verb('have')} {amount(start, 'dollars')} and {w.verb('save')} {x} dollars a {time}. "
    if rng.random() < 0.5:
        n = k.step(f"{t} {time}s", "mul", t, x)
        n = k.step("and the start", "add", start, n)
        return (
            have + f"How much money {do} {w.pronoun} have after {t} {time}s?",
            k,
            f"{reply} {w.verb('have')} {amount(n, 'dollars')}.",
            n,
        )
    price = start + t * x
    thing = rng.choice(["bike", "phone", "guitar", "game", "coat", "tent", "camera"])
    need = k.step("still needed", "sub", price, start)
    n = k.step(f"{time}s", "div", need, x)
    return (
        have + f"A {thing} costs {price} dollars. How many {time}s {do} {w.pronoun} have to save for it?",
        k,
        (f"{reply} {w.verb('have')} to save for {n} {time}s."),
        n,
    )


def bus(rng):
    """People get on and off."""
    k, n = Work(), sized(rng, 10, 90)
    what = rng.choice(["bus", "train", "boat", "tram"])
    q = f"There are {n} people on a {what}. "
    for i in range(rng.choice([1, 2])):
        off, on = sized(rng, 1, n - 1), sized(rng, 1, 30)
        q += f"At the {('first', 'second')[i]} stop {off} get off and {on} get on. ".replace(" 1 get", " 1 gets")
        n = k.step(f"{off} off", "sub", n, off)
        n = k.step(f"{on} on", "add", n, on)
        if n < 3:
            break
    return (
        q + f"How many people are on the {what} now?",
        k,
        f"There {'is 1 person' if n == 1 else f'are {n} people'} on the {what}.",
        n,
    )


def discount(rng):
    """A price that is cut or raised by a part of it."""
    w, k = who(rng), Work()
    p = rng.choice([10, 20, 25, 50, 50, 10, 20, 5])
    unit = {5: 20, 10: 10, 20: 5, 25: 4, 50: 2}[p]
    price = unit * sized(rng, 2, 40)
    thing = rng.choice(["coat", "bike", "lamp", "table", "radio", "chair", "bag", "watch"])
    off = k.step(f"{p} percent", "div", price, unit)
    n = k.step("new price", "sub", price, off)
    q = f"A {thing} costs {price} dollars. In the sale it is {p} percent cheaper. "
    if rng.random() < 0.5:
        return q + f"How much does the {thing} cost now?", k, f"The {thing} costs {amount(n, 'dollars')}.", n
    pay = n + sized(rng, 1, 60)
    left = k.step("left", "sub", pay, n)
    return (
        q
        + f"{w.name} {w.verb('have')} {pay} dollars and {w.verb('buy')} it. How much money {'do' if w.plural else 'does'} {w.pronoun} have left?",
        k,
        (f"{w.answer()} {w.verb('have')} {amount(left, 'dollars')} left."),
        left,
    )


def classroom(rng):
    """Rows or teams: some more come, or some are missing; how many in all."""
    k, a, b, x = Work(), sized(rng, 2, 15), sized(rng, 3, 25), sized(rng, 1, 30)
    what, many = rng.choice(
        [
            ("rows", "chairs"),
            ("shelves", "books"),
            ("pages", "stamps"),
            ("tables", "plates"),
            ("teams", "players"),
            ("rooms", "beds"),
            ("blocks", "desks"),
        ]
    )
    where, verb = {
        "rows": ("A hall", "has"),
        "shelves": ("A library", "has"),
        "pages": ("An album", "has"),
        "tables": ("A kitchen", "has"),
        "teams": ("A club", "has"),
        "rooms": ("A hotel", "has"),
        "blocks": ("A school", "has"),
    }[what]
    q = f"{where} {verb} {a} {what} with {b} {many} each. "
    n = k.step(f"{a} {what}", "mul", a, b)
    if rng.random() < 0.5 and x < n:
        n = k.step(f"{x} gone", "sub", n, x)
        return (
            q
            + f"{x} of the {many} {'is' if x == 1 else 'are'} {rng.choice(['gone', 'missing'])}. How many {many} are left?",
            k,
            f"There {'is' if n == 1 else 'are'} {amount(n, many)} left.",
            n,
        )
    n = k.step(f"{x} more", "add", n, x)
    more = ("joins" if x == 1 else "join") if many == "players" else "is added" if x == 1 else "are added"
    return q + f"{x} more {more}. How many {many} are there now?", k, f"There are {n} {many}.", n


FAMILIES = {
    holdings: 26,
    shopping: 13,
    groups: 12,
    wages: 9,
    compared: 10,
    portions: 6,
    travel: 7,
    ages: 5,
    field: 5,
    saving: 5,
    bus: 4,
    discount: 4,
    classroom: 5,
}


def problem(rng):
    while True:
        q, work, answer, n = rng.choices(list(FAMILIES), list(FAMILIES.values()))[0](rng)
        if 0 <= n < 10000 and len(work.lines) <= 4:
            break
    q, r = re.sub(r"\b1 dollars\b", "1 dollar", q), rng.random()
    if r < 0.08:
        q = q.lower()
    elif r < 0.12:
        q = q.rstrip("?")
    return Problem(q, work.text(), answer, n, tuple(work.keys), len(work.lines))
