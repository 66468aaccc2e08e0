"""Word problems about numbers that change: gains and losses, unknown starts, growth by the day, people who come and go.
"""

from wp_core import Story, named, who
from wp_words import ANIMALS, FOOD, PEOPLE, SMALL, Noun

UP = [
    "<buy> {x} more",
    "<find> {x} more",
    "<get> {x} [more |]from {M.o}",
    "<make> {x} more",
    "<pick> up {x} more",
    "<win> {x} more [|in a game]",
    "<collect> {x} more",
    "{M} <M give> {P.o} {x} more",
    "<receive> {x} [more|as a gift|for {P.s} birthday]",
    "<add> {x} to {P.s} collection",
    "<get> another {x}",
    "{M} <M bring> {P.o} {x} more",
    "<trade for> {x} more",
]
DOWN = [
    "<give> {x} [of them |]to {M.o}",
    "<lose> {x}[| of them]",
    "<sell> {x}[| of them]",
    "<give> away {x}",
    "<throw> away {x}",
    "<break> {x} of them",
    "<give> {M.o} {x}",
    "<use> {x}[| of them]",
    "<drop> {x}[| of them]",
    "<lend> {x} to {M.o}",
    "{M} <M take> {x}[| of them]",
    "<donate> {x}[| of them]",
    "<put> {x} of them aside for {M.o}",
]
EAT = ["<eat> {x}[| of them]", "<share> {x} with {M.o}", "<bring> {x} to {M.o}", "<cook> {x} of them"]
EARN = [
    "<earn> {x $}[| by washing cars| for mowing the lawn| at work]",
    "<find> {x $}[| on the street| in a pocket]",
    "<get> {x $} [more |]from {M.o}",
    "{M} <M give> {P.o} {x $}",
    "<win> {x $}",
    "<receive> {x $}[| for {P.s} birthday]",
    "<save> another {x $}",
    "{M} <M pay> {P.o} back {x $}",
]
SPEND = [
    "<spend> {x $}[| on food| on a gift| at the store| on lunch]",
    "<buy> a [hat|book|toy|ticket|shirt|cake] for {x $}",
    "<pay> {M.o} {x $}",
    "<give> {M.o} {x $}",
    "<lose> {x $}",
    "<lend> {M.o} {x $}",
    "<pay> {x $} for [lunch|dinner|a ticket|the bus]",
    "<donate> {x $}[| to charity]",
]
STEP = ["", "then ", "later ", "after that ", "the next day ", "[on Tuesday|a week later|in the afternoon|next] "]


def event(text, x, person, i, rng):
    """A clause out of UP, DOWN, ... with its own value name; the subject is put in front if it has none."""
    text = text.replace("{x", "{" + x)
    head = rng.choice(STEP) if i else rng.choice(["", "", "", "then "])
    return head + (text if text.startswith("{M}") else "{P} " + text)


