"""Word problems with rates: speed, work, time, recipes, so many a day."""

from wp_core import Story, named, who
from wp_words import FOOD, SMALL, Noun

MOVERS = [
    ("car", "drives", 30, 80),
    ("train", "travels", 40, 120),
    ("bus", "drives", 20, 60),
    ("plane", "flies", 200, 600),
    ("ship", "sails", 10, 40),
    ("truck", "drives", 30, 70),
    ("bird", "flies", 10, 50),
    ("horse", "runs", 10, 40),
    ("boat", "goes", 5, 30),
    ("snail", "crawls", 2, 12),
    ("robot", "moves", 2, 20),
]
GO = [
    ("walk", 2, 6),
    ("run", 5, 12),
    ("ride a bike", 8, 25),
    ("drive", 30, 80),
    ("hike", 2, 6),
    ("cycle", 8, 25),
    ("jog", 4, 9),
    ("swim", 2, 5),
]


def speed(rng):
    """Distance, speed and time, each from the other two; two legs."""
    v = {"u": Noun(rng.choice(["mile", "kilometer", "mile", "km"])), "t": rng.randrange(2, 12)}
    if v["u"] == "km":
        v["u"] = Noun("kilometer")
    rate = (
        "[{s u} per hour|{s u} an hour|{s u} each hour|{s u} every hour]"
        if rng.random() < 0.75
        else "{s} [km/h|kmh]"
        if v["u"] == "kilometer"
        else "{s} [mph|mph]"
    )
    if rng.random() < 0.5:
        name, verb, low, high = rng.choice(MOVERS)
        cast, sub, base = {}, f"[a|the] {name} {verb}", verb[:-2] if verb in ("goes", "flies") else verb[:-1]
        base = {"flie": "fly", "fli": "fly", "go": "go"}.get(base, base)
        later, do, who_ = "it", "does", "it"
        move = lambda: sub
    else:
        (verb, low, high), p = rng.choice(GO), who(rng)
        cast, base, do, who_ = {"P": p}, verb, "<do!>", "{P}"
        move = lambda: "{P} <%s!>" % verb
    v["s"] = rng.randrange(low, high + 1)
    r = rng.random()
    if r < 0.45:
        facts = (
            [move() + " [at|at a speed of] " + rate]
            if "/" in rate or "mph" in rate
            else [rng.choice([move() + " " + rate, move() + " at " + rate])]
        )
        return Story(
            v,
            [("{t hour}", "s*t=r")],
            "s*t",
            facts,
            f"[how far {do} {who_} [{base}|go|get] in {{t hour}}|how many {{u}} {do} {who_} [{base}|go|cover] in {{t hour}}|what distance {do} {who_} cover in {{t hour}}]",
            "that is {r u}",
            cast,
            tense="pres",
            extra=False,
        )
    v["d"] = v["s"] * v["t"]
    if r < 0.65:
        v.pop("t")
        return Story(
            v,
            [("hours", "d/s=r")],
            "d//s",
            [move() + " " + rate if "/" not in rate and "mph" not in rate else move() + " at " + rate],
            f"[how long {do} {who_} need for {{d u}}|how many hours {do} {who_} need for {{d u}}|how long does it take to [go|cover|travel] {{d u}}|how many hours does it take to [go|cover] {{d u}}]",
            "it takes {r hour}",
            cast,
            tense="pres",
            extra=False,
        )
    if r < 0.85:
        v.pop("s")
        return Story(
            v,
            [("an hour", "d/t=r")],
            "d//t",
            [move() + " {d u} in {t hour}"],
            "[how fast is that|what is the [average |]speed|how many {u} per hour is that|how many {u} is that per hour|what is the speed in {u} per hour]",
            "the speed is {r u} per hour",
            cast,
            tense="pres",
            extra=False,
        )
    v["s2"], v["t2"] = rng.randrange(low, high + 1), rng.randrange(2, 8)
    v.pop("d")
    return Story(
        v,
        [("first", "s*t=a"), ("then", "s2*t2=b"), ("together", "a+b=r")],
        "s*t+s2*t2",
        [
            move() + " for {t hour} at {s u} per hour",
            "then " + ("it goes on" if not cast else "{P} <go!> on") + " for {t2 hour} at {s2 u} per hour",
        ],
        f"[how far {do} {who_} go in total|how many {{u}} {do} {who_} cover altogether|how many {{u}} is that in total]",
        "that is {r u} in total",
        cast,
        tense="pres",
        extra=False,
    )


