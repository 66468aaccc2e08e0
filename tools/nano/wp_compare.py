"""Word problems that compare: ages, more and fewer, times as many, averages, measures."""

from wp_core import I, YOU, Story, named, who
from wp_words import ANIMALS, FOOD, SMALL, Noun

TIMES = {
    2: ["twice", "twice", "two times", "2 times"],
    3: ["three times", "3 times"],
    4: ["four times", "4 times"],
    5: ["five times", "5 times"],
    6: ["6 times"],
}


def times(rng, n):
    """twice, three times, ..."""
    return rng.choice(TIMES.get(n, [f"{n} times"]))


def relation(rng, v, x, base, low=2, high=40, divide=True):
    """How a second number comes from a first: (name of the form, step operator, value set in v[x])."""
    form = rng.choices(
        ["more", "less", "times", "half"], [38, 30, 22, 10 if divide and base % 2 == 0 and base > 3 else 0]
    )[0]
    if form == "less" and base <= low + 1:
        form = "more"
    v[x] = {
        "more": rng.randrange(low, high),
        "less": rng.randrange(low, max(low + 1, min(high, base))),
        "times": rng.randrange(2, 5),
        "half": 2,
    }[form]
    return form, {"more": "+", "less": "-", "times": "*", "half": "/"}[form]


def ages(rng):
    """Older, younger, twice as old; now, in some years, together, the difference; the facts in any order."""
    p, v = who(rng, group=False), {"a": rng.randrange(4, 50)}
    q = named(rng, [p])
    if rng.random() < 0.25:
        q = who(rng, me=False)
        if q.name == p.name:
            return None
    m = named(rng, [p, q])
    form, op = relation(rng, v, "x", v["a"], 2, 16)
    how = {
        "more": "{x} years older than",
        "less": "{x} years younger than",
        "times": times(rng, v["x"]) + " as old as",
        "half": "half as old as",
    }[form]
    if form == "times" and v["x"] * v["a"] > 99:
        return None
    # Q is known, P is told from Q; P may be I
    facts = ["{P} <be!> " + how + " {Q.o}", "{Q} <Q be!> {a} years old" if rng.random() < 0.6 else "{Q} <Q be!> {a}"]
    steps, truth, age = (
        [("{P.n}", f"a{op}x=r")],
        f"a{op.replace('/', '//')}x",
        "[how old <be!> {P}|how old <be!> {P} now|what is {P.s} age|what age <be!> {P}|how many years old <be!> {P}]",
    )
    cast, r = {"P": p, "Q": q}, rng.random()
    n = eval(truth, {}, v)
    if n < 2:
        return None
    if r < 0.5:
        return Story(v, steps, truth, facts, age, "{P} <be!> {r} years old", cast, shuffle=True, tense="pres")
    if r < 0.65:
        v["y"] = rng.randrange(2, 25)
        return Story(
            v,
            [("{P.n}", steps[0][1][:-1] + "s"), ("in {y} years", "s+y=r")],
            truth + "+y",
            facts,
            "[how old will {P} be in {y} years|what will be {P.S} age in {y} years|in {y} years, how old will {P} be]",
            "{P} will be {r} years old",
            cast,
            shuffle=True,
            tense="pres",
        )
    if r < 0.78:
        return Story(
            v,
            [("{P.n}", steps[0][1][:-1] + "s"), ("together", "a+s=r")],
            f"a+{truth}",
            facts,
            "[how old are {Q.n} and {P.n} together|what is the sum of their ages|how old are they together]"
            if p not in (I, YOU)
            else "how old are {Q.n} and {P.n} together",
            "together {Q.n} and {P.n} are {r} years old" if p not in (I, YOU) else "together you are {r} years old",
            cast,
            shuffle=True,
            tense="pres",
        )
    if r < 0.88 and form in ("times", "half"):
        big, small = ("s", "a") if form == "times" else ("a", "s")
        return Story(
            v,
            [("{P.n}", steps[0][1][:-1] + "s"), ("difference", f"{big}-{small}=r")],
            f"abs(a-{truth})",
            facts,
            "[how many years older is {P} than {Q.o}|how much older is {P} than {Q.o}]".replace("is {P}", "<be!> {P}")
            if form == "times"
            else "how many years older <Q be!> {Q} than {P.o}",
            "the difference is {r} years",
            cast,
            shuffle=True,
            tense="pres",
        )
    v["y"] = rng.randrange(2, 12)
    older = rng.random() < 0.6 or n <= v["y"] + 1
    facts.append("{M} is {y} years " + ("older" if older else "younger") + " than {P.o}")
    return Story(
        v,
        [("{P.n}", steps[0][1][:-1] + "s"), ("{M.n}", f"s{'+' if older else '-'}y=r")],
        truth + ("+y" if older else "-y"),
        facts,
        "[how old is {M}|what is {M.s} age]",
        "{M} is {r} years old",
        cast | {"M": m},
        shuffle=True,
        tense="pres",
    )


