"""Dialogues with declared tools: a calculator, the weather, distances, lookups; and some where no tool is of use.

Names, descriptions and parameter schemas vary, so that the declaration has to be read. A call (what is asked of which
kind of tool) whose key hashes into the held-out twentieth never appears in training.

    python tools/nano/toolcalls.py --check | --show N | --eval FILE [N]
"""

import json
import random
import re

import corpus
import talk
from dialogues import assistant, check_engine, dialogue, kept_out, run, sequences, user
from phrases import NAMES

CITIES = (
    "Paris London Berlin Madrid Rome Oslo Vienna Prague Lisbon Athens Cairo Tokyo Beijing Shanghai Seoul Delhi Sydney "
    "Toronto Chicago Boston Lima Nairobi Dublin Warsaw Helsinki Zurich Munich Milan Geneva Bangkok Havana Denver"
).split()
SKIES = ["sunny", "cloudy", "rainy", "windy", "snowy", "foggy", "clear"]
WARES = (
    "milk bread rice tea coffee sugar butter cheese honey salt flour soap paper apples lemons onions carrots shoes hats "
    "lamps chairs pens books cards"
).split()
FAMILY = (
    "Smith Brown Khan Lee Garcia Novak Silva Rossi Weber Chen Park Sato Ali Jones Clark Hall King Wright Green Baker "
    "Adams Nelson Carter Moore Diaz Kumar Meyer Fischer Dubois Costa"
).split()
SORTS = "red green white brown big small fresh old cheap sweet dark light plain".split()
DAYS = ["today", "tomorrow", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def tool(name, description, properties, required):
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }


def text(rng, *descriptions):
    """A string parameter, described or not."""
    p = {"type": "string"}
    if descriptions and rng.random() < 0.7:
        p["description"] = rng.choice(descriptions)
    return p


# Each kind: declare(rng) -> (tool, how to write the arguments); a problem gives the arguments in plain.


def declare_calculator(rng):
    name = rng.choice(
        [
            "calculator",
            "calculate",
            "calc",
            "compute",
            "evaluate",
            "math",
            "do_math",
            "arithmetic",
            "run_calculation",
            "solve",
            "eval_expression",
        ]
    )
    about = rng.choice(
        [
            "Evaluates an arithmetic expression.",
            "A calculator for + - * /.",
            "Compute the value of an expression.",
            "Does arithmetic.",
            "Calculate exactly.",
            "Perform a calculation",
            "Returns the result of an arithmetic expression.",
            "Calculator",
        ]
    )
    if rng.random() < 0.7:
        p = rng.choice(["expression", "expression", "expr", "formula", "input", "query", "term"])
        gap = rng.choice(["", " "])
        e = text(rng, "for example 2+3*4", "The expression to evaluate", "arithmetic expression")
        return tool(name, about, {p: e}, [p]), lambda e: {p: gap.join(e)}
    a, b, op = rng.choice([("a", "b", "operation"), ("x", "y", "op"), ("left", "right", "operator")])
    words = rng.random() < 0.5
    names = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"} if words else {c: c for c in "+-*/"}
    number = {"type": rng.choice(["number", "integer"])}
    props = {a: dict(number), b: dict(number), op: {"type": "string", "enum": list(names.values())}}
    return tool(name, about, props, [a, b, op]), (
        lambda e: {a: int(e[0]), b: int(e[2]), op: names[e[1]]} if len(e) == 3 else None
    )


def declare_weather(rng):
    name = rng.choice(
        [
            "get_weather",
            "weather",
            "current_weather",
            "weather_now",
            "forecast",
            "get_forecast",
            "weather_report",
            "get_current_weather",
            "fetch_weather",
            "weather_forecast",
        ]
    )
    p = rng.choice(["city", "city", "location", "place", "town", "city_name"])
    props, required = {p: text(rng, "Name of the city", "for example Paris", "Where")}, [p]
    unit = rng.random() < 0.4
    day = "forecast" in name or rng.random() < 0.2
    if unit:
        props["unit"] = {"type": "string", "enum": ["celsius", "fahrenheit"]}
        if rng.random() < 0.3:
            required.append("unit")
    if day:
        props["day"] = text(rng, "today, tomorrow or a weekday", "which day")
    about = rng.choice(
        [
            "Get the weather of a city.",
            "Returns the weather.",
            "Weather report for a place.",
            "Tells the temperature and the sky.",
            "Get the current weather for a city",
            "Current temperature and conditions.",
        ]
    )

    def write(q):
        city, when, scale = q
        if (when and not day) or (scale and not unit):
            return None
        args = {p: city}
        if scale or "unit" in required:
            args["unit"] = scale or "celsius"
        return args | ({"day": when} if when else {})

    return tool(name, about, props, required), write