def per_day(rng):
    """So many a day: in so many days or weeks; or how many days for so many."""
    p, v = who(rng), {}
    verb, noun = rng.choice(
        [
            ("read", "page"),
            ("walk", "mile"),
            ("run", "kilometer"),
            ("eat", "apple"),
            ("drink", "glass"),
            ("write", "page"),
            ("bake", "loaf"),
            ("learn", "word"),
            ("solve", "puzzle"),
            ("make", "bracelet"),
            ("do", "push-up"),
            ("practice", "minute"),
            ("knit", "scarf"),
            ("paint", "picture"),
            ("send", "email"),
            ("plant", "tree"),
            ("swim", "lap"),
            ("sell", "newspaper"),
            ("deliver", "package"),
            ("fix", "bike"),
            ("sew", "button"),
            ("fold", "paper crane"),
            ("collect", "shell"),
            ("take", "photo"),
            ("cook", "meal"),
            ("wash", "car"),
            ("feed", "cat"),
            ("sleep", "hour"),
            ("work", "hour"),
            ("watch", "movie"),
            ("type", "line"),
            ("visit", "house"),
        ]
    )
    v |= {
        "o": Noun("glass" if verb == "drink" else noun),
        "k": rng.randrange(2, 40 if noun in ("page", "word", "minute", "push-up", "newspaper", "package") else 12),
        "t": rng.randrange(2, 15),
    }
    what = "{k o}" + (" of water" if verb == "drink" else "")
    r = rng.random()
    many = "how many {o}%s <do!> {P} %s" % (" of water" if verb == "drink" else "", verb)
    if r < 0.4:
        u = v["u"] = Noun(rng.choice(["day", "day", "week", "month"]))
        fact = rng.choice(
            [
                "{P} <%s!> " % verb + what + " [a {u.1}|every {u.1}|each {u.1}|per {u.1}]",
                "[every {u.1}|each {u.1}] {P} <%s!> " % verb + what,
            ]
        )
        return Story(
            v,
            [("{t u}", "k*t=r")],
            "k*t",
            [fact],
            rng.choice(
                [many + " in {t u}", many + " in {t u}[| in total| altogether]", "how many {o} is that in {t u}"]
            ),
            "{P} <%s!> {r o} in {t u}" % verb,
            {"P": p},
            tense="pres",
            extra=False,
        )
    fact = rng.choice(
        ["{P} <%s!> " % verb + what + " [a day|every day|each day|per day]", "every day {P} <%s!> " % verb + what]
    )
    if r < 0.62:  # weeks in days
        v["t"] = t = rng.randrange(1, 7)
        v["w"] = 7
        time = "{t week}" if t > 1 else "a week"
        steps = [("{t week} in days", "t*w=d"), ("{o}", "d*k=r")] if t > 1 else [("{w day}", "w*k=r")]
        return Story(
            v,
            steps,
            "7*t*k",
            [fact],
            rng.choice([many + " in " + time, "how many {o} is that in " + time]),
            "{P} <%s!> {r o} in %s" % (verb, time),
            {"P": p},
            tense="pres",
            extra=False,
        )
    if r < 0.82 and noun not in ("hour", "minute"):
        v["n"] = v["k"] * v.pop("t")
        if noun == "page" and verb == "read":
            fact = (
                rng.choice(
                    [
                        "a book has {n} pages",
                        "{P} <be!> reading a book of {n} pages",
                        "{P} <have!> a book with {n} pages",
                    ]
                ),
                "{P} <read!> {k} pages [a day|every day|each day]",
            )
            return Story(
                v,
                [("days", "n/k=r")],
                "n//k",
                list(fact),
                "[how many days does it take [to finish the book|to read it]|how many days <do!> {P} need [for the book|to finish it]|after how many days <be!> {P} done]",
                "it takes {r day}",
                {"P": p},
                tense="pres",
                shuffle="{P}" not in fact[0],
                extra=False,
            )
        return Story(
            v,
            [("days", "n/k=r")],
            "n//k",
            [fact],
            "[how many days does it take {P.o} to %s {n o}|how many days <do!> {P} need for {n o}|in how many days <do!> {P} %s {n o}]"
            % (verb, verb),
            "it takes {r day}",
            {"P": p},
            tense="pres",
            extra=False,
        )
    v["n"] = v["k"] * v["t"] + rng.randrange(2, 90)
    if verb in (
        "sleep",
        "work",
        "eat",
        "drink",
        "walk",
        "run",
        "feed",
        "watch",
        "take",
        "cook",
        "collect",
        "send",
        "practice",
        "swim",
        "do",
    ):
        return None
    return Story(
        v,
        [("{t day}", "k*t=s"), ("left", "n-s=r")],
        "n-k*t",
        ["{P} <have!> to %s {n o}" % verb, "{P} <%s!> {k} [a day|each day|every day] for {t day}" % verb]
        if noun != "page" or verb != "read"
        else ["a book has {n} pages", "{P} <read!> {k} pages [a day|each day|every day] for {t day}"],
        "how many {o} [are left|are still left|remain|<do!> {P} still have to %s]" % verb,
        "there are {r o} left",
        {"P": p},
        tense="pres",
    )


