"""Arithmetic dialogues as people type them, generated: the same seed gives the same text.

A calculation whose key hashes into the held-out twentieth never appears in training, in either
operand order, in any phrasing, or as a step of another; the evaluation set is made of these alone.

    python tools/nano/corpus.py --check | --show N | --eval FILE [N]     (FILE has GSM8K's schema)
"""

import math
import random
import re

import arithmetic as ar
import puzzles
from dialogues import Turn, chat, check_engine, kept_out, run
from phrases import (
    CARRIERS,
    COMPARE,
    FOLLOW,
    FOODS,
    GAIN,
    KINDS,
    LOSE,
    NAMES,
    NUMBER_WORDS,
    OP_FORMS,
    OP_PHRASES,
    PARTS,
    PLACES,
    ROLES,
    STORIES,
    SYSTEMS,
    THINGS,
    TOO_BIG,
    TOO_BIG_ANSWER,
    UNARY,
    WHICH,
    WHOLE_ONLY,
    WHOLE_ONLY_ANSWER,
)


def _powers():
    """The multiplications inside n^k: so few that they are facts to learn, not problems to hold out."""
    keys = []
    for n in range(2, 21):
        r = n
        while r * n < 10000:
            r = ar.mul(r, n, keys)[0]
    return frozenset(keys)


FACTS = _powers()


def held_out(k):
    """One key in twenty is kept for evaluation; facts are not: they must be learnt."""
    if k in FACTS:
        return False
    numbers = [int(n) for n in k.split(":")[1].split(",")]
    if max(numbers) < 10 or (k.startswith("mul") and max(numbers) <= 10) or min(numbers) < 2:
        return False
    return kept_out(k)


# ---- numbers and typing habits ----------------------------------------------------------------


def number(rng, digits):
    return rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)


def sized(rng, weights):
    """A number of 1, 2, 3 ... digits with these weights."""
    return number(rng, rng.choices(range(1, len(weights) + 1), weights)[0])


def words_or_digits(rng, n, in_words):
    if in_words and n in NUMBER_WORDS:
        w = NUMBER_WORDS[n]
        return (
            "a" + w[3:]
            if w.startswith("one hundred") and rng.random() < 0.3
            else w.replace(" and ", " ")
            if rng.random() < 0.3
            else w
        )
    if n >= 1000 and rng.random() < 0.15:
        return f"{n:,}"
    return str(n)


def typo(rng, text):
    """Drop, double or swap one letter inside a word."""
    spots = [i for i in range(1, len(text) - 1) if text[i - 1 : i + 2].isalpha()]
    if not spots:
        return text
    i = rng.choice(spots)
    kind = rng.randrange(3)
    if kind == 0:
        return text[:i] + text[i + 1 :]
    if kind == 1:
        return text[:i] + text[i] + text[i:]
    return text[:i] + text[i + 1] + text[i] + text[i + 2 :]


def habits(rng, text):
    """Case, punctuation and spacing as they come from a keyboard."""
    r = rng.random()
    if r < 0.30:
        text = text.lower()
    elif r < 0.33:
        text = text.upper()
    elif r < 0.45:
        text = text[:1].upper() + text[1:]
    if rng.random() < 0.30:
        text = text.rstrip("?.! ")
    elif rng.random() < 0.06:
        text = text.rstrip("?.!") + rng.choice(["??", "?!", " ?", "!", "...", "."])
    if rng.random() < 0.06:
        text = typo(rng, text)
    if rng.random() < 0.02:
        text = text.replace(" ", "  ", 1)
    if rng.random() < 0.02:
        text = rng.choice([" ", "\n", ""]) + text + rng.choice([" ", "\n", ""])
    if rng.random() < 0.04:
        text = rng.choice(["Hi, ", "hey ", "Hello! ", "ok, ", "so ", "um ", "Quick question: "]) + text
    if rng.random() < 0.05:
        text = text.rstrip() + rng.choice([" please", " pls", " thanks", ", please", " please?"])
    return text


# ---- problems ---------------------------------------------------------------------------------


def expression(rng, op, a, b):
    in_words = rng.random() < 0.06
    form = rng.choice(OP_FORMS[op])
    if in_words:
        form = {"add": "{a} plus {b}", "sub": "{a} minus {b}", "mul": "{a} times {b}", "div": "{a} divided by {b}"}[op]
    return form.format(a=words_or_digits(rng, a, in_words), b=words_or_digits(rng, b, in_words))


