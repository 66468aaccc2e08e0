"""Word problems about money: shopping, change, saving, wages, tickets, discounts, coins, profit."""

from wp_core import Story, named, who
from wp_words import CHEAP, DEAR, FOOD, MIDDLE, Noun

EACH = "[for {%s $} each|at {%s $} each|for {%s $} apiece|that cost {%s $} each|, each for {%s $}|at {%s $} apiece]"
PLACE = "[|||| at the store| at the market| at a shop| online| at the mall| at a fair| for a party| for school]"


def lines(rng, v, most=3):
    """A shopping list: its clauses, the steps of its cost and the formula; goods "a hat for 12 dollars" too."""
    pool = rng.choice([CHEAP, MIDDLE, CHEAP + MIDDLE, MIDDLE + DEAR])
    goods = rng.sample(pool, rng.choices([1, 2, 3], [25, 55, 20 if most > 2 else 0])[0])
    said, steps, sums = [], [], []
    for i, g in enumerate(goods):
        o, n, p, c = (x + str(i) for x in "onpc")
        v[o], v[p] = g, rng.randrange(2, 13 if g in CHEAP else 40 if g in MIDDLE else 90)
        if len(goods) > 1 and rng.random() < 0.4:
            said.append(
                rng.choice(["{%s.a} for {%s $}", "{%s.a} for {%s $}", "{%s.a} that costs {%s $}", "{%s.a} at {%s $}"])
                % (o, p)
            )
            sums.append(p)
        else:
            v[n] = rng.randrange(2, 13)
            said.append("{%s %s} %s" % (n, o, EACH.replace("%s", p)))
            steps.append(("{%s %s}" % (n, o), f"{n}*{p}={c}"))
            sums.append((c, f"{n}*{p}"))
    names = [s if isinstance(s, str) else s[0] for s in sums]
    total = names[0]
    for i, x in enumerate(names[1:]):
        steps.append(
            (rng.choice(["together", "together", "sum"]) if i == 0 else "and {o%d}" % (i + 1), f"{total}+{x}=s{i}")
        )
        total = f"s{i}"
    return said, steps, "+".join(s if isinstance(s, str) else s[1] for s in sums), total


def finish(steps, name="r"):
    """The last step's result becomes the result."""
    label, step = steps[-1]
    return [*steps[:-1], (label, step.rsplit("=", 1)[0] + "=" + name)]


def listed(said, rng):
    return said[0] if len(said) == 1 else ", ".join(said[:-1]) + rng.choice([" and ", " and ", " and also "]) + said[-1]