def machines(rng):
    """So many a minute or an hour, one machine or several."""
    name, verb, o = rng.choice(
        [
            ("machine", "make", "toy"),
            ("printer", "print", "page"),
            ("factory", "produce", "car"),
            ("baker", "bake", "cake"),
            ("worker", "pack", "box"),
            ("robot", "paint", "door"),
            ("machine", "fill", "bottle"),
            ("oven", "bake", "loaf"),
            ("tailor", "sew", "shirt"),
            ("gardener", "plant", "tree"),
            ("painter", "paint", "chair"),
            ("machine", "cut", "board"),
            ("hen", "lay", "egg"),
            ("volunteer", "collect", "bottle"),
            ("child", "make", "card"),
            ("scanner", "scan", "photo"),
            ("cook", "make", "pizza"),
            ("bee", "visit", "flower"),
            ("carpenter", "build", "chair"),
            ("typist", "type", "line"),
        ]
    )
    time = Noun(
        "day"
        if name in ("hen", "factory", "tailor", "carpenter")
        else rng.choice(["minute", "hour"])
        if name in ("machine", "printer", "robot", "scanner", "bee", "typist")
        else "hour"
    )
    v = {
        "w": Noun(name),
        "o": Noun(o),
        "u": time,
        "k": rng.randrange(2, 30 if name in ("machine", "printer", "worker") else 10),
        "t": rng.randrange(2, 13),
        "n": rng.randrange(2, 15),
    }
    per = "[per {u.1}|every {u.1}|each {u.1}|in one {u.1}]"
    verbs = Noun(verb).many()
    one = rng.choice(
        [
            "{w.a} %s {k o} " % verbs + per,
            "one {w.1} %s {k o} " % verbs + per,
            "{w.a} can %s {k o} " % verb + per,
            "[every|each] {w.1} %s {k o} " % verbs + "[per {u.1}|in one {u.1}]",
        ]
    )
    r = rng.random()
    if r < 0.3:
        return Story(
            v,
            [("{t u}", "k*t=r")],
            "k*t",
            [one],
            "how many {o} [does it %s|does {w.a} %s|can it %s] in {t u}" % (verb, verb, verb)
            if name in ("machine", "printer", "factory", "oven", "robot", "scanner", "hen", "bee")
            else "how many {o} [does {w.a} %s|is that] in {t u}" % verb,
            "{w.a} %s {r o} in {t u}" % verbs,
            {},
            tense="pres",
            extra=False,
        )
    if r < 0.5:
        return Story(
            v,
            [("{n w}", "n*k=r")],
            "n*k",
            [one],
            "how many {o} do {n w} %s %s" % (verb, "per {u.1}"),
            "{n w} %s {r o} per {u.1}" % verb,
            {},
            tense="pres",
            extra=False,
        )
    if r < 0.8:
        return Story(
            v,
            [("{n w}", "n*k=s"), ("{t u}", "s*t=r")],
            "n*k*t",
            [one],
            rng.choice(["how many {o} do {n w} %s in {t u}" % verb, "how many {o} can {n w} %s in {t u}" % verb]),
            "{n w} %s {r o} in {t u}" % verb,
            {},
            tense="pres",
            extra=False,
        )
    v["m"] = v["k"] * v.pop("t")
    return Story(
        v,
        [("{u}", "m/k=r")],
        "m//k",
        [one],
        "how many {u} does [it|{w.a}] need for {m o}"
        if name
        not in ("baker", "worker", "child", "cook", "tailor", "gardener", "painter", "volunteer", "carpenter", "typist")
        else "how many {u} does {w.a} need for {m o}",
        "{w.a} needs {r u}",
        {},
        tense="pres",
        extra=False,
    )


