"""Word problems composed of situations: what comes in, what goes out, and what is asked of the rest, for money and
things."""

from wp_core import Story, named, who
from wp_words import CHEAP, CONTAINERS, DEAR, FOOD, MIDDLE, SMALL, Noun

JOBS = [
    ("wash", "car"),
    ("walk", "dog"),
    ("mow", "lawn"),
    ("paint", "fence"),
    ("clean", "window"),
    ("repair", "bike"),
    ("iron", "shirt"),
    ("translate", "page"),
    ("deliver", "package"),
    ("teach", "lesson"),
    ("tune", "piano"),
    ("photograph", "wedding"),
]


class Sum:
    """Grows a story: a running total with its steps, facts and formula."""

    def __init__(self, rng):
        self.rng, self.v, self.steps, self.facts = rng, {}, [], []
        self.now, self.value, self.formula, self.count = "", 0, "", 0

    def new(self, x, n):
        name = f"{x}{self.count}"
        self.v[name] = n
        return name

    def part(self, fact, label, factors, sign):
        """A fact with one number or two that are multiplied; added to the total or taken away. Nothing if too little is
        there."""
        amount = 1
        for f in factors:
            amount *= self.v[f]
        if sign < 0 and amount >= self.value:
            return False
        name = factors[0]
        if len(factors) == 2:
            name = f"p{self.count}"
            self.steps.append((label, f"{factors[0]}*{factors[1]}={name}"))
        if not self.now:
            self.formula = "*".join(factors)
            self.now = name
        else:
            op = "+" if sign > 0 else "-"
            total = f"w{self.count}"
            self.steps.append(("together" if sign > 0 else "left", f"{self.now}{op}{name}={total}"))
            self.formula, self.now = f"{self.formula}{op}{'*'.join(factors)}", total
        self.value += sign * amount
        self.facts.append(fact)
        self.count += 1
        return True

    def half(self, fact):
        if self.value % 2 or self.value < 4:
            return False
        total = f"w{self.count}"
        self.v["two"] = 2
        self.steps.append(("half", f"{self.now}/two={total}"))
        self.formula, self.now, self.value = f"({self.formula})//2", total, self.value // 2
        self.facts.append(fact)
        self.count += 1
        return True

    def last(self, label, op, name, formula):
        self.steps.append((label, f"{self.now}{op}{name}=r"))
        return formula

    def story(self, truth, ask, answer, cast, tense):
        if not self.steps:
            return None
        if truth is None:  # the total itself is the result
            label, step = self.steps[-1]
            self.steps[-1], truth = (label, step.rsplit("=", 1)[0] + "=r"), self.formula
        return Story(self.v, self.steps, truth, self.facts, ask, answer, cast, tense=tense)


def money_in(s, rng):
    i, r = s.count, rng.randrange(6 if s.count else 7)
    first = not s.count
    also = "" if first else rng.choice(["[|also ]", "[|then ]", ""])
    if r == 0:
        h, a = s.new("h", rng.randrange(2, 10)), s.new("a", rng.randrange(5, 30))
        return s.part(
            f"{{P}} {also}<work> {{{h} hour}} for {{{a} $}} an hour"
            if rng.random() < 0.5
            else f"{{P}} {also}<earn> {{{a} $}} an hour and <work> {{{h} hour}}",
            "work",
            [h, a],
            1,
        )
    if r == 1:
        o, n, q = (
            s.new("o", rng.choice(CHEAP + MIDDLE)),
            s.new("n", rng.randrange(2, 25)),
            s.new("q", rng.randrange(2, 30)),
        )
        return s.part(f"{{P}} {also}<sell> {{{n} {o}}} [for|at] {{{q} $}} each", f"{{{n} {o}}}", [n, q], 1)
    if r == 2:
        x, t = s.new("x", rng.randrange(2, 40)), s.new("t", rng.randrange(2, 13))
        u = rng.choice(["week", "month", "day"])
        return s.part(
            f"{{P}} {also}<save> {{{x} $}} [a {u}|each {u}|every {u}] for {{{t} {u}}}", f"{{{t} {u}}}", [x, t], 1
        )
    if r == 3:
        (verb, job), n, q = rng.choice(JOBS), s.new("n", rng.randrange(2, 15)), s.new("q", rng.randrange(3, 40))
        o = s.new("o", Noun(job))
        return s.part(
            rng.choice(
                [
                    f"{{P}} {also}<{verb}> {{{n} {o}}} for {{{q} $}} each",
                    f"{{P}} {also}<get> {{{q} $}} for each {job} and <{verb}> {{{n}}} of them",
                    f"{{P}} {also}<charge> {{{q} $}} per {job} and <{verb}> {{{n} {o}}}",
                ]
            ),
            f"{{{n} {o}}}",
            [n, q],
            1,
        )
    if r == 4 and not first:
        x = s.new("x", rng.randrange(5, 100))
        return s.part(
            rng.choice(
                [
                    f"{{M}} <M give> {{P.o}} {{{x} $}}",
                    f"{{P}} {also}<get> {{{x} $}} from {{M.o}}",
                    f"{{P}} {also}<find> {{{x} $}}",
                    f"{{P}} {also}<win> {{{x} $}}",
                    f"{{P}} {also}<receive> {{{x} $}} for {{P.s}} birthday",
                ]
            ),
            "",
            [x],
            1,
        )
    if r == 5 and not first:
        k, x = s.new("k", rng.randrange(2, 8)), s.new("x", rng.randrange(5, 30))
        f = rng.choice(["aunt", "friend", "cousin", "uncle", "neighbor", "grandparent"])
        return s.part(
            f"{{{k} {f}}} [each <they give> {{P.o}} {{{x} $}}|<they give> {{P.o}} {{{x} $}} each]",
            f"{{{k} {f}}}",
            [k, x],
            1,
        )
    x = s.new("x", rng.randrange(20, 300))
    return s.part(
        f"{{P}} {also}<have> {{{x} $}}" + rng.choice(["", " saved", " in the bank", " in {P.s} wallet"]), "", [x], 1
    )