def changes(rng):
    """Somebody has some things or money; one to four times the number changes."""
    p, o = who(rng), rng.choice(SMALL + FOOD)
    money, v = rng.random() < 0.35, {"o": o}
    top = rng.choices([60, 400, 900], [84, 10, 6])[0]  # the changes; a few problems have large numbers
    v["n"] = n = rng.randrange(5, 150 if money else 90) + (rng.randrange(2 * top) if top > 60 else 0)
    now, steps, facts, truth, loss = "n", [], [], "n", False
    count = rng.choices([1, 2, 3, 4], [20, 42, 28, 10])[0]
    for i in range(count):
        x = "abcd"[i]
        if rng.random() < 0.45 or n < 6:
            v[x], op = rng.randrange(2, top), "+"
            text = rng.choice(EARN if money else UP)
        else:
            v[x], op, loss = rng.randrange(2, n - 1), "-", True
            text = rng.choice(SPEND if money else DOWN + EAT * 2 if o in FOOD else DOWN)
        n = n + v[x] if op == "+" else n - v[x]
        nxt = "r" if i + 1 == count else "tuvw"[i]
        steps.append((("plus {%s}" if op == "+" else "minus {%s}") % x, f"{now}{op}{x}={nxt}"))
        facts.append(event(text, x, p, i, rng))
        now, truth = nxt, truth + op + x
    unit = "$" if money else "o"
    start = (
        rng.choice(
            [
                "{P} <have> {n %s}",
                "{P} <have> {n %s}",
                "{P} [<start> with|<begin> with] {n %s}",
                "[at first|in the beginning|yesterday] {P} <have'> {n %s}",
                "{P} <own> {n %s}",
                "there <they be> {n %s} in {P.s} [bag|box|room|drawer]",
            ]
        )
        % unit
    )
    if money:
        start = rng.choice(
            [
                "{P} <have> {n $}",
                "{P} <have> {n $}[| in {P.s} pocket| in the bank| in {P.s} piggy bank| saved]",
                "{P} <start> with {n $}",
            ]
        )
    left = "left|left over|now|in the end" if loss else "now|in the end|in total|altogether"
    ask = (
        f"[how much money|how much|how many {{$}}] <do!> {{P}} have [{left}]"
        if money
        else f"how many {{o}} <do!> {{P}} have [{left}]"
    )
    if not money and rng.random() < 0.2:
        ask = "how many [{o} |]are [left|there now]" if loss else "how many {o} <do!> {P} have"
    if money and rng.random() < 0.2:
        ask = "how much [money |]is left" if loss else "how much money is that [now|in total]"
    return Story(
        v,
        steps,
        truth,
        [start, *facts],
        ask,
        "{P} <have!> {r %s}%s" % (unit, " left" if loss and rng.random() < 0.5 else ""),
        {"P": p, "M": named(rng, [p])},
        tense=rng.choice(["pres", "past"]),
    )


def start_unknown(rng):
    """Had some, gave or got so many, has so many now: how many before?"""
    p, o, up = who(rng), rng.choice(SMALL + FOOD), rng.random() < 0.4
    v = {"o": o, "x": rng.randrange(2, 60), "n": rng.randrange(2, 90)}
    money = rng.random() < 0.25
    u = "$" if money else "o"
    if up:
        if money:
            what = rng.choice(["<earn'> {x $}", "<get'> {x $} from {M.o}", "<find'> {x $}"])
        else:
            what = rng.choice(["<buy'> {x} more", "<get'> {x} more[| from {M.o}]", "<find'> {x} more"])
        v["n"] += v["x"]
    elif money:
        what = rng.choice(["<spend'> {x $}", "<give'> {M.o} {x $}", "<pay'> {x $} for [lunch|a ticket|a book]"])
    else:
        what = rng.choice(
            ["<give'> {x} [of them |]to {M.o}", "<give'> {x} away", "<lose'> {x}[| of them]", "<sell'> {x}[| of them]"]
        )
    return Story(
        v,
        [("before", "n-x=r" if up else "n+x=r")],
        "n-x" if up else "n+x",
        [
            (
                "{P} <have'> some " + ("money" if money else "{o}") + rng.choice([". {P} ", " and "])
                if rng.random() < 0.7
                else "{P} "
            )
            + what,
            "now {P} <have!> {n %s}" % u if up else "[now|after that] {P} <have!> {n %s}[| left]" % u,
        ],
        (
            "how much [money |]did {P} have [at first|before|in the beginning|at the start]"
            if money
            else "how many {o} did {P} have [at first|before|in the beginning|to start with]"
        ),
        "{P} <have'> {r %s} before" % u,
        {"P": p, "M": named(rng, [p])},
        tense="past",
        plain=True,
    )


def change_unknown(rng):
    """Had so many, now so many: how many were given, bought, eaten?"""
    p, o, up = who(rng), rng.choice(SMALL + FOOD), rng.random() < 0.4
    a, b = sorted(rng.sample(range(2, 120), 2))
    v = {"o": o, "a": a if up else b, "b": b if up else a}
    verb = rng.choice(
        ["buy", "get", "find"] if up else ["give away", "lose", "sell", "use"] + ["eat"] * 3 * (o in FOOD)
    )
    return Story(
        v,
        [("difference", "b-a=r" if up else "a-b=r")],
        "b-a" if up else "a-b",
        [
            "{P} <have'> {a o}[| in the morning| yesterday| last week]",
            "{P} <%s'> some%s" % (verb, " more" if up else " of them"),
            "now {P} <have!> {b}" + ("" if up else "[| left]"),
        ],
        "how many [{o} |]did {P} " + verb,
        "{P} <%s'> {r o}" % verb,
        {"P": p},
        tense="past",
        plain=True,
    )


