"""Word problems about rows, rectangles, legs, ropes, and groups of groups."""

from wp_core import Story, named, who
from wp_words import GROUPS, LEGS, Noun


def rows(rng):
    """Rows and columns, floors and windows: in all; some missing, some added."""
    big, small, where = rng.choice(
        [
            ("row", "chair", "a hall"),
            ("row", "tree", "an orchard"),
            ("shelf", "book", "a library"),
            ("floor", "window", "a building"),
            ("page", "stamp", "an album"),
            ("row", "seat", "a theater"),
            ("table", "plate", "a restaurant"),
            ("room", "bed", "a hotel"),
            ("team", "player", "a club"),
            ("row", "desk", "a classroom"),
            ("row", "car", "a parking lot"),
            ("box", "pencil", "a store"),
            ("cage", "bird", "a zoo"),
            ("row", "carrot", "a garden"),
            ("drawer", "spoon", "a kitchen"),
            ("tank", "fish", "an aquarium"),
            ("class", "student", "a school"),
            ("bus", "seat", "a company"),
            ("floor", "apartment", "a house"),
            ("wagon", "seat", "a train"),
            ("chapter", "page", "a book"),
            ("column", "square", "a board"),
            ("row", "tile", "a wall"),
            ("branch", "apple", "a tree"),
            ("side", "song", "a record"),
        ]
    )
    v = {"c": Noun(big), "o": Noun(small), "a": rng.randrange(2, 30), "b": rng.randrange(2, 40)}
    have = rng.choice(
        [
            "%s has {a c} with {b o} [each|in each|in each {c.1}]" % where,
            "%s has {a c} of {b o}" % where,
            "there are {a c} [in %s |]and each {c.1} has {b o}" % where,
            "%s has {a c}. Each {c.1} has {b o}" % where,
            "in %s there are {a c} with {b o} each" % where,
        ]
    )
    r = rng.random()
    if r < 0.45:
        return Story(
            v,
            [("{a c}", "a*b=r")],
            "a*b",
            [have],
            "how many {o} [are there|does it have|are there in total|are there altogether|are there in all]"
            if "there are" not in have
            else "how many {o} are there [in total|altogether|in all|]",
            "there are {r o}",
            {},
            tense="pres",
            extra=False,
        )
    n = v["a"] * v["b"]
    v["x"] = rng.randrange(2, min(n, 100))
    if r < 0.75:
        gone = {
            "chair": "broken",
            "seat": "taken",
            "student": "ill",
            "player": "ill",
            "bed": "taken",
            "car": "red",
            "book": "lent out",
            "desk": "empty",
        }.get(small, rng.choice(["gone", "missing", "old", "new"]))
        left = "are not " + gone
        return Story(
            v,
            [("{a c}", "a*b=n"), ("minus {x}", "n-x=r")],
            "a*b-x",
            [have, "{x} of the {o} are " + gone],
            rng.choice(
                [
                    "how many {o} " + left,
                    "how many {o} are left" if gone in ("gone", "missing") else "how many [of them |{o} ]" + left,
                ]
            ),
            "there are {r o} " + ("left" if gone in ("gone", "missing") else "that " + left),
            {},
            tense="pres",
            extra=False,
        )
    return Story(
        v,
        [("{a c}", "a*b=n"), ("plus {x}", "n+x=r")],
        "a*b+x",
        [
            have,
            "{x} more {o} [are added|come]"
            if small not in ("page", "window", "square", "song", "apartment")
            else "there are {x} other {o}",
        ],
        "how many {o} are there [now|in total|altogether]",
        "there are {r o}",
        {},
        tense="pres",
        extra=False,
    )