def ages_time(rng):
    """One person's age in the past or in the future, or the year in between."""
    p, v = who(rng, group=False), {"a": rng.randrange(5, 80), "y": rng.randrange(2, 30)}
    r = rng.random()
    now = "{P} <be!> {a}[| years old| years old| years old now]"
    if r < 0.4:
        return Story(
            v,
            [("in {y} years", "a+y=r")],
            "a+y",
            [now],
            "how old will {P} be in {y} years",
            "{P} will be {r} years old",
            {"P": p},
            tense="pres",
            extra=False,
        )
    if r < 0.7 and v["a"] > v["y"] + 1:
        return Story(
            v,
            [("{y} years ago", "a-y=r")],
            "a-y",
            [now],
            "how old <be'> {P} {y} years ago",
            "{P} <be'> {r} years old",
            {"P": p},
            tense="pres",
            extra=False,
        )
    v["b"] = v["a"] + rng.randrange(2, 40)
    return Story(
        v,
        [("difference", "b-a=r")],
        "b-a",
        [now],
        "in how many years will {P} be {b}[| years old]",
        "{P} will be {b} in {r} years",
        {"P": p},
        tense="pres",
        extra=False,
    )


def counted(rng):
    """Two persons' things: the one told from the other; the second, both together or the difference."""
    p, v = who(rng, group=False), {"o": rng.choice(SMALL + FOOD + ANIMALS[:8]), "a": rng.randrange(3, 90)}
    q = named(rng, [p])
    verb = rng.choice(["have"] * 6 + ["collect", "buy", "find", "pick", "own"])
    if verb == "pick" and v["o"] not in FOOD:
        verb = "have"
    tense = "pres" if verb in ("have", "own") and rng.random() < 0.7 else "past"
    form, op = relation(rng, v, "x", v["a"])
    first = "{Q} <Q %s> {a o}" % verb
    than = "than {Q.o}" if rng.random() < 0.6 or verb != "have" else "than {Q}" if q.name[0].isupper() else "than {Q.o}"
    how = {
        "more": "{x} more {o} " + than,
        "less": "{x} fewer {o} " + than,
        "times": times(rng, v["x"]) + " as many {o} as {Q.o}",
        "half": "half as many {o} as {Q.o}",
    }[form]
    facts = [first, "{P} <%s> %s" % (verb, how)]
    if rng.random() < 0.12 and form in ("more", "times"):  # a step back: P is known and told from Q
        if form == "times":
            v["a"] -= v["a"] % v["x"]
            if v["a"] < v["x"] * 2:
                return None
        elif v["a"] <= v["x"] + 1:
            return None
        facts = (
            ["{P} <%s> {a o}" % verb, "{P} <%s> %s" % (verb, how)]
            if rng.random() < 0.5
            else [
                "{P} <%s> {a o}, which is %s"
                % (verb, {"more": "{x} more than {Q.n}", "times": times(rng, v["x"]) + " as many as {Q.n}"}[form])
            ]
        )
        back = {"more": "-", "times": "/"}[form]
        return Story(
            v,
            [("{Q.n}", f"a{back}x=r")],
            f"a{back}x".replace("/", "//"),
            facts,
            "how many {o} [<Q do> {Q} %s|<Q do> {Q.n} %s]" % (verb, verb),
            "{Q} <Q %s> {r o}" % verb,
            {"P": p, "Q": q},
            shuffle=True,
            tense=tense,
        )
    truth, cast = f"a{op.replace('/', '//')}x", {"P": p, "Q": q}
    step = ("{P.n}", f"a{op}x=")
    r = rng.random()
    if r < 0.4:
        return Story(
            v,
            [(step[0], step[1] + "r")],
            truth,
            facts,
            "how many {o} <do> {P} %s" % verb,
            "{P} <%s> {r o}" % verb,
            cast,
            shuffle=True,
            tense=tense,
        )
    both = "we" if p is I else "you" if p is YOU else "they"
    if r < 0.75:
        together = "[together|altogether|in total|in all|combined|between them]".replace(
            "|between them", "" if both != "they" else "|between them"
        )
        do = "do" if tense == "pres" else "did"
        return Story(
            v,
            [(step[0], step[1] + "s"), ("together", "a+s=r")],
            f"a+{truth}",
            facts,
            rng.choice(
                [
                    f"how many {{o}} {do} {both} {verb} {together}",
                    f"how many {{o}} {do} {{P.n}} and {{Q.n}} {verb} {together}"
                    if both == "they"
                    else f"how many {{o}} {do} {both} {verb} {together}",
                    f"how many {{o}} {do} {both} {verb} {together}",
                ]
            ),
            "together %s %s {r o}"
            % (
                "you" if both != "they" else "they",
                "have"
                if verb == "have"
                else {"collect": "collected", "buy": "bought", "find": "found", "pick": "picked", "own": "own"}[verb],
            ),
            cast,
            shuffle=True,
            tense=tense,
        )
    m = named(rng, [p, q])
    v["y"] = rng.randrange(2, 40)
    s = eval(truth, {}, v)
    more = rng.random() < 0.5 or s <= v["y"] + 1
    facts.append("{M} <M %s> {y} %s %s {P.o}" % (verb, "more" if more else "fewer", "than"))
    step3 = ("{M.n}", f"s{'+' if more else '-'}y=")
    truth3 = truth + ("+y" if more else "-y")
    if rng.random() < 0.5:
        return Story(
            v,
            [(step[0], step[1] + "s"), (step3[0], step3[1] + "r")],
            truth3,
            facts,
            "how many {o} <M do> {M} %s" % verb,
            "{M} <M %s> {r o}" % verb,
            cast | {"M": m},
            shuffle=True,
            tense=tense,
        )
    return Story(
        v,
        [(step[0], step[1] + "s"), (step3[0], step3[1] + "t"), ("two of them", "a+s=w"), ("all three", "w+t=r")],
        f"a+{truth}+{truth3}",
        facts,
        (
            "how many {o} do all three %s [together|in total|altogether]"
            if tense == "pres"
            else "how many {o} did all three %s [together|in total|altogether]"
        )
        % verb,
        "together they have {r o}" if verb in ("have", "own") else "that is {r o}",
        cast | {"M": m},
        shuffle=True,
        tense=tense,
    )