def declare_distance(rng):
    name = rng.choice(["distance", "get_distance", "route_length", "how_far", "find_distance"])
    a, b = rng.choice([("from", "to"), ("start", "end"), ("origin", "destination"), ("city_a", "city_b")])
    about = rng.choice(
        [
            "Distance between two cities in kilometers.",
            "How far it is from one city to another.",
            "Returns the distance in km.",
        ]
    )
    return tool(name, about, {a: text(rng, "first city"), b: text(rng, "second city")}, [a, b]), lambda q: {
        a: q[0],
        b: q[1],
    }


# kind: names, descriptions, parameters; questions; what is said (who, value); what an entry is called
LOOKUPS = {
    "phone": (
        ["find_phone", "get_phone_number", "phone_book", "lookup_phone", "phone_number_of", "contacts"],
        [
            "Look up a phone number.",
            "The phone book.",
            "Finds the phone number of a person.",
            "Get a person's phone number",
        ],
        ["name", "person", "who", "contact"],
        [
            "What is the phone number of {}?",
            "{}'s phone number?",
            "How can I call {}?",
            "Give me the number of {}.",
            "phone number of {}",
            "What is {}'s phone number?",
            "I need the phone number of {}.",
        ],
        "The phone number of {} is {}.",
        "phone numbers",
        lambda r: r.randrange(100000, 1000000),
    ),
    "price": (
        ["get_price", "price_of", "lookup_price", "price_list", "product_price", "find_price"],
        [
            "Look up the price of an item in dollars.",
            "The shop's price list.",
            "Returns what an item costs.",
            "Get the price of a product",
        ],
        ["item", "product", "name", "article"],
        [
            "What is the price of {}?",
            "How much for {}?",
            "price of {}",
            "Look up the price of {}.",
            "Tell me the price of {}.",
        ],
        "The price of {} is {} dollars.",
        "prices",
        lambda r: r.randrange(2, 300),
    ),
    "age": (
        ["get_age", "lookup_age", "age_of", "person_age", "find_age"],
        ["Look up the age of a person.", "Returns how old a person is.", "Get a person's age in years"],
        ["name", "person", "of"],
        [
            "How old is {}?",
            "What is the age of {}?",
            "age of {}",
            "Do you know how old {} is?",
            "Tell me the age of {}.",
            "What is {}'s age?",
        ],
        "{} is {} years old.",
        "the age of people",
        lambda r: r.randrange(3, 99),
    ),
    "stock": (
        ["get_stock", "stock_level", "inventory", "check_stock", "warehouse"],
        [
            "How many pieces of an item are in stock.",
            "Check the inventory.",
            "Returns the number of pieces in the warehouse.",
        ],
        ["item", "product", "article"],
        [
            "How many {} are in stock?",
            "How many {} do we have in stock?",
            "stock of {}",
            "Check the stock of {}.",
            "What is the stock of {}?",
        ],
        "The stock of {} is {}.",
        "the stock",
        lambda r: r.randrange(0, 2000),
    ),
    "room": (
        ["find_room", "room_of", "get_office", "office_finder", "where_is_office"],
        ["Finds the room of a person.", "Look up in which room a person works.", "Room numbers of the staff."],
        ["name", "person", "employee"],
        [
            "In which room is {}?",
            "Which room does {} work in?",
            "room of {}",
            "What is the room of {}?",
            "Where is the office of {}?",
        ],
        "The room of {} is {}.",
        "rooms",
        lambda r: f"{r.choice('ABCDEFG')}{r.randrange(10, 400)}",
    ),
}


def declare_lookup(rng, what):
    """A tool that knows one thing of LOOKUPS, or a general one with a table to choose."""
    name, about, p = (rng.choice(x) for x in LOOKUPS[what][:3])
    if rng.random() < 0.25:
        table = rng.choice(["table", "kind", "field", "what"])
        others = rng.sample([k for k in LOOKUPS if k != what], rng.randrange(1, 4))
        return tool(
            rng.choice(["lookup", "search", "query", "find", "database"]),
            rng.choice(["Looks up a fact.", "Search the records.", "Query the database."]),
            {table: {"type": "string", "enum": sorted([what, *others])}, p: text(rng, "who or what")},
            [table, p],
        ), (lambda q: {table: what, p: q})
    return tool(name, about, {p: text(rng, "whom or what to look up")}, [p]), lambda q: {p: q}