def rectangle(rng):
    """Area, perimeter, a missing side, and prices of fences and floors; squares too."""
    square = rng.random() < 0.25
    a, b = sorted((rng.randrange(2, 60), rng.randrange(2, 40)), reverse=True)
    v = {
        "a": a,
        "b": b,
        "u": Noun(rng.choice(["meter", "foot", "meter", "centimeter", "yard"])),
        "p": rng.randrange(2, 13),
        "two": 2,
        "four": 4,
    }
    what = rng.choice(
        [
            "garden",
            "field",
            "yard",
            "park",
            "room",
            "floor",
            "pool",
            "playground",
            "wall",
            "carpet",
            "table",
            "farm",
            "kitchen",
            "rectangle",
            "rectangle",
        ]
    )
    if v["u"] == "centimeter":
        what = rng.choice(["rectangle", "picture", "card", "book", "photo", "table", "rectangle"])
    if square:
        what = "square" if rng.random() < 0.6 else "square " + what.replace("rectangle", "field")
        facts = [
            rng.choice(
                [
                    "a %s has sides of {a u}",
                    "the side of a %s is {a u}[| long]",
                    "each side of a %s is {a u}[| long]",
                    "a %s has a side of {a u}",
                ]
            )
            % what
        ]
    else:
        facts = [
            rng.choice(
                [
                    "[a|the] %s is {a u} long and {b u} wide",
                    "a %s is {a u} by {b u}",
                    "a %s has a length of {a u} and a width of {b u}",
                    "the length of a %s is {a u} and the width is {b u}",
                    "the sides of a %s are {a u} and {b u}",
                ]
            )
            % what
        ]
    outdoor = what.split()[-1] in ("garden", "field", "yard", "park", "playground", "farm")
    y = "a" if square else "b"
    r = rng.random()
    if r < 0.35:
        return Story(
            v,
            [("area", f"a*{y}=r")],
            f"a*{y}",
            facts,
            "[what is its area|what is the area|how many square {u} is that|how big is its area|find the area|what is the area in square {u}]",
            "the area is {r} square {u}",
            {},
            tense="pres",
            extra=False,
        )
    around = [("four sides", "a*four=t")] if square else [("two sides", "a+b=s"), ("all sides", "s*two=t")]
    length = "4*a" if square else "2*(a+b)"
    if r < 0.65:
        return Story(
            v,
            [*around[:-1], (around[-1][0], around[-1][1][:-1] + "r")],
            length,
            facts,
            "[what is its perimeter|what is the perimeter|how far is it around|find the perimeter]"
            if not outdoor
            else "[what is its perimeter|how long is a fence around it|how many {u} of fence are needed around it|how far is it to walk around it|what is the perimeter]",
            "it is {r u}",
            {},
            tense="pres",
            extra=False,
        )
    if r < 0.78:
        v["n"] = a * b
        if square:
            return None
        v.pop("b")
        return Story(
            v,
            [("width", "n/a=r")],
            "n//a",
            ["[a|the] %s has an area of {n} square {u}" % what, "[its length is {a u}|it is {a u} long]"],
            "[what is its width|how wide is it|how many {u} wide is it]",
            "it is {r u} wide",
            {},
            tense="pres",
            extra=False,
        )
    if outdoor:
        return Story(
            v,
            [*around, ("price", "t*p=r")],
            length + "*p",
            [*facts, "[one {u.1}|each {u.1}|a {u.1}] of fence costs {p $}"],
            "[how much does a fence around it cost|what does the fence around it cost]",
            "the fence costs {r $}",
            {},
            tense="pres",
            extra=False,
        )
    return Story(
        v,
        [("area", f"a*{y}=t"), ("price", "t*p=r")],
        f"a*{y}*p",
        [*facts, "[one square {u.1}|each square {u.1}] costs {p $}"],
        "how much does [it|all of it|the whole %s] cost" % what,
        "it costs {r $}",
        {},
        tense="pres",
        extra=False,
    )


def legs(rng):
    """Animals and their legs; cars and bikes and their wheels."""
    p = who(rng)
    if rng.random() < 0.7:
        x, y = rng.sample(sorted(LEGS), 2)
        kx, ky, part = LEGS[x], LEGS[y], Noun("leg")
        where = (
            rng.choice(["on a farm", "in a barn", "in a yard"])
            if {x, y} <= set("cow sheep goat pig horse chicken duck rabbit goose turkey hen dog cat".split())
            else rng.choice(["in a zoo", "in a garden", ""])
        )
    else:
        table = {
            "car": 4,
            "bike": 2,
            "tricycle": 3,
            "motorcycle": 2,
            "bus": 6,
            "unicycle": 1,
            "wheelbarrow": 1,
            "van": 4,
        }
        x, y = rng.sample(sorted(table), 2)
        kx, ky, part, where = (
            table[x],
            table[y],
            Noun("wheel"),
            rng.choice(["in a garage", "in a parking lot", "in a shop"]),
        )
    v = {
        "x": Noun(x),
        "y": Noun(y),
        "a": rng.randrange(2, 25),
        "b": rng.randrange(2, 25),
        "kx": kx,
        "ky": ky,
        "l": part,
    }
    if rng.random() < 0.35:
        return Story(
            v,
            [("{a x}", "a*kx=r")],
            f"a*{kx}",
            [],
            "[how many {l} do {a x} have[| in total| altogether]|{a x}, how many {l}|how many {l} have {a x}|how many {l} are there on {a x}]",
            "{a x} have {r l}",
            {},
            tense="pres",
            extra=False,
        )
    have = rng.choice(
        ["there are {a x} and {b y} " + where, "{P} <have!> {a x} and {b y}", "{P} <see!> {a x} and {b y} " + where]
    )
    return Story(
        v,
        [("{a x}", "a*kx=s"), ("{b y}", "b*ky=t"), ("together", "s+t=r")],
        f"a*{kx}+b*{ky}",
        [have],
        "how many {l} [are there|do they have|is that][| in total| altogether| together]",
        "they have {r l}",
        {"P": p} if "{P}" in have else {},
        tense="pres",
        extra=False,
    )