def difference(rng):
    """Two numbers of the same thing: how many more, how many fewer, how much taller."""
    p, v = who(rng, group=False), {}
    q = named(rng, [p])
    a, b = sorted(rng.sample(range(3, rng.choice([40, 150, 150, 1500])), 2), reverse=True)
    kind = rng.choice(["things", "things", "money", "measure", "kinds"])
    v |= {"a": a, "b": b, "o": rng.choice(SMALL + FOOD)}
    cast = {"P": p, "Q": q}
    if kind == "things":
        verb = rng.choice(["have", "have", "buy", "find", "collect", "sell", "make"])
        facts = ["{P} <%s> {a o}" % verb, "{Q} <Q %s> {b o}" % verb]
        if rng.random() < 0.7:
            return Story(
                v,
                [("difference", "a-b=r")],
                "a-b",
                facts,
                "how many more {o} <do> {P} %s than {Q.o}" % verb,
                "{P} <%s> {r} more" % verb,
                cast,
                shuffle=True,
            )
        return Story(
            v,
            [("difference", "a-b=r")],
            "a-b",
            facts,
            "how many fewer {o} <Q do> {Q} %s than {P.o}" % verb,
            "{Q} <Q %s> {r} fewer" % verb,
            cast,
            shuffle=True,
        )
    if kind == "money":
        verb = rng.choice(["have", "earn", "save", "spend"])
        return Story(
            v,
            [("difference", "a-b=r")],
            "a-b",
            ["{P} <%s> {a $}" % verb, "{Q} <Q %s> {b $}" % verb],
            "how much more [money |]<do> {P} %s than {Q.o}" % verb,
            "{P} <%s> {r $} more" % verb,
            cast,
            shuffle=True,
        )
    if kind == "measure":
        if rng.random() < 0.5:
            v |= {"a": 100 + a % 90 + 10, "b": 100 + b % 90, "u": Noun("centimeter")}
            if v["a"] <= v["b"]:
                return None
            return Story(
                v,
                [("difference", "a-b=r")],
                "a-b",
                ["{P} <be!> {a u} tall", "{Q} <Q be!> {b u} tall"],
                "[how much taller <be!> {P} than {Q.o}|how many {u} taller <be!> {P} than {Q.o}]",
                "{P} <be!> {r u} taller",
                cast,
                shuffle=True,
                tense="pres",
            )
        x, y = rng.sample(
            ["tower", "tree", "bridge", "building", "mountain", "rope", "river", "road", "fence", "ladder", "pole"], 2
        )
        how = {
            "tower": "tall",
            "tree": "tall",
            "building": "tall",
            "mountain": "high",
            "ladder": "tall",
            "pole": "tall",
        }
        if (x in how) != (y in how):
            return None
        adj = "tall" if x in how else "long"
        v |= {"x": Noun(x), "y": Noun(y), "u": Noun(rng.choice(["meter", "foot"]))}
        return Story(
            v,
            [("difference", "a-b=r")],
            "a-b",
            [f"[a|the] {x} is {{a u}} {adj}", f"[a|the] {y} is {{b u}} {adj}"],
            f"[how much {adj}er is the {x} than the {y}|how many {{u}} {adj}er is the {x}|what is the difference]",
            f"the {x} is {{r u}} {adj}er",
            {},
            shuffle=True,
            tense="pres",
            extra=False,
        )
    x, y, where = rng.choice(
        [
            ("boy", "girl", "in a class"),
            ("cow", "sheep", "on a farm"),
            ("red car", "blue car", "in a parking lot"),
            ("rose", "tulip", "in a garden"),
            ("cat", "dog", "in a shelter"),
            ("adult", "child", "on a bus"),
            ("apple", "pear", "in a basket"),
            ("novel", "comic", "on a shelf"),
            ("oak", "pine", "in a park"),
            ("fork", "spoon", "in a drawer"),
            ("man", "woman", "in a choir"),
            ("duck", "goose", "on a pond"),
        ]
    )
    v |= {"x": Noun(x), "y": Noun(y)}
    facts = rng.choice(
        [
            ["there are {a x} and {b y} " + where],
            ["there are {a x} " + where, "there are [also |]{b y}"],
            [where + " there are {a x} and {b y}"],
        ]
    )
    if rng.random() < 0.4:
        return Story(
            v,
            [("together", "a+b=r")],
            "a+b",
            facts,
            "how many are there [in total|altogether|in all|together]",
            "there are {r} in total",
            {},
            tense="pres",
            extra=False,
        )
    return Story(
        v,
        [("difference", "a-b=r")],
        "a-b",
        facts,
        "how many more {x} than {y} are there" if rng.random() < 0.6 else "how many fewer {y} than {x} are there",
        "the difference is {r}",
        {},
        tense="pres",
        extra=False,
    )


