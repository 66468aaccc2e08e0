"""Word problems about parts of a whole: sharing, remainders, fractions, percent, boxes, dozens, ratios."""

import math

from wp_core import Story, named, who
from wp_words import CONTAINERS, FOOD, GROUPS, PEOPLE, SMALL, Noun

KIDS = [
    "child",
    "friend",
    "student",
    "kid",
    "boy",
    "girl",
    "person",
    "neighbor",
    "cousin",
    "classmate",
    "grandchild",
    "team",
    "player",
    "guest",
]


def share(rng):
    """Shared equally, with or without a remainder; a part may be kept or eaten first."""
    p, v = who(rng), {"o": rng.choice(SMALL + FOOD), "k": rng.randrange(2, 20), "w": Noun(rng.choice(KIDS))}
    if v["w"] == "grandchild":
        v["w"] = Noun("child")
    each, rest = rng.randrange(2, 25), rng.choice([0, 0, 0, rng.randrange(0, v["k"])])
    v["n"] = v["k"] * each + rest
    first = rng.random() < 0.3
    verb = rng.choice(["share", "divide", "split", "distribute"])
    among = {
        "share": "[among|between|with] {k w}",
        "divide": "[among|between] {k w}",
        "split": "[among|between] {k w}",
        "distribute": "[among|to] {k w}",
    }[verb]
    facts = ["{P} <have> {n o}", "{P} <%s> them [equally|evenly|fairly] %s" % (verb, among)]
    if rng.random() < 0.4:
        facts = ["{P} <%s> {n o} [equally |evenly ]%s" % (verb, among)]
    if rng.random() < 0.15:
        facts = ["{k w} share {n o}[| equally| fairly]"]
    if first:
        v["x"] = rng.randrange(2, 30)
        v["n"] += v["x"]
        what = rng.choice(["keep", "lose", "sell"] + ["eat"] * (v["o"] in FOOD))
        facts = [
            "{P} <have> {n o}",
            "{P} <%s> {x}[| of them]" % what,
            "{P} <%s> the rest [equally|evenly|fairly] %s" % (verb, among),
        ]
        if rest:
            return None
        return Story(
            v,
            [("rest", "n-x=s"), ("each", "s/k=r")],
            "(n-x)//k",
            facts,
            "how many [{o} |]does each [{w.1} |one |]get",
            "each {w.1} gets {r o}",
            {"P": p},
        )
    if rest and rng.random() < 0.6:
        return Story(
            v,
            [("division", "n//k=q:r")],
            "n%k",
            facts,
            "how many [{o} |]are left[| over]",
            "there are {r o} left" if rest > 1 else "there is {r o} left",
            {"P": p},
        )
    cast = {"P": p} if "{P}" in facts[0] else {}
    get = rng.choice(
        [
            "how many [{o} |]does each [{w.1}|one|of them] get",
            "how many {o} [does each one get|does each {w.1} receive|will each {w.1} get|are there for each {w.1}|per {w.1}]",
        ]
    )
    return Story(
        v,
        [("each", "n//k=r:rest")],
        "n//k",
        facts,
        get,
        "each {w.1} gets {r o}" + (rest > 0) * (", and {rest} " + ("is" if rest == 1 else "are") + " left over"),
        cast,
        extra=bool(cast),
    )