def distractor(rng):
    """A tool that no question needs."""
    name, about, props = rng.choice(
        [
            ("send_message", "Send a message to a person.", {"to": {"type": "string"}, "body": {"type": "string"}}),
            ("set_timer", "Start a timer.", {"minutes": {"type": "integer", "minimum": 1}}),
            ("play_song", "Play a song by title.", {"title": {"type": "string"}}),
            ("turn_on_light", "Switch a lamp on.", {"room": {"type": "string"}}),
            ("translate", "Translate a text.", {"text": {"type": "string"}, "language": {"type": "string"}}),
            ("get_time", "Tells the time.", {}),
            ("delete_file", "Delete a file.", {"path": {"type": "string"}}),
            (
                "send_email",
                "Send an email.",
                {"to": {"type": "string"}, "subject": {"type": "string"}, "body": {"type": "string"}},
            ),
            ("take_note", "Store a note.", {"text": {"type": "string"}}),
            ("add_event", "Add an event to the calendar.", {"title": {"type": "string"}, "date": {"type": "string"}}),
            ("roll_dice", "Roll dice.", {"sides": {"type": "integer"}}),
            (
                "set_volume",
                "Set the volume of the speaker.",
                {"level": {"type": "integer", "minimum": 0, "maximum": 100}},
            ),
            (
                "open_file",
                "Open a file.",
                {"path": {"type": "string"}, "mode": {"type": "string", "enum": ["read", "write"]}},
            ),
        ]
    )
    return tool(name, about, props, rng.sample(sorted(props), rng.randrange(len(props) + 1)))


# ---- questions -------------------------------------------------------------------------------- A question: (user
# text, thinking before the call, list of what to ask the tool, keys, results(rng) -> list of tool texts and the final
# answer)


def reply(rng, value, names=("result", "value", "answer")):
    """What a tool sends back: a bare value, or JSON."""
    return str(value) if rng.random() < 0.5 else json.dumps({rng.choice(names): value})


def failure(rng, what, about):
    """What a tool that has no answer sends back, and what there is to say then."""
    why = rng.choice(
        {
            "calculator": ["overflow", "timeout", "not available", "bad input"],
            "weather": ["not found", "no data", "unknown city", "timeout", "service down"],
            "distance": ["not found", "no route", "unknown city", "timeout"],
        }.get(what, ["not found", "no such entry", "no data", "unknown name", "timeout"])
    )
    sent = rng.choice(
        [
            json.dumps({"error": why}),
            json.dumps({"error": why}),
            f"error: {why}",
            f"Error: {why}",
            json.dumps({"status": "error", "message": why}),
        ]
    )
    return sent, f"The tool has no answer for {about}: {why}."


FAILS = 0.08  # of the calls


def ask_calculator(rng, tool_name):
    a, b = rng.randrange(11, 10000), rng.randrange(2, 1000)
    op = rng.choice("++--***/")
    if op == "/":
        a = b * rng.randrange(2, 200)
    e = [str(a), op, str(b)]
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[op]
    form = rng.choice(corpus.OP_FORMS[{"+": "add", "-": "sub", "*": "mul", "/": "div"}[op]]).format(a=a, b=b)
    q = rng.choice(corpus.CARRIERS).format(e=form)
    if rng.random() < 0.25:
        c = rng.randrange(2, 100)
        e, q = [*e, "+", str(c)], rng.choice(corpus.CARRIERS).format(e=f"{a} {op} {b} + {c}")
        value += c
    key = corpus.ar.key({"+": "add", "-": "sub", "*": "mul", "/": "div"}[op], a, b)

    def results(rng):
        if rng.random() < FAILS:
            sent, says = failure(rng, "calculator", " ".join(e))
            return [sent], says, None
        return [reply(rng, value)], f"{' '.join(e)} = {value}.", str(value)

    return q, f"{''.join(e)}: use {tool_name}.", [e], [key], results