def together(rng):
    """Two who work at the same time; how many in so many hours, or how long for so many."""
    p, v = who(rng, me=False), {}
    q = named(rng, [p])
    verb, o = rng.choice(
        [
            ("paint", "chair"),
            ("pack", "box"),
            ("bake", "cake"),
            ("pick", "apple"),
            ("wash", "window"),
            ("plant", "tree"),
            ("fold", "shirt"),
            ("write", "card"),
            ("make", "sandwich"),
            ("fill", "bag"),
            ("read", "page"),
            ("type", "page"),
        ]
    )
    v |= {"o": Noun(o), "a": rng.randrange(2, 20), "b": rng.randrange(2, 20), "t": rng.randrange(2, 10)}
    facts = [
        "{P} <%s!> {a o} [an hour|per hour|every hour]" % verb,
        "{Q} <Q %s!> {b o} [an hour|per hour|every hour]" % verb,
    ]
    if rng.random() < 0.6:
        return Story(
            v,
            [("an hour", "a+b=s"), ("{t hour}", "s*t=r")],
            "(a+b)*t",
            facts,
            "how many {o} do they %s together in {t hour}" % verb,
            "together they %s {r o}" % verb,
            {"P": p, "Q": q},
            shuffle=True,
            tense="pres",
        )
    v["n"] = (v["a"] + v["b"]) * v.pop("t")
    return Story(
        v,
        [("an hour", "a+b=s"), ("hours", "n/s=r")],
        "n//(a+b)",
        facts,
        "[how many hours do they need [together |]for {n o}|how long does it take them together to %s {n o}|in how many hours do they %s {n o} together]"
        % (verb, verb),
        "it takes {r hour}",
        {"P": p, "Q": q},
        shuffle=True,
        tense="pres",
    )