def boxes(rng):
    """So many boxes with so many each: in all; and then some are taken away, added or shared."""
    p, v = who(rng), {
        "o": rng.choice(SMALL + FOOD),
        "c": rng.choice(CONTAINERS),
        "a": rng.randrange(2, 20),
        "b": rng.randrange(2, 26),
    }
    have = rng.choice(
        [
            "{P} <have> {a c} with {b o} in each",
            "{P} <have> {a c} of {o}, each with {b}",
            "{P} <fill> {a c} with {b o} each",
            "{P} <buy> {a c}, and each {c.1} <it have> {b o} in it",
            "there <they be> {a c} with {b o} in each",
            "there <they be> {b o} in each of {a c}",
            "{P} <pack> {b o} into each of {a c}",
            "{P} <have> {a c} of {o}. There <they be> {b} in each {c.1}",
            "each {c.1} <it hold> {b o}, and {P} <have> {a c}",
        ]
    )
    r, base = rng.random(), [("{a c}", "a*b=n")]
    cast = {"P": p} if "{P}" in have else {}
    if r < 0.35:
        return Story(
            v,
            [("{a c}", "a*b=r")],
            "a*b",
            [have],
            "how many {o} [<do> {P} have|are there|is that][| in total| altogether| in all]"
            if cast
            else "how many {o} are there [in total|altogether|in all|]",
            "{P} <have> {r o}" if cast else "there are {r o}",
            cast,
            tense="" if cast else "pres",
        )
    if not cast:
        have, cast = "{P} <have> {a c} with {b o} in each", {"P": p}
    n = v["a"] * v["b"]
    if r < 0.75:
        up = rng.random() < 0.35
        v["x"] = rng.randrange(2, 60 if up else n)
        verb = rng.choice(
            ["<get> {x} more", "<find> {x} more", "<buy> {x} more {o}"]
            if up
            else [
                "<give> {x} [of them |]to {M.o}",
                "<sell> {x} [of them|{o}]",
                "<lose> {x} {o}",
                "<use> {x} [of them|{o}]",
            ]
            + ["<eat> {x} of them"] * (v["o"] in FOOD)
        )
        return Story(
            v,
            [*base, ("plus {x}" if up else "minus {x}", f"n{'+' if up else '-'}x=r")],
            f"a*b{'+' if up else '-'}x",
            [have, "{P} " + verb],
            "how many {o} <do!> {P} have [now|in the end]"
            if up
            else "how many {o} [<do!> {P} have left|are left|<do!> {P} have now]",
            "{P} <have!> {r o}" + " left" * (not up),
            cast | {"M": named(rng, [p])},
        )
    if r < 0.88:
        v["y"], v["c2"], v["z1"] = (
            rng.randrange(2, 12),
            rng.choice([c for c in CONTAINERS if c != v["c"]]),
            rng.randrange(2, 20),
        )
        return Story(
            v,
            [*base, ("{y c2}", "y*z1=m"), ("together", "n+m=r")],
            "a*b+y*z1",
            [have, "{P} also <have> {y c2} with {z1} [in each|each]"],
            "how many {o} <do> {P} have [in total|altogether|in all|together]",
            "{P} <have> {r o}",
            cast,
        )
    kids = [k for k in range(2, 13) if n % k == 0]
    if not kids:
        return None
    v["k"], v["w"] = rng.choice(kids), Noun(rng.choice(KIDS[:10]))
    return Story(
        v,
        [*base, ("each", "n/k=r")],
        "a*b//k",
        [have, "{P} <share> them equally [among|with|between] {k w}"],
        "how many [{o} |]does each {w.1} get",
        "each {w.1} gets {r o}",
        cast,
    )


def packing(rng):
    """How many boxes for so many things: full ones, rounded up, or what is left over."""
    p, v = who(rng), {"o": rng.choice(SMALL + FOOD), "c": rng.choice(CONTAINERS), "b": rng.randrange(2, 26)}
    n = rng.randrange(2, 25)
    exact = rng.random() < 0.45
    rest = 0 if exact else rng.randrange(1, v["b"])
    v["n"] = n * v["b"] + rest
    facts = rng.choice(
        [
            ["{P} <have> {n o}", "{P} <put> {b} [into each|in each|in every] {c.1}"],
            ["{P} <have> {n o}", "[one {c.1} holds|each {c.1} holds|each {c.1} has room for] {b}"],
            ["{P} <want> to pack {n o} into {c} of {b}"],
            ["{n o} are packed into {c} of {b}[| each]"],
        ]
    )
    cast = {"P": p} if "{P}" in facts[0] else {}
    if exact:
        return Story(
            v,
            [("{c}", "n/b=r")],
            "n//b",
            facts,
            "how many {c} [<do> {P} need|are needed|are there|<do> {P} fill]"
            if cast
            else "how many {c} are [needed|there]",
            "there are {r c}",
            cast,
            extra=bool(cast),
        )
    r = rng.random()
    if r < 0.35:
        return Story(
            v,
            [("{c}", "n//b=r:rest")],
            "n//b",
            facts,
            "how many full {c} [are there|can {P} fill]" if cast else "how many full {c} are there",
            "there are {r} full {c}",
            cast,
            extra=bool(cast),
        )
    if r < 0.65:
        return Story(
            v,
            [("{c}", "n//b=q:r")],
            "n%b",
            facts,
            "how many {o} are left[| over]",
            "there are {r o} left" if rest > 1 else "there is {r o} left",
            cast,
            extra=bool(cast),
        )
    v["one"] = 1
    return Story(
        v,
        [("full {c}", "n//b=q:rest"), ("one more for the rest", "q+one=r")],
        "-(-n//b)",
        facts,
        "how many {c} [are needed for all|are needed for all of them|<do> {P} need for all of them]"
        if cast
        else "how many {c} are needed for all[| of them]",
        "{r c} are needed",
        cast,
        extra=bool(cast),
    )