def ask_weather(rng, tool_name):
    cities = rng.sample(CITIES, 2 if rng.random() < 0.2 else 1)
    when = rng.choice(DAYS) if rng.random() < 0.25 else None
    scale = rng.choice(["celsius", "fahrenheit"]) if rng.random() < 0.2 else None
    where = " and ".join(cities)
    q = rng.choice(
        [
            "What is the weather in {}{}?",
            "How is the weather in {}{}?",
            "whats the weather in {}{}",
            "weather in {}{}",
            "Tell me the weather in {}{}.",
            "How warm is it in {}{}?",
            "What's the weather like in {}{}?",
            "What will the weather be in {}{}?",
            "Give me the weather for {}{}.",
            "Is it cold in {}{}?",
            "temperature in {}{}",
        ]
    )
    tail = "" if when is None else f" {when}" if when in DAYS[:2] else f" on {when}"
    q = q.format(where, tail)
    if scale:
        q = q.rstrip("?.") + f" in {scale}" + ("?" if q.endswith("?") else "")

    def results(rng):
        texts, lines = [], []
        for city in cities:
            if rng.random() < FAILS:
                sent, line = failure(rng, "weather", city)
                texts.append(sent)
                lines.append(line)
                continue
            t, sky = rng.randrange(*((14, 100) if scale == "fahrenheit" else (-10, 38))), rng.choice(SKIES)
            texts.append(
                rng.choice(
                    [
                        json.dumps({"temperature": t, "sky": sky}),
                        f"{t} degrees, {sky}",
                        json.dumps({"temp": t, "condition": sky}),
                        f"{sky}, {t}",
                    ]
                )
            )
            lines.append(f"In {city} it is {t} degrees and {sky}.")
        return texts, " ".join(lines), lines[-1].split(" is ")[1].split()[0] if " is " in lines[-1] else None

    return (
        q,
        f"Weather of {where}: use {tool_name}.",
        [(c, when, scale) for c in cities],
        [f"weather:{c}:{when}:{scale}" for c in cities],
        results,
    )


def ask_distance(rng, tool_name):
    a, b = rng.sample(CITIES, 2)
    q = rng.choice(
        [
            "How far is it from {} to {}?",
            "What is the distance from {} to {}?",
            "distance from {} to {}",
            "How many kilometers is it from {} to {}?",
            "How far is {} from {}?",
            "What is the distance between {} and {}?",
        ]
    ).format(a, b)

    def results(rng):
        if rng.random() < FAILS:
            sent, line = failure(rng, "distance", f"{a} and {b}")
            return [sent], line, None
        v = rng.randrange(50, 9000)
        return [reply(rng, v, ("distance", "km", "result"))], f"From {a} to {b} it is {v} kilometers.", str(v)

    return q, f"Distance from {a} to {b}: use {tool_name}.", [(a, b)], [f"distance:{a}:{b}"], results


def ask_lookup(rng, tool_name, what):
    """One thing, sometimes two of the same kind (two calls at once)."""

    def one():
        if what not in ("price", "stock"):
            return f"{rng.choice(NAMES)} {rng.choice(FAMILY)}" if rng.random() < 0.7 else rng.choice(NAMES)
        wares = [w for w in WARES if w.endswith("s") or what == "price"]  # stocks are counted
        return f"{rng.choice(SORTS)} {rng.choice(wares)}" if rng.random() < 0.7 else rng.choice(wares)

    _, _, _, questions, says, _, value = LOOKUPS[what]
    who = [one()]
    if rng.random() < 0.12 and (w := one()) != who[0]:
        who.append(w)
        questions = [
            q
            for q in questions
            if q.startswith(
                (
                    "What is the",
                    "phone number of",
                    "price of",
                    "age of",
                    "Tell me the",
                    "stock of",
                    "room of",
                    "Give me",
                    "I need",
                )
            )
        ]
    names = " and ".join(who)

    def results(rng):
        texts, lines, v = [], [], None
        for w in who:
            if rng.random() < FAILS:
                sent, line = failure(rng, what, w)
            else:
                v = value(rng)
                sent, line = reply(rng, v, (what, "value", "result")), says.format(w, v)
            texts.append(sent)
            lines.append(line)
        return texts, " ".join(lines), None if v is None else str(v)

    return (
        rng.choice(questions).format(names),
        f"{what.capitalize()} of {names}: use {tool_name}.",
        who,
        [f"{what}:{w}" for w in who],
        results,
    )


KINDS = ["calculator", "weather", "distance", *LOOKUPS]
SPECIAL = {
    "calculator": (declare_calculator, ask_calculator),
    "weather": (declare_weather, ask_weather),
    "distance": (declare_distance, ask_distance),
}


def declare(rng, kind):
    return SPECIAL[kind][0](rng) if kind in SPECIAL else declare_lookup(rng, kind)