def money_out(s, rng):
    r = rng.randrange(6)
    then = rng.choice(["", "", "then ", "[later|after that|next] "])
    if r < 2:
        o, n, q = (
            s.new("o", rng.choice(CHEAP + MIDDLE)),
            s.new("n", rng.randrange(2, 10)),
            s.new("q", rng.randrange(2, 25)),
        )
        return s.part(then + f"{{P}} <buy> {{{n} {o}}} [for|at] {{{q} $}} [each|apiece]", f"{{{n} {o}}}", [n, q], -1)
    if r == 2:
        o, x = s.new("o", rng.choice(MIDDLE + DEAR)), s.new("x", rng.randrange(5, 120))
        return s.part(
            then
            + rng.choice(
                [
                    f"{{P}} <buy> {{{o}.a}} for {{{x} $}}",
                    f"{{P}} <spend> {{{x} $}} on {{{o}.a}}",
                    f"{{P}} <pay> {{{x} $}} for {{{o}.a}}",
                ]
            ),
            "",
            [x],
            -1,
        )
    if r == 3:
        k, x = s.new("k", rng.randrange(2, 8)), s.new("x", rng.randrange(2, 25))
        f = rng.choice(["friend", "child", "sister", "brother", "worker", "helper", "neighbor"])
        return s.part(
            then
            + rng.choice(
                [
                    f"{{P}} <give> {{{x} $}} to each of {{{k} {f}}}",
                    f"{{P}} <give> {{{k} {f}}} {{{x} $}} each",
                    f"{{P}} <pay> {{{k} {f}}} {{{x} $}} each",
                ]
            ),
            f"{{{k} {f}}}",
            [k, x],
            -1,
        )
    if r == 4:
        t, x = s.new("t", rng.randrange(2, 8)), s.new("x", rng.randrange(2, 25))
        return s.part(
            then + f"{{P}} <spend> {{{x} $}} [a day|every day|each day] for {{{t} day}}", f"{{{t} day}}", [t, x], -1
        )
    return s.half(
        then
        + rng.choice(
            [
                "{P} <spend> half of [the money|it]",
                "{P} <give> half of [the money|it] to {M.o}",
                "{P} <put> half of [the money|it] in the bank",
            ]
        )
    )