def kinds(rng):
    """One kind told from another: boys and girls, cows and sheep; all together, or with a third kind."""
    x, y, z, all_, where = rng.choice(
        [
            ("boy", "girl", "teacher", "person", "in a school"),
            ("cow", "sheep", "goat", "animal", "on a farm"),
            ("rose", "tulip", "daisy", "flower", "in a garden"),
            ("cat", "dog", "rabbit", "animal", "in a shelter"),
            ("red ball", "blue ball", "green ball", "ball", "in a box"),
            ("apple", "orange", "pear", "fruit", "in a basket"),
            ("car", "truck", "bus", "vehicle", "in a parking lot"),
            ("novel", "comic", "dictionary", "book", "on a shelf"),
            ("man", "woman", "child", "person", "on a train"),
            ("oak", "pine", "birch", "tree", "in a park"),
            ("guitar", "drum", "flute", "instrument", "in a store"),
            ("lion", "zebra", "giraffe", "animal", "in a zoo"),
        ]
    )
    v = {"x": Noun(x), "y": Noun(y), "z1": Noun(z), "k": Noun(all_), "a": rng.randrange(3, 70)}
    form, op = relation(rng, v, "b", v["a"], 2, 30)
    told = {
        "more": "there are {b} more {y} than {x}",
        "less": "there are {b} fewer {y} than {x}",
        "times": "there are " + times(rng, v["b"]) + " as many {y} as {x}",
        "half": "there are half as many {y} as {x}",
    }[form]
    facts, truth = ["there are {a x} " + where, told], f"a{op.replace('/', '//')}b"
    steps = [("{y}", f"a{op}b=s")]
    r = rng.random()
    if r < 0.35:
        return Story(
            v,
            [("{y}", f"a{op}b=r")],
            truth,
            facts,
            "how many {y} are there",
            "there are {r y}",
            {},
            tense="pres",
            shuffle=True,
            extra=False,
        )
    if r < 0.75:
        return Story(
            v,
            [*steps, ("together", "a+s=r")],
            f"a+{truth}",
            facts,
            "how many {k} are there [in total|altogether|in all|]",
            "there are {r k}",
            {},
            tense="pres",
            shuffle=True,
            extra=False,
        )
    v["c"] = rng.randrange(2, 40)
    return Story(
        v,
        [*steps, ("{x} and {y}", "a+s=t"), ("and {z1}", "t+c=r")],
        f"a+{truth}+c",
        [*facts, "there are [also |]{c z1}"],
        "how many {k} are there [in total|altogether|in all|]",
        "there are {r k}",
        {},
        tense="pres",
        extra=False,
    )