def rope(rng):
    """A rope or a board cut into pieces; what is left."""
    p, what, v = (
        who(rng),
        rng.choice(["rope", "ribbon", "board", "wire", "string", "pipe", "piece of cloth", "stick", "cable"]),
        {
            "u": Noun(rng.choice(["meter", "centimeter", "inch", "foot"])),
            "k": rng.randrange(2, 15),
            "n": rng.randrange(2, 20),
            "one": 1,
        },
    )
    r = rng.random()
    if r < 0.3:
        v["m"] = v["k"] * v.pop("n")
        return Story(
            v,
            [("each piece", "m/k=r")],
            "m//k",
            ["[a|the] %s is {m u} long" % what, "{P} <cut> it into {k} equal pieces"],
            "[how long is each piece|how many {u} long is each piece]",
            "each piece is {r u} long",
            {"P": p},
        )
    if r < 0.5:
        v["m"] = v["k"] * v["n"]
        return Story(
            {x: y for x, y in v.items() if x != "n"},
            [("pieces", "m/k=r")],
            "m//k",
            ["[a|the] %s is {m u} long" % what, "{P} <cut> it into pieces of {k u}[| each]"],
            "how many pieces [<do> {P} get|are there|is that]",
            "there are {r} pieces",
            {"P": p},
        )
    v["m"] = v["k"] * v["n"] + rng.randrange(2, 60)
    if r < 0.8:
        return Story(
            v,
            [("{n piece}", "n*k=s"), ("left", "m-s=r")],
            "m-n*k",
            ["[a|the] %s is {m u} long" % what, "{P} <cut> off {n} pieces of {k u}[| each]"],
            "[how many {u} are left|how long is the rest|how much is left]",
            "{r u} are left",
            {"P": p},
        )
    v["x"] = rng.randrange(2, v["m"] - 1)
    return Story(
        v,
        [("left", "m-x=r")],
        "m-x",
        ["{P} <have> a %s of {m u}" % what, "{P} <cut> off {x u}"],
        "[how many {u} are left|how long is it now|how long is the rest]",
        "{r u} are left",
        {"P": p},
    )


def nested(rng):
    """Groups of groups: crates of boxes of things."""
    x, y, o = rng.choice(
        [
            ("crate", "box", "pencil"),
            ("shelf", "box", "toy"),
            ("truck", "crate", "melon"),
            ("street", "house", "window"),
            ("school", "class", "student"),
            ("building", "floor", "room"),
            ("pack", "packet", "cookie"),
            ("album", "page", "photo"),
            ("floor", "room", "desk"),
            ("bag", "packet", "seed"),
            ("farm", "barn", "cow"),
            ("tree", "branch", "apple"),
            ("book", "chapter", "page"),
            ("train", "wagon", "seat"),
            ("carton", "box", "egg"),
            ("tower", "floor", "window"),
        ]
    )
    v = {
        "x": Noun(x),
        "y": Noun(y),
        "o": Noun(o),
        "a": rng.randrange(2, 10),
        "b": rng.randrange(2, 12),
        "c": rng.randrange(2, 25),
    }
    facts = rng.choice(
        [
            ["there are {a x}", "each {x.1} has {b y}", "each {y.1} has {c o}"],
            ["there are {a x} with {b y} each", "each {y.1} has {c o}"],
            ["{a x} have {b y} each, and each {y.1} has {c o}"],
        ]
    )
    return Story(
        v,
        [("{y}", "a*b=s"), ("{o}", "s*c=r")],
        "a*b*c",
        facts,
        "how many {o} are there [in total|altogether|in all|]",
        "there are {r o}",
        {},
        tense="pres",
        extra=False,
    )


def laps(rng):
    """Laps, stairs, trips there and back."""
    p, v = who(rng), {
        "u": Noun(rng.choice(["meter", "kilometer", "mile"])),
        "k": rng.randrange(2, 40),
        "n": rng.randrange(2, 13),
        "two": 2,
    }
    r = rng.random()
    if r < 0.35:
        v |= {"u": Noun("meter"), "k": rng.choice([25, 50, 100, 200, 400, 20, 40])}
        return Story(
            v,
            [("{n lap}", "n*k=r")],
            "n*k",
            ["[a pool|a track|one lap|a lap] is {k u}[| long]", "{P} [<do>|<finish>] {n lap}"],
            "[how far is that|how many {u} is that|how many {u} is that in total]",
            "that is {r u}",
            {"P": p},
            tense="past",
        )
    if r < 0.7:
        place, verb = rng.choice(
            [
                ("school", "walk"),
                ("work", "drive"),
                ("the office", "drive"),
                ("the store", "walk"),
                ("the park", "cycle"),
            ]
        )
        return Story(
            v,
            [("both ways", "two*k=d"), ("{n day}", "n*d=r")],
            "2*k*n",
            ["{P} <live!> {k u} from " + place, "{P} <%s!> there and back [every day|each day] for {n day}" % verb],
            "[how many {u} is that[| in total| altogether]|how far is that in total]",
            "that is {r u}",
            {"P": p},
            tense="pres",
            plain=True,
        )
    v |= {"o": Noun("step"), "k": rng.randrange(8, 25)}
    return Story(
        v,
        [("{n floor}", "n*k=r")],
        "n*k",
        ["[each floor|every floor] of a [house|tower|building] has {k o}", "{P} <climb> {n floor}"],
        "how many {o} is that",
        "that is {r o}",
        {"P": p},
    )


FAMILIES = {rows: 7, rectangle: 7, legs: 4, rope: 4, nested: 4, laps: 4}