def money(rng):
    """Money from one or two sources, spent on one or two things; what is left, missing, or can be bought."""
    p, s = who(rng), Sum(rng)
    cast = {"P": p, "M": named(rng, [p])}
    if not all(money_in(s, rng) for _ in range(rng.choice([1, 1, 2]))):
        return None
    out = rng.choice([0, 1, 1, 2])
    if not all(money_out(s, rng) for _ in range(out)):
        return None
    tense, r = rng.choice(["past", "past", "pres"]), rng.random()
    if r < 0.2:
        s.v["price"], s.v["thing"] = s.value + rng.randrange(2, 150), rng.choice(DEAR)
        s.facts.append(
            rng.choice(
                [
                    "{P} <want> {thing.a} that <it cost> {price $}",
                    "now {P} <want> to buy {thing.a} for {price $}",
                    "{thing.a} <it cost> {price $}",
                ]
            )
        )
        s.steps.append(("missing", f"price-{s.now}=r"))
        return s.story(
            f"price-({s.formula})",
            "how much more [money |]<do> {P} need[| for it| to buy it]"
            if "want" in s.facts[-1]
            else "how much more [money |]<do> {P} need for the {thing.1}",
            "{P} <need> {r $} more",
            cast,
            tense,
        )
    if r < 0.35:
        s.v["each"], s.v["thing"] = rng.randrange(2, 20), rng.choice(CHEAP + MIDDLE)
        s.steps.append(("division", f"{s.now}//each=r:rest"))
        left = "the rest" if out else "all the money"
        return s.story(
            f"({s.formula})//each",
            f"how many {{thing}} [at {{each $}} each|for {{each $}} each] can {{P}} buy with {left}",
            "{P} can buy {r thing}",
            cast,
            tense,
        )
    if r < 0.45:
        ks = [k for k in range(2, 10) if s.value % k == 0]
        if not ks:
            return None
        s.v["among"] = rng.choice(ks)
        s.steps.append(("each", f"{s.now}/among=r"))
        s.facts.append("{P} <share> %s equally [among|with] {among child}" % ("the rest" if out else "all the money"))
        return s.story(
            f"({s.formula})//among", "how much [money |]does each child get", "each child gets {r $}", cast, tense
        )
    if not out:
        return s.story(
            None, "how much [money |]<do!> {P} have [now|in total|altogether|in all]", "{P} <have!> {r $}", cast, tense
        )
    return s.story(
        None,
        "[how much|how much money|how many {$}] <do!> {P} have [left|left over|left in the end]"
        if rng.random() < 0.8
        else "how much [money |]is left",
        "{P} <have!> {r $} left",
        cast,
        tense,
    )


def things_in(s, rng):
    r, first = rng.randrange(5), not s.count
    food = s.v["o"] in FOOD
    also = "" if first else rng.choice(["[|also ]", "[|then ]"])
    if r == 0:
        c, a, b = s.new("c", rng.choice(CONTAINERS)), s.new("a", rng.randrange(2, 12)), s.new("b", rng.randrange(2, 25))
        return s.part(
            rng.choice(
                [
                    f"{{P}} {also}<buy> {{{a} {c}}} with {{{b} o}} each",
                    f"{{P}} {also}<have> {{{a} {c}}} with {{{b} o}} in each",
                    f"{{P}} {also}<get> {{{a} {c}}} of {{{b} o}} each",
                ]
            ),
            f"{{{a} {c}}}",
            [a, b],
            1,
        )
    if r == 1:
        x, t = s.new("x", rng.randrange(2, 25)), s.new("t", rng.randrange(2, 13))
        verb = rng.choice(
            ["bake", "buy", "make"]
            if s.v["o"] in ("cookie", "muffin", "cupcake", "brownie", "donut", "cracker", "pancake", "pretzel")
            else ["buy", "pick", "get"]
            if food
            else ["collect", "find", "buy"]
        )
        return s.part(
            f"{{P}} {also}<{verb}> {{{x} o}} [a day|every day|each day] for {{{t} day}}", f"{{{t} day}}", [x, t], 1
        )
    if r == 2 and not first:
        k, x = s.new("k", rng.randrange(2, 8)), s.new("x", rng.randrange(2, 15))
        f = rng.choice(["friend", "cousin", "neighbor", "classmate"])
        return s.part(f"{{{k} {f}}} <they give> {{P.o}} {{{x} o}} each", f"{{{k} {f}}}", [k, x], 1)
    if r == 3 and not first:
        x = s.new("x", rng.randrange(2, 60))
        return s.part(
            rng.choice(
                [
                    f"{{P}} {also}<find> {{{x}}} more",
                    f"{{P}} {also}<buy> {{{x}}} more",
                    f"{{M}} <M give> {{P.o}} {{{x}}} more",
                ]
            ),
            "",
            [x],
            1,
        )
    x = s.new("x", rng.randrange(10, 150))
    return s.part(
        (f"{{P}} <have> {{{x} o}}" if first else f"{{P}} {also}<get> {{{x}}} more")
        + (rng.choice(["", "", " at home"]) if first else ""),
        "",
        [x],
        1,
    )