def times(rng):
    """Minutes and hours: conversion, sums, what is left, from one time of the day to another."""
    p, v, r = who(rng), {"h": rng.randrange(1, 13), "m": rng.randrange(1, 60), "s": 60}, rng.random()
    acts = [
        "reading",
        "homework",
        "math",
        "the piano",
        "football",
        "cleaning",
        "cooking",
        "a walk",
        "English",
        "chess",
        "swimming",
        "painting",
    ]
    if r < 0.2:
        v["h"] = rng.randrange(2, 25)
        small, big, k = rng.choice(
            [
                ("minute", "hour", 60),
                ("hour", "day", 24),
                ("day", "week", 7),
                ("second", "minute", 60),
                ("month", "year", 12),
                ("centimeter", "meter", 100),
                ("meter", "kilometer", 1000),
                ("gram", "kilogram", 1000),
                ("cent", "dollar", 100),
                ("inch", "foot", 12),
                ("foot", "yard", 3),
                ("millimeter", "centimeter", 10),
                ("milliliter", "liter", 1000),
                ("egg", "dozen", 12),
                ("year", "decade", 10),
                ("year", "century", 100),
                ("ounce", "pound", 16),
            ]
        )
        v |= {"x": Noun(small), "y": Noun(big), "s": k}
        if k == 1000:
            v["h"] = rng.randrange(2, 10)
        if big == "dozen":
            return Story(
                v,
                [("{h} dozen", "h*s=r")],
                "h*12",
                [],
                "how many {x} are [|in ]{h} dozen",
                "{h} dozen are {r x}",
                {},
                tense="pres",
                extra=False,
            )
        if rng.random() < 0.35:
            v["n"] = v["h"] * k
            v.pop("h")
            return Story(
                v,
                [("{y}", "n/s=r")],
                f"n//{k}",
                [],
                "[how many {y} are {n x}|how many {y} is {n x}|{n x} in {y}|convert {n x} to {y}|{n x} are how many {y}]",
                "{n x} are {r y}",
                {},
                tense="pres",
                extra=False,
            )
        return Story(
            v,
            [("{x}", "h*s=r")],
            f"h*{k}",
            [],
            "[how many {x} are in {h y}|how many {x} are there in {h y}|how many {x} in {h y}|convert {h y} to {x}|{h y} in {x}|{h y} are how many {x}|how many {x} is {h y}]",
            "{h y} are {r x}",
            {},
            tense="pres",
            extra=False,
        )
    if r < 0.4:
        v["h"] = rng.randrange(2, 9)
        return Story(
            v,
            [("hours in minutes", "h*s=t"), ("with the rest", "t+m=r")],
            "h*60+m",
            ["[a movie|a flight|a trip|a meeting|a game|a concert] [lasts|takes] {h hour} and {m minute}"]
            if rng.random() < 0.7
            else ["{P} [<sleep>|<wait>|<practice>|<work>] for {h hour} and {m minute}"],
            "how many minutes is that[| in total| altogether]",
            "that is {r minute}",
            {"P": p},
            extra=False,
        )
    if r < 0.7:
        a, b, c = rng.sample(acts, 3)
        v |= {"a": 5 * rng.randrange(1, 19), "b": 5 * rng.randrange(1, 19), "c": rng.randrange(5, 60)}
        three = rng.random() < 0.5
        fact = f"{{P}} <spend> {{a minute}} on {a}" + (
            f", {{b minute}} on {b} and {{c minute}} on {c}" if three else f" and {{b minute}} on {b}"
        )
        return Story(
            v,
            [("two of them", "a+b=t"), ("and the third", "t+c=r")] if three else [("together", "a+b=r")],
            "a+b" + "+c" * three,
            [fact],
            "[how many minutes <do> {P} spend [in total|altogether|in all]|how many minutes is that [in total|altogether]|how long is that in minutes]",
            "that is {r minute}",
            {"P": p},
        )
    if r < 0.85:
        v |= {"a": rng.randrange(6, 13), "b": rng.randrange(13, 24)}
        return Story(
            v,
            [("hours", "b-a=r")],
            "b-a",
            [
                "[a shop|a museum|a library|the office|a store] [opens at {a}:00 and closes at {b}:00|is open from {a}:00 to {b}:00]"
            ],
            "[how many hours is it open[| each day| a day]|how long is it open]",
            "it is open for {r hour}",
            {},
            tense="pres",
            extra=False,
        )
    v |= {"a": rng.randrange(1, 8), "b": rng.randrange(1, 5)}
    word = rng.choice(["movie", "lesson", "game", "party", "concert", "class", "train ride", "meeting"])
    return Story(
        v,
        [("end", "a+b=r")],
        "a+b",
        [f"[the|a] {word} [starts|begins] at {{a}} [o'clock|pm]", f"it [lasts|takes] {{b hour}}"],
        f"[when does it end|when does the {word} end|at what time does it end]",
        "it ends at {r} o'clock",
        {},
        tense="pres",
        extra=False,
    )


def recipe(rng):
    """So much of one thing for so many of another: for more of them."""
    dish, many = rng.choice(
        [
            ("a cake", "cake"),
            ("a pizza", "pizza"),
            ("a pie", "pie"),
            ("a batch of cookies", "batch"),
            ("a loaf of bread", "loaf"),
            ("a pot of soup", "pot"),
            ("a salad", "salad"),
            ("a jug of lemonade", "jug"),
            ("a smoothie", "smoothie"),
        ]
    )
    thing = rng.choice(
        {
            "cake": ["egg", "cup of flour", "spoon of sugar"],
            "pizza": ["tomato", "slice of cheese", "olive"],
            "pie": ["apple", "egg", "cherry"],
            "batch": ["egg", "cup of flour", "spoon of sugar"],
            "loaf": ["cup of flour", "spoon of salt"],
            "pot": ["carrot", "potato", "onion"],
            "salad": ["tomato", "cucumber", "olive"],
            "jug": ["lemon", "cup of water", "spoon of sugar"],
            "smoothie": ["banana", "strawberry", "spoon of honey"],
        }[many]
    )
    o = Noun(thing)
    v = {"o": o, "d": Noun(many), "k": rng.randrange(2, 10), "n": rng.randrange(2, 16)}
    plural = o.many() if " of " not in thing else Noun(thing.split(" of ")[0]).many() + " of " + thing.split(" of ")[1]
    v["os"] = plural
    p = who(rng)
    if rng.random() < 0.6:
        return Story(
            v,
            [("{n d}", "n*k=r")],
            "n*k",
            [
                rng.choice(
                    [
                        f"{dish} needs {{k}} {{os}}",
                        f"for {dish} [{{P}} <need!>|you need] {{k}} {{os}}",
                        f"a recipe for {dish} [calls for|needs|uses] {{k}} {{os}}",
                    ]
                )
            ],
            rng.choice(
                ["how many {os} [do you need|are needed] for {n d}", "{P} <make!> {n d}. How many {os} <do!> {P} need"]
            ),
            "that takes {r} {os}",
            {"P": p},
            tense="pres",
            extra=False,
            plain=True,
        )
    a, f = rng.randrange(2, 9), rng.randrange(2, 7)
    v |= {"a": a, "b": a * f, "x": Noun(rng.choice(["cookie", "muffin", "person", "pancake", "serving", "cupcake"]))}
    return Story(
        v,
        [("times", "b/a=f"), ("{os}", "f*k=r")],
        "b//a*k",
        ["[a recipe for {a x} needs {k} {os}|for {a x} {P} <need!> {k} {os}|{k} {os} are enough for {a x}]"],
        "[how many {os} <do!> {P} need for {b x}|how many {os} are needed for {b x}]",
        "{b x} take {r} {os}",
        {"P": p},
        tense="pres",
        extra=False,
    )