def average(rng):
    """The average of two to five numbers."""
    n = rng.choice([2, 3, 3, 3, 4])
    values = [rng.randrange(2, 60) for _ in range(n - 1)]
    mean = sum(values) // (n - 1) + rng.randrange(-3, 4)
    last = n * mean - sum(values)
    if last < 1 or last > 99:
        return None
    names = "abcd"[:n]
    v = dict(zip(names, [*values, last])) | {"n": n}
    steps, now = [], "a"
    for i, x in enumerate(names[1:]):
        steps.append(("sum" if i == 0 else "and {%s}" % x, f"{now}+{x}={'stu'[i]}"))
        now = "stu"[i]
    steps.append(("by {n}", f"{now}/n=r"))
    series = ", ".join("{%s}" % x for x in names[:-1]) + " and {%s}" % names[-1]
    truth = f"({'+'.join(names)})//{n}"
    if rng.random() < 0.35:
        return Story(
            v,
            steps,
            truth,
            [],
            rng.choice(
                [
                    "what is the [average|mean] of " + series,
                    "[find|calculate|compute|give me] the [average|mean] of " + series,
                    "[average|mean] of " + series,
                ]
            ),
            "the average is {r}",
            {},
            tense="pres",
            extra=False,
        )
    p = who(rng)
    fact = rng.choice(
        [
            "{P} <score'> " + series + " points in [%d games|%d tests|%d rounds]" % (n, n, n),
            "{P.s} [grades|scores|points] are " + series,
            "the temperatures [of {n} days |]are " + series + " degrees",
            "{P} <run'> " + series + " [miles|kilometers|laps] on {n} days",
            "{n} [children|friends|dogs|boxes] weigh " + series + " kilograms",
            "{P} <sell'> " + series + " [books|cakes|tickets|cars] on {n} days",
            "the ages of {n} [children|friends|sisters] are " + series,
        ]
    )
    return Story(
        v,
        steps,
        truth,
        [fact],
        "[what is the average|what is the mean|what is that on average|how much is that on average]",
        "the average is {r}",
        {"P": p} if "{P" in fact else {},
        tense="pres",
        extra=False,
        plain=True,
    )


FAMILIES = {ages: 11, ages_time: 3, counted: 12, difference: 6, kinds: 6, average: 4}