def shopping(rng):
    """Some things at prices, single ones too: what they cost, or what is left of the money."""
    p, v = who(rng), {}
    said, steps, truth, total = lines(rng, v)
    if not steps:
        return None
    get = rng.choice(["buy", "buy", "buy", "get", "purchase", "order", "pick up"])
    if len(said) > 1 and rng.random() < 0.3:
        facts = [
            "{P} <%s> %s%s" % (get, said[0], PLACE),
            *("{P} also <%s> %s" % (rng.choice(["buy", "get", "take"]), s) for s in said[1:]),
        ]
    else:
        facts = [
            "{P} [||<go> to the %s and ]<%s> %s"
            % (rng.choice(["store", "market", "mall", "shop"]), get, listed(said, rng))
        ]
    form = rng.random()
    if form < 0.45:
        ask = (
            "[how much|how much money|how many {$}] [<do> {P} %s|<do> {P} %s in total|<do> {P} %s altogether|<do> {P} %s in all]"
            % ((rng.choice(["spend", "pay", "spend", "have to pay"]),) * 4)
            if rng.random() < 0.75
            else "what [<it be> the total|<it be> the total cost|<it do> everything cost together|<it be> the bill|<it do> it all cost]"
        )
        return Story(v, finish(steps), truth, facts, ask, "{P} <%s> {r $}" % rng.choice(["pay", "spend"]), {"P": p})
    cost = eval(truth, {}, v)
    v["m"] = m = rng.choice(
        [cost + rng.randrange(1, 60), (cost // 10 + 1) * 10, (cost // 50 + 1) * 50, (cost // 100 + 1) * 100]
    )
    steps = [*steps, ("[left]", f"m-{total}=r")]
    how = rng.random()
    if how < 0.3:  # pays with
        facts.append("{P} <pay> with {m $}")
        if rng.random() < 0.4:
            facts[-1] = "{P} <%s> the [cashier|seller|clerk] {m $}" % rng.choice(["give", "hand"])
        ask = (
            "how much [change <do> {P} get|change <do> {P} get back|money <do> {P} get back]"
            if rng.random() < 0.8
            else "what <it be> [{P.s} change|the change]"
        )
        return Story(
            v, [*steps[:-1], ("change", steps[-1][1])], f"m-({truth})", facts, ask, "{P} <get> {r $} back", {"P": p}
        )
    facts.insert(
        0,
        rng.choice(
            [
                "{P} <have> {m $}",
                "{P} <have> {m $}",
                "{P} <have> {m $} [in {P.s} wallet|in {P.s} pocket|to spend]",
                "{P} <go> shopping with {m $}",
                "{P} <take> {m $} to the store",
                "{P} <start> with {m $}",
            ]
        ),
    )
    ask = rng.choice(
        [
            "[how much|how much money|how many {$}] <do!> {P} have [left|left over|now]",
            "how much [money |]is left[| over]",
            "how much [money |][will {P} have|<do!> {P} have] left[| over| after that]",
            "what <do!> {P} have left",
            "how much of {P.s} money is left",
        ]
    )
    return Story(v, steps, f"m-({truth})", facts, ask, "{P} <have!> {r $} left", {"P": p})


def priced(rng):
    """Prices first, then how many of which: "If a pen costs 3 dollars and a notebook 7, what do 4 pens and 2 notebooks
    cost?"
    """
    x, y = rng.sample(rng.choice([CHEAP, MIDDLE, CHEAP + MIDDLE]), 2)
    v = {
        "x": x,
        "y": y,
        "p": rng.randrange(2, 26),
        "q": rng.randrange(2, 26),
        "a": rng.randrange(2, 13),
        "b": rng.randrange(2, 13),
    }
    facts = [
        rng.choice(
            [
                "{x.a} <it cost!> {p $}",
                "one {x.1} <it cost!> {p $}",
                "[the price of {x.a}|the price of one {x.1}] is {p $}",
                "{x} cost {p $} each",
                "{x} are {p $} each",
            ]
        ),
        rng.choice(["{y.a} <it cost!> {q $}", "{y.a} <it cost!> {q $}", "{y} cost {q $} each", "each {y.1} is {q $}"]),
    ]
    if rng.random() < 0.3:
        facts = ["[a store|a shop|a stand|the market|a kiosk] sells {x} for {p $} each and {y} for {q $} each"]
    p, cast = who(rng), {}
    steps = [("{a x}", "a*p=c"), ("{b y}", "b*q=d"), ("together", "c+d=r")]
    truth = "a*p+b*q"
    form = rng.random()
    if form < 0.4:
        ask = rng.choice(
            [
                "what do {a x} and {b y} cost[| together| in total]",
                "how much do {a x} and {b y} cost[| together| in total| altogether]",
                "what is the [total |]price of {a x} and {b y}",
                "how much [would|will] {a x} and {b y} cost",
                "how much are {a x} and {b y}",
            ]
        )
        return Story(
            v,
            steps,
            truth,
            facts,
            ask,
            "{a x} and {b y} cost {r $}",
            {},
            shuffle=len(facts) > 1,
            tense="pres",
            extra=False,
        )
    cast = {"P": p}
    facts.append(
        "{P} <[buy]> {a x} and {b y}".replace("[buy]", rng.choice(["buy", "buy", "want", "order", "get", "need"]))
    )
    if form < 0.75:
        ask = "[how much|how much money] <do> {P} [pay|spend|have to pay|need][| in total| altogether| for everything| in all]"
        return Story(v, steps, truth, facts, ask, "{P} <pay> {r $}", cast, tense="pres")
    cost = v["a"] * v["p"] + v["b"] * v["q"]
    v["m"] = rng.choice([cost + rng.randrange(1, 50), (cost // 50 + 1) * 50])
    facts[-1] = facts[-1].replace("<want>", "<buy>").replace("<need>", "<buy>")
    facts.append("{P} <pay> with {m $}")
    return Story(
        v,
        [*finish(steps, "s"), ("change", "m-s=r")],
        f"m-({truth})",
        facts,
        "how much [change|money] <do> {P} get back",
        "{P} <get> {r $} back",
        cast,
        tense="pres",
    )


def tickets(rng):
    """Tickets for adults and for children."""
    v = {"p": rng.randrange(5, 30), "q": rng.randrange(2, 15), "a": rng.randrange(1, 10), "b": rng.randrange(2, 15)}
    if v["q"] >= v["p"]:
        return None
    place = rng.choice(
        ["zoo", "museum", "cinema", "theater", "pool", "circus", "fair", "concert", "aquarium", "park", "train", "boat"]
    )
    big, small = rng.choice(
        [("adult", "child"), ("adult", "child"), ("adult", "student"), ("adult", "kid"), ("parent", "child")]
    )
    v |= {"x": Noun(big), "y": Noun(small)}
    facts = [
        rng.choice(
            [
                "[a ticket|a ticket for the %s|admission to the %s|entry] costs {p $} for {x} and {q $} for {y}",
                "%s tickets cost {p $} for {x} and {q $} for {y}",
                "at the %s {x} pay {p $} and {y} pay {q $}",
                "[an adult ticket|a ticket for an adult] [to the %s |]costs {p $} and [a child ticket|a ticket for a child] costs {q $}",
            ]
        ).replace("%s", place)
    ]
    if (big, small) != ("adult", "child") and "adult ticket" in facts[0]:
        v |= {"x": Noun("adult"), "y": Noun("child")}
    go = rng.random()
    steps, truth = [("{a x}", "a*p=c"), ("{b y}", "b*q=d"), ("together", "c+d=r")], "a*p+b*q"
    if go < 0.35:
        return Story(
            v,
            steps,
            truth,
            facts,
            "[how much|what] do tickets for {a x} and {b y} cost[| together| in total]"
            if rng.random() < 0.6
            else "how much do {a x} and {b y} pay[| together| in total| altogether]",
            "{a x} and {b y} pay {r $}",
            {},
            tense="pres",
            extra=False,
        )
    facts.append(
        rng.choice(
            [
                "[a family|a group] of {a x} and {b y} goes there",
                "{a x} and {b y} go [there|in]",
                "[a family|a group] [buys|needs] tickets for {a x} and {b y}",
            ]
        )
    )
    return Story(
        v,
        steps,
        truth,
        facts,
        "how much [do they pay|do they have to pay|does it cost|do the tickets cost][| together| in total| altogether]",
        "they pay {r $}",
        {},
        tense="pres",
        extra=False,
    )


def sold(rng):
    """Things sold at a price, two kinds perhaps, less what they cost: income and profit."""
    p, v = who(rng), {}
    o = v["o"] = rng.choice(CHEAP + MIDDLE)
    v |= {"n": rng.randrange(3, 60), "a": rng.randrange(3, 30), "p": 0}
    sell = rng.choice(
        [
            "{P} <sell> {n o} [for {a $} each|at {a $} each|for {a $} apiece]",
            "{P} <make> {n o} and <sell> them for {a $} each",
            "{P} <sell> each {o.1} for {a $} and <sell> {n o}",
        ]
    )
    if rng.random() < 0.35:
        return Story(
            v,
            [("sold", "n*a=r")],
            "n*a",
            [sell],
            "how much [money |]<do> {P} [earn|make|get|take in][| in total| altogether]",
            "{P} <earn> {r $}",
            {"P": p},
        )
    v["p"] = rng.randrange(1, v["a"])
    if rng.random() < 0.5:  # bought and sold by the piece
        return Story(
            v,
            [("each", "a-p=d"), ("{n o}", "n*d=r")],
            "n*a-n*p",
            ["{P} <buy> {n o} for {p $} each", "{P} <sell> them for {a $} each"]
            if rng.random() < 0.6
            else ["{P} <buy> {o} for {p $} each and <sell> them for {a $} each", "{P} <sell> {n o}"],
            "[how much profit <do> {P} make|how much [money |]<do> {P} make|what <it be> {P.s} profit|how much <do> {P} gain]",
            "{P} <make> {r $}",
            {"P": p},
        )
    v["k"] = rng.randrange(1, v["n"] * v["a"])
    cost = rng.choice(
        [
            "{P} <pay> {k $} for [the materials|the ingredients|the stand|the supplies]",
            "the [materials|ingredients|supplies] <they cost> {P.o} {k $}",
            "{P} <have> to pay {k $} for the [table|stand|place]",
        ]
    )
    return Story(
        v,
        [("sold", "n*a=s"), ("less the cost", "s-k=r")],
        "n*a-k",
        [sell, cost],
        "[how much profit <do> {P} make|how much [money |]<do> {P} earn after the costs|what <it be> {P.s} profit]",
        "{P} <make> {r $}",
        {"P": p},
        shuffle=True,
    )


def need_more(rng):
    """A thing costs so much; somebody has so much, perhaps from two sources: how much is missing?"""
    p, o, v = who(rng), rng.choice(DEAR), {}
    v |= {"o": o, "a": rng.randrange(5, 150), "b": rng.randrange(5, 100)}
    two = rng.random() < 0.5
    v["p"] = v["a"] + v["b"] * two + rng.randrange(2, rng.choice([200, 200, 1000]))
    want = rng.choice(
        [
            "{P} <want> [to buy |]{o.a} that <it cost> {p $}",
            "{P} <want> to buy {o.a} for {p $}",
            "{P} <need> {p $} for {o.a}",
            "{o.a} <it cost> {p $}",
            "{P} <be> saving for {o.a} that <it cost> {p $}",
            "the price of {o.a} <it be> {p $}",
        ]
    )
    have = rng.choice(
        [
            "{P} [already |]<have> {a $}",
            "{P} <have> saved {a $}",
            "{P} <have> {a $} [in the bank|in a piggy bank|so far]",
        ]
    )
    facts, steps, truth = [want, have], [("missing", "p-a=r")], "p-a"
    if two:
        facts.append(
            rng.choice(
                [
                    "{M} <M give> {P.o} {b $}",
                    "{P} <get> {b $} from {M.o}",
                    "{P} <earn> another {b $}",
                    "{P} <find> {b $}",
                ]
            )
        )
        steps, truth = [("has", "a+b=h"), ("missing", "p-h=r")], "p-a-b"
    if "saving" in want and p.first:
        return None
    ask = "[how much more [money |]<do> {P} need|how much more [money |]<do> {P} have to save|how much [money |]<do> {P} still need|how many more {$} <do> {P} need][| to buy it| for it]"
    if rng.random() < 0.25:
        ask = "how much more <do> {P} need to buy [it|the {o.1}]"
    return Story(v, steps, truth, facts, ask, "{P} <need> {r $} more", {"P": p, "M": named(rng, [p])}, shuffle=not two)


def saving(rng):
    """So much a week: what is saved after some weeks; or how many weeks for a price."""
    p, v = who(rng), {}
    time = v["u"] = Noun(rng.choice(["week", "month", "day", "week"]))
    o = v["o"] = rng.choice(DEAR)
    v |= {"x": rng.randrange(2, 60), "t": rng.randrange(2, 25), "a": rng.randrange(2, 150)}
    every = "[every {u.1}|each {u.1}|per {u.1}|a {u.1}]"
    start = rng.random() < 0.5
    save = rng.choice(
        [
            "{P} <%s> {x $} " % rng.choice(["save", "save", "put aside", "set aside", "put away"]) + every,
            "%s {P} <save> {x $}" % "[every {u.1}|each {u.1}]",
        ]
    )
    if rng.random() < 0.2:
        save = "{P} <get> {x $} [pocket money |allowance ]" + every + " and <save> all of it"
    have = "{P} already <have> {a $}"
    if rng.random() < 0.5:
        facts = [have, save] if start else [save]
        steps = [("{t u}", "t*x=r")] if not start else [("{t u}", "t*x=s"), ("with the start", "s+a=r")]
        ask = "how much [money |]" + rng.choice(
            [
                "will {P} have [after|in] {t u}",
                "<do> {P} save in {t u}" if not start else "will {P} have in {t u}",
                "will {P} have saved [after|in] {t u}" if not start else "will {P} have after {t u}",
            ]
        )
        return Story(
            v,
            steps,
            "t*x" + "+a" * start,
            facts,
            ask,
            "{P} <have!> {r $} after {t u}",
            {"P": p},
            shuffle=True,
            tense="pres",
        )
    v["p"] = v["x"] * v["t"] + v["a"] * start
    t = v.pop("t")
    facts = [
        rng.choice(
            ["{P} <want> [to buy |]{o.a} that <it cost> {p $}", "{o.a} <it cost> {p $}", "{P} <need> {p $} for {o.a}"]
        ),
        save,
    ] + [have] * start
    steps = [("needed", "p-a=s"), ("{u}", "s/x=r")] if start else [("{u}", "p/x=r")]
    ask = "[how many {u} <do> {P} [need|have to save]|how many {u} does it take|after how many {u} can {P} buy it|in how many {u} will {P} have enough|how many {u} until {P} can buy it]"
    return Story(
        v, steps, "(p-a)//x" if start else "p//x", facts, ask, "it takes {r u}", {"P": p}, shuffle=True, tense="pres"
    )


def wages(rng):
    """So much an hour, hours a day, days a week."""
    p, v = who(rng), {"a": rng.randrange(5, 40), "h": rng.randrange(2, 10), "d": rng.randrange(2, 8)}
    pay = "[{a $} an hour|{a $} per hour|{a $} each hour|{a $} for every hour]"
    earn = rng.choice(
        [
            "{P} <earn> " + pay,
            "{P} <make> " + pay,
            "{P} <get> " + pay,
            "{P} <be> paid " + pay,
            "{P.s} [boss|job] <it pay> " + pay,
        ]
    )
    form = rng.random()
    if form < 0.25:
        return Story(
            v,
            [("{h hour}", "a*h=r")],
            "a*h",
            [earn, "{P} <work> [for |]{h hour}[| today| on Saturday]"],
            "how much [money |]<do> {P} [earn|make|get]",
            "{P} <earn> {r $}",
            {"P": p},
            shuffle=True,
        )
    steps, truth = [("a day", "a*h=s"), ("{d day}", "s*d=r")], "a*h*d"
    work = rng.choice(
        [
            "{P} <work> {h hour} [a day|each day|every day|per day] for {d day}",
            "{P} <work> {h hour} a day, {d day} a week",
            "{P} <work> {d day} with {h hour} each",
        ]
    )
    week = "a week, " in work or ", {d day} a week" in work
    if form < 0.7:
        ask = (
            "how much [money |]<do> {P} [earn|make][| in total| altogether| in all]"
            if not week
            else "how much [money |]<do> {P} [earn|make] [in a week|per week|each week]"
        )
        return Story(v, steps, truth, [earn, work], ask, "{P} <earn> {r $}" + " a week" * week, {"P": p}, shuffle=True)
    v["k"] = rng.randrange(1, v["a"] * v["h"] * v["d"])
    spend = (
        "{P} <spend> {k $} on [food|rent|clothes|a gift|books]"
        if rng.random() < 0.7
        else "{P} <pay> {k $} [in taxes|for rent]"
    )
    return Story(
        v,
        [*finish(steps, "w"), ("left", "w-k=r")],
        truth + "-k",
        [earn, work.replace("a day, {d day} a week", "a day for {d day}"), spend],
        "how much [money |]<do!> {P} have left",
        "{P} <have!> {r $} left",
        {"P": p},
    )


def afford(rng):
    """How many can be bought with this money, and what is left over."""
    p, v = who(rng), {"o": rng.choice(CHEAP + MIDDLE), "q": rng.randrange(2, 30), "m": 0}
    n = rng.randrange(2, 30)
    v["m"] = v["q"] * n + (rng.randrange(0, v["q"]) if rng.random() < 0.4 else 0)
    facts = [
        "{P} <have> {m $}[| to spend]",
        rng.choice(
            [
                "{o.a} <it cost> {q $}",
                "{o} <they cost> {q $} each",
                "one {o.1} <it cost> {q $}",
                "the price of {o.a} <it be> {q $}",
            ]
        ),
    ]
    if v["m"] % v["q"] and rng.random() < 0.4:
        return Story(
            v,
            [("division", "m//q=n:r")],
            "m%q",
            [*facts, "{P} <buy> as many {o} as possible"],
            "how much [money |]<do!> {P} have left[| over]",
            "{P} <have!> {r $} left",
            {"P": p},
        )
    return Story(
        v,
        [("division", "m//q=r:rest")],
        "m//q",
        facts,
        "how many {o} can {P} [buy|afford|get][| with it| with this money| at most]",
        "{P} can buy {r o}",
        {"P": p},
        shuffle=True,
    )


def unit_price(rng):
    """So many cost so much: what does one cost, or another number of them?"""
    v = {
        "o": rng.choice(CHEAP + MIDDLE + FOOD),
        "n": rng.randrange(2, 15),
        "b": rng.randrange(2, 20),
        "k": rng.randrange(2, 20),
    }
    v["m"] = v["n"] * v.pop("b")
    p = who(rng)
    fact = rng.choice(
        [
            "{n o} cost {m $}",
            "{n o} cost {m $}[| in total| together]",
            "the price of {n o} is {m $}",
            "a pack of {n o} costs {m $}",
            "you can buy {n o} for {m $}",
            "{P} <pay'> {m $} for {n o}",
        ]
    )
    cast = {"P": p} if "{P}" in fact else {}
    if rng.random() < 0.4:
        ask = rng.choice(
            [
                "how much does one {o.1} cost",
                "what is the price of one {o.1}",
                "how much is each {o.1}",
                "what does {o.a} cost",
                "how much did each {o.1} cost",
            ]
        )
        return Story(
            v, [("one {o.1}", "m/n=r")], "m//n", [fact], ask, "one {o.1} costs {r $}", cast, tense="pres", extra=False
        )
    if v["k"] == v["n"]:
        return None
    ask = rng.choice(
        [
            "how much do {k o} cost",
            "what do {k o} cost",
            "what is the price of {k o}",
            "how much would {k o} cost",
            "how much are {k o}",
        ]
    )
    return Story(
        v,
        [("one {o.1}", "m/n=c"), ("{k o}", "k*c=r")],
        "m*k//n",
        [fact],
        ask,
        "{k o} cost {r $}",
        cast,
        tense="pres",
        extra=False,
    )


def discount(rng):
    """A percentage off, or a coupon; the new price, what is saved, or several at the new price."""
    o, v = rng.choice(DEAR + MIDDLE), {}
    pc = rng.choice([10, 20, 25, 50, 30, 40, 5, 15, 60, 75, 10, 20, 50])
    unit = {5: 20, 10: 10, 20: 5, 25: 4, 50: 2, 30: 10, 40: 5, 15: 20, 60: 5, 75: 4}[pc]
    v |= {"o": o, "p": unit * rng.randrange(1, 40), "pc": pc}
    up = rng.random() < 0.12
    percent = "[{pc.d}%|{pc} percent|{pc.d}%]"
    price = rng.choice(
        [
            "{o.a} costs {p $}",
            "{o.a} costs {p $}",
            "the [normal|regular|old|original] price of {o.a} is {p $}",
            "a store sells {o.a} for {p $}",
        ]
    )
    off = (
        rng.choice(["the price [goes up|rises|increases] by " + percent, "the store raises the price by " + percent])
        if up
        else rng.choice(
            [
                "there is a " + percent + " discount",
                "it is on sale for " + percent + " off",
                "[in the sale|today|this week] it is " + percent + " [cheaper|off]",
                "the store gives " + percent + " off",
                "the price is reduced by " + percent,
                "the price [drops|falls] by " + percent,
                "with a coupon you get " + percent + " off",
            ]
        )
    )
    steps = [("{pc} percent", "p*pc=h"), ("of a hundred", "h/100=s"), ("new price", f"p{'+' if up else '-'}s=r")]
    r = rng.random()
    if r < 0.2 and not up:
        return Story(
            v,
            finish(steps[:2]),
            "p*pc//100",
            [price, off],
            "[how much do you save|how much is the discount|how much cheaper is it[| in {$}]|how much money is saved]",
            "the discount is {r $}",
            {},
            tense="pres",
            extra=False,
        )
    if r < 0.4:
        w = who(rng)
        v["m"] = v["p"] * (100 + pc * (1 if up else -1)) // 100 + rng.randrange(1, 80)
        return Story(
            v,
            [*finish(steps, "w"), ("left", "m-w=r")],
            f"m-p*(100{'+' if up else '-'}pc)//100",
            [price, off, "{P} <have!> {m $} and <buy!> it"],
            "how much [money |]<do!> {P} have left",
            "{P} <have!> {r $} left",
            {"P": w},
            tense="pres",
        )
    return Story(
        v,
        steps,
        f"p*(100{'+' if up else '-'}pc)//100",
        [price, off],
        "[what is the new price|how much does it cost now|what does the {o.1} cost now|how much do you pay|what is the sale price|how much is it now]"
        if not up
        else "[what is the new price|how much does it cost now|how much is it now]",
        "the {o.1} costs {r $}",
        {},
        tense="pres",
        extra=False,
    )


def coins(rng):
    """Quarters, dimes, nickels and pennies: how many cents; notes: how many dollars."""
    p, v = who(rng), {}
    notes = rng.random() < 0.35
    kinds = rng.sample(
        [
            (5, "5-dollar bill"),
            (10, "10-dollar bill"),
            (20, "20-dollar bill"),
            (2, "2-dollar coin"),
            (50, "50-dollar bill"),
        ]
        if notes
        else [(25, "quarter"), (10, "dime"), (5, "nickel")],
        2,
    )
    for i, (value, name) in enumerate(kinds):
        v |= {f"n{i}": rng.randrange(2, 16), f"o{i}": Noun(name), f"w{i}": value}
    facts = ["{P} <have!> {n0 o0} and {n1 o1}[| in {P.s} pocket| in a jar| in {P.s} wallet]"]
    if rng.random() < 0.3 and not notes:
        v["q"] = rng.randrange(2, 20)
        facts = ["{P} <have!> {n0 o0}, {n1 o1} and {q penny}"]
    steps, truth = [
        ("{n0 o0}", "n0*w0=a"),
        ("{n1 o1}", "n1*w1=b"),
        ("together", "a+b=" + ("s" if "q" in v else "r")),
    ], f"n0*{kinds[0][0]}+n1*{kinds[1][0]}"
    if "q" in v:
        steps, truth = [*steps, ("and {q penny}", "s+q=r")], truth + "+q"
    unit = Noun("dollar" if notes else "cent")
    v["u"] = unit
    return Story(
        v,
        steps,
        truth,
        facts,
        "[how many {u} <do!> {P} have|how many {u} is that|how much is that in {u}|how much money is that in {u}][|| in total| altogether]",
        "{P} <have!> {r u}",
        {"P": p},
        tense="pres",
    )


def bill(rng):
    """A bill, perhaps with a tip, shared by friends."""
    v = {"k": rng.randrange(2, 10), "t": rng.randrange(2, 20)}
    v["m"] = v["k"] * rng.randrange(4, 40)
    tip = rng.random() < 0.5
    if tip:
        v["m"] -= v["t"]
        if v["m"] < 10:
            return None
    v["f"] = Noun(rng.choice(["friend", "person", "colleague", "sister", "brother", "neighbor", "student"]))
    what = rng.choice(["[a meal|dinner|lunch|a taxi ride]", "[a gift|a boat trip|a pizza party]"])
    facts = [rng.choice([what + " costs {m $}", "the bill for " + what + " is {m $}"])] + [
        "they add a tip of {t $}" if "gift" not in what else "the [card|delivery] costs {t $}"
    ] * tip
    share = "{k f} [share|split] the [cost|bill|price|total] equally"
    if rng.random() < 0.5:
        facts.insert(0, "{k f} go out together" if "gift" not in what else "{k f} want to pay together")
        ask = "how much does each [of them |]pay if they share equally"
        story = Story(v, [], "", facts, ask, "each pays {r $}", {}, tense="pres", plain=True, extra=False)
    else:
        story = Story(
            v,
            [],
            "",
            [*facts, share],
            "how much does each [one|person|of them] [pay|have to pay]",
            "each pays {r $}",
            {},
            tense="pres",
            extra=False,
        )
    steps = (
        [("with the tip" if "gift" not in what else "together", "m+t=s"), ("each", "s/k=r")]
        if tip
        else [("each", "m/k=r")]
    )
    return story._replace(steps=steps, truth="(m+t)//k" if tip else "m//k")


def packs(rng):
    """Boxes with so many in each at a price a box, or a price a piece."""
    p = who(rng)
    v = {
        "o": rng.choice(CHEAP + FOOD),
        "c": Noun(rng.choice(["box", "pack", "bag", "carton", "basket", "crate"])),
        "a": rng.randrange(2, 13),
        "b": rng.randrange(2, 15),
        "q": rng.randrange(2, 10),
    }
    have = rng.choice(
        ["{P} <buy> {a c} of {o}", "{P} <buy> {a c} of {o}[| for a party| for the class]", "{P} <get> {a c} of {o}"]
    )
    inside = "[each {c.1} has {b o}|there are {b o} in each {c.1}|each {c.1} holds {b o}|every {c.1} contains {b o}]"
    if rng.random() < 0.5:
        return Story(
            v,
            [("{a c}", "a*b=n"), ("at {q $}", "n*q=r")],
            "a*b*q",
            [have, inside, "[one {o.1} costs {q $}|each {o.1} costs {q $}]"],
            "how much [<do> {P} pay|<do> {P} spend|does it all cost][| in total| altogether]",
            "{P} <pay> {r $}",
            {"P": p},
        )
    v["q"] = rng.randrange(2, 30)
    return Story(
        v,
        [("price of {a c}", "a*q=r")],
        "a*q",
        [have, inside, "[one {c.1} costs {q $}|each {c.1} costs {q $}]"],
        "how much <do> {P} [pay|spend][| in total| altogether]",
        "{P} <pay> {r $}",
        {"P": p},
    )


FAMILIES = {
    shopping: 22,
    priced: 9,
    tickets: 5,
    sold: 5,
    need_more: 4,
    saving: 6,
    wages: 6,
    afford: 4,
    unit_price: 4,
    discount: 6,
    coins: 3,
    bill: 3,
    packs: 2,
}