def each_eats(rng):
    """So many animals or people, so much each, so many days."""
    w, o = rng.choice(
        [
            ("dog", "bone"),
            ("cat", "can"),
            ("horse", "carrot"),
            ("child", "cookie"),
            ("student", "pencil"),
            ("guest", "glass"),
            ("rabbit", "carrot"),
            ("monkey", "banana"),
            ("person", "sandwich"),
            ("worker", "bottle"),
            ("elephant", "apple"),
            ("bird", "seed"),
            ("friend", "slice"),
            ("kid", "balloon"),
            ("camper", "egg"),
            ("player", "orange"),
            ("parrot", "nut"),
            ("soldier", "potato"),
        ]
    )
    verb = (
        "gets"
        if rng.random() < 0.5 or o in ("pencil", "balloon", "glass", "bottle", "can", "bone", "slice")
        else "eats"
    )
    base = verb[:-1]
    v = {"w": Noun(w), "o": Noun(o), "n": rng.randrange(2, 25), "k": rng.randrange(2, 9), "t": rng.randrange(2, 11)}
    days = rng.random() < 0.4
    fact = (
        [
            "there are {n w}[| at a party| in a group| in a zoo]",
            "[each|every] {w.1} %s {k o}%s" % (verb, " [a day|every day]" if days else ""),
        ]
        if rng.random() < 0.6
        else ["each of {n w} %s {k o}%s" % (verb, " a day" if days else "")]
    )
    if w not in ("child", "guest", "person", "kid", "friend"):
        fact[0] = fact[0].replace("| at a party", "")
    fact[0] = (
        fact[0]
        .replace("| in a zoo", "| in a zoo" if w in ("horse", "rabbit", "monkey", "elephant", "bird", "parrot") else "")
        .replace(
            "| in a group",
            "" if w in ("dog", "cat", "horse", "rabbit", "monkey", "elephant", "bird", "parrot") else "| in a group",
        )
    )
    if days:
        return Story(
            v,
            [("a day", "n*k=s"), ("{t day}", "s*t=r")],
            "n*k*t",
            fact,
            "how many {o} [do they %s|are needed|is that] in {t day}" % base
            if verb == "eats"
            else "how many {o} are needed [for|in] {t day}",
            "that is {r o}",
            {},
            tense="pres",
            extra=False,
        )
    if rng.random() < 0.6:
        return Story(
            v,
            [("all", "n*k=r")],
            "n*k",
            fact,
            "how many {o} [are needed|is that|do they %s][| in total| altogether]" % base,
            "that is {r o}",
            {},
            tense="pres",
            extra=False,
        )
    v["m"] = v["n"] * v["k"] + rng.randrange(2, 60)
    return Story(
        v,
        [("needed", "n*k=s"), ("left", "m-s=r")],
        "m-n*k",
        [*fact, "there are {m o}[| in the box| in the kitchen]"],
        "how many {o} are left[| over]",
        "there are {r o} left",
        {},
        tense="pres",
        extra=False,
    )


FAMILIES = {speed: 8, per_day: 10, machines: 6, together: 3, times: 8, recipe: 4, each_eats: 5}