def things_out(s, rng):
    r, food = rng.randrange(6), s.v["o"] in FOOD
    then = rng.choice(["", "", "then ", "[later|after that|next] "])
    if r < 2:
        k, x = s.new("k", rng.randrange(2, 10)), s.new("x", rng.randrange(2, 12))
        f = rng.choice(["friend", "cousin", "neighbor", "classmate", "child", "sister", "student", "guest"])
        return s.part(
            then
            + rng.choice([f"{{P}} <give> {{{x}}} to each of {{{k} {f}}}", f"{{P}} <give> {{{k} {f}}} {{{x} o}} each"]),
            f"{{{k} {f}}}",
            [k, x],
            -1,
        )
    if r == 2:
        t, x = s.new("t", rng.randrange(2, 10)), s.new("x", rng.randrange(2, 10))
        verb = "eat" if food else rng.choice(["use", "sell", "give away"])
        return s.part(
            then + f"{{P}} <{verb}> {{{x} o}} [a day|every day|each day] for {{{t} day}}", f"{{{t} day}}", [x, t], -1
        )
    if r == 3:
        return s.half(
            then
            + rng.choice(
                [
                    "{P} <sell> half of them",
                    "{P} <give> half of them to {M.o}",
                    "{P} <lose> half of them",
                    "{P} <give> half of the {o} away",
                ]
            )
        )
    x = s.new("x", rng.randrange(2, 60))
    return s.part(
        then
        + rng.choice(
            [
                f"{{P}} <lose> {{{x}}} of them",
                f"{{P}} <sell> {{{x} o}}",
                f"{{P}} <give> {{{x}}} [of them |]to {{M.o}}",
                f"{{P}} <{'eat' if food else 'break'}> {{{x}}} of them",
                f"{{M}} <M take> {{{x}}} of them",
            ]
        ),
        "",
        [x],
        -1,
    )


def things(rng):
    """Things from one or two sources, given away in one or two ways; what is left, how many boxes, what each gets."""
    p, s = who(rng), Sum(rng)
    s.v["o"] = rng.choice(SMALL + FOOD * 2)
    cast = {"P": p, "M": named(rng, [p])}
    if not all(things_in(s, rng) for _ in range(rng.choice([1, 1, 2]))):
        return None
    out = rng.choice([0, 1, 1, 2])
    if not all(things_out(s, rng) for _ in range(out)):
        return None
    tense, r = rng.choice(["past", "past", "pres"]), rng.random()
    rest = "the rest" if out else "all of them"
    if r < 0.3:
        ks = [k for k in range(2, 16) if s.value % k == 0 and s.value > k]
        if not ks:
            return None
        s.v["among"] = rng.choice(ks)
        if rng.random() < 0.5:
            s.v["box"] = rng.choice(CONTAINERS)
            s.facts.append(
                "{P} <put> %s into {box} of {among}[| each]" % rest
                if rng.random() < 0.6
                else "{P} <pack> %s into {box} with {among} each" % rest
            )
            s.steps.append(("{box}", f"{s.now}/among=r"))
            return s.story(
                f"({s.formula})//among",
                "how many {box} [<do> {P} need|<do> {P} fill|are there]",
                "there are {r box}",
                cast,
                tense,
            )
        s.v["kid"] = Noun(rng.choice(["child", "friend", "student", "kid", "guest"]))
        s.facts.append("{P} <share> %s equally [among|with|between] {among kid}" % rest)
        s.steps.append(("each", f"{s.now}/among=r"))
        return s.story(
            f"({s.formula})//among", "how many [{o} |]does each {kid.1} get", "each {kid.1} gets {r o}", cast, tense
        )
    if r < 0.45:
        s.v["price"] = rng.randrange(2, 10)
        s.facts.append("{P} <sell> %s for {price $} each" % rest)
        s.steps.append(("price", f"{s.now}*price=r"))
        return s.story(
            f"({s.formula})*price",
            "how much [money |]<do> {P} [get|make|earn][| for them| in total]",
            "{P} <get> {r $}",
            cast,
            tense,
        )
    if not out:
        return s.story(
            None,
            "how many {o} <do!> {P} have [now|in total|altogether|in all|together]",
            "{P} <have!> {r o}",
            cast,
            tense,
        )
    return s.story(
        None,
        "how many [{o} |]<do!> {P} have [left|now|in the end]" if rng.random() < 0.7 else "how many {o} are left",
        "{P} <have!> {r o}",
        cast,
        tense,
    )


FAMILIES = {money: 16, things: 16}