def buses(rng):
    """So many people, so many seats: the last bus need not be full."""
    v = {
        "o": rng.choice(PEOPLE),
        "b": rng.randrange(4, 60),
        "c": Noun(rng.choice(["bus", "van", "car", "boat", "table", "tent", "minibus", "bench", "wagon"])),
        "one": 1,
    }
    if v["c"] in ("car", "table", "tent", "bench"):
        v["b"] = rng.randrange(3, 9)
    q, rest = rng.randrange(2, 12), rng.choice([0, rng.randrange(1, v["b"])])
    v["n"] = q * v["b"] + rest
    facts = rng.choice(
        [
            [
                "{n o} [go on a trip|go to a camp|visit a museum|come to a party|are coming]",
                "[one {c.1} has|each {c.1} has] "
                + ("room for {b}" if v["c"] in ("tent", "table", "bench") else "[{b} seats|room for {b}]"),
            ],
            [
                "there are {n o}",
                "{b} [of them |]fit [in|into] one {c.1}"
                if v["c"] not in ("table", "bench")
                else "{b} can sit at one {c.1}",
            ],
        ]
    )
    ask = "how many {c} [are needed|do they need]"
    if rest:
        return Story(
            v,
            [("full {c}", "n//b=q:rest"), ("one more for the rest", "q+one=r")],
            "-(-n//b)",
            facts,
            ask,
            "they need {r c}",
            {},
            tense="pres",
            extra=False,
        )
    return Story(v, [("{c}", "n/b=r")], "n//b", facts, ask, "they need {r c}", {}, tense="pres", extra=False)


FRACTION = {
    2: ["half", "half", "1/2"],
    3: ["a third", "one third", "1/3"],
    4: ["a quarter", "one fourth", "1/4", "one quarter"],
    5: ["a fifth", "one fifth", "1/5"],
    6: ["a sixth", "one sixth"],
    8: ["an eighth"],
    10: ["a tenth", "one tenth"],
}
MULTI = {
    (2, 3): ["two thirds", "2/3"],
    (3, 4): ["three quarters", "3/4", "three fourths"],
    (2, 5): ["two fifths", "2/5"],
    (3, 5): ["three fifths", "3/5"],
    (4, 5): ["four fifths", "4/5"],
    (5, 6): ["five sixths", "5/6"],
    (3, 8): ["three eighths", "3/8"],
    (7, 10): ["seven tenths", "7/10"],
    (3, 10): ["3/10"],
}