def on_and_off(rng):
    """A bus, a lift, a party: some come, some go."""
    place, verb_up, verb_down = rng.choice(
        [
            ("bus", "got on", "got off"),
            ("train", "got on", "got off"),
            ("boat", "came on board", "got off"),
            ("museum", "came in", "left"),
            ("party", "came", "went home"),
            ("library", "came in", "left"),
            ("elevator", "got in", "got out"),
            ("pool", "came", "left"),
            ("cinema", "came in", "left"),
            ("park", "came", "went home"),
            ("cafe", "came in", "left"),
            ("tram", "got on", "got off"),
        ]
    )
    o = Noun("person") if rng.random() < 0.5 else rng.choice(PEOPLE)
    pre = "at" if place in ("party", "pool") else "on" if verb_down == "got off" else "in"
    v = {"n": rng.randrange(8, 100), "o": o}
    n, now, truth, steps, facts = v["n"], "n", "n", [], ["there were {n o} %s [a|the] %s" % (pre, place)]
    if verb_down == "got off" and rng.random() < 0.3:
        facts = ["a %s [left|started] with {n o}[| on it]" % place]
    count = rng.choices([1, 2, 3, 4], [10, 55, 15, 20])[0]
    for i in range(count):
        x, nxt = "abcd"[i], "r" if i + 1 == count else "tuvw"[i]
        up = rng.random() < 0.5 or n < 8
        v[x] = rng.randrange(2, 40 if up else n - 2)
        n += v[x] if up else -v[x]
        lead = rng.choice(
            ["", "then ", "later ", "at the [next|first|second] stop " if verb_down == "got off" else "after an hour "]
        )
        facts.append(
            lead
            + "{%s}%s %s"
            % (
                x,
                rng.choice([" more", " more", " others"])
                if up
                else rng.choice(["", " of them", " people"])
                if o == "person"
                else rng.choice(["", " of them"]),
                verb_up if up else verb_down,
            )
        )
        steps.append(("[{%s} %s]" % (x, "more" if up else "fewer"), f"{now}{'+' if up else '-'}{x}={nxt}"))
        now, truth = nxt, truth + ("+" if up else "-") + x
    if n < 2:
        return None
    return Story(
        v,
        steps,
        truth,
        facts,
        f"how many {{o}} are [there now|{pre} the {place} now|now {pre} the {place}|{pre} the {place} in the end]",
        f"there are {{r o}} {pre} the {place}",
        {},
        tense="past",
    )