def held_out(keys):
    return any(corpus.held_out(k) if re.match("add|sub|mul|div", k) else kept_out(k) for k in keys)


def question(rng, kind, name, write, want):
    """A question of this kind whose arguments the declared tool can express, held out or not as wanted."""
    while True:
        q, think, calls, keys, results = SPECIAL[kind][1](rng, name) if kind in SPECIAL else ask_lookup(rng, name, kind)
        args = [write(c) for c in calls]
        if None not in args and held_out(keys) == want:
            return q, think, args, keys, results


NO_TOOL = {"weather": "I have no tool for the weather.", "distance": "I have no tool for distances."} | {
    kind: f"I have no tool for {x[5]}." for kind, x in LOOKUPS.items()
}


def without(rng, have):
    """A question that the declared tools do not serve: talk, an easy sum without a calculator, a missing tool."""
    r = rng.random()
    missing = [k for k in NO_TOOL if k not in have]
    if r < 0.35 and missing:
        kind = rng.choice(missing)
        t, write = declare(rng, kind)
        q = question(rng, kind, "", write, False)[0]
        return q, "No tool for this.", NO_TOOL[kind]
    if r < 0.6 and "calculator" not in have:
        while True:
            t = corpus.binary(rng)
            if t.easy and not held_out(t.keys):
                return t.user, t.think, t.answer
    t = talk.small(rng)
    return t.user, t.think, t.answer


def build(rng, want=False):
    """One dialogue; want: every call is a held-out one."""
    general = set()  # names already taken
    have, tools = {}, []
    for kind in rng.sample(KINDS, rng.choices([1, 2, 3, 4], [45, 33, 15, 7])[0]):
        t, write = declare(rng, kind)
        if t["function"]["name"] not in general:
            general.add(t["function"]["name"])
            have[kind] = (t["function"]["name"], write)
            tools.append(t)
    for _ in range(rng.choices([0, 1, 2], [50, 35, 15])[0]):
        t = distractor(rng)
        if t["function"]["name"] not in general:
            general.add(t["function"]["name"])
            tools.append(t)
    rng.shuffle(tools)
    everything = [p for t in tools for p in t["function"]["parameters"]["properties"].values()]
    served = {*have, *(k for p in everything for k in p.get("enum", []))}  # a general lookup knows several kinds
    messages, count, keys, right, first = [], 0, [], None, []
    if rng.random() < 0.1:
        messages.append({"role": "system", "content": rng.choice(corpus.SYSTEMS)})
    named = rng.random() < 0.5  # tool results carry the tool's name
    for _ in range(1 if want or rng.random() < 0.75 else rng.randrange(2, 4)):
        if not want and rng.random() < 0.2:
            q, think, answer = without(rng, served)
            messages += [user(q), assistant(answer, think)]
            right = None
            continue
        kind = rng.choice(sorted(have))
        name, write = have[kind]
        q, think, args, k, results = question(rng, kind, name, write, want)
        calls = [
            {
                "id": f"functions.{name}:{count + i}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(a, ensure_ascii=False)},
            }
            for i, a in enumerate(args)
        ]
        count += len(calls)
        texts, answer, right = results(rng)
        messages += [user(q), assistant("", think) | {"tool_calls": calls}]
        messages += [
            {"role": "tool", "tool_call_id": c["id"], "content": t} | ({"name": name} if named else {})
            for c, t in zip(calls, texts)
        ]
        messages.append(assistant(answer, f"The tool says {', '.join(texts)}."))
        keys += k
        first = first or args
    return dialogue(messages, rng.random() < 0.75, tools, keys=keys, right=right, call=first)


def make(rng):
    return build(rng)


def evaluation(number=500, seed="evaluation"):
    """Held-out calls, one question each: messages up to the question, the call wanted, the tool's reply, the answer."""
    rng, out = random.Random(seed), []
    while len(out) < number:
        d = build(rng, True)
        if d["meta"]["right"] is None:
            continue  # the tool failed
        at = next(i for i, m in enumerate(d["messages"]) if m["role"] == "user")
        call, *rest = d["messages"][at + 1 :]
        out.append(
            {
                "messages": d["messages"][: at + 1],
                "tools": d["tools"],
                "calls": call["tool_calls"],
                "results": rest[:-1],
                "answer": f"{rest[-1]['content']}\n#### {d['meta']['right']}",
            }
        )
    return out