def fraction(rng):
    """A fraction of somebody's things: that part, the rest, and once more."""
    p, v = who(rng), {"o": rng.choice(SMALL + FOOD)}
    money = rng.random() < 0.25
    multi = rng.random() < 0.3
    if multi:
        (num, den), names = rng.choice(list(MULTI.items()))
    else:
        num, (den, names) = 1, rng.choice(list(FRACTION.items()))
    v |= {"num": num, "den": den, "n": den * rng.randrange(2, 40), "f": rng.choice(names)}
    steps = [("a part of {den}", "n/den=u"), ("{f}", "u*num=t")] if multi else [("{f}", "n/den=t")]
    part = f"n//{den}*{num}"
    u = "$" if money else "o"
    of = "{f} of [the money|it]" if money else "{f} of [them|the {o}]"
    give = rng.choice(
        [
            "{P} <give> " + of + " to {M.o}",
            "{P} <%s> "
            % rng.choice(
                ["spend", "save", "lose"]
                if money
                else ["sell", "lose", "give away", "use"] + ["eat"] * 3 * (v["o"] in FOOD)
            )
            + of,
        ]
    )
    have = "{P} <have> {n %s}" % u
    cast, r = {"P": p, "M": named(rng, [p])}, rng.random()
    if r < 0.25:
        base = give.split("<")[1].split(">")[0]
        if "{M.o}" in give:
            return Story(
                v,
                finish(steps),
                part,
                [have, give],
                "how %s <do> {P} give to {M.o}" % ("much [money |]" if money else "many {o}"),
                "{P} <give> {r %s} to {M.o}" % u,
                cast,
            )
        return Story(
            v,
            finish(steps),
            part,
            [have, give],
            "how %s <do> {P} %s" % ("much [money |]" if money else "many {o}", base),
            "{P} <%s> {r %s}" % (base, u),
            cast,
        )
    if r < 0.65:
        return Story(
            v,
            [*steps, ("left", "n-t=r")],
            f"n-{part}",
            [have, give],
            "how %s [<do!> {P} have left|<do!> {P} have now|<do!> {P} still have|are left]".replace(
                "|are left", "" if money else "|are left"
            )
            % ("much [money |]" if money else "many {o}"),
            "{P} <have!> {r %s} left" % u,
            cast,
        )
    left = v["n"] - v["n"] // den * num
    if left < 4:
        return None
    v["x"] = rng.randrange(2, left)
    more = "then {P} <%s> {x%s}" % (
        rng.choice(["spend", "pay"]) if money else rng.choice(["lose", "sell", "give away"]),
        " $" if money else "",
    ) + ("" if money else " more")
    return Story(
        v,
        [*steps, ("left", "n-t=w"), ("minus {x}", "w-x=r")],
        f"n-{part}-x",
        [have, give, more],
        "how %s <do!> {P} have left" % ("much [money |]" if money else "many {o}"),
        "{P} <have!> {r %s} left" % u,
        cast,
    )


def finish(steps):
    label, step = steps[-1]
    return [*steps[:-1], (label, step.rsplit("=", 1)[0] + "=r")]