def days(rng):
    """So many on Monday, so many on Tuesday, ... : together, or how many more on one day."""
    p = who(rng)
    unit, verb = rng.choice(
        [
            ("page", "read"),
            ("mile", "run"),
            ("kilometer", "ride"),
            ("cookie", "bake"),
            ("cup", "sell"),
            ("shell", "find"),
            ("letter", "write"),
            ("fish", "catch"),
            ("lap", "swim"),
            ("picture", "draw"),
            ("apple", "pick"),
            ("photo", "take"),
            ("point", "score"),
            ("car", "wash"),
            ("email", "send"),
            ("push-up", "do"),
            ("minute", "practice"),
            ("cake", "bake"),
            ("stone", "collect"),
            ("tree", "plant"),
            ("glass", "drink"),
            ("ticket", "sell"),
            ("newspaper", "deliver"),
        ]
    )
    times = rng.choice(
        [
            ["on Monday", "on Tuesday", "on Wednesday"],
            ["on Friday", "on Saturday", "on Sunday"],
            ["yesterday", "today"],
            ["in the morning", "in the afternoon", "in the evening"],
            ["in the first week", "in the second week", "in the third week"],
            ["in May", "in June", "in July"],
            ["last week", "this week"],
        ]
    )
    k, top = min(len(times), rng.choice([2, 3])), rng.choice([30, 90, 90, 90, 600])
    v = {"o": Noun(unit)} | {x: rng.randrange(2, top) for x in "abc"[:k]}
    facts = [f"{{P}} <{verb}> {{a o}} {times[0]}", *(f"{{{x}}} {t}" for x, t in zip("bc", times[1:k]))]
    more = rng.random() < 0.25
    if more:  # the second day is told by its difference
        facts = [f"{{P}} <{verb}'> {{a o}} {times[0]}", f"{times[1]} {{P}} <{verb}'> {{b}} more than {times[0]}"]
        steps, truth, k = [(times[1], "a+b=t"), ("together", "a+t=r")], "2*a+b", 2
        v.pop("c", None)
        ask = (
            f"how many {{o}} did {{P}} {verb} [in total|altogether|in all|on both days together|in both together]"
            if times[0].startswith("on")
            else f"how many {{o}} did {{P}} {verb} [in total|altogether|in all]"
        )
        return Story(v, steps, truth, facts, ask, f"{{P}} <{verb}'> {{r o}}", {"P": p}, tense="past")
    if k == 2 and v["a"] > v["b"] + 1 and rng.random() < 0.4:
        steps, truth = [("difference", "a-b=r")], "a-b"
        ask = f"how many more {{o}} did {{P}} {verb} {times[0]} than {times[1]}"
        answer = f"{{P}} <{verb}'> {{r}} more"
    else:
        steps = [("together", "a+b=r")] if k == 2 else [("[first two]", "a+b=t"), ("[and the third]", "t+c=r")]
        truth = "+".join("abc"[:k])
        ask = f"how many {{o}} [did {{P}} {verb} [in total|altogether|in all|all together|]|is that in total|is that altogether]"
        answer = f"{{P}} <{verb}'> {{r o}}"
    body = facts[0].replace(f"<{verb}>", f"<{verb}'>") + "".join(
        (" and " if i == k - 2 else ", ") + f for i, f in enumerate(facts[1:])
    )
    if rng.random() < 0.3:
        body = facts[0].replace(f"<{verb}>", f"<{verb}'>") + "".join(
            f". {t[0].upper() + t[1:]} {{P}} <{verb}'> {{{x}}}" for x, t in zip("bc", times[1:k])
        )
    return Story(v, steps, truth, [body], ask, answer, {"P": p}, tense="past")