def judge(item, message):
    """(well-formed, right): the model's first turn, as `moonlet text parse` gives it, against an evaluation item.

    Well-formed: calls with ids functions.NAME:0, 1, ..., declared names, arguments that fit the parameters. Right: the
    wanted calls in order; blanks inside an argument do not matter.
    """
    declared = {t["function"]["name"]: t["function"]["parameters"] for t in item["tools"]}
    plain = lambda args: {k: v.replace(" ", "") if isinstance(v, str) else v for k, v in args.items()}
    got, want = [], [(c["function"]["name"], plain(json.loads(c["function"]["arguments"]))) for c in item["calls"]]
    for i, call in enumerate(message.get("tool_calls") or []):
        name, p = call["function"]["name"], declared.get(call["function"]["name"])
        try:
            args = json.loads(call["function"]["arguments"])
        except ValueError:
            return False, False
        if p is None or call["id"] != f"functions.{name}:{i}" or not isinstance(args, dict):
            return False, False
        if not set(p["required"]) <= set(args) <= set(p["properties"]):
            return False, False
        if any(v not in p["properties"][k].get("enum", [v]) for k, v in args.items()):
            return False, False
        got.append((name, plain(args)))
    return bool(got), got == want


def check():
    from tokenizer import Tokenizer

    tok = Tokenizer()
    assert make(random.Random(5)) == make(random.Random(5))
    rng = random.Random("check")
    ds = [make(rng) for _ in range(300)]
    calls = 0
    for d in ds:
        assert not held_out(d["meta"]["keys"])
        declared = {t["function"]["name"]: t["function"]["parameters"] for t in d["tools"]}
        assert len(declared) == len(d["tools"]) >= 1
        for m in d["messages"]:
            for call in m.get("tool_calls", []):
                f = call["function"]
                assert call["id"] == f"functions.{f['name']}:{calls_so_far(d, call)}"
                p, args = declared[f["name"]], json.loads(f["arguments"])
                assert set(p["required"]) <= set(args) <= set(p["properties"]), (p, args)
                for k, v in args.items():
                    s = p["properties"][k]
                    assert isinstance(v, {"string": str, "number": int, "integer": int}[s["type"]]) and v in s.get(
                        "enum", [v]
                    )
                calls += 1
    none = sum(not d["meta"]["call"] for d in ds)
    assert calls > 200 and 20 < none < 120, (calls, none)
    turns = check_engine(tok, ds)
    learnt = 0
    for d, parts in zip(ds, sequences(tok, ds)):
        for ids in parts:
            learnt += sum(x >> 15 for x in ids)
            assert ids[-1] >> 15 and max(x & 0x7FFF for x in ids) < tok.n_ranks + 256
        if d["thinking"] and len([m for m in d["messages"] if m["role"] == "user"]) == 1 and d["meta"]["call"]:
            assert len(parts) == 1  # call, result and answer are one sequence
    items = evaluation(50)
    assert items == evaluation(50)
    assert all(it["calls"] and it["results"] and len(it["calls"]) == len(it["results"]) for it in items)
    for it in items:
        assert judge(it, {"tool_calls": it["calls"]}) == (True, True)
        assert judge(it, {"tool_calls": []}) == (False, False)
        c = it["calls"][0]
        other = lambda **kw: judge(it, {"tool_calls": [{**c, "function": {**c["function"], **kw}}] + it["calls"][1:]})
        args = json.loads(c["function"]["arguments"])
        for bad in ({"arguments": c["function"]["arguments"][:-1]}, {"name": "nothing"}, {"arguments": '{"odd": 1}'}):
            assert other(**bad) == (False, False)
        declared = next(t["function"] for t in it["tools"] if t["function"]["name"] == c["function"]["name"])
        free = [k for k in args if "enum" not in declared["parameters"]["properties"][k]]
        assert other(arguments=json.dumps(args | {free[0]: "Nowhere"})) == (True, False)
    asked = {
        d["messages"][i]["content"] for d in ds for i in range(len(d["messages"])) if d["messages"][i]["role"] == "user"
    }
    assert not asked & {it["messages"][-1]["content"] for it in items}
    print(
        f"toolcalls: 300 dialogues, {calls} calls fit their declarations, {none} without a call, "
        f"{turns} turns through the engine's template and back, {learnt} tokens to learn"
    )


def calls_so_far(d, call):
    """Index of a call in its dialogue: they are numbered through all turns."""
    every = [c for m in d["messages"] for c in m.get("tool_calls", [])]
    return next(i for i, c in enumerate(every) if c is call)


if __name__ == "__main__":
    run(__doc__, make, evaluation, check)