def part_of_group(rng):
    """A fraction or a percentage of a class, a crowd, a box: that part or the others."""
    where, o, x, y = rng.choice(
        [
            ("in a class", "student", "girls", "boys"),
            ("in a school", "student", "boys", "girls"),
            ("in a box", "ball", "red", "not red"),
            ("in a garden", "flower", "roses", "not roses"),
            ("on a farm", "animal", "cows", "not cows"),
            ("in a town", "house", "white", "not white"),
            ("at a party", "guest", "children", "adults"),
            ("on a train", "passenger", "women", "not women"),
            ("in a library", "book", "novels", "not novels"),
            ("in a zoo", "animal", "birds", "not birds"),
            ("in a parking lot", "car", "black", "not black"),
            ("in a club", "member", "adults", "children"),
            ("in a jar", "candy", "green", "not green"),
            ("in a company", "worker", "new", "not new"),
            ("in a drawer", "pen", "blue", "not blue"),
            ("in a crate", "apple", "ripe", "not ripe"),
            ("in a crate", "egg", "broken", "not broken"),
        ]
    )
    v = {"o": Noun(o), "h": 100}
    if rng.random() < 0.5:
        pc = rng.choice([10, 20, 25, 50, 30, 40, 60, 75, 5, 15, 35, 45, 70, 80, 90, 12, 24, 65])
        unit = 100 // math.gcd(pc, 100)
        v |= {"pc": pc, "n": unit * rng.randrange(1, max(2, 400 // unit))}
        said, steps, part = (
            "[{pc.d}%|{pc} percent|{pc.d}%] of them are " + x,
            [("{pc} percent", "n*pc=m"), ("of a hundred", "m/h=t")],
            "n*pc//100",
        )
    else:
        multi = rng.random() < 0.4
        (num, den), names = (
            rng.choice(list(MULTI.items())) if multi else rng.choice([((1, d), f) for d, f in FRACTION.items()])
        )
        v |= {"num": num, "den": den, "f": rng.choice(names), "n": den * rng.randrange(2, 40)}
        said, steps, part = (
            "{f} of them are " + x,
            [("a part of {den}", "n/den=u"), ("{f}", "u*num=t")] if multi else [("{f}", "n/den=t")],
            f"n//{den}*{num}",
        )
    facts = [f"there are {{n o}} {where}", said]
    plural_x = x.endswith("s") or x in ("women", "children")
    if rng.random() < 0.5:
        ask = f"how many {x} are there" if plural_x else f"how many [{{o}} |]are {x}"
        return Story(v, finish(steps), part, facts, ask, "the number is {r}", {}, tense="pres", extra=False)
    ask = f"how many {y} are there" if not y.startswith("not") else f"how many [{{o}} |]are {y}"
    return Story(
        v, [*steps, ("others", "n-t=r")], f"n-{part}", facts, ask, "the number is {r}", {}, tense="pres", extra=False
    )


def dozens(rng):
    """Dozens of eggs: so many used, sold, broken."""
    p, v = who(rng), {
        "o": rng.choice(FOOD + [Noun("pencil"), Noun("rose"), Noun("egg")] * 4),
        "a": rng.randrange(2, 13),
        "k": 12,
    }
    n = v["a"] * 12
    have = rng.choice(["{P} <buy> {a} dozen {o}", "{P} <have> {a} dozen {o}", "{P} <get> {a} dozen {o}"])
    if rng.random() < 0.35:
        return Story(
            v,
            [("{a} dozen", "a*k=r")],
            "a*12",
            [have],
            "how many {o} [is that|<do> {P} have]",
            "that is {r o}",
            {"P": p},
        )
    v["x"] = rng.randrange(2, n - 1)
    return Story(
        v,
        [("{a} dozen", "a*k=n"), ("minus {x}", "n-x=r")],
        "a*12-x",
        [have, "{P} <%s> {x}[| of them]" % rng.choice(["use", "sell", "give away", "lose", "drop"])],
        "how many {o} [are left|<do!> {P} have left]",
        "there are {r o} left" if n - v["x"] > 1 else "there is {r o} left",
        {"P": p},
    )


def ratio(rng):
    """For every so many of these there are so many of those."""
    x, y, where = rng.choice(
        [
            ("boy", "girl", "in a class"),
            ("red marble", "blue marble", "in a bag"),
            ("cat", "dog", "in a shelter"),
            ("teacher", "student", "at a school"),
            ("adult", "child", "on a trip"),
            ("lemon", "orange", "in a basket"),
            ("rose", "tulip", "in a garden"),
            ("sheep", "cow", "on a farm"),
            ("pen", "pencil", "in a box"),
        ]
    )
    a, b, f = rng.randrange(1, 7), rng.randrange(2, 9), rng.randrange(2, 15)
    v = {"x": Noun(x), "y": Noun(y), "a": a, "b": b, "n": a * f}
    facts = ["for every {a x} there are {b y} " + where, "there are {n x}"]
    steps, truth = [("groups", "n/a=f"), ("{y}", "f*b=r")], "n//a*b"
    if rng.random() < 0.7:
        return Story(v, steps, truth, facts, "how many {y} are there", "there are {r y}", {}, tense="pres", extra=False)
    return Story(
        v,
        [steps[0], ("{y}", "f*b=s"), ("together", "n+s=r")],
        "n+" + truth,
        facts,
        "how many {x} and {y} are there [together|in total|altogether]",
        "there are {r} in total",
        {},
        tense="pres",
        extra=False,
    )


FAMILIES = {share: 7, boxes: 9, packing: 5, buses: 4, fraction: 7, part_of_group: 6, dozens: 3, ratio: 3}