def growth(rng):
    """So many at the start, so many more (or fewer) every month, week, day: after so many."""
    p, down = who(rng), rng.random() < 0.25
    time = Noun(rng.choice(["month", "week", "day", "year", "hour"]))
    v = {"k": rng.randrange(2, 25), "t": rng.randrange(2, 15), "u": time}
    v["n"] = rng.randrange(3, 90) + (v["k"] * v["t"] if down else 0)
    kind = rng.choice(["own", "own", "money", "tank", "plant", "club"])
    every = (
        "[every {u.1}|each {u.1}|per {u.1}|a {u.1}]" if time != "hour" else "[every hour|each hour|per hour|an hour]"
    )
    after = "[after {t u}|{t u} later|in {t u}]"
    cast, unit = {"P": p}, "o"
    if kind == "plant" and time == "hour" and not down:
        return None
    if kind == "own":
        o = v["o"] = rng.choice(ANIMALS[:11] + SMALL)
        verb = rng.choice(
            ["sell", "lose", "give away"]
            if down
            else ["buy", "get", "collect", "add"]
            if o not in ANIMALS
            else ["buy", "get"]
        )
        facts = ["{P} <have!> {n o}", "{P} <%s!> {k}%s %s" % (verb, "" if down else " more", every)]
        if rng.random() < 0.4:
            facts = ["{P} <have!> {n o} and <%s!> {k}%s %s" % (verb, "" if down else " more", every)]
        ask, answer = (
            f"how many {{o}} [will {{P}} have|<do!> {{P}} have] {after}",
            f"after {{t u}} {{P}} <have!> {{r o}}",
        )
    elif kind == "money":
        unit = "$"
        verb = "spend" if down else rng.choice(["save", "earn", "put away", "get"])
        facts = [
            "{P} <have!> {n $}[| in the bank| already| in a jar]",
            "{P} <%s!> {k $}%s %s" % (verb, "" if down else "[| more]", every),
        ]
        ask, answer = f"how much [money |][will {{P}} have|<do!> {{P}} have] {after}", "after {t u} {P} <have!> {r $}"
    elif kind == "tank":
        v["o"], cast = Noun(rng.choice(["liter", "gallon"])), {}
        facts = [
            "a [tank|barrel|pool|bucket] [holds|has|contains] {n o} of water",
            "it [loses|leaks] {k o} " + every if down else "{k o} [flow in|are added] " + every,
        ]
        ask, answer = (
            f"how many {{o}} are [in it|there|left] {after}" if down else f"how many {{o}} are [in it|there] {after}",
            "after {t u} there are {r o}",
        )
    elif kind == "plant":
        v["o"], cast = Noun(rng.choice(["centimeter", "inch", "cm", "foot"])), {}
        if down:
            facts, what = ["a candle is {n o} [tall|long]", "it burns down {k o} " + every], "candle"
        else:
            what = rng.choice(["plant", "tree", "sunflower", "bush"])
            facts = [f"a {what} is {{n o}} [tall|high]", "it grows {k o} " + every]
        ask, answer = (
            f"how [tall|high] [is the {what}|is it|will it be] {after}".replace("[is the", "[will the").replace(
                f"{what}|is it", f"{what} be|will it be"
            ),
            f"after {{t u}} the {what} is {{r o}} tall",
        )
        if v["o"] == "cm":
            v["o"] = Noun("centimeter")
    else:
        v["o"], cast = rng.choice([Noun("member"), Noun("student"), Noun("player"), Noun("user"), Noun("worker")]), {}
        what = rng.choice(
            {
                "member": ["club", "choir", "group"],
                "student": ["school", "class"],
                "player": ["team", "club"],
                "user": ["website", "game"],
                "worker": ["company", "factory"],
            }[v["o"]]
        )
        facts = [f"a {what} has {{n o}}", ("{k} [of them |]leave " if down else "{k} [more |new ones ]join ") + every]
        ask, answer = (
            f"how many {{o}} [will it have|does it have|are there] {after}",
            f"after {{t u}} the {what} has {{r o}}",
        )
    op = "-" if down else "+"
    return Story(
        v,
        [("in {t u}", "k*t=s"), ("[less|left]" if down else "with the start", f"n{op}s=r")],
        f"n{op}t*k",
        facts,
        ask,
        answer,
        cast,
        tense="pres",
        extra=bool(cast),
    )


def temperature(rng):
    """It gets warmer or colder."""
    a, up = rng.randrange(12, 40), rng.random() < 0.5
    v = {"a": a, "b": rng.randrange(2, 11), "c": rng.randrange(2, 11)}
    first = "[rose|went up] by {b}[| degrees]" if up else "[fell|dropped|went down] by {b}[| degrees]"
    both = rng.random() < 0.5
    facts = [
        "[in the morning|at 8 in the morning|at noon|yesterday] [it was {a} degrees|the temperature was {a} degrees]",
        "[by the afternoon|later|then|after that] the temperature " + first,
    ]
    if both:
        facts.append(
            "[in the evening|at night|then] it " + ("[fell|dropped] by {c}" if up else "[rose|went up] by {c}")
        )
    o1, o2 = ("+", "-") if up else ("-", "+")
    return Story(
        v,
        [("first", f"a{o1}b={'t' if both else 'r'}")] + [("then", f"t{o2}c=r")] * both,
        f"a{o1}b" + f"{o2}c" * both,
        facts,
        "[what is the temperature now|how many degrees is it now|what was the temperature then|how warm is it now]",
        "it is {r degree}",
        {},
        tense="past",
    )


FAMILIES = {changes: 20, start_unknown: 5, change_unknown: 4, on_and_off: 5, days: 6, growth: 9, temperature: 1}