def operands(rng, op):
    if op in ("add", "sub"):
        w = (14, 45, 25, 9, 7)
        a, b = sized(rng, w), sized(rng, w)
        if op == "sub" and a < b and rng.random() < 0.7:
            a, b = b, a
        return a, b
    if op == "mul":
        da, db = rng.choices(
            [(1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (1, 3), (3, 2), (2, 3), (4, 1), (3, 3)],
            [17, 19, 8, 32, 9, 3, 5, 3, 2, 2],
        )[0]
        return number(rng, da), number(rng, db)
    b = rng.choices(
        [
            rng.randrange(2, 10),
            rng.randrange(10, 100),
            rng.randrange(10, 26),
            rng.choice([25, 30, 40, 50, 60, 75, 100]),
        ],
        [46, 34, 14, 6],
    )[0]
    if rng.random() < 0.65:
        a = b * rng.randrange(0, 13 if rng.random() < 0.5 else max(13, 1000 // b))
    else:
        a = sized(rng, (5, 40, 43, 12))
    return a, b


SIGN = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def binary(rng):
    op = rng.choices(["add", "sub", "mul", "div"], [27, 22, 26, 25])[0]
    a, b = operands(rng, op)
    if op in ("add", "sub") and rng.random() < 0.04:  # one hundred minus one, a thousand plus one
        a = rng.choice([100, 100, 200, 300, 500, 900, 999, 1000, 99])
    return solve(rng, op, a, b, None)


def solve(rng, op, a, b, user):
    """A turn for `a op b`; user is the question, or None to phrase one."""
    keys = []
    rest = 0
    if op == "div":
        (r, rest), think = ar.div(a, b, keys)
    else:
        r, think = ar.signed(op, a, b, keys)
    if user is None:
        if op == "div" and (rest or rng.random() < 0.03) and rng.random() < 0.5:
            return remainder(rng, a, b, rest, think, keys)
        pool = OP_PHRASES[op]
        if op == "sub" and a < b:
            pool = [p for p in pool if "difference" not in p and "left" not in p]
        if op == "div" and rest:
            pool = [p for p in pool if "{b} go" not in p]
        if rng.random() < 0.35:
            user = rng.choice(pool).format(a=a, b=b)
        else:
            user = rng.choice(CARRIERS).format(e=expression(rng, op, a, b))
        user = habits(rng, user)
    answer = f"{a} {SIGN[op]} {b} = {r}" + (f" remainder {rest}." if rest else ".")
    x, y = sorted((abs(a), abs(b)))
    easy = {"add": x + y < 200, "sub": y < 200, "mul": y <= 10 or x < 2, "div": y < 10}[op]
    return Turn(user, think, answer, easy, r if not rest else None, tuple(keys))


def negative(rng):
    """One operation with a negative operand, written as people do: -5 + 3, 7 - -2, -4 * 6."""
    op = rng.choice(["add", "sub", "mul"])
    a, b = (sized(rng, (45, 45, 10)) + 1 for _ in range(2))
    if op == "mul":
        a, b = sized(rng, (50, 50)) + 1, number(rng, 1) + 1
    a, b = rng.choice([(-a, b), (-a, b), (a, -b), (-a, -b)])
    sign = SIGN[op] if op != "mul" else rng.choice(["*", "x", "times"])
    e = rng.choice(
        [f"{a} {sign} {b}", f"{a} {sign} {b}", f"{a} {sign} ({b})", f"({a}) {sign} ({b})", f"{a}{SIGN[op]}{b}"]
    )
    if op != "mul" and rng.random() < 0.15:
        e = f"{a} {'plus' if op == 'add' else 'minus'} {b}".replace("-", rng.choice(["-", "minus "]))
    return solve(rng, op, a, b, habits(rng, rng.choice(CARRIERS).format(e=e)))


def long_sum(rng):
    """Four to six small numbers added up."""
    terms = [sized(rng, (75, 25)) for _ in range(rng.randrange(4, 7))]
    keys, total, work = [], terms[0], []
    for t in terms[1:]:
        total, w = ar.add(total, t, keys)
        work.append(w)
    text = rng.choice(["+", " + ", " + "]).join(map(str, terms))
    user = rng.choice(CARRIERS).format(e=text)
    if rng.random() < 0.3:
        user = rng.choice(["Add {}.", "sum of {}", "What is the sum of {}?", "add up {}", "total of {}"]).format(
            rng.choice([", ", " "]).join(map(str, terms))
        )
    e = "+".join(map(str, terms))
    return Turn(
        habits(rng, user), f"{e}: " + "; ".join(work), f"{e.replace('+', ' + ')} = {total}.", False, total, tuple(keys)
    )


def compare(rng):
    w = (30, 40, 25, 5)
    a, b = sized(rng, w), sized(rng, w)
    order = (a > b) - (a < b)
    sign = "<=>"[order + 1]
    if order and rng.random() < 0.4:
        text, want = rng.choice(WHICH)
        best = max(a, b) if want > 0 else min(a, b)
        return Turn(
            habits(rng, text.format(a=a, b=b)),
            f"{a}{sign}{b}",
            f"{best} is {'bigger' if want > 0 else 'smaller'}.",
            True,
        )
    text, want = rng.choice(COMPARE)
    tail = f"{a} is {['smaller than', 'equal to', 'bigger than'][order + 1]} {b}."
    return Turn(
        habits(rng, text.format(a=a, b=b)), f"{a}{sign}{b}", ("Yes, " if order == want else "No, ") + tail, True
    )


def remainder(rng, a, b, rest, think, keys):
    user = habits(
        rng,
        rng.choice(
            [
                "What is the remainder when {a} is divided by {b}?",
                "remainder of {a} / {b}",
                "{a} mod {b}",
                "What is {a} mod {b}?",
                "What is the remainder of {a} divided by {b}?",
                "{a} modulo {b}",
                "Find the remainder of {a} divided by {b}.",
                "What is left over when you divide {a} by {b}?",
            ]
        ).format(a=a, b=b),
    )
    think += "" if rest else " remainder 0"
    return Turn(user, think, f"The remainder is {rest}.", a < 10, rest, tuple(keys))


def chain(rng):
    """Three terms: sums, differences, and the rule that products come first."""
    form = rng.choices(
        [
            "a+b+c",
            "a+b-c",
            "a-b-c",
            "a-b+c",
            "a*b+c",
            "a+b*c",
            "(a+b)*c",
            "a*b-c",
            "a-b*c",
            "c*(a+b)",
            "(a-b)*c",
            "a*b*c",
        ],
        [32, 11, 6, 8, 11, 11, 7, 6, 8, 4, 4, 3],
    )[0]
    if "*" in form:
        a, b, c = (sized(rng, (60, 40)) for _ in range(3))
        if form == "a*b*c" or "(" in form:
            c = number(rng, 1)
        if form == "a-b*c":
            b, c = number(rng, 1), number(rng, 1)
            a += b * c
        if b > 9 and (a if "a*b" in form else c) > 9:
            b = number(rng, 1)
    else:
        a, b, c = (sized(rng, (30, 55, 15)) for _ in range(3))
    keys = [ar.key(form.replace("a", "").replace("b", "").replace("c", "") + "3", a, b, c)]
    one = lambda op, x, y: getattr(ar, op)(x, y, keys)
    if form in ("a+b*c", "a-b*c"):
        s, w1 = one("mul", b, c)
        r, w2 = one("add" if "+" in form else "sub", a, s)
    elif form == "c*(a+b)":
        s, w1 = one("add", a, b)
        r, w2 = one("mul", c, s)
    else:
        first = "mul" if form.startswith("a*b") else "sub" if "a-b" in form else "add"
        s, w1 = one(first, a, b)
        last = {"+": "add", "-": "sub", "*": "mul"}[form[-2]]
        if s < 0:
            return chain(rng)
        r, w2 = one(last, s, c)
    text = form.replace("a", str(a)).replace("b", str(b)).replace("c", str(c))
    think = f"{text}: {w1}; {w2}"
    spaced = re.sub(r"([+*-])", r" \1 ", text)
    shown = rng.choice([text, spaced, spaced, spaced.replace("*", "x")])
    if "*" not in form and rng.random() < 0.25:
        shown = spaced.replace("+", "plus").replace("-", "minus")
    user = rng.choice(CARRIERS).format(e=shown)
    if form == "a+b+c" and rng.random() < 0.3:
        user = rng.choice(
            [
                "Add {a}, {b} and {c}.",
                "What is the sum of {a}, {b} and {c}?",
                "sum of {a}, {b}, {c}",
                "add up {a} {b} {c}",
                "Add together {a}, {b}, and {c}",
            ]
        ).format(a=a, b=b, c=c)
    return Turn(habits(rng, user), think, f"{spaced} = {r}.", False, r, tuple(keys))


def unary(rng):
    kind = rng.choice(list(UNARY))
    keys = []
    if kind in ("half", "third", "quarter"):
        d = {"half": 2, "third": 3, "quarter": 4}[kind]
        n = d * sized(rng, (25, 55, 20))
        (r, _), think = ar.div(n, d, keys)
    elif kind in ("double", "triple"):
        n = sized(rng, (20, 55, 25))
        r, think = ar.mul(n, {"double": 2, "triple": 3}[kind], keys)
    elif kind == "dozen":
        n = rng.randrange(1, 30)
        r, think = ar.mul(n, 12, keys)
    elif kind in ("cube", "power"):
        n = rng.randrange(2, 21 if kind == "cube" else 11)
        k = 3
        if kind == "power":
            k = rng.choice([k for k in range(2, 13) if n ** k < 10000])
        r, work = n, []
        for _ in range(k - 1):
            r, w = ar.mul(r, n, keys)
            work.append(w)
        head = f"{n}^{k}: "
        text, answer = rng.choice(UNARY[kind])
        return Turn(
            habits(rng, text.format(n=n, k=k)),
            head + "; ".join(work),
            (answer or "{n}^{k} = {r}.").format(n=n, k=k, r=r),
            False,
            r,
            tuple(keys),
        )
    elif kind == "square":
        n = rng.randrange(0, 100) if rng.random() < 0.6 else rng.randrange(0, 21)
        r, think = ar.mul(n, n, keys)
    else:
        return percent(rng)
    text, answer = rng.choice(UNARY[kind])
    easy = n <= 20 and kind in ("half", "double")
    return Turn(habits(rng, text.format(n=n)), think, answer.format(n=n, r=r), easy, r, tuple(keys))


def percent(rng):
    """p% of n: the product, then the point two digits from the end."""
    p, keys = rng.choice([5, 10, 10, 15, 20, 20, 25, 30, 40, 50, 50, 75, *[rng.randrange(1, 101)] * 12]), []
    step = 100 // math.gcd(p, 100)
    n = step * rng.randrange(1, max(3, 600 // step)) if rng.random() < 0.7 else rng.randrange(1, 1000)
    s, w = ar.mul(n, p, keys)
    r = f"{s // 100}.{s % 100:02}".rstrip("0").rstrip(".")
    text = rng.choice(UNARY["percent"])[0].format(n=n, p=p)
    return Turn(
        habits(rng, text),
        f"{n}*{p}/100: {w}; {s}/100={r}",
        f"{p}% of {n} is {r}.",
        False,
        s // 100 if s % 100 == 0 else None,
        tuple(keys),
    )


def tale(rng):
    """Somebody has some things; one to three times the number changes; how many now?"""
    thing, keys = rng.choice(THINGS), []
    who = rng.choice(NAMES) if rng.random() < 0.7 else rng.choice(ROLES)
    start = a = sized(rng, (40, 60)) + 1
    he = rng.choice(
        ["He", "She", who, who, "Then " + rng.choice(["he", "she", who]), "After that " + rng.choice(["he", "she"])]
    )
    me = rng.random() < 0.15
    has = rng.choice(["has {} {}", "has {} {}", "had {} {}", "starts with {} {}"]).format(a, thing)
    if me:
        who, he, has = "I", rng.choice(["I", "Then I"]), rng.choice(["have {} {}", "had {} {}"]).format(a, thing)
    signs, parts, work = "", [], []
    for _ in range(rng.choices([1, 2, 3], [45, 45, 10])[0]):
        up = rng.random() < 0.5 or a < 2
        x = sized(rng, (45, 55)) + 1 if up else rng.randrange(1, a + 1)
        lose = LOSE + ["eats {x}"] * 3 if thing in FOODS else LOSE
        verb = rng.choice(GAIN if up else lose).format(x=x, m=rng.choice(NAMES))
        if me:
            first, _, rest = verb.partition(" ")
            verb = (
                {"is": "am", "loses": "lose", "uses": "use"}.get(
                    first, first.removesuffix("es") if first.endswith("sses") else first.removesuffix("s")
                )
                + " "
                + rest
            )
        parts.append(verb)
        signs += f"{'+' if up else '-'}{x}"
        a, w = (ar.add if up else ar.sub)(a, x, keys)
        work.append(w)
    if rng.random() < 0.4:
        text = (
            f"{who} {has}, " + ", ".join(parts[:-1]) + (" and " if len(parts) == 1 else " and then ") + parts[-1] + "."
        )
        text = text.replace(",  and", " and")
    else:
        text = f"{who} {has}. " + " ".join(
            f"{he if i == 0 else he.replace('Then ', '').capitalize()} {p}." for i, p in enumerate(parts)
        )
    low = who[0].lower() + who[1:] if who.split()[0] in ("A", "The", "My") else who
    if me:
        ask, answer = (
            rng.choice(["How many {o} do I have now?", "How many do I have?", "How many {o} are left?"]),
            "You have {r} {o}.",
        )
    else:
        ask = rng.choice(
            [
                "How many {o} does {w} have now?",
                "How many {o} does {w} have?",
                "How many are left?",
                "How many {o} are there now?",
                "How many does he have?",
                "How many {o} does she have now?",
                "how many now?",
            ]
        )
        answer = "{w} has {r} {o}."
    text += " " + ask.format(o=thing, w=low)
    if rng.random() < 0.12:
        text = text.lower()
        who = who if who == "I" else who.lower()
    elif rng.random() < 0.1:
        text = text.rstrip("?")
    answer = answer.format(w=who, r=a, o=thing)
    if a == 1:
        return tale(rng)  # one apples: not English
    think = work[0] if len(work) == 1 else f"{start}{signs}: " + "; ".join(work)
    return Turn(text, think, answer[:1].upper() + answer[1:], False, a, tuple(keys))


def story(rng):
    """A one- or two-step word problem."""
    if rng.random() < 0.3:
        return tale(rng)
    op, text, answer = rng.choice(STORIES)
    keys = []
    if op == "mul-sub":
        a, b = rng.randrange(2, 13), rng.randrange(2, 13)
        c = rng.randrange(1, a * b)
        s, w1 = ar.mul(a, b, keys)
        r, w2 = ar.sub(s, c, keys)
        think = f"{a}*{b}-{c}: {w1}; {w2}"
    elif op in ("add-sub", "sub-add"):
        a, b, c = (sized(rng, (35, 65)) + 1 for _ in range(3))
        if op == "add-sub":
            c = rng.randrange(1, a + b)
            s, w1 = ar.add(a, b, keys)
            r, w2 = ar.sub(s, c, keys)
        else:
            a, b = max(a, b) + 1, min(a, b)
            s, w1 = ar.sub(a, b, keys)
            r, w2 = ar.add(s, c, keys)
        think = f"{a}{'+' if op == 'add-sub' else '-'}{b}{'-' if op == 'add-sub' else '+'}{c}: {w1}; {w2}"
    else:
        c = 0
        if op == "add":
            a, b = (sized(rng, (25, 65, 10)) + 1 for _ in range(2))
        elif op == "sub":
            a, b = sorted((sized(rng, (20, 68, 12)) + 1 for _ in range(2)), reverse=True)
        elif op == "mul":
            a, b = rng.randrange(2, 25), rng.randrange(2, 25)
        else:
            b = rng.randrange(2, 13)
            a = b * rng.randrange(2, 25)
        r, think = getattr(ar, op)(a, b, keys)
        r = r[0] if op == "div" else r
    names = rng.sample(NAMES, 2)
    fill = dict(
        a=a,
        b=b,
        c=c,
        r=r,
        n=names[0],
        m=names[1],
        o=rng.choice(THINGS),
        p=rng.choice(THINGS),
        l=rng.choice(PLACES),
        f=rng.choice(NAMES + ROLES),
        t=rng.choice(["pen", "book", "ball", "cake", "toy", "hat"]),
    )
    fill["u"], fill["v"] = rng.choice(PARTS)
    fill["x"], fill["y"], fill["k"] = rng.choice(KINDS)
    user = text.format(**fill)
    if rng.random() < 0.15:
        user = user.lower() if rng.random() < 0.6 else user.rstrip("?")
        fill["n"], fill["m"] = ((x.lower() if user.islower() else x) for x in names)
    answer = answer.format(**fill)
    return Turn(user, think, answer[:1].upper() + answer[1:], False, r, tuple(keys))


def too_big(rng):
    """Numbers longer than the model has learnt: sums over five digits, products and quotients over four."""
    op = rng.choice(["add", "sub", "mul", "div"])
    a = number(rng, rng.randrange(6 if op in ("add", "sub") else 5, 13))
    b = number(rng, rng.randrange(2, 13))
    if op != "div" and rng.random() < 0.5:
        a, b = b, a
    return Turn(
        habits(rng, rng.choice(TOO_BIG[op]).format(a=a, b=b)), "These numbers are too long for me.", TOO_BIG_ANSWER
    )


def declined(rng):
    """What the arithmetic learnt here does not reach."""
    r = rng.random()
    if r < 0.45:
        return too_big(rng)
    if r < 0.6:
        e = rng.choice(OP_FORMS["div"]).format(a=sized(rng, (1, 2, 1)), b=0)
        return Turn(
            habits(rng, rng.choice(CARRIERS).format(e=e)), "A division by zero.", "Division by zero is not defined."
        )
    text = rng.choice(WHOLE_ONLY).format(a=number(rng, 2), b=number(rng, 1), c=number(rng, 2), d=number(rng, 1))
    return Turn(habits(rng, text), "This is not whole-number arithmetic.", WHOLE_ONLY_ANSWER)


def follow_up(rng, r):
    """A question about the number that was just found."""
    op = rng.choices(["add", "sub", "mul", "div", "double", "half"], [34, 22, 20, 12, 6, 6])[0]
    if r < 0 and op in ("div", "half"):
        op = "add"
    if op == "half" and (r % 2 or r == 0):
        op = "add"
    if op == "div":
        divisors = [d for d in range(2, 13) if r and r % d == 0]
        op, b = ("div", rng.choice(divisors)) if divisors else ("add", number(rng, 2))
    elif op == "mul":
        b = number(rng, 1) if abs(r) > 99 or rng.random() < 0.7 else number(rng, 2)
    elif op in ("add", "sub"):
        b = sized(rng, (40, 50, 10))
    user = rng.choice(FOLLOW[op])
    if op in ("double", "half"):
        op, b = ("mul", 2) if op == "double" else ("div", 2)
    user = user.format(b=b)
    return solve(rng, op, r, b, user.lower() if rng.random() < 0.3 else user)


def puzzle(rng):
    t = puzzles.make(rng)
    return t._replace(user=habits(rng, t.user))


def problem(rng):
    kind = rng.choices(
        [binary, chain, unary, percent, story, negative, long_sum, compare, puzzle], [47, 11, 8, 5, 12, 4, 3, 2, 13]
    )[0]
    return kind(rng)


def turn(rng, last=None):
    """One turn that holds nothing of the evaluation set."""
    while True:
        if last is not None and -1000 < last < 1000 and rng.random() < 0.5:
            t = follow_up(rng, last)
        else:
            t = problem(rng) if rng.random() < 0.96 else declined(rng)
        if not any(held_out(k) for k in t.keys):
            return t


def make(rng):
    """A chat: one turn mostly, sometimes a few."""
    out, last = [], None
    for _ in range(1 if rng.random() < 0.75 else rng.randrange(2, 6)):
        out.append(turn(rng, last))
        last = out[-1].result
    return chat(out, rng.random() < 0.65, rng.choice(SYSTEMS) if rng.random() < 0.06 else None)


# ---- evaluation set ---------------------------------------------------------------------------


def tested(k):
    """Held out, and not a product with a multiple of ten: those appear in training as partial products."""
    return held_out(k) and not (k.startswith("mul") and any(int(n) % 10 == 0 for n in k.split(":")[1].split(",")))


def evaluation(count=500, seed="evaluation"):
    """Problems whose calculation is held out, with one number as the answer, GSM8K's schema."""
    rng, out, seen = random.Random(seed), [], set()
    while len(out) < count:
        t = problem(rng)
        if t.result is None or not any(tested(k) for k in t.keys) or t.user in seen:
            continue
        seen.add(t.user)
        out.append({"question": t.user, "answer": f"{t.think}\n#### {t.result}"})
    return out


def check():
    from tokenizer import Tokenizer

    assert make(random.Random(5)) == make(random.Random(5))
    rng = random.Random("check")
    for t in (problem(rng) for _ in range(5000)):  # every simple a+b=c in the working holds
        for a, op, b, c in re.findall(r"(?<![\d+*/-])(\d+)([+*-])(\d+)=(\d+)(?![\d*])", t.think):
            assert int(c) == {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[op], t
        assert t.result is None or str(t.result) in t.answer, t
        assert t.shown(True) == t.answer and (t.easy or t.shown(False).endswith(".\n" + t.answer))
    ds = [make(rng) for _ in range(200)]
    assert not any(held_out(k) for d in ds for k in d["meta"]["keys"])
    items = evaluation(60)
    assert items == evaluation(60)
    asked = {m["content"] for d in ds for m in d["messages"]}
    assert not asked & {it["question"] for it in items}
    print(
        f"corpus: 5000 problems, 200 dialogues, {check_engine(Tokenizer(), ds)} turns through the engine's template and back"
    )


if __name__ == "__main__":
    run(__doc__, make, evaluation, check)
