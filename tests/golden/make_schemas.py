#!/usr/bin/env python3
"""Makes schemas.jsonl: JSON Schemas of our own and texts of which each is labelled by the PyPI package `jsonschema`.

    python3 -m venv /tmp/jsenv && /tmp/jsenv/bin/pip install 'jsonschema[format]'
    /tmp/jsenv/bin/python tests/golden/make_schemas.py

One line a schema: {"name", "schema", "valid": [texts], "invalid": [texts]}, and where there are any
    "valid_spelled_otherwise"  instances by the specification, but spelled in a way that a matcher may refuse: numbers
                               with an exponent; 1.0 for 1, 1.50 for 1.5 or -0 for 0 where the value is restricted;
                               white space before or behind the whole
    "malformed"                no JSON at all
Texts in "invalid" are JSON. The families below say what their texts are meant to be, and the oracle
(Draft202012Validator with its format checker) must agree; mutants of random instances are what the oracle says. All
seeds are fixed: the same bytes come out each time. No object has a key twice, and schemas keep to what the oracle, a
strict reading of the specification and common sense agree on (no leap seconds, no \\d against other scripts' digits,
no "$" before a final line feed).
"""
import json
import random
import re
import uuid
from pathlib import Path

from jsonschema import Draft202012Validator

HERE = Path(__file__).resolve().parent
VALID_MOST, INVALID_MOST = 6, 8
LINES, NAMES = [], set()


class Text(str):
    """A JSON text that is written as it stands; other values are dumped."""


# ---- the oracle ----


def no_constant(word):
    raise ValueError(word)


def no_twins(pairs):
    if len({k for k, _ in pairs}) != len(pairs):
        raise AssertionError(f"a key stands twice: {pairs}")
    return dict(pairs)


def parse(text):
    """The value of a text; ValueError if it is no JSON."""
    return json.loads(text, parse_constant=no_constant, object_pairs_hook=no_twins)


def oracle(schema):
    Draft202012Validator.check_schema(schema)
    judge = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    return lambda text: judge.is_valid(parse(text))


def is_json(text):
    try:
        parse(text)
    except ValueError:
        return False
    return True


# ---- spelling ----


def spelled_string(s, rng):
    """A string with some of its characters escaped that need not be."""
    out = []
    for c in s:
        plain = json.dumps(c, ensure_ascii=False)[1:-1]
        if c == "/" and rng.random() < 0.5:
            out.append("\\/")
        elif rng.random() < 0.25:
            units = c.encode("utf-16-be").hex()
            form = str.upper if rng.random() < 0.5 else str
            out.append("".join("\\u" + form(units[i : i + 4]) for i in range(0, len(units), 4)))
        else:
            out.append(plain)
    return '"' + "".join(out) + '"'


def spelled(value, rng):
    """A JSON text with unusual escapes and white space between its tokens."""

    def gap():
        return rng.choice(["", "", "", " ", "  ", "\n", "\t", "\r\n", "\n    "])

    if isinstance(value, str):
        return spelled_string(value, rng)
    if isinstance(value, list) and value:
        return "[" + ",".join(gap() + spelled(x, rng) + gap() for x in value) + "]"
    if isinstance(value, dict) and value:
        pairs = (f"{gap()}{spelled_string(k, rng)}{gap()}:{gap()}{spelled(v, rng)}{gap()}" for k, v in value.items())
        return "{" + ",".join(pairs) + "}"
    return json.dumps(value)


def written(value, style, rng):
    if isinstance(value, Text):
        return str(value)
    if style == 4:
        return spelled(value, rng)
    more = [{}, {"separators": (",", ":")}, {"indent": 2}, {"separators": (",", ":"), "ensure_ascii": False}][style]
    return json.dumps(value, **more)


def texts_of(values, rng):
    """Texts of the values in turning styles, none twice."""
    out = []
    for value in values:
        first = rng.randrange(5)
        for style in range(first, first + 5):
            text = written(value, style % 5, rng)
            if text not in out:
                out.append(text)
                break
    return out


def numbers_in(text):
    return re.findall(r"-?[0-9][0-9.eE+-]*", re.sub(r'"(\\.|[^"\\])*"', '""', text))


def oddly_spelled(text):
    """An exponent, a fraction of zero, or minus zero."""
    return any(re.search(r"[eE]|\.[0-9]*0$|\.0+$|^-0$", x) for x in numbers_in(text)) or text != text.strip()


# ---- texts that are no JSON ----

SPOILERS = [
    lambda t: t[:-1],
    lambda t: t[: len(t) // 2],
    lambda t: t + t,
    lambda t: t + " " + t,
    lambda t: t + ",",
    lambda t: t + "]",
    lambda t: t.replace('"', "'"),
    lambda t: re.sub(r"([\]}])$", r",\1", t),
    lambda t: re.sub(r"^([\[{])", r"\1,", t),
    lambda t: t.replace(":", "=", 1),
    lambda t: t.replace(":", "::", 1),
    lambda t: t.replace('"', "", 1),
    lambda t: t.replace(",", "", 1),
    lambda t: t.replace(",", ",,", 1),
    lambda t: re.sub(r'"(\w+)"(\s*:)', r"\1\2", t, count=1),
    lambda t: re.sub(r"(?<![\w.\"])([0-9])", r"0\1", t, count=1),
    lambda t: re.sub(r"(?<![\w.\"-])([0-9])", r"+\1", t, count=1),
    lambda t: re.sub(r"(?<![\w.\"])[0-9]+(?![\w.\"])", "NaN", t, count=1),
    lambda t: re.sub(r"(?<![\w.\"])[0-9]+(?![\w.\"])", "Infinity", t, count=1),
    lambda t: re.sub(r"(?<![\w.\"])([0-9]+)(?![\w.\"])", r"\1.", t, count=1),
    lambda t: t.replace("true", "True").replace("false", "False").replace("null", "None"),
    lambda t: t + " // done",
    lambda t: t.replace('"', '"\\x', 1),
    lambda t: t.replace('"', '"\n', 1),
    lambda t: t.replace('"', '"\\u12', 1),
    lambda t: t.replace('"', "\u201c", 1),
]


def spoilt(texts, rng, n):
    """Up to n texts that are no JSON, made of those that are."""
    out = []
    for _ in range(6 * n):
        text = rng.choice(SPOILERS)(rng.choice(texts))
        if len(out) < n and text and len(text) < 400 and text not in out and not is_json(text):
            out.append(text)
    return out


# ---- one schema ----


def labelled(name, schema, valid, invalid, otherwise, malformed):
    """The line of a schema, each of its labels held against the oracle's."""
    holds = oracle(schema)
    for texts, want in ((valid, True), (otherwise, True), (invalid, False)):
        for text in texts:
            assert holds(text) == want, f"{name}: the oracle says {not want}: {text}"
    for text in malformed:
        assert not is_json(text), f"{name}: {text} is JSON"
    line = {"name": name, "schema": schema, "valid": valid, "invalid": invalid}
    line |= {"valid_spelled_otherwise": otherwise} if otherwise else {}
    return line | ({"malformed": malformed} if malformed else {})


def case(name, schema, valid, invalid, otherwise=(), malformed=(), few=False):
    """few: the schema does not allow for two texts of each kind."""
    assert name not in NAMES, name
    NAMES.add(name)
    rng = random.Random(name)
    valid, invalid = texts_of(valid, rng), texts_of(invalid, rng)
    assert few or (len(valid) >= 2 and len(invalid) >= 2), f"{name}: {len(valid)} valid, {len(invalid)} invalid"
    assert len(valid) <= VALID_MOST and len(invalid) <= INVALID_MOST, name
    whole = [x for x in valid + invalid if len(x) < 400] or ["{}"]
    malformed = list(malformed) or spoilt(whole, rng, rng.choice([0, 1, 1, 2, 3]))
    LINES.append(labelled(name, schema, valid, invalid, texts_of(otherwise, rng), malformed))


def cases(family, rows):
    for name, *rest in rows:
        case(f"{family}/{name}", *rest)


# ---- short names ----

STR, INT, NUM = {"type": "string"}, {"type": "integer"}, {"type": "number"}
BOOL, NULL = {"type": "boolean"}, {"type": "null"}


def obj(must=None, may=None, **more):
    """An object's schema, of the properties that must and those that may be there."""
    must, may = must or {}, may or {}
    out = {"type": "object", "properties": must | may}
    return out | ({"required": list(must)} if must else {}) | more


def closed(must=None, may=None, **more):
    return obj(must, may, additionalProperties=False, **more)


def arr(items, **more):
    return {"type": "array", "items": items, **more}


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


def one_of(*values):
    return {"enum": list(values)}


def either(*schemas):
    return {"anyOf": list(schemas)}


def strs(**more):
    return {"type": "string", **more}


def ints(**more):
    return {"type": "integer", **more}


def nums(**more):
    return {"type": "number", **more}


# ---- families: types ----

SAMPLES = {
    "null": [None],
    "boolean": [True, False],
    "integer": [0, -7, 42, 123456789012345678901234567890],
    "number": [0.5, -12.75, 3, 0],
    "string": ["", "moon", "null", "17", 'a "b" \\ c'],
    "array": [[], [1, "x", None], [[[]]]],
    "object": [{}, {"a": 1}, {"b": {"c": []}}],
}


def values_outside(types):
    """Sample values of no type named."""
    wide = set(types) | ({"integer"} if "number" in types else set())
    for t, values in SAMPLES.items():
        if t == "number":
            yield from [] if "number" in wide else [0.5, -12.75]
        elif t not in wide:
            yield from values[:2]


def types():
    for t in SAMPLES:
        for form, schema in (("plain", {"type": t}), ("in_array", {"type": [t]})):
            valid, invalid = SAMPLES[t][:6], list(values_outside([t]))[:8]
            otherwise = {"integer": [Text("1.0"), Text("1e2"), Text("-0")], "number": [Text("1e2"), Text("-2.5E-3")]}
            otherwise = otherwise.get(t, [Text(" " + json.dumps(valid[0]) + "\n")])
            case(f"type/{t}/{form}", schema, valid, invalid, otherwise, few=t == "null")
    rng = random.Random("types")
    for i in range(14):
        some = rng.sample(sorted(SAMPLES), rng.choice([2, 2, 3, 4]))
        valid = [x for t in some for x in SAMPLES[t][:2]][:6]
        case(f"type/several/{'_'.join(some)}", {"type": some}, valid, list(values_outside(some))[:8])
    everything = list(SAMPLES)
    case("type/all", {"type": everything}, [SAMPLES[t][-1] for t in everything][:6], [], few=True)


def anything():
    values = [None, {"a": [1, {"b": "c"}]}, "x", -1.25, [[], {}], True]
    for name, schema in (
        ("empty", {}),
        ("true", True),
        ("only_notes", {"title": "T", "description": "whatever", "x-foo": {"type": "string"}}),
        ("only_defs", {"$defs": {"a": INT}, "$comment": "nobody refers to it"}),
        ("dialect", {"$schema": "https://json-schema.org/draft/2020-12/schema"}),
    ):
        case(f"anything/{name}", schema, values, [], few=True)
    case("nothing/false", False, [], values, few=True)
    case("anything/array_of_it", arr({}), [[], values], [{}, "x"])
    case("anything/array_of_true", arr(True), [[], values], [{}, "x", None])
    case("nothing/array_of_false", arr(False), [[], Text("[ ]")], [[1], [None], [[]], {}])
    case("anything/property", closed({"v": {}}), [{"v": x} for x in values], [{}, {"w": 1}, None, []])
    case("anything/property_true", closed({"v": True}, {"w": {}}), [{"v": None}, {"w": 1, "v": {}}], [{"w": 1}, {}])
    case("nothing/property_false", obj({"a": INT}, {"b": False}), [{"a": 1}, {"a": 1, "c": 2}], [{"a": 1, "b": 2}, {}])
    untyped = [
        ("minLength", {"minLength": 3}, ["abc", 5, None, []], ["", "ab"]),
        ("minimum", {"minimum": 3}, [3, "x", [1], True], [2, -5, 2.5]),
        ("required", {"required": ["a"]}, [{"a": None}, 5, "a", []], [{}, {"b": 1}]),
        ("properties", {"properties": {"a": INT}}, [{"a": 1}, {}, {"b": "x"}, 7, "a"], [{"a": "x"}, {"a": None}]),
        ("items", {"items": INT}, [[1, 2], [], {}, "x"], [["x"], [1, None]]),
        ("pattern", {"pattern": "^a"}, ["ab", 5, None], ["ba", ""]),
        ("prefixItems", {"prefixItems": [INT, STR]}, [[1, "a"], [1], [], "x"], [["a"], [1, 2]]),
    ]
    cases("untyped", untyped)


# ---- families: objects ----


def objects():
    abc = {"a": INT, "b": STR, "c": BOOL}
    all_three = [{"a": 1, "b": "x", "c": True}, {"c": False, "a": 2, "b": ""}, {"b": "y", "c": True, "a": 3}]
    wrong = [{"a": "1", "b": "x", "c": True}, {"a": 1, "b": "x", "c": 0}, {"a": 1, "b": "x"}, {}, [], None]
    rows = [
        ("all_required", closed(abc), all_three, wrong + [{"a": 1, "b": "x", "c": True, "d": 1}]),
        ("all_required_open", obj(abc), all_three + [{"z": [], "a": 1, "b": "", "c": True}], wrong),
        ("all_optional", closed({}, abc), [{}, {"c": True}, {"b": "", "a": 1}] + all_three, [{"d": 1}, {"a": None}]),
        ("all_optional_open", obj({}, abc), [{}, {"d": 1}, {"d": {}, "b": ""}], [{"a": "x"}, {"d": 1, "b": 2}, 5]),
        ("two_of_three", closed({"a": INT, "c": BOOL}, {"b": STR}), all_three + [{"a": 1, "c": True}], [{"a": 1}, {}]),
        (
            "required_first_listed_last",
            {"type": "object", "properties": abc, "required": ["c", "a"], "additionalProperties": False},
            all_three + [{"c": True, "a": 0}],
            [{"c": True}, {"a": 0}, {"b": "x"}, {"c": True, "a": 0, "e": 0}],
        ),
        (
            "required_unlisted",
            {"type": "object", "properties": {"a": INT}, "required": ["z"]},
            [{"z": 1}, {"z": None, "a": 1}, {"a": 1, "y": 2, "z": "z"}],
            [{}, {"a": 1}, {"z": 1, "a": "x"}],
        ),
        (
            "required_unlisted_typed",
            {"type": "object", "required": ["z"], "additionalProperties": INT},
            [{"z": 1}, {"y": 0, "z": 5}],
            [{}, {"y": 0}, {"z": "1"}, {"z": 1, "y": None}],
        ),
        (
            "required_but_closed",
            obj({}, {"a": closed({}, {"b": INT}, required=["z"])}),
            [{}, {"c": 1}],
            [{"a": {}}, {"a": {"z": 1}}, {"a": {"b": 1}}],
        ),
        ("required_empty", obj({}, {"a": INT}, required=[]), [{}, {"a": 1}], [{"a": "x"}, []]),
        ("no_properties_closed", closed(), [{}, Text("{ }"), Text("{\n}")], [{"a": 1}, {"": None}, []]),
        ("no_properties_open", obj(), [{}, {"a": 1}], [[], "{}"]),
        (
            "map_of_ints",
            {"type": "object", "additionalProperties": INT},
            [{}, {"a": 1}, {"": 0}],
            [{"a": "1"}, {"a": 1.5}],
        ),
        (
            "map_of_lists",
            {"type": "object", "additionalProperties": arr(STR)},
            [{"a": []}, {"a": ["x"], "b": ["y", "z"]}],
            [{"a": [1]}, {"a": "x"}, {"a": ["x"], "b": None}],
        ),
        (
            "rest_typed",
            obj({"id": INT}, {"name": STR}, additionalProperties=BOOL),
            [{"id": 1}, {"id": 1, "x": True}, {"y": False, "name": "n", "id": 2}],
            [{"id": 1, "x": 1}, {"x": True}, {"id": 1, "name": True}, {"id": True}],
        ),
        (
            "rest_true",
            obj({"id": INT}, additionalProperties=True),
            [{"id": 1, "x": {"y": 1}}, {"x": 1, "id": 1}],
            [{"x": 1}, {"id": "x", "x": 1}],
        ),
        (
            "names_alike",
            closed({"a": INT, "ab": STR}, {"abc": BOOL, "abcd": NULL}),
            [{"a": 1, "ab": ""}, {"abcd": None, "abc": True, "ab": "", "a": 1}],
            [{"a": 1, "ab": "", "abcde": 1}, {"a": "", "ab": 1}, {"ab": ""}, {"a": 1, "ab": "", "": 1}],
        ),
        (
            "names_alike_rest_typed",
            obj({"count": INT}, {"country": STR}, additionalProperties=NULL),
            [{"count": 1}, {"count": 1, "countr": None, "counts": None}, {"count": 1, "country": "x"}],
            [{"count": None}, {"count": 1, "countr": "x"}, {"count": 1, "country": None}],
        ),
        (
            "nested_closed",
            closed({"a": closed({"b": closed({"c": INT})})}),
            [{"a": {"b": {"c": 1}}}, Text('{\t"a" : {"b":{ "c" :-5}}}')],
            [{"a": {"b": {}}}, {"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": 1}}, "b": 1}, {"a": {"c": 1}}],
        ),
        (
            "many",
            closed({f"r{i}": INT for i in range(12)}, {f"o{i}": STR for i in range(12)}),
            [
                {f"r{i}": i for i in range(12)},
                {f"r{i}": i for i in reversed(range(12))} | {"o7": "x"},
                {"o1": "y"} | {f"r{i}": i for i in (3, 1, 2, 0, 11, 5, 4, 7, 6, 9, 8, 10)} | {"o0": ""},
            ],
            [{f"r{i}": i for i in range(11)}, {f"r{i}": i for i in range(12)} | {"o12": "x"}, {"o1": "x"}],
        ),
    ]
    cases("object", rows)


def patterns_of_names():
    rows = [
        (
            "prefixes",
            {"type": "object", "patternProperties": {"^s_": STR, "^n_": NUM}, "additionalProperties": False},
            [{}, {"s_a": "x"}, {"n_1": 1.5, "s_": ""}, {"n_": 0}],
            [{"s_a": 1}, {"n_a": "x"}, {"a": 1}, {"as_": "x"}, {"": 1}],
        ),
        (
            "open",
            {"type": "object", "patternProperties": {"^x-": STR}},
            [{}, {"x-a": "y"}, {"y": 5, "x-": ""}],
            [{"x-a": 5}, {"y": 5, "x-b": None}],
        ),
        (
            "unanchored",
            {"type": "object", "patternProperties": {"id": INT}, "additionalProperties": STR},
            [{"id": 1}, {"userid": 2, "name": "x"}, {"idle": 3}],
            [{"id": "x"}, {"userid": "x"}, {"name": 1}, {"x_id_y": None}],
        ),
        (
            "with_properties",
            {
                "type": "object",
                "properties": {"kind": STR},
                "patternProperties": {"^[0-9]+$": INT},
                "required": ["kind"],
            },
            [{"kind": "a"}, {"0": 1, "kind": "a", "17": 2}, {"kind": "a", "x": None}],
            [{"0": 1}, {"kind": "a", "0": "x"}, {"kind": 1}],
        ),
        (
            "both_apply",
            {
                "type": "object",
                "properties": {"n_max": {"maximum": 10}},
                "patternProperties": {"^n_": INT},
                "additionalProperties": False,
            },
            [{"n_max": 5}, {"n_min": 50, "n_max": -1}, {}],
            [{"n_max": 11}, {"n_max": "x"}, {"n_min": "x"}, {"m": 1}],
        ),
        (
            "digits_map",
            {"type": "object", "patternProperties": {"^[0-9]{4}$": NUM}, "additionalProperties": False},
            [{"2024": 1.5}, {"1999": 0, "2000": -1}, {}],
            [{"24": 1}, {"20245": 1}, {"2024": "x"}, {"202a": 1}],
        ),
        (
            "forbidden",
            {"type": "object", "patternProperties": {"^_": False}, "additionalProperties": INT},
            [{"a": 1}, {"a_": 2}],
            [{"_a": 1}, {"_": None}, {"a": "x"}],
        ),
        (
            "names_pattern",
            {"type": "object", "propertyNames": {"pattern": "^[a-z_][a-z0-9_]*$"}, "additionalProperties": INT},
            [{}, {"a": 1}, {"_x9": 2, "snake_case": 3}],
            [{"A": 1}, {"9a": 1}, {"": 1}, {"a b": 1}, {"a": "x"}],
        ),
        (
            "names_enum",
            {
                "type": "object",
                "propertyNames": one_of("red", "green", "blue"),
                "additionalProperties": ints(minimum=0),
            },
            [{}, {"red": 1}, {"blue": 0, "green": 2}],
            [{"pink": 1}, {"red": -1}, {"Red": 1}, {"redd": 1}],
        ),
        (
            "names_short",
            {"type": "object", "propertyNames": {"maxLength": 3}},
            [{}, {"abc": 1}, {"": None, "月月月": 1}, {"🌙🌙🌙": 1}],
            [{"abcd": 1}, {"a": 1, "long": 2}, {"🌙🌙🌙🌙": 1}],
        ),
        (
            "names_long",
            {"type": "object", "propertyNames": {"minLength": 2}, "additionalProperties": STR},
            [{"ab": "x"}, {}],
            [{"a": "x"}, {"": "x"}, {"ab": 1}, {"🌙": "x"}],
        ),
        (
            "names_const",
            {"type": "object", "propertyNames": {"const": "only"}},
            [{}, {"only": [1]}],
            [{"other": 1}, {"only": 1, "x": 2}],
        ),
        (
            "names_ref",
            {"type": "object", "propertyNames": ref("k"), "$defs": {"k": strs(pattern="^k[0-9]$")}},
            [{"k1": 1}, {"k9": {}, "k0": None}],
            [{"k": 1}, {"k10": 1}, {"K1": 1}],
        ),
    ]
    cases("names", rows)


def counts_of_properties():
    numbers = {"type": "object", "additionalProperties": INT}
    rows = [
        ("at_least_one", numbers | {"minProperties": 1}, [{"a": 1}, {"a": 1, "b": 2}], [{}, {"a": "x"}]),
        ("at_most_two", numbers | {"maxProperties": 2}, [{}, {"a": 1}, {"a": 1, "b": 2}],
            [{"a": 1, "b": 2, "c": 3}, []]),
        ("exactly_two", numbers | {"minProperties": 2, "maxProperties": 2}, [{"a": 1, "b": 2}, {"x": 0, "": 1}],
            [{}, {"a": 1}, {"a": 1, "b": 2, "c": 3}]),
        ("none", {"type": "object", "maxProperties": 0}, [{}, Text("{ }")], [{"a": 1}, {"": None}]),
        ("of_listed", closed({}, {"a": INT, "b": INT, "c": INT}, minProperties=2),
            [{"a": 1, "c": 2}, {"c": 1, "b": 2, "a": 3}], [{}, {"b": 1}, {"a": 1, "d": 2}]),
        ("of_listed_at_most", closed({"id": INT}, {"a": INT, "b": INT}, maxProperties=2),
            [{"id": 1}, {"b": 1, "id": 2}], [{"a": 1, "b": 2}, {"id": 1, "a": 1, "b": 2}, {}]),
    ]  # fmt: skip
    cases("count", rows)


ODD_NAMES = ["", " ", "  ", "3.55", "a.b", "a/b", "~", "~1", "a b", "$ref", "$id", "$defs", "type", "enum", "items"]
ODD_NAMES += ["properties", "required", "const", "null", "true", "0", "-1", 'quo"te', "back\\slash", "line\nfeed"]
ODD_NAMES += [
    "tab\there",
    "\u0001",
    "\u007f",
    "é",
    "e\u0301",
    "名前",
    "🌙",
    "👩‍👩‍👧‍👦",
    "__proto__",
    "a" * 70,
    "%41",
    "#",
    "<|x|>",
]


def odd_names():
    """Property names that equal keywords, that need escapes, or are of other scripts."""
    rng = random.Random("names")
    for i in range(0, len(ODD_NAMES), 2):
        a, b = ODD_NAMES[i], ODD_NAMES[(i + 7) % len(ODD_NAMES)]
        schema = closed({a: INT}, {b: STR})
        valid = [{a: 1}, {b: "x", a: -2}, Text(spelled({a: 3, b: "y"}, rng))]
        case(f"odd_names/{i}", schema, valid, [{}, {b: "x"}, {a: "1"}, {a: 1, b: 2}, {a: 1, a + "x": 1}])
    keywords = {"type": STR, "enum": arr(STR), "items": INT, "properties": obj({"type": BOOL}), "minimum": NUM}
    case(
        "odd_names/keywords",
        closed({"type": STR, "properties": keywords["properties"]}, keywords),
        [{"type": "object", "properties": {"type": True}}, {"enum": ["a"], "properties": {"type": False}, "type": ""}],
        [{"type": "string"}, {"type": "x", "properties": {}}, {"properties": {"type": True}, "type": 1}],
    )
    case(
        "odd_names/schema_like",
        obj({"$schema": strs(), "$ref": STR}),
        [{"$schema": "x", "$ref": "#/$defs/none"}, {"$ref": "", "$schema": "y", "z": 1}],
        [{"$ref": "x"}, {"$ref": 1, "$schema": "x"}],
    )
    case(
        "odd_names/escaped_keys",
        closed({"name": STR, "größe": INT}),
        [Text(r'{"\u006eame": "x", "gr\u00f6\u00DFe": 1}'), Text('{"größe":1,"name":""}')],
        [
            Text(r'{"\u006Eame2":"x","größe":1}'),
            Text(r'{"name":"x","gr\u00f6\u00dfe":"1"}'),
            {"name": "x", "grosse": 1},
        ],
    )
    case(
        "odd_names/escaped_key_of_map",
        {"type": "object", "propertyNames": {"enum": ["a/b", "c\\d"]}, "additionalProperties": BOOL},
        [Text(r'{"a\/b": true}'), Text(r'{"\u0061/\u0062":true,"\u0063\u005cd":false}'), Text(r'{"c\\d":false}')],
        [Text(r'{"a\\b": true}'), Text(r'{"a\/b": 1}'), Text(r'{"\u0062/\u0062":true}')],
    )


# ---- families: arrays ----


def arrays():
    pair = {"type": "array", "prefixItems": [STR, INT]}
    rows = [
        ("strings", arr(STR), [[], ["a"], ["", "b", "c"]], [[1], ["a", None], "a", {}]),
        ("nested", arr(arr(INT)), [[], [[]], [[1], [], [2, 3]]], [[1], [[1], ["x"]], [[[1]]]]),
        ("of_objects", arr(closed({"x": INT})), [[], [{"x": 1}], [{"x": 1}, {"x": 2}]],
            [[{}], [{"x": 1}, {"y": 1}], [1]]),
        ("any", {"type": "array"}, [[], [1, "a", {}], [[None]]], [{}, "[]", 1]),
        ("min_1", arr(INT, minItems=1), [[1], [1, 2, 3]], [[], ["x"]]),
        ("max_2", arr(INT, maxItems=2), [[], [1], [1, 2]], [[1, 2, 3], [1, "x"]]),
        ("exactly_3", arr(NUM, minItems=3, maxItems=3), [[1, 2, 3], [0.5, -1, 2.25]],
            [[], [1, 2], [1, 2, 3, 4], [1, 2, "3"]]),
        ("max_0", arr(INT, maxItems=0), [[], Text("[ ]"), Text("[\n]")], [[1], [None]]),
        ("max_large", arr(INT, maxItems=100000), [[], [1], list(range(40))], [["x"], {}]),
        ("between_10_and_12", arr(INT, minItems=10, maxItems=12), [[0] * 10, [1] * 11, list(range(12))],
            [[0] * 9, [0] * 13, [], ["x"] * 10]),
        ("min_any", {"type": "array", "minItems": 2}, [[1, None], [[], {}, ""]], [[], [1]]),
        ("tuple_closed", pair | {"items": False}, [["a", 1], ["a"], []], [[1], ["a", "b"], ["a", 1, 2], {}]),
        ("tuple_exact", pair | {"items": False, "minItems": 2}, [["a", 1], ["", -5]],
            [["a"], [], ["a", 1, 2], [1, "a"]]),
        ("tuple_rest", pair | {"items": BOOL}, [["a", 1, True], [], ["a", 1], ["a", 1, True, False]],
            [["a", 1, 1], [True], ["a", True]]),
        ("tuple_open", pair, [["a", 1, None, {}], ["a"], []], [[1], ["a", "b"], ["a", "b", None]]),
        ("tuple_exact_3", {"type": "array", "prefixItems": [NUM, NUM, one_of("m", "km")], "minItems": 3, "maxItems": 3},
            [[1, 2.5, "m"], [0, 0, "km"]], [[1, 2], [1, 2, "mi"], [1, 2, "m", 3], ["m", 1, 2]]),
        ("tuple_false_inside", {"type": "array", "prefixItems": [INT, False]}, [[], [5]], [[5, 1], ["x"]]),
        ("tuple_max", {"type": "array", "prefixItems": [INT, INT, INT], "items": STR, "maxItems": 4},
            [[1, 2, 3, "x"], [1], []], [[1, 2, 3, "x", "y"], ["x"], [1, 2, 3, 4]]),
        ("contains", {"type": "array", "contains": INT}, [[1], ["a", 1, "b"]], [[], ["a"], [None, 1.5]]),
        ("contains_const", {"type": "array", "items": STR, "contains": {"const": "root"}}, [["root"], ["a", "root"]],
            [[], ["a"], ["root", 1]]),
        ("contains_two", {"type": "array", "items": either(STR, INT), "contains": INT, "minContains": 2},
            [[1, 2], ["a", 1, "b", 2]], [[1], ["a", "b"], [], [1, 2, None]]),
        ("contains_none_needed", {"type": "array", "contains": INT, "minContains": 0}, [[], ["a"], [1]], [{}, "x"]),
        ("enum_items", arr(one_of("r", "w", "x"), minItems=1), [["r"], ["x", "w", "r", "r"]], [[], ["rw"], ["r", "q"]]),
    ]  # fmt: skip
    cases("array", rows)


# ---- families: enum and const ----


def enums():
    zwj, flag = "👩‍👩‍👧‍👦", "🇩🇪"
    rows = [
        ("strings", one_of("red", "green", "blue"), ["red", "blue"], ["Red", "reds", "re", "", None, ["red"]]),
        ("typed_strings", strs(enum=["a", "ab", "abc"]), ["a", "ab", "abc"], ["", "abcd", "b", 1]),
        ("prefixes", one_of("north", "northeast", "northwest", "no"), ["no", "northwest"],
            ["n", "northe", "nor", "northeastx"]),
        ("empty_string", one_of("", "x"), ["", "x"], [" ", "xx", None]),
        ("only_empty_string", one_of(""), [""], [" ", None, [], {}]),
        ("escapes", one_of('say "hi"', "back\\slash", "a/b", "line\nfeed", "tab\t"),
            [Text(r'"say \"hi\""'), Text(r'"say \u0022hi\u0022"'), Text(r'"back\\slash"'), Text(r'"a\/b"'),
            Text(r'"line\u000afeed"'), Text(r'"tab\t"')],
            [Text(r'"say hi"'), Text(r'"back\\\\slash"'), Text(r'"line\\nfeed"'), Text(r'"tab"'), Text(r'"a\\/b"')]),
        ("control_characters", one_of("\u0001", "\u001f", "\u007f", "\b\f"),
            [Text(r'"\u0001"'), Text(r'"\u001F"'), "\u007f", Text(r'"\b\f"'), Text(r'"\u0008\u000c"')],
            [Text(r'"\u0002"'), Text(r'"\\u0001"'), "", Text(r'"\b"')]),
        ("nul", one_of("a\u0000b", "c"), [Text(r'"a\u0000b"'), "c"], ["ab", "a", Text(r'"a\u0001b"')]),
        ("backslashes", one_of("\\", "\\\\", "\\n"),
            [Text(r'"\\"'), Text(r'"\\\\"'), Text(r'"\\n"'), Text(r'"\u005c"'), Text(r'"\u005Cn"')],
            [Text(r'"\n"'), Text(r'"\\\\\\"'), "", "n", "/"]),
        ("emoji", one_of(zwj, flag, "❤️", "👍🏽"), [zwj, flag, "❤️", Text(r'"\ud83d\udc4d\uD83C\uDFFD"')],
            ["👩", "❤", "👍", "👍🏼", "🇩🇰", zwj + zwj]),
        ("cjk", one_of("北京", "北", "上海"), ["北京", "北", Text(r'"\u5317\u4eac"'), Text(r'"上\u6d77"')],
            ["京", "北京市", "上", Text(r'"\u5317\u4eab"')]),
        ("normal_forms", one_of("é", "n"), ["é", Text(r'"\u00e9"'), "n"], ["e\u0301", "e", "\u00c9"]),
        ("outside_bmp", one_of("𝒳", "𐍈"), ["𝒳", Text(r'"\ud835\udcb3"'), "𐍈"], ["X", "𝒴", Text(r'"\ud835\udcb4"')]),
        ("integers", one_of(0, 1, 10, 100, -1), [0, 10, 100, -1], [2, 11, 1000, "1", False, 10.5]),
        ("integers_typed", ints(enum=[8, 16, 32]), [8, 32], [1, 3, 162, "8", 8.5, None]),
        ("decimals", one_of(0.5, 1.25, -3.75), [0.5, -3.75], [0.25, 1.2, 3.75, "0.5", 0]),
        ("booleans", one_of(True, False), [True, False], [1, 0, "true", None]),
        ("only_true", one_of(True), [True], [False, 1, "true"]),
        ("null_only", one_of(None), [None], [0, "", False, "null"]),
        ("mixed", one_of("auto", 0, None, True), ["auto", 0, None, True], ["", 1, False, "null", []]),
        ("type_narrows", {"type": "string", "enum": ["a", 1, None]}, ["a", Text(r'"\u0061"')], [1, None, "b"]),
        ("nullable_typed", {"type": ["string", "null"], "enum": ["x", "y", None]}, ["x", None], ["z", "", 0]),
        ("objects", one_of({"a": 1}, {"a": 1, "b": [2]}, {}), [{"a": 1}, {}, {"b": [2], "a": 1}],
            [{"a": 2}, {"b": [2]}, {"a": 1, "b": []}, [], None]),
        ("arrays", one_of([], [1, 2], ["x", None]), [[], [1, 2], ["x", None]], [[1], [2, 1], [1, 2, 3], {}, ["x"]]),
        ("numbers_in_strings", one_of("1", "1.0", "01"), ["1", "1.0", "01"], [1, "1.00", "0", "001"]),
        ("many", one_of(*[f"item_{i:03d}" for i in range(150)]), ["item_000", "item_077", "item_149"],
            ["item_150", "item_1", "item_0777", 77]),
        ("twice_the_same", one_of("a", "b", "a"), ["a", "b"], ["c", "ab"]),
        ("spaces", one_of(" a", "a ", "a  b"), [" a", "a ", "a  b"], ["a", "a b", "  a"]),
        ("json_inside", one_of('{"a":1}', "[]"), ['{"a":1}', "[]"], [{"a": 1}, [], '{"a": 1}']),
    ]  # fmt: skip
    for name, schema, valid, invalid in rows:
        case(f"enum/{name}", schema, valid, invalid, few=len(valid) < 2)
    case(
        "enum/spelled_numbers",
        one_of(1, 2.5),
        [1, 2.5],
        [2, 1.5],
        [Text("1.0"), Text("2.50"), Text("25e-1"), Text("1E0")],
    )


def consts():
    rows = [
        ("string", {"const": "fixed"}, ["fixed", Text(r'"\u0066ixed"')], ["fixe", "fixedd", "", None, ["fixed"]]),
        ("string_empty", {"const": ""}, [""], [" ", None, "x"]),
        ("integer", {"const": 42}, [42], [4, 421, -42, "42", None]),
        ("zero", {"const": 0}, [0], [1, False, "", "0"]),
        ("negative", {"const": -1.5}, [-1.5], [1.5, -1, -1.25]),
        ("true", {"const": True}, [True], [False, 1, "true"]),
        ("null", {"const": None}, [None], [False, 0, "null"]),
        ("empty_object", {"const": {}}, [{}, Text("{ }")], [{"a": 1}, [], None]),
        ("object", {"const": {"b": 1, "a": [True, None]}}, [{"b": 1, "a": [True, None]}, {"a": [True, None], "b": 1}],
            [{"b": 1}, {"b": 1, "a": [True]}, {"b": 1, "a": [True, None], "c": 1}]),
        ("array", {"const": [1, "x", {}]}, [[1, "x", {}], Text('[ 1 ,"x", { }\n]')],
            [[1, "x"], ["x", 1, {}], [1, "x", {}, 1]]),
        ("in_object", closed({"version": {"const": 2}, "kind": {"const": "a\"b"}}),
            [{"version": 2, "kind": 'a"b'}, {"kind": 'a"b', "version": 2}],
            [{"version": 1, "kind": 'a"b'}, {"version": 2, "kind": "ab"}, {"version": 2}]),
        ("with_type", {"type": "string", "const": "a"}, ["a", Text(r'"\u0061"')], ["b", 1]),
        ("unicode", {"const": "日本🌙"}, ["日本🌙", Text(r'"\u65e5\u672c\ud83c\udf19"')], ["日本", "日本🌚", "日本🌙 "]),
    ]  # fmt: skip
    for name, schema, valid, invalid in rows:
        case(f"const/{name}", schema, valid, invalid, few=True)


# ---- families: strings ----


def lengths():
    moon, family = "🌙", "👨‍👩‍👦"  # the second is five characters
    rows = [
        ("min_1", strs(minLength=1), ["a", " ", moon, Text(r'"\n"'), Text(r'"\u00e9"')], ["", None]),
        ("min_3", strs(minLength=3), ["abc", moon * 3, "äöü", Text(r'"\ud83c\udf19\u0041\\"')],
            ["", "ab", moon * 2, Text(r'"\ud83c\udf19\u0041"'), Text(r'"\u00e4\""')]),
        ("max_0", {"type": ["string", "null"], "maxLength": 0}, ["", None], [" ", "a", Text(r'"\n"')]),
        ("max_1", strs(maxLength=1), ["", "x", moon, Text(r'"\ud83c\udf19"'), Text(r'"\/"')],
            ["xy", moon * 2, "e\u0301", Text(r'"\\\\"')]),
        ("max_5", strs(maxLength=5), ["", "12345", moon * 5, family, "日本語日本"],
            ["123456", moon * 6, family + "!", Text(r'"\u0031\u0032\u0033456"')]),
        ("exactly_4", strs(minLength=4, maxLength=4), ["abcd", moon + "bcd", Text(r'"\t\"\\\u0000"')],
            ["abc", "abcde", moon * 2, ""]),
        ("between", strs(minLength=2, maxLength=10), ["ab", "abcdefghij", "月" * 7], ["a", "abcdefghijk", "月"]),
        ("max_large", strs(maxLength=5000000), ["", "x" * 300, moon], [5, None, ["x"]]),
        ("max_large_min_2", strs(minLength=2, maxLength=5000000), ["ab", "x" * 100], ["", "a", moon]),
        ("min_large", strs(minLength=200), ["x" * 200, moon * 200], ["x" * 199, moon * 100, ""]),
        ("min_0", strs(minLength=0), ["", "a"], [0, None]),
        ("as_float", strs(minLength=2.0, maxLength=3.0), ["ab", "abc"], ["a", "abcd"]),
        ("nullable", {"type": ["string", "null"], "minLength": 2}, [None, "ab"], ["a", "", 12]),
        ("plain", STR, [Text(r'"\"\\\/\b\f\n\r\t"'), Text(r'"\u00e9\uD83C\uDF19"'), "\u2028\u2029", "\u007f", "'"],
            [1, None, [], {}]),
    ]  # fmt: skip
    cases("length", rows)
    case(
        "length/plain_malformed",
        STR,
        ["a", "b"],
        [1, None],
        malformed=[
            '"a',
            "'a'",
            '"\n"',
            '"\t"',
            r'"\x41"',
            r'"\u12"',
            r'"\u12g4"',
            '"a""b"',
            'a"',
            r'"\"',
            "a",
            '"\u0001"',
        ],
    )


def patterns():
    rows = [
        ("anchored", "^[a-z]+$", ["a", "abc"], ["", "A", "abc1", " abc", "a b"]),
        ("unanchored", "[0-9]", ["1", "a1b", "x 9"], ["", "abc", "x y"]),
        ("unanchored_word", "cat", ["cat", "concatenate", "a cat!"], ["", "ca t", "CAT", "cta"]),
        ("begin_only", "^ab", ["ab", "abc", "ab\n"], ["", "a", "xab", "ba"]),
        ("end_only", "ab$", ["ab", "xab", "\nab"], ["", "abx", "a", "ba"]),
        ("phone", r"^\+?[0-9]{3}-[0-9]{4}$", ["555-1234", "+555-1234"],
            ["5551234", "555-123", "555-12345", "++555-1234"]),
        ("zip", r"^\d{5}(-\d{4})?$", ["12345", "12345-6789"], ["1234", "123456", "12345-", "12345-678", "abcde"]),
        ("alternation", "^(foo|bar|bazaar)$", ["foo", "bar", "bazaar"], ["fo", "foobar", "baz", "bazaarx", ""]),
        ("alternation_open", "foo|^ba", ["foo", "a foo", "bar"], ["", "xba", "fo", "fo o"]),
        ("branches_anchored", "^a$|^bb$", ["a", "bb"], ["", "b", "abb", "aa"]),
        ("optional", "^colou?r$", ["color", "colour"], ["colouur", "colr", "Color"]),
        ("star", "^a*b$", ["b", "ab", "aaaaab"], ["a", "", "ba", "aab "]),
        ("bounded", "^x{2,4}$", ["xx", "xxx", "xxxx"], ["x", "xxxxx", "", "xxy"]),
        ("bounded_below", "^(ab){2,}$", ["abab", "ababab"], ["ab", "aba", "abab "]),
        ("bounded_exact", "^[A-F0-9]{6}$", ["00FF7A", "ABCDEF"], ["00ff7a", "00FF7", "00FF7AA", "00FF7G"]),
        ("color", "^#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$", ["#fff", "#A1b2C3"], ["#ffff", "fff", "#ggg", "#1234567"]),
        ("semver", r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$", ["0.0.1", "10.20.30"],
            ["1.2", "01.2.3", "1.2.3.4", "1.2.x"]),
        ("slug", "^[a-z0-9]+(?:-[a-z0-9]+)*$", ["a", "hello-world-2"], ["-a", "a-", "a--b", "A", ""]),
        ("hex_escape", r"^\x41\u0042$", ["AB", Text(r'"\u0041B"')], ["ab", "A", "ABC"]),
        ("class_negated", "^[^0-9]+$", ["abc", "é🌙", " "], ["", "a1", "9"]),
        ("class_odd", r"^[-\]^\\a]+$", ["-", "]^", "\\a"], ["b", "", "[", "/"]),
        ("dot", "^a.c$", ["abc", "a🌙c", "a.c"], ["ac", "abbc", "a\nc"]),
        ("dot_star", "^.*end$", ["end", "the end", "🌙end"], ["ends", "en", ""]),
        ("quotes", '^"[a-z]*"$', ['""', '"abc"', Text(r'"\u0022x\u0022"')], ["abc", '"', '"abc', "'a'"]),
        ("backslash", r"^[A-Z]:\\[a-z]+$", ["C:\\temp", Text(r'"D:\u005cx"')], ["C:/temp", "C:temp", "c:\\temp"]),
        ("slash", r"^\/[a-z]+\/$", ["/usr/", Text(r'"\/usr\/"')], ["usr", "/usr", "//"]),
        ("line_feed", r"^a\nb$", ["a\nb", Text(r'"a\u000Ab"')], ["ab", "a b", "a\\nb"]),
        ("unicode_literal", "^[äöü]+$", ["ä", "öü", Text(r'"\u00e4"')], ["a", "", "äx", "Ä"]),
        ("unicode_range", "^[一-龥]{2,3}$", ["北京", "上海市"], ["北", "北京上海", "ab", "きた"]),
        ("astral_literal", "^🌙{2}$", ["🌙🌙", Text(r'"\ud83c\udf19🌙"')], ["🌙", "🌙🌙🌙", "🌚🌙"]),
        ("astral_class", "^[🌑-🌘]$", ["🌑", "🌓", "🌘"], ["🌙", "🌑🌒", "", "x"]),
        ("word_space", r"^\w+\s\w+$", ["ab cd", "a_1\tb"], ["ab", "ab  cd", "a-b c", ""]),
        ("not_word", r"^\D\W\S$", ["a-b", "x.y"], ["1-b", "abc", "a- ", "a-"]),
        ("lazy", "^a+?b*?$", ["a", "aab"], ["", "b", "aba"]),
        ("groups", "^(x|y)(z)$", ["xz", "yz"], ["x", "z", "xyz"]),
        ("nothing_or_a", "^(|a)$", ["", "a"], ["aa", " "]),
        ("anything", ".*", ["", "abc"], [1, None]),
        ("empty", "", ["", "abc"], [1, None]),
        ("ticket", "^[A-Z]{2,10}-[1-9][0-9]*$", ["AB-1", "PROJECT-120"], ["A-1", "AB-0", "AB-01", "AB1", "ab-1"]),
        ("arn", "^arn:aws:[a-z0-9-]+:[a-z0-9-]*:[0-9]{12}:.+$",
            ["arn:aws:s3:eu-west-1:123456789012:b/x", "arn:aws:iam::123456789012:r"],
            ["arn:aws:s3", "arn:aws:s3:x:12345:b", "arn:aws:iam::123456789012:"]),
    ]  # fmt: skip
    for name, pattern, valid, invalid in rows:
        case(f"pattern/{name}", strs(pattern=pattern), valid, invalid)
    case("pattern/and_length", strs(pattern="^[a-z]+$", minLength=2, maxLength=4), ["ab", "abcd"], ["a", "abcde", "aB"])
    case("pattern/and_length_open", strs(pattern="x", maxLength=3), ["x", "axb"], ["", "abx!", "abc"])


FORMATS = {
    "date-time": (
        ["2024-02-29T23:59:59Z", "1999-12-31T00:00:00.123+05:30", "2030-06-15T12:00:00-08:00"],
        ["2024-02-30T00:00:00Z", "2024-01-01", "2024-13-01T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00Z", "",
            "now"],
    ),
    "date": (
        ["2024-02-29", "1999-12-31", "2000-01-01"],
        ["2024-2-29", "2024-04-31", "2024-00-10", "29.02.2024", "", "2024-01-01T00:00:00Z", "24-01-01"],
    ),
    "time": (
        ["23:59:59Z", "00:00:00+00:00", "12:30:15.5-03:00"],
        ["24:00:00Z", "12:60:00Z", "12:30Z", "12h30", "", "1:02:03Z"],
    ),
    "email": (["a@example.com", "first.last@sub.example.org", "x_1@y.io"], ["example.com", "", "a.b", "nobody"]),
    "uuid": (
        ["123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-000000000000"],
        ["123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400",
            "123e4567-e89b-12d3-a456-42661417400g", ""],
    ),
    "ipv4": (["127.0.0.1", "255.255.255.255", "8.8.8.8"], ["256.1.1.1", "1.2.3", "1.2.3.4.5", "a.b.c.d", "",
        "1.2.3.4 "]),
    "ipv6": (["::1", "2001:db8::8a2e:370:7334", "::", "fe80:0:0:0:1:2:3:4"], [":::", "1:2:3", "12345::", "127.0.0.1",
        "::g", ""]),
    "uri": (["https://example.com/a?b=c#d", "mailto:a@example.com", "urn:isbn:123"], ["example.com", "/a/b", "",
        "http://a b", "//x"]),
}  # fmt: skip


def formats():
    for name, (valid, invalid) in FORMATS.items():
        key = name.replace("-", "_")
        case(f"format/{key}", strs(format=name), valid, invalid + [5])
        good, bad = valid[0], invalid[0]
        schema = closed({"id": INT}, {"v": {"anyOf": [strs(format=name), NULL], "default": None}})
        case(
            f"format/{key}_or_null",
            schema,
            [{"id": 1, "v": good}, {"v": None, "id": 2}],
            [{"id": 1, "v": bad}, {"id": 1, "v": 5}],
        )
        case(f"format/{key}_list", arr(strs(format=name), minItems=1), [valid[:2], [valid[-1]]], [[], [good, bad]])
    case("format/without_type", {"format": "date"}, ["2024-01-01", 5, None], ["x", "2024-1-1"])
    case("format/unknown", strs(format="colour-of-the-moon"), ["grey", ""], [1, None])
    case(
        "format/escaped",
        strs(format="date"),
        [Text(r'"2024\u002d01-01"'), "2024-01-01"],
        [Text(r'"2024\u002f01-01"'), "x"],
    )


# ---- families: numbers ----


def numbers():
    t = Text
    rows = [
        ("int_min_0", ints(minimum=0), [0, 1, 99999999999], [-1, -100, 0.5, "0"], [t("-0"), t("3.0"), t("1e2")]),
        ("int_min_1", ints(minimum=1), [1, 10, 123], [0, -1, -123]),
        ("int_0_to_100", ints(minimum=0, maximum=100), [0, 7, 55, 99, 100], [-1, 101, 1000, 500, 5.5],
            [t("100.0"), t("1e2")]),
        ("int_1_to_12", ints(minimum=1, maximum=12), [1, 9, 10, 12], [0, 13, 20, 100, -1]),
        ("int_17_to_223", ints(minimum=17, maximum=223), [17, 20, 99, 100, 199, 223], [16, 1, 9, 224, 230, 300, 1000]),
        ("int_negative", ints(minimum=-25, maximum=-3), [-25, -3, -10, -19], [-26, -2, 0, 3, 10, -100]),
        ("int_around_0", ints(minimum=-5, maximum=5), [-5, 0, 5, -1], [-6, 6, 10, -10, 55], [t("-0"), t("5.0")]),
        ("int_exclusive", ints(exclusiveMinimum=0, exclusiveMaximum=10), [1, 9, 5], [0, 10, -1, 11, 100], [t("9.0")]),
        ("int_exclusive_negative", ints(exclusiveMinimum=-10, exclusiveMaximum=0), [-9, -1], [-10, 0, -11, 1], ()),
        ("int_max_only", ints(maximum=7), [7, 0, -1000], [8, 10, 70]),
        ("int_exclusive_max_only", ints(exclusiveMaximum=7), [6, -7], [7, 8, 70]),
        ("int_fractional_bounds", ints(minimum=0.5, maximum=3.5), [1, 2, 3], [0, 4, 1.5]),
        ("int_fractional_exclusive", ints(exclusiveMinimum=-0.5, exclusiveMaximum=1.5), [0, 1], [2, -1, 0.5]),
        ("int_one_value", ints(minimum=3, maximum=3), [3], [2, 4, 33]),
        ("int_port", ints(minimum=1, maximum=65535), [1, 80, 8080, 65535], [0, 65536, 70000, 99999, -80]),
        ("int_32_bits", ints(minimum=-(2**31), maximum=2**31 - 1), [-(2**31), 2**31 - 1, 0], [2**31, -(2**31) - 1]),
        ("int_64_bits", ints(minimum=-(2**63), maximum=2**63 - 1), [2**63 - 1, -(2**63), 5],
            [2**63 + 4096, -(2**63) - 4096]),
        ("int_safe", ints(minimum=-(2**53) + 1, maximum=2**53 - 1), [2**53 - 1, 0], [2**53, -(2**53)]),
        ("int_large_float", ints(minimum=0, maximum=1e16), [0, 10**16, 9999999999999998], [10**16 + 2, 10**17, -1]),
        ("int_wide", ints(minimum=-(10**18), maximum=10**18), [10**18, -(10**18)], [10**18 + 1, -(10**19)]),
        ("num_min_0", nums(minimum=0), [0, 0.5, 1234.5678], [-1, -0.001, "1"], [t("-0"), t("1e3"), t("0.0")]),
        ("num_0_to_1", nums(minimum=0, maximum=1), [0, 0.3, 1, 0.999999], [-0.1, 1.0001, 2, 10], [t("1.0"), t("5e-1")]),
        ("num_exclusive_0_to_1", nums(exclusiveMinimum=0, exclusiveMaximum=1), [0.5, 0.0001, 0.9999],
            [0, 1, -0.5, 1.5]),
        ("num_percent", nums(minimum=0, maximum=100), [0, 99.99, 100, 7.25], [100.01, -1, 101, 1000]),
        ("num_latitude", nums(minimum=-90, maximum=90), [-90, 90, 0, 48.137, -33.5], [90.5, -90.0001, 91, 180]),
        ("num_decimal_bounds", nums(minimum=-1.5, maximum=2.25), [-1.5, 2.25, 0, -1.4999, 2.2], [-1.51, 2.26, 3, -2]),
        ("num_decimal_exclusive", nums(exclusiveMinimum=0.1, exclusiveMaximum=0.3), [0.2, 0.11, 0.2999],
            [0.1, 0.3, 0, 1]),
        ("num_small", nums(minimum=0.001, maximum=0.01), [0.001, 0.005, 0.01], [0.0009, 0.011, 0, 1]),
        ("num_negative", nums(maximum=-0.5), [-0.5, -1, -100.25], [-0.4, 0, 1]),
        ("num_exclusive_min_only", nums(exclusiveMinimum=0), [0.001, 1, 1000], [0, -1, -0.5], [t("1e-9")]),
        ("num_minus_zero_bound", nums(minimum=-0.0, maximum=0.5), [0, 0.25], [-0.25, 1], [t("-0"), t("-0.0")]),
        ("num_large", nums(minimum=-1e16, maximum=1e16), [10**16, -(10**16), 0.5], [2 * 10**16, -3 * 10**16]),
        ("num_one_value", nums(minimum=2.5, maximum=2.5), [2.5], [2, 2.49, 2.51], [t("2.50")]),
        ("num_both_kinds", nums(minimum=0, exclusiveMinimum=5, maximum=10), [5.5, 10], [5, 0, 11]),
        ("int_multiple_5", ints(multipleOf=5), [0, 5, -10, 12345], [1, -4, 51, "5"], [t("10.0"), t("1e1")]),
        ("int_multiple_7", ints(multipleOf=7), [0, 7, 14, -21, 7007], [1, 15, -20, 70071]),
        ("int_multiple_64_ranged", ints(multipleOf=64, minimum=64, maximum=1024), [64, 128, 1024], [0, 63, 1088, 100]),
        ("int_multiple_2_ranged", ints(multipleOf=2, minimum=0, maximum=10), [0, 2, 8, 10], [1, 9, 12, -2]),
        ("int_multiple_1", ints(multipleOf=1), [0, -3], [0.5, "1"]),
        ("num_multiple_cents", nums(multipleOf=0.01), [0, 1, 0.25, 12.5, -3.75], [0.001, 0.255, 1.005]),
        ("num_multiple_half", nums(multipleOf=0.5), [0, 0.5, -1.5, 3, 100.5], [0.25, 1.1, -0.75],
            [t("1.0"), t("1.50")]),
        ("num_multiple_5", nums(multipleOf=5), [0, 5, -15, 100], [1, 2.5, 7]),
        ("num_multiple_half_ranged", nums(multipleOf=0.5, minimum=0, maximum=5), [0, 4.5, 5], [5.5, 0.3, -0.5]),
        ("no_type_bounds", {"minimum": 0, "maximum": 5}, [0, 5, 2.5, "x"], [-1, 6]),
        ("plain_int", INT, [0, -1, 10**30, t("-0")], [0.5, "1", None, True],
            [t("1.0"), t("-3.000"), t("1E+2"), t("100e-2")]),
        ("plain_num", NUM, [0, -0.5, 10**30, t("1.0"), t("0.000"), t("-0.10")], ["1", None],
            [t("1e5"), t("1E-5"), t("2.5e+3")]),
    ]  # fmt: skip
    for name, schema, valid, invalid, *otherwise in rows:
        case(f"number/{name}", schema, valid, invalid, *otherwise, few=len(valid) < 2)
    bad = "01 -01 +1 .5 1. -.5 - 1e 1e+ 0x10 NaN Infinity -Infinity 1_000 1,000 --1 1.2.3 00 -00".split() + [
        "1 2",
        "1;",
        "- 1",
    ]
    case("number/malformed", NUM, [1, 0.5], ["1", None], malformed=bad)
    case("number/malformed_int", INT, [1, 0], ["1", None], malformed=bad[:10])


# ---- families: one of several schemas ----


def alternatives():
    cat, dog = closed({"kind": {"const": "cat"}, "lives": INT}), closed({"kind": {"const": "dog"}, "name": STR})
    by_enum = obj({"op": one_of("add", "sub"), "args": arr(NUM)}), obj({"op": one_of("neg"), "arg": NUM})
    pets = [{"kind": "cat", "lives": 9}, {"name": "Rex", "kind": "dog"}, {"lives": 1, "kind": "cat"}]
    no_pets = [
        {"kind": "cat"},
        {"kind": "cat", "name": "x"},
        {"kind": "cow", "lives": 1},
        {"lives": 9},
        {"kind": "dog", "lives": 2},
        {},
    ]
    wider = {"anyOf": [obj({"a": INT}), obj({"b": STR})]}
    rows = [
        ("string_or_int", either(STR, INT), ["x", 5], [1.5, None, [], True]),
        ("string_or_null", either(STR, NULL), ["x", None, "null"], [0, False, {}]),
        ("two_lengths", either(strs(maxLength=2), strs(minLength=5)), ["", "ab", "abcde"], ["abc", "abcd"]),
        ("two_ranges", either(ints(maximum=0), ints(minimum=100)), [0, -5, 100], [1, 50, 99]),
        ("overlap", either(ints(minimum=0, maximum=10), ints(minimum=5, maximum=20)), [0, 7, 20], [-1, 21]),
        ("const_or_pattern", either({"const": "auto"}, strs(pattern="^[0-9]+px$")), ["auto", "12px"],
            ["", "autopx", "px", "12"]),
        ("list_or_one", either(STR, arr(STR)), ["x", [], ["x", "y"]], [1, [1], ["x", None]]),
        ("objects_overlap", wider, [{"a": 1}, {"b": "x"}, {"a": "x", "b": "x"}, {"a": 1, "b": 2}],
            [{}, {"a": "x"}, {"b": 1}]),
        ("objects_closed", either(closed({"a": INT}), closed({"b": STR})), [{"a": 1}, {"b": "x"}],
            [{}, {"a": 1, "b": "x"}, {"b": 1}]),
        ("objects_grow", either(closed({"a": INT}), closed({"a": INT, "b": INT})),
            [{"a": 1}, {"a": 1, "b": 2}, {"b": 1, "a": 2}], [{"b": 1}, {"a": 1, "c": 1}]),
        ("same_key_other_type", either(closed({"v": INT, "u": STR}), closed({"v": STR, "w": INT})),
            [{"v": 1, "u": ""}, {"v": "", "w": 1}, {"w": 1, "v": ""}],
            [{"v": 1, "w": 1}, {"v": "", "u": ""}, {"v": 1}]),
        ("pets", either(cat, dog), pets, no_pets),
        ("arrays", either(arr(INT), arr(STR)), [[], [1, 2], ["a", "b"]], [[1, "a"], ["a", 1], [None]]),
        ("nested_any", either(either(INT, NULL), either(BOOL, arr(INT))), [1, None, True, [1]], ["x", 1.5, [True]]),
        ("single", either(INT), [1, 2], ["x", None]),
        ("with_siblings", {"type": "string", "anyOf": [{"minLength": 3}, {"const": "x"}]}, ["x", "abc"], ["ab", "", 5]),
        ("siblings_object", obj({"id": INT}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
            [{"id": 1, "a": 1}, {"b": 1, "id": 1}], [{"id": 1}, {"a": 1}]),
        ("types_many", either(STR, NUM, BOOL, NULL, arr({}), obj()), ["x", 0.5, True, None, [1], {}], []),
    ]  # fmt: skip
    for name, schema, valid, invalid in rows:
        case(f"any_of/{name}", schema, valid, invalid, few=name == "types_many")
    kinds = {"oneOf": [cat, dog], "discriminator": {"propertyName": "kind"}}
    rows = [
        ("string_or_int", {"oneOf": [STR, INT]}, ["x", 5], [None, 0.5, []]),
        ("pets", {"oneOf": [cat, dog]}, pets, no_pets),
        ("pets_discriminator", kinds, pets, no_pets),
        ("pets_list", arr(kinds, minItems=1), [pets, pets[:1]], [[], [no_pets[0]], [pets[0], no_pets[1]]]),
        ("by_enum", {"oneOf": list(by_enum)}, [{"op": "add", "args": [1, 2]}, {"arg": 5, "op": "neg"}],
            [{"op": "neg", "args": []}, {"op": "mul", "args": []}, {}]),
        ("ranges_apart", {"oneOf": [ints(maximum=-1), ints(minimum=10)]}, [-1, 10], [0, 9, "x"]),
        ("required_apart", {"oneOf": [closed({"a": INT}), closed({"b": INT})]}, [{"a": 1}, {"b": 1}],
            [{"a": 1, "b": 1}, {}]),
        ("type_apart", {"oneOf": [STR, NULL, arr(STR), closed({"x": NUM})]}, ["", None, ["a"], {"x": 1.5}],
            [1, [1], {}, {"x": None}]),
        ("in_property", closed({"shape": {"oneOf": [closed({"r": NUM}), closed({"w": NUM, "h": NUM})]}}),
            [{"shape": {"r": 1}}, {"shape": {"h": 1.5, "w": 2}}],
            [{"shape": {"w": 1}}, {"shape": {"r": 1, "w": 1, "h": 1}}, {}]),
        ("consts", {"oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}, ["a", "b"],
            ["c", "ab", ""]),
        ("consts_mixed", {"oneOf": [{"const": 1}, {"const": "1"}, {"const": None}]}, [1, "1", None], [0, "", False]),
        ("single", {"oneOf": [INT]}, [1, 2], ["x", None]),
    ]  # fmt: skip
    cases("one_of", rows)


def all_of():
    named, dated = obj({"name": STR}), obj({"on": strs(format="date")})
    rows = [
        ("one", {"allOf": [INT]}, [1, 2], ["x", 1.5]),
        ("bounds", {"allOf": [ints(minimum=0), {"maximum": 9}]}, [0, 9], [-1, 10, 0.5]),
        ("lengths", {"type": "string", "allOf": [{"minLength": 2}, {"maxLength": 4}]}, ["ab", "abcd"],
            ["a", "abcde", 3]),
        ("pattern_and_length", {"allOf": [strs(pattern="^[ab]*$"), {"maxLength": 3}]}, ["", "aba"], ["abab", "abc"]),
        ("two_patterns", {"allOf": [strs(pattern="^a"), strs(pattern="z$")]}, ["az", "abcz"], ["a", "z", "za", "azb"]),
        ("objects", {"allOf": [named, dated]},
            [{"name": "x", "on": "2024-01-01"}, {"on": "2024-01-01", "z": 1, "name": ""}],
            [{"name": "x"}, {"on": "2024-01-01"}, {"name": 1, "on": "2024-01-01"}, {"name": "x", "on": "soon"}]),
        ("base_and_own", obj({"id": INT}, allOf=[ref("base")], **{"$defs": {"base": named}}),
            [{"id": 1, "name": "x"}, {"name": "", "id": 0}], [{"id": 1}, {"name": "x"}, {"id": "1", "name": "x"}]),
        ("same_property", {"allOf": [obj({"n": ints(minimum=1)}), obj({"n": ints(maximum=5)})]}, [{"n": 1}, {"n": 5}],
            [{"n": 0}, {"n": 6}, {}]),
        ("enums", {"allOf": [one_of("a", "b", "c"), one_of("b", "c", "d")]}, ["b", "c"], ["a", "d", ""]),
        ("types", {"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, [1, -5], ["x", None]),
        ("with_any", {"allOf": [named, either(obj({"a": INT}), obj({"b": INT}))]},
            [{"name": "x", "a": 1}, {"b": 1, "name": "x"}], [{"name": "x"}, {"a": 1}, {"name": "x", "a": "1"}]),
        ("ref_and_note", {"allOf": [ref("t")], "description": "a t", "$defs": {"t": one_of("x", "y")}}, ["x", "y"],
            ["z", None]),
        ("items", {"allOf": [arr(INT), {"minItems": 1}, {"maxItems": 2}]}, [[1], [1, 2]], [[], [1, 2, 3], ["x"]]),
        ("nested", {"allOf": [{"allOf": [{"minimum": 1}]}, {"allOf": [INT, {"maximum": 3}]}]}, [1, 3], [0, 4, 1.5]),
        ("multiples", {"allOf": [ints(multipleOf=2), ints(multipleOf=3)]}, [0, 6, -12], [2, 3, 9, 10]),
        ("ref_sibling_bounds", {"$ref": "#/$defs/n", "maximum": 5, "$defs": {"n": INT}}, [5, -1], [6, "x", 1.5]),
    ]  # fmt: skip
    cases("all_of", rows)


# ---- families: references ----


def chain(depth, key="next", **more):
    value = None
    for i in range(depth):
        value = {"v": i, key: value, **more}
    return value


def tower(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def references():
    tree = {"$defs": {"node": closed({"value": INT}, {"children": arr(ref("node"))})}, "$ref": "#/$defs/node"}
    leaf = {"value": 1}
    chain_schema = closed({"v": INT, "next": either({"$ref": "#"}, NULL)})
    expression = {
        "$ref": "#/$defs/expr",
        "$defs": {
            "expr": either(NUM, ref("sum"), ref("product")),
            "sum": closed({"sum": arr(ref("expr"), minItems=1)}),
            "product": closed({"product": arr(ref("expr"), minItems=2)}),
        },
    }
    json_value = {
        "$defs": {"json": either(NULL, BOOL, NUM, STR, arr(ref("json")), {"type": "object",
            "additionalProperties": ref("json")})},
        "type": "object",
        "properties": {"data": ref("json")},
        "required": ["data"],
    }  # fmt: skip
    even_odd = {
        "$defs": {"even": either(NULL, closed({"odd": ref("odd")})), "odd": closed({"even": ref("even")})},
        "$ref": "#/$defs/even",
    }
    files = {
        "$defs": {
            "dir": closed({"name": STR, "entries": arr({"oneOf": [ref("dir"), ref("file")]})}),
            "file": closed({"name": STR, "size": ints(minimum=0)}),
        },
        "$ref": "#/$defs/dir",
    }
    item = {"id": strs(pattern="^u[0-9]+$"), "tags": arr(one_of("a", "b"))}
    rows = [
        ("plain", {"$ref": "#/$defs/a", "$defs": {"a": INT}}, [1, -2], ["x", None]),
        ("in_property", closed({"a": ref("a"), "b": ref("a")}, **{"$defs": {"a": STR}}),
            [{"a": "", "b": "x"}, {"b": "", "a": ""}], [{"a": ""}, {"a": "", "b": 1}]),
        ("through", {"$ref": "#/$defs/a", "$defs": {"a": ref("b"), "b": ref("c"), "c": BOOL}}, [True, False],
            [0, None]),
        ("definitions", {"$ref": "#/definitions/a", "definitions": {"a": INT}}, [1, 2], ["x", {}]),
        ("into_property", closed({"x": {"$ref": "#/$defs/user/properties/id"}}, **{"$defs": {"user": obj(item)}}),
            [{"x": "u1"}, {"x": "u22"}], [{"x": "1"}, {"x": {"id": "u1"}}, {}]),
        ("into_items", arr({"$ref": "#/$defs/user/properties/tags/items"}, **{"$defs": {"user": obj(item)}}),
            [[], ["a", "b"]], [["c"], [["a"]]]),
        ("to_items", {"$ref": "#/$defs/list/items", "$defs": {"list": arr(ints(minimum=3))}}, [3, 4], [2, [3]]),
        ("to_own_property", closed({"from": strs(format="date"), "to": {"$ref": "#/properties/from"}}),
            [{"from": "2024-01-01", "to": "2024-12-31"}, {"to": "2020-02-29", "from": "2024-01-01"}],
            [{"from": "2024-01-01", "to": "x"}, {"to": "2024-01-01"}]),
        ("into_any_of", {"$ref": "#/$defs/e/anyOf/1", "$defs": {"e": either(INT, strs(minLength=1))}}, ["x", "yy"],
            ["", 1]),
        ("into_prefix_items", {"$ref": "#/$defs/t/prefixItems/0", "$defs": {"t": {"prefixItems": [BOOL, INT]}}},
            [True, False], [1, []]),
        ("odd_pointer", closed({"a": {"$ref": "#/$defs/x~1y~0z"}}, **{"$defs": {"x/y~z": INT}}), [{"a": 1}, {"a": -1}],
            [{"a": "1"}, {}]),
        ("percent_pointer", {"$ref": "#/$defs/a%20b", "$defs": {"a b": INT}}, [1, 0], ["x", None]),
        ("unicode_pointer", {"$ref": "#/$defs/Gr%C3%B6%C3%9Fe", "$defs": {"Größe": NUM}}, [1, 0.5], ["x", None]),
        ("list", chain_schema, [chain(1), chain(3), chain(25)],
            [None, {"v": 1}, chain(2, v="x") | {"next": {}}, {"v": 1, "next": {"v": 2}}]),
        ("tree", tree,
            [leaf, {"children": [], "value": 1}, {"value": 1, "children": [leaf, {"value": 2, "children": [leaf]}]}],
            [{}, {"value": 1, "children": [{}]}, {"value": 1, "children": [leaf, 5]}, {"value": 1, "left": leaf}]),
        ("binary_tree",
            {"$defs": {"t": {"anyOf": [NULL, closed({"l": ref("t"), "r": ref("t")})]}}, "$ref": "#/$defs/t"},
            [None, {"l": None, "r": None}, {"r": {"l": None, "r": None}, "l": None}],
            [{}, {"l": None}, {"l": None, "r": {"l": None}}, 5]),
        ("expression", expression,
            [5, {"sum": [1, {"product": [2, 3.5]}]}, {"product": [{"sum": [1]}, {"sum": [{"sum": [0]}]}]}],
            [{"sum": []}, {"product": [1]}, {"sum": [1, {"product": [2]}]}, {"sum": 1}, "1"]),
        ("json_value", json_value,
            [{"data": None}, {"data": {"a": [1, {"b": "c"}], "": False}}, {"x": 1, "data": tower(8)}],
            [{}, {"x": 1}, []]),
        ("mutual", even_odd, [None, {"odd": {"even": None}}, {"odd": {"even": {"odd": {"even": None}}}}],
            [{"odd": None}, {"even": None}, {"odd": {"even": {"odd": None}}}, {}]),
        ("files", files,
            [{"name": "/", "entries": []},
            {"name": "a", "entries": [{"name": "f", "size": 1}, {"entries": [], "name": "b"}]}],
            [{"name": "a"}, {"name": "a", "entries": [{"name": "f"}]},
            {"name": "a", "entries": [{"name": "f", "size": 1, "entries": []}]}, {"name": "f", "size": 1}]),
        ("root_array", arr({"$ref": "#"}), [[], [[], [[]]], tower(40)], [[1], [[], {}], {}, [[["x"]]]]),
        ("root_object", closed({}, {"child": {"$ref": "#"}, "n": INT}),
            [{}, {"child": {}}, {"n": 1, "child": {"child": {"n": 2}}}],
            [{"child": 1}, {"child": {"child": {"n": ""}}}, {"kid": {}}]),
        ("map_of_self", {"type": "object", "additionalProperties": {"$ref": "#"}},
            [{}, {"a": {}}, {"a": {"b": {"c": {}}}, "d": {}}], [{"a": 1}, {"a": {"b": []}}, []]),
        ("unused_cycle", obj({"a": INT}, **{"$defs": {"x": arr(ref("x"))}}), [{"a": 1}, {"a": 2, "b": 3}],
            [{}, {"a": []}]),
        ("anchor", {"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "integer"}}}, [1, 2], ["x", None]),
    ]  # fmt: skip
    cases("ref", rows)


# ---- families: notes, whole schemas as people write them ----


def notes():
    extra = {
        "title": "T",
        "description": 'says "x"\n\\ and 🌙',
        "default": "not one of them",
        "examples": [1, "two", None],
        "$comment": "for readers",
        "deprecated": True,
        "readOnly": True,
        "writeOnly": False,
        "x-foo": {"type": "null"},
        "contentMediaType": "text/plain",
    }
    pieces = [("int", INT, [1, 2], ["x", None]), ("enum", one_of("a", "b"), ["a", "b"], ["c", 1])]
    pieces += [("object", closed({"a": INT}), [{"a": 1}, {"a": 0}], [{}, {"a": "x"}, {"a": 1, "x-foo": 1}])]
    for name, schema, valid, invalid in pieces:
        case(f"notes/before_{name}", extra | schema, valid, invalid)
        case(f"notes/behind_{name}", schema | extra, valid, invalid)
    for key, value in extra.items():
        schema = closed({"n": ints(minimum=1) | {key: value}}, {"s": STR | {key: value}})
        name = key.strip("$").replace("-", "_")
        case(f"notes/{name}", schema, [{"n": 1}, {"s": "", "n": 5}], [{"n": 0}, {"s": "x"}, {"n": 1, "s": None}])
    default = closed(
        {"limit": ints(minimum=1, maximum=50, default=10)}, {"sort": strs(enum=["asc", "desc"], default="asc")}
    )
    case(
        "notes/defaults",
        default,
        [{"limit": 10}, {"sort": "desc", "limit": 50}],
        [{}, {"limit": 0}, {"limit": 1, "sort": "up"}],
    )


def odd_forms():
    """The forms that strict checkers of tools' schemas are asked about: ids, one-element types, empty lists."""
    base = closed({"a": INT})
    ids = [
        "https://example.com/a.json",
        "a.json",
        "urn:example:tool",
        "/x",
        "tag:example.com,2024:t",
        "https://example.com/s#",
    ]
    for i, value in enumerate(ids):
        case(f"odd/id_{i}", {"$id": value} | base, [{"a": 1}, {"a": 2}], [{}, {"a": "x"}])
    with_ref = {"$id": "https://example.com/r.json", "$defs": {"n": INT}} | closed({"a": ref("n")})
    case("odd/id_and_ref", with_ref, [{"a": 1}, {"a": 2}], [{}, {"a": "x"}])
    case(
        "odd/id_inside",
        obj({"a": {"$id": "inner.json", "type": "integer"}}),
        [{"a": 1}, {"a": 2, "b": 0}],
        [{}, {"a": "x"}],
    )
    case(
        "odd/schema_and_id",
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x"} | base,
        [{"a": 1}, {"a": 2}],
        [{}, {"a": "x"}],
    )
    one = {
        "type": ["object"],
        "properties": {
            "a": {"type": ["string"], "enum": ["x"]},
            "b": {"type": ["array"], "items": {"type": ["integer"]}},
        },
        "required": ["a"],
    }
    case(
        "odd/one_element_types",
        one,
        [{"a": "x"}, {"b": [1], "a": "x"}, {"a": "x", "c": None}],
        [{}, {"a": "y"}, {"a": "x", "b": ["1"]}, []],
    )
    empty = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    case("odd/empty_everything", empty, [{}, Text("{ }")], [{"a": 1}, None, []])
    case(
        "odd/empty_required_inside",
        closed({"o": obj({}, {"x": INT}, required=[])}),
        [{"o": {}}, {"o": {"x": 1}}],
        [{}, {"o": {"x": ""}}],
    )
    case("odd/empty_defs", base | {"$defs": {}}, [{"a": 1}, {"a": 2}], [{}, {"a": "x"}])
    case("odd/empty_pattern_properties", base | {"patternProperties": {}}, [{"a": 1}, {"a": 2}], [{}, {"a": 1, "b": 2}])
    case(
        "odd/no_type_object",
        {"properties": {"a": INT}, "required": ["a"], "additionalProperties": False},
        [{"a": 1}, 5, "x"],
        [{}, {"a": 1, "b": 1}],
    )
    family, controls = "👨‍👩‍👧‍👦", ["\u0000\u0001", "\r\n", "\u001b[0m", "\u0085", "\u200d"]
    case(
        "odd/enum_controls",
        closed({"c": one_of(*controls)}),
        [{"c": x} for x in controls],
        [{"c": ""}, {"c": "\n"}, {"c": "\u0001"}, {"c": "\u200c"}],
    )
    case(
        "odd/enum_emoji",
        closed({"e": one_of(family, "👨", "👩‍🚀")}),
        [{"e": family}, {"e": "👨"}, {"e": "👩‍🚀"}],
        [{"e": "👩"}, {"e": family[:3]}, {"e": "🚀"}],
    )
    case(
        "odd/enum_backslashes",
        closed({"p": one_of("C:\\x", "\\\\srv\\y", "a\\")}),
        [{"p": "C:\\x"}, {"p": "\\\\srv\\y"}, {"p": "a\\"}],
        [{"p": "C:/x"}, {"p": "\\srv\\y"}, {"p": "a"}, {"p": "a\\\\"}],
    )
    case(
        "odd/enum_one",
        closed({"p": strs(enum=["only"])}),
        [{"p": "only"}, Text(r'{"p":"on\u006cy"}')],
        [{"p": "onl"}, {"p": "only "}, {}],
    )
    case("odd/enum_tokens", one_of("<|im_end|>", "</s>", '"}'), ["<|im_end|>", "</s>", '"}'], ["<|im_end|", "s", '"'])
    case(
        "odd/long_description",
        closed({"a": INT | {"description": "words " * 200}}),
        [{"a": 1}, {"a": 2}],
        [{}, {"a": "x"}],
    )
    case("odd/any_of_same", either(INT, INT, ints(minimum=3)), [1, 5], ["x", 0.5])
    case(
        "odd/nullable_enum",
        closed({"m": either(one_of("a", "b"), NULL)}),
        [{"m": "a"}, {"m": None}],
        [{"m": "null"}, {"m": ""}, {}],
    )


def depths():
    deep = INT
    for i in range(30):
        deep = closed({f"k{i}": deep}) if i % 2 else arr(deep, minItems=1, maxItems=2)

    def dive(bottom):
        for i in range(30):
            bottom = {f"k{i}": bottom} if i % 2 else [bottom]
        return bottom

    def shut(value):
        return Text(json.dumps(value))

    case("deep/alternating", deep, [shut(dive(1)), dive(-5)], [shut(dive("x")), shut(dive([])), {}])
    case("deep/any_arrays", {"type": "array"}, [shut(tower(80)), shut(tower(3))], [shut({"a": tower(5)}), 1])
    nest = {"n": None}
    for _ in range(60):
        nest = {"n": nest}
    case("deep/any_objects", {"type": "object"}, [shut(nest), {}], [[], None])
    case(
        "deep/typed_self",
        closed({"n": either({"$ref": "#"}, NULL)}),
        [shut(nest), {"n": None}],
        [{"n": {}}, {"n": {"n": 1}}],
    )
    gaps = [
        Text('{\n\t"a"\r\n:\t[ 1 ,\n\n 2\t] ,"b":{ } }'),
        Text('{"a":[],"b":{}}'),
        Text('{"a" : [ ] , "b" : { "c" : null } }'),
    ]
    case(
        "space/between_tokens",
        closed({"a": arr(INT), "b": obj()}),
        gaps,
        [Text('{ "a" : [ ] }'), Text('{"a": [ "1" ], "b": {}}')],
    )
    around = [Text(' {"a": 1}'), Text('{"a": 1}\n'), Text('\t\n{"a":1} ')]
    case(
        "space/around",
        closed({"a": INT}),
        [{"a": 1}, {"a": 2}],
        [{}, []],
        around,
        ['{"a": 1} x', "\u00a0{}", '{"a":\u00a01}', '{"a":1}\u3000', '{"a":1}\f', ""],
    )


def classes():
    """As pydantic and zod write them."""
    opt = lambda schema, title: {"anyOf": [schema, NULL], "default": None, "title": title}
    user = {
        "$defs": {
            "Role": strs(enum=["admin", "editor", "viewer"], title="Role"),
            "Address": obj({"street": STR, "city": STR}, {"zip": opt(STR, "Zip")}, title="Address"),
        },
        "type": "object",
        "title": "User",
        "properties": {
            "id": ints(exclusiveMinimum=0, title="Id"),
            "name": strs(minLength=1, maxLength=50, title="Name"),
            "email": opt(strs(format="email"), "Email"),
            "role": {"$ref": "#/$defs/Role", "default": "viewer"},
            "address": {"anyOf": [ref("Address"), NULL], "default": None},
            "tags": arr(STR, default=[], title="Tags"),
            "scores": {"type": "object", "additionalProperties": INT, "title": "Scores"},
        },
        "required": ["id", "name"],
    }
    users = [
        {"id": 1, "name": "Ada"},
        {
            "id": 2,
            "name": "Bob",
            "email": None,
            "role": "admin",
            "address": {"street": "s", "city": "c"},
            "scores": {"x": 3},
        },
        {"name": "Eve", "tags": ["a"], "id": 3, "email": "eve@example.com", "address": None},
    ]
    not_users = [
        {"id": 0, "name": "x"},
        {"id": 1, "name": ""},
        {"id": 1, "name": "x", "role": "root"},
        {"id": 1, "name": "x", "address": {"street": "s"}},
        {"id": 1, "name": "x", "scores": {"x": "3"}},
        {"id": 1, "name": "x", "email": "nobody"},
        {"name": "x"},
    ]
    case("pydantic/user", user, users, not_users)
    case(
        "pydantic/users",
        {"$defs": user["$defs"], **arr({k: v for k, v in user.items() if k != "$defs"})},
        [users, []],
        [not_users[:1], users + [{}]],
    )
    circle = closed({"type": {"const": "circle"} | STR, "radius": nums(exclusiveMinimum=0)})
    square = closed({"type": {"const": "square"} | STR, "side": NUM})
    mapping = {"circle": "#/$defs/Circle", "square": "#/$defs/Square"}
    union = {"discriminator": {"mapping": mapping, "propertyName": "type"}, "oneOf": [ref("Circle"), ref("Square")]}
    case(
        "pydantic/discriminated",
        {"$defs": {"Circle": circle, "Square": square}, **obj({"shape": union, "name": STR})},
        [
            {"shape": {"type": "circle", "radius": 2}, "name": "x"},
            {"name": "", "shape": {"side": 1.5, "type": "square"}},
        ],
        [
            {"shape": {"type": "circle", "side": 1}, "name": "x"},
            {"shape": {"type": "oval"}, "name": ""},
            {"shape": {"type": "circle", "radius": 0}, "name": ""},
        ],
    )
    rows = [
        ("dict_str_int", obj({"counts": {"additionalProperties": INT, "title": "Counts", "type": "object"}}),
            [{"counts": {}}, {"counts": {"a": 1, "b": -2}}], [{"counts": {"a": "1"}}, {"counts": []}, {}]),
        ("tuple", obj({"point": {"maxItems": 2, "minItems": 2, "prefixItems": [NUM, NUM], "type": "array"}}),
            [{"point": [1, 2.5]}, {"point": [0, -1]}], [{"point": [1]}, {"point": [1, 2, 3]}, {"point": ["1", 2]}]),
        ("literal", obj({"mode": strs(enum=["r", "w", "rw"], title="Mode")}), [{"mode": "r"}, {"mode": "rw"}],
            [{"mode": "x"}, {"mode": None}, {}]),
        ("literal_ints", obj({"n": ints(enum=[1, 2, 3])}), [{"n": 1}, {"n": 3}], [{"n": 4}, {"n": "1"}, {"n": 13}]),
        ("conint", obj({"age": ints(minimum=0, maximum=150), "rate": nums(minimum=0, maximum=1)}),
            [{"age": 0, "rate": 1}, {"rate": 0.25, "age": 150}],
            [{"age": 151, "rate": 0}, {"age": 1, "rate": 1.5}, {"age": -1, "rate": 0}]),
        ("int_enum", {"$defs": {"Level": ints(enum=[10, 20, 30])}, **obj({"level": ref("Level")})},
            [{"level": 10}, {"level": 30}], [{"level": 1}, {"level": "10"}, {"level": 100}]),
        ("union", obj({"v": either(INT, NUM, STR, BOOL, NULL)}), [{"v": 1}, {"v": "x"}, {"v": None}, {"v": 0.5}],
            [{"v": []}, {"v": {}}, {}]),
        ("datetimes", obj({"at": strs(format="date-time")}, {"id": strs(format="uuid")}),
            [{"at": "2024-01-01T10:00:00Z"}, {"id": str(uuid.UUID(int=5)), "at": "2024-01-01T10:00:00+01:00"}],
            [{"at": "2024-01-01"}, {"at": "2024-01-01T10:00:00Z", "id": "5"}]),
        ("self_reference",
            {"$defs": {"Comment": obj({"text": STR}, {"replies": arr(ref("Comment"))})}, "$ref": "#/$defs/Comment"},
            [{"text": "a"}, {"text": "a", "replies": [{"text": "b", "replies": []}]}],
            [{"replies": []}, {"text": "a", "replies": [{}]}, {"text": "a", "replies": {}}]),
        ("nested_dict",
            obj({"m": {"type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": arr(NUM)}}}),
            [{"m": {}}, {"m": {"a": {"b": [1]}}}], [{"m": {"a": [1]}}, {"m": {"a": {"b": ["1"]}}}]),
        ("forbid_extra", closed({"x": INT}, {"y": opt(INT, "Y")}, title="Point"), [{"x": 1}, {"y": None, "x": 1}],
            [{"x": 1, "z": 1}, {"x": None}, {"y": 1}]),
        ("root_list", arr(ref("Row"), **{"$defs": {"Row": closed({"k": STR, "v": INT})}}),
            [[], [{"k": "a", "v": 1}, {"v": 2, "k": ""}]], [[{}], [{"k": "a", "v": 1}, None], {}]),
        ("any_field", obj({"payload": {"title": "Payload"}}), [{"payload": None}, {"payload": {"a": [1]}}], [{}, []]),
        ("set_of", obj({"s": arr(INT, minItems=1, maxItems=3)}), [{"s": [1]}, {"s": [1, 2, 3]}],
            [{"s": []}, {"s": [1, 2, 3, 4]}]),
        ("decimal", obj({"price": either(nums(minimum=0), strs(pattern=r"^[0-9]+(\.[0-9]{1,2})?$"))}),
            [{"price": 1.5}, {"price": "12.30"}], [{"price": -1}, {"price": "1.234"}, {"price": ""}]),
    ]  # fmt: skip
    cases("pydantic", rows)
    rows = [
        ("strict", closed({"name": STR, "age": ints(minimum=0, maximum=9007199254740991)}, {"nick": STR}),
            [{"name": "x", "age": 1}, {"age": 0, "nick": "", "name": ""}],
            [{"name": "x"}, {"name": "x", "age": -1}, {"name": "x", "age": 1, "z": 1}]),
        ("nullable", closed({"v": {"type": ["string", "null"]}, "w": either(NUM, NULL)}),
            [{"v": None, "w": None}, {"w": 1.5, "v": "x"}], [{"v": 1, "w": 1}, {"v": None}]),
        ("record", {"type": "object", "propertyNames": STR, "additionalProperties": BOOL}, [{}, {"a": True, "": False}],
            [{"a": 1}, {"a": None}]),
        ("record_enum",
            {"type": "object", "propertyNames": strs(enum=["x", "y"]), "additionalProperties": NUM,
            "required": ["x", "y"]}, [{"x": 1, "y": 2}, {"y": 0.5, "x": 0}],
            [{"x": 1}, {"x": 1, "y": 2, "z": 3}, {"x": "1", "y": 2}]),
        ("tuple_rest", {"type": "array", "prefixItems": [STR], "items": NUM}, [["a"], ["a", 1, 2.5], []],
            [[1], ["a", "b"]]),
        ("union_shapes",
            either(closed({"t": {"const": "a"} | STR, "n": INT}), closed({"t": {"const": "b"} | STR, "s": STR})),
            [{"t": "a", "n": 1}, {"s": "", "t": "b"}], [{"t": "a", "s": ""}, {"t": "c"}, {"n": 1}]),
        ("intersection", {"allOf": [obj({"a": STR}), obj({"b": NUM})]}, [{"a": "", "b": 1}, {"b": 0.5, "a": "x"}],
            [{"a": ""}, {"b": 1}, {"a": 1, "b": 1}]),
        ("lazy", closed({"name": STR, "subs": arr({"$ref": "#"})}),
            [{"name": "a", "subs": []}, {"subs": [{"name": "b", "subs": []}], "name": "a"}],
            [{"name": "a"}, {"name": "a", "subs": [{"name": "b"}]}]),
        ("literal_union", either({"const": "on"}, {"const": "off"}, {"const": 0}), ["on", "off", 0],
            ["o", 1, "", None]),
        ("uri_field", closed({"url": strs(format="uri")}),
            [{"url": "https://example.com"}, {"url": "http://localhost:80/x"}], [{"url": "example"}, {"url": ""}]),
        ("deep_partial", closed({}, {"a": closed({}, {"b": closed({}, {"c": STR})})}),
            [{}, {"a": {}}, {"a": {"b": {"c": ""}}}], [{"a": {"c": ""}}, {"a": {"b": {"c": 1}}}, {"b": {}}]),
    ]  # fmt: skip
    cases("zod", rows)


def tools():
    """Parameters of tools, as users of function calling write them."""
    condition = closed(
        {
            "field": STR,
            "op": one_of("=", "!=", "<", ">", "in", "like"),
            "value": either(STR, NUM, BOOL, NULL, arr(either(STR, NUM))),
        }
    )
    group = closed({"logic": one_of("and", "or"), "filters": arr(either(ref("condition"), ref("group")), minItems=1)})
    filters = {"$defs": {"condition": condition, "group": group}}
    query = closed(
        {"table": strs(pattern="^[a-z_]+$")},
        {"where": either(ref("group"), ref("condition"), NULL), "limit": ints(minimum=1, maximum=1000)},
        **filters,
    )
    leaf = {"field": "age", "op": ">", "value": 21}
    edit = closed(
        {"path": strs(minLength=1), "edits": arr(closed({"old": STR, "new": STR}, {"all": BOOL}), minItems=1)}
    )
    airport = strs(pattern="^[A-Z]{3}$", description="IATA code")
    flights = closed(
        {"from": airport, "to": airport, "date": strs(format="date")},
        {
            "return_date": {"anyOf": [strs(format="date"), NULL]},
            "passengers": ints(minimum=1, maximum=9, default=1),
            "cabin": strs(enum=["economy", "premium_economy", "business", "first"]),
        },
    )
    fly = {"from": "MUC", "to": "PEK", "date": "2025-03-01"}
    code = 'for i in range(3):\n\tprint("a\\b")\n'
    rows = [
        ("weather",
            obj({"location": strs(description="City and state, e.g. San Francisco, CA")},
            {"unit": strs(enum=["celsius", "fahrenheit"])}),
            [{"location": "Boston, MA"}, {"unit": "celsius", "location": "北京"},
            {"location": "Zürich", "unit": "fahrenheit"}],
            [{}, {"unit": "celsius"}, {"location": "x", "unit": "kelvin"}, {"location": 5}]),
        ("weather_days",
            closed({"city": STR, "days": ints(minimum=1, maximum=14)},
            {"lang": strs(pattern="^[a-z]{2}(-[A-Z]{2})?$")}),
            [{"city": "Rome", "days": 7}, {"lang": "pt-BR", "days": 14, "city": "Rio"}],
            [{"city": "Rome", "days": 15}, {"city": "Rome", "days": 7, "lang": "english"}, {"city": "Rome"}]),
        ("flights", flights,
            [fly, fly | {"passengers": 9, "cabin": "first"}, {"return_date": None} | fly,
            fly | {"return_date": "2025-03-09"}],
            [fly | {"from": "muc"}, fly | {"passengers": 0}, fly | {"cabin": "middle"}, fly | {"date": "tomorrow"},
            {"from": "MUC", "to": "PEK"}, fly | {"x": 1}]),
        ("query", query,
            [{"table": "users"}, {"table": "users", "where": leaf, "limit": 10},
            {"where": {"logic": "or",
            "filters": [leaf, {"logic": "and", "filters": [{"field": "n", "op": "in", "value": ["a", 1]}]}]},
            "table": "t"}],
            [{"table": "Users"}, {"table": "t", "limit": 0}, {"table": "t", "where": {"logic": "or", "filters": []}},
            {"table": "t", "where": {"field": "a", "op": "==", "value": 1}}, {"where": leaf}]),
        ("sql",
            closed({"sql": STR},
            {"params": arr({"type": ["string", "number", "boolean", "null"]}), "timeout_ms": ints(minimum=0)}),
            [{"sql": "select \"a\" from b where c = '\\n'"}, {"params": ["x", 1.5, None, True], "sql": ""}],
            [{"sql": "x", "params": [[]]}, {"params": []}, {"sql": "x", "timeout_ms": -1}]),
        ("edit", edit,
            [{"path": "a.py", "edits": [{"old": "x", "new": code}]},
            {"edits": [{"new": "", "old": "\t", "all": True}, {"old": "a", "new": "b"}], "path": "src/b.c"}],
            [{"path": "", "edits": [{"old": "x", "new": "y"}]}, {"path": "a", "edits": []},
            {"path": "a", "edits": [{"old": "x"}]}, {"path": "a", "edits": [{"old": "x", "new": "y", "all": "yes"}]}]),
        ("write_file", closed({"path": STR, "content": STR}, {"mode": strs(pattern="^0[0-7]{3}$")}),
            [{"path": "/tmp/x", "content": code},
            {"content": "<html lang=\"en\">&amp;</html>", "path": "i.html", "mode": "0644"}],
            [{"path": "/tmp/x"}, {"path": "x", "content": "y", "mode": "644"}, {"path": "x", "content": None}]),
        ("shell",
            closed({"command": arr(STR, minItems=1)},
            {"workdir": STR, "env": {"type": "object", "additionalProperties": STR}}),
            [{"command": ["ls", "-l"]}, {"env": {"PATH": "/bin", "": ""}, "command": ["a"]}],
            [{"command": []}, {"command": "ls"}, {"command": ["ls"], "env": {"A": 1}}]),
        ("python", obj({"code": STR}), [{"code": code}, {"code": "print('é🌙')"}],
            [{}, {"code": ["x"]}, {"code": None}]),
        ("search",
            obj({"query": strs(minLength=1)},
            {"max_results": ints(minimum=1, maximum=20, default=5), "domains": arr(STR),
            "recency": one_of("day", "week", None)}),
            [{"query": "kimi k2"}, {"recency": None, "query": "x", "domains": []}, {"query": "x", "max_results": 20}],
            [{"query": ""}, {"query": "x", "max_results": 21}, {"query": "x", "recency": "month"},
            {"query": "x", "domains": [1]}]),
        ("calculator", closed({"operation": one_of("add", "subtract", "multiply", "divide"), "a": NUM, "b": NUM}),
            [{"operation": "add", "a": 1, "b": -2.5}, {"b": 0, "a": 10**12, "operation": "divide"}],
            [{"operation": "pow", "a": 1, "b": 2}, {"operation": "add", "a": "1", "b": 2},
            {"operation": "add", "a": 1}]),
        ("email",
            closed({"to": arr(strs(format="email"), minItems=1), "subject": strs(maxLength=78), "body": STR},
            {"cc": arr(strs(format="email")), "priority": strs(enum=["low", "normal", "high"])}),
            [{"to": ["a@example.com"], "subject": "hi", "body": "line 1\nline 2"},
            {"to": ["a@b.org", "c@d.net"], "body": "", "subject": "", "cc": [], "priority": "high"}],
            [{"to": [], "subject": "x", "body": "y"}, {"to": ["nobody"], "subject": "x", "body": "y"},
            {"to": ["a@b.org"], "subject": "x" * 79, "body": ""}]),
        ("calendar",
            closed({"title": STR, "start": strs(format="date-time")},
            {"end": strs(format="date-time"),
            "attendees": arr(closed({"email": strs(format="email")}, {"optional": BOOL})),
            "reminders": arr(ints(minimum=0, multipleOf=5), maxItems=3)}),
            [{"title": "sync", "start": "2025-01-06T09:00:00Z"},
            {"start": "2025-01-06T09:00:00+08:00", "title": "", "reminders": [0, 15],
            "attendees": [{"email": "a@b.org", "optional": True}]}],
            [{"title": "x", "start": "9am"}, {"title": "x", "start": "2025-01-06T09:00:00Z", "reminders": [7]},
            {"title": "x", "start": "2025-01-06T09:00:00Z", "attendees": [{}]}]),
        ("payment",
            closed({"amount": nums(exclusiveMinimum=0, maximum=10000), "currency": strs(pattern="^[A-Z]{3}$"),
            "method": {"oneOf": [closed({"type": {"const": "card"}, "number": strs(pattern="^[0-9]{13,19}$")}),
            closed({"type": {"const": "iban"}, "iban": STR})]}}),
            [{"amount": 9.99, "currency": "EUR", "method": {"type": "iban", "iban": "DE02"}},
            {"method": {"number": "4111111111111111", "type": "card"}, "currency": "USD", "amount": 10000}],
            [{"amount": 0, "currency": "EUR", "method": {"type": "iban", "iban": ""}},
            {"amount": 1, "currency": "EURO", "method": {"type": "iban", "iban": ""}},
            {"amount": 1, "currency": "EUR", "method": {"type": "card", "iban": ""}}]),
        ("no_parameters", {"type": "object", "properties": {}}, [{}, {"anything": 1}], [[], None]),
        ("device",
            closed({"device_id": strs(format="uuid"), "action": one_of("on", "off", "dim")},
            {"level": ints(minimum=0, maximum=100)}),
            [{"device_id": str(uuid.UUID(int=7)), "action": "on"},
            {"action": "dim", "level": 0, "device_id": str(uuid.UUID(int=2**100))}],
            [{"device_id": "7", "action": "on"}, {"device_id": str(uuid.UUID(int=7)), "action": "dim", "level": 101},
            {"action": "on"}]),
        ("map_bounds",
            closed({"box": {"type": "array",
            "prefixItems": [nums(minimum=-180, maximum=180), nums(minimum=-90, maximum=90)], "items": False,
            "minItems": 2}, "zoom": ints(minimum=0, maximum=22)}),
            [{"box": [11.5, 48.1], "zoom": 12}, {"zoom": 0, "box": [-180, 90]}],
            [{"box": [181, 0], "zoom": 1}, {"box": [0], "zoom": 1}, {"box": [0, 0, 0], "zoom": 1},
            {"box": [0, 0], "zoom": 23}]),
        ("steps", closed({"steps": arr(closed({"explanation": STR, "output": STR})), "final_answer": STR}),
            [{"steps": [], "final_answer": "x = 3"},
            {"steps": [{"explanation": "halve", "output": "2x/2"}], "final_answer": "\\frac{1}{2}"}],
            [{"steps": [{"explanation": "x"}], "final_answer": ""}, {"final_answer": ""},
            {"steps": {}, "final_answer": ""}]),
        ("extraction",
            closed({"people": arr(closed({"name": STR, "age": {"type": ["integer", "null"]},
            "roles": arr(one_of("author", "editor"))}))}),
            [{"people": []},
            {"people": [{"name": "Ann", "age": None, "roles": ["author"]}, {"roles": [], "age": 40, "name": "李雷"}]}],
            [{"people": [{"name": "x", "age": "40", "roles": []}]},
            {"people": [{"name": "x", "age": 1, "roles": ["cook"]}]}, {}]),
        ("classification",
            closed({"label": one_of("positive", "negative", "neutral"), "confidence": nums(minimum=0, maximum=1)}),
            [{"label": "neutral", "confidence": 0.87}, {"confidence": 0, "label": "positive"}],
            [{"label": "mixed", "confidence": 0.5}, {"label": "neutral", "confidence": 1.2}, {"label": "neutral"}]),
        ("ui",
            {"$ref": "#/$defs/node",
            "$defs": {"node": closed({"type": one_of("div", "button", "field"), "label": STR},
            {"children": arr(ref("node")), "attributes": arr(closed({"name": STR, "value": STR}))})}},
            [{"type": "button", "label": "ok"},
            {"type": "div", "label": "",
            "children": [{"type": "field", "label": "x", "attributes": [{"name": "a", "value": "b"}]}]}],
            [{"type": "span", "label": ""}, {"type": "div", "label": "", "children": [{"type": "div"}]},
            {"type": "div", "label": "", "attributes": [{"name": "a"}]}]),
        ("kubernetes",
            closed({"apiVersion": {"const": "v1"}, "kind": one_of("Pod", "Service"),
            "metadata": obj({"name": strs(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", maxLength=63)},
            {"labels": {"type": "object", "additionalProperties": STR}})}),
            [{"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-1", "labels": {"app.kubernetes.io/name": "web"}}},
            {"kind": "Service", "metadata": {"name": "a"}, "apiVersion": "v1"}],
            [{"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "a"}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "-a"}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {}}]),
        ("patch",
            arr({"oneOf": [closed({"op": {"const": "remove"}, "path": strs(pattern="^/")}),
            closed({"op": one_of("add", "replace"), "path": strs(pattern="^/"), "value": {}})]}),
            [[], [{"op": "remove", "path": "/a~1b"}, {"op": "add", "path": "/x", "value": {"y": [None]}}]],
            [[{"op": "add", "path": "/x"}], [{"op": "remove", "path": "x"}], [{"op": "move", "path": "/x"}], {}]),
        ("ssh",
            closed({"host": either(strs(format="ipv4"), strs(format="ipv6"), strs(pattern="^[a-z][a-z0-9.-]*$")),
            "port": ints(minimum=1, maximum=65535)}),
            [{"host": "10.0.0.1", "port": 22}, {"port": 65535, "host": "::1"}, {"host": "example.com", "port": 1}],
            [{"host": "10.0.0.256", "port": 22}, {"host": "x", "port": 0}, {"host": "UPPER", "port": 1}]),
        ("order",
            closed({"items": arr(closed({"sku": strs(pattern="^[A-Z]{2}[0-9]{4}$"), "qty": ints(minimum=1)}),
            minItems=1, maxItems=3), "note": {"type": ["string", "null"], "maxLength": 10}}),
            [{"items": [{"sku": "AB1234", "qty": 1}], "note": None},
            {"note": "schnell 🌙", "items": [{"qty": 2, "sku": "ZZ0000"}] * 3}],
            [{"items": [], "note": None}, {"items": [{"sku": "AB123", "qty": 1}], "note": None},
            {"items": [{"sku": "AB1234", "qty": 0}], "note": ""},
            {"items": [{"sku": "AB1234", "qty": 1}], "note": "much too long"}]),
        ("translate",
            closed({"text": STR, "target": strs(enum=["en", "zh", "ja", "de"])},
            {"glossary": {"type": "object", "additionalProperties": STR, "maxProperties": 3}}),
            [{"text": "Mond", "target": "zh"}, {"target": "ja", "glossary": {"Mond": "月", "Sonne": "日"}, "text": ""}],
            [{"text": "x", "target": "fr"}, {"text": "x", "target": "en", "glossary": {"a": 1}},
            {"text": "x", "target": "en", "glossary": {k: k for k in "abcd"}}]),
    ]  # fmt: skip
    cases("tool", rows)


# ---- random schemas ----

WORDS = "id name kind size color tags note city date_of unit path Zeit größe 数量 🌙 a.b x-y k_1 first last".split()
PATTERNS = [
    ("^[a-z]{1,5}$", ["abc", "q"]),
    ("^x-[0-9]+$", ["x-1", "x-204"]),
    ("[0-9]$", ["7", "no 3"]),
    ("^(yes|no)$", ["yes", "no"]),
]
STRINGS = ["", "a", "moon", "two words", 'q"q', "b\\s", "n\nl", "tab\t", "/", "é", "月光", "🌙", "\u0007", "x" * 30]


def some_string(rng):
    roll = rng.random()
    if roll < 0.35:
        return strs()
    if roll < 0.6:
        low = rng.randrange(4)
        return strs(minLength=low, maxLength=low + rng.randrange(1, 9))
    if roll < 0.8:
        return strs(pattern=rng.choice(PATTERNS)[0])
    return strs(format=rng.choice(sorted(FORMATS)))


def some_number(rng):
    roll = rng.random()
    if roll < 0.3:
        return rng.choice([INT, NUM]) | {}
    low = rng.choice([-1000, -17, -1, 0, 1, 3, 99])
    high = low + rng.choice([1, 9, 25, 1200])
    if roll < 0.7:
        return ints(minimum=low, maximum=high)
    if roll < 0.8:
        return ints(multipleOf=rng.choice([2, 5, 8]))
    return nums(minimum=low + 0.5, exclusiveMaximum=high + 0.75)


def some_leaf(rng):
    roll = rng.random()
    if roll < 0.35:
        return some_string(rng)
    if roll < 0.65:
        return some_number(rng)
    if roll < 0.8:
        return one_of(*rng.sample(STRINGS + [1, 22, -3, None, True], rng.randrange(2, 6)))
    return rng.choice([BOOL, NULL, {"const": rng.choice(STRINGS)}, {"type": ["integer", "null"]}]) | {}


def some_object(rng, depth, defs):
    names = rng.sample(WORDS, rng.randrange(1, 5))
    cut = rng.randrange(len(names) + 1)
    properties = {k: some_schema(rng, depth - 1, defs) for k in names}
    out = {"type": "object", "properties": properties}
    if cut:
        out["required"] = rng.sample(names, cut)
    rest = rng.choice([None, False, False, True, "typed"])
    if rest is not None:
        out["additionalProperties"] = some_leaf(rng) if rest == "typed" else rest
    return out


def some_array(rng, depth, defs):
    if rng.random() < 0.25:
        prefix = [some_schema(rng, depth - 1, defs) for _ in range(rng.randrange(1, 4))]
        return {"type": "array", "prefixItems": prefix, "items": False, "minItems": len(prefix)}
    out = arr(some_schema(rng, depth - 1, defs))
    if rng.random() < 0.5:
        out["minItems"] = rng.randrange(3)
        out["maxItems"] = out["minItems"] + rng.randrange(1, 3)
    return out


def some_union(rng, depth, defs):
    if rng.random() < 0.4:
        return either(some_schema(rng, depth - 1, defs), NULL)
    kinds = rng.sample(["alpha", "beta", "gamma", "alphabet"], rng.randrange(2, 4))
    tag = rng.choice(["kind", "type", "t"])
    shapes = []
    for kind in kinds:
        keys = rng.sample([w for w in WORDS if w != tag], rng.randrange(1, 3))
        shapes.append(closed({tag: {"const": kind}} | {k: some_schema(rng, depth - 2, defs) for k in keys}))
    return {rng.choice(["anyOf", "oneOf"]): shapes}


def some_schema(rng, depth, defs):
    roll = rng.random()
    if depth <= 0 or roll < 0.3:
        return some_leaf(rng)
    if defs and roll < 0.4:
        return ref(rng.choice(sorted(defs)))
    if roll < 0.72:
        return some_object(rng, depth, defs)
    return some_array(rng, depth, defs) if roll < 0.87 else some_union(rng, depth, defs)


def some_root(rng):
    defs = {}
    for name in rng.sample(["Item", "Point", "Mode"], rng.randrange(3)):
        defs[name] = some_schema(rng, 1, {})
    root = rng.choice([some_object, some_object, some_object, some_array, some_union])(rng, 3, defs)
    return root | ({"$defs": defs} if defs else {})


def instance_string(schema, rng):
    if "pattern" in schema:
        return rng.choice(dict(PATTERNS)[schema["pattern"]])
    if "format" in schema:
        return rng.choice(FORMATS[schema["format"]][0])
    if "maxLength" not in schema:
        return rng.choice(STRINGS)
    n = rng.randint(schema["minLength"], schema["maxLength"])
    return "".join(rng.choice('ab é月🌙"\\/\n') for _ in range(n))


def instance_number(schema, rng):
    if "multipleOf" in schema:
        return schema["multipleOf"] * rng.randrange(-20, 400)
    if "exclusiveMaximum" in schema:
        return rng.choice([schema["minimum"], schema["exclusiveMaximum"] - 0.25, schema["minimum"] + 0.125])
    if "minimum" in schema:
        return rng.choice([schema["minimum"], schema["maximum"], rng.randint(schema["minimum"], schema["maximum"])])
    return rng.choice([0, -1, 7, 31415926535]) if schema["type"] == "integer" else rng.choice([0, -0.5, 2.71828, 12])


def instance_object(schema, rng, root):
    properties, need = schema.get("properties", {}), schema.get("required", [])
    keys = [k for k in properties if k in need or rng.random() < 0.5]
    rng.shuffle(keys)
    out = {k: instance(properties[k], rng, root) for k in keys}
    rest = schema.get("additionalProperties", True)
    if rest is not False and rng.random() < 0.3:
        out["more"] = rng.choice([1, None, ["x"]]) if rest is True else instance(rest, rng, root)
    return out


def instance_array(schema, rng, root):
    if "prefixItems" in schema:
        return [instance(x, rng, root) for x in schema["prefixItems"]]
    low = schema.get("minItems", 0)
    return [instance(schema["items"], rng, root) for _ in range(rng.randint(low, schema.get("maxItems", low + 2)))]


def instance(schema, rng, root):
    """A value that the schema allows."""
    if "$ref" in schema:
        return instance(root["$defs"][schema["$ref"].split("/")[-1]], rng, root)
    for key in ("anyOf", "oneOf", "enum"):
        if key in schema:
            choice = rng.choice(schema[key])
            return choice if key == "enum" else instance(choice, rng, root)
    if "const" in schema:
        return schema["const"]
    kind = schema["type"]
    if isinstance(kind, list):
        return instance({"type": rng.choice(kind)}, rng, root)
    makers = {"object": instance_object, "array": instance_array}
    if kind in makers:
        return makers[kind](schema, rng, root)
    if kind == "string":
        return instance_string(schema, rng)
    return (
        {"boolean": rng.random() < 0.5, "null": None}[kind]
        if kind in ("boolean", "null")
        else instance_number(schema, rng)
    )


def places(value, path=()):
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for k, v in pairs:
        yield from places(v, path + (k,))


def other_value(value, rng):
    """Something near a value: another type, a key or item more or less, beyond a bound."""
    if isinstance(value, dict) and rng.random() < 0.8:
        keys = list(value)
        if keys and rng.random() < 0.6:
            gone = rng.choice(keys)
            return {k: v for k, v in value.items() if k != gone}
        return value | {rng.choice(["extra", "", "🌚", "id2"]): rng.choice([1, "x", None, {}])}
    if isinstance(value, list) and rng.random() < 0.8:
        return rng.choice([value[:-1], value + value[-1:] * 3, value + [{}], []])
    if isinstance(value, str) and rng.random() < 0.8:
        return rng.choice(["", "zz", "~" * 45, 5, None, [value]])
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return rng.choice([value + 1, value - 1, -value, value * 1000 + 7, value + 0.25, str(value), None])
    return rng.choice([None, True, 0, 1.5, "", "true", [], {}])


def mutant(value, rng):
    """The value with one place changed."""
    path = rng.choice(list(places(value)))
    if not path:
        return other_value(value, rng)
    copy = json.loads(json.dumps(value))
    spot = copy
    for k in path[:-1]:
        spot = spot[k]
    spot[path[-1]] = other_value(spot[path[-1]], rng)
    return copy


def random_case(i):
    """Whether it came to something: a schema with two texts of each kind."""
    rng = random.Random(f"schema {i}")
    schema = some_root(rng)
    holds = oracle(schema)
    valid, invalid = [], []
    for k in range(30):
        value = instance(schema, rng, schema)
        assert holds(json.dumps(value)), f"{schema} {value}"
        kinds = [value, mutant(value, rng), mutant(mutant(value, rng), rng)]
        for v in kinds:
            text = json.dumps(v)
            if len(text) > 260 or oddly_spelled(text):
                continue
            side, most = (valid, 5) if holds(text) else (invalid, 6)
            if len(side) < most and all(json.dumps(x) != text for x in side):
                side.append(v)
    if len(json.dumps(schema)) > 1300 or len(valid) < 2 or len(invalid) < 2:
        return False
    case(f"random/{i}", schema, valid, invalid)
    return True


def randoms(n):
    made, i = 0, 0
    while made < n:
        made += random_case(i)
        i += 1


# ---- all ----

FAMILIES = [
    types,
    anything,
    objects,
    patterns_of_names,
    counts_of_properties,
    odd_names,
    arrays,
    enums,
    consts,
    lengths,
]
FAMILIES += [patterns, formats, numbers, alternatives, all_of, references, notes, odd_forms, depths, classes, tools]


def check_spelling(line):
    """A matcher must take what is in "valid", so no number there may be of an unusual spelling, plain numbers aside."""
    for text in line["valid"]:
        plain = line["name"] in ("number/plain_num", "number/plain_int") and not re.search("[eE]", text)
        assert plain or not oddly_spelled(text), f"{line['name']}: {text}"


def main():
    for family in FAMILIES:
        family()
    randoms(130)
    out = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in LINES)
    for line in LINES:
        check_spelling(line)
    assert len(LINES) >= 300 and len(out.encode()) < 600000
    (HERE / "schemas.jsonl").write_text(out, encoding="utf-8")
    counts = {
        k: sum(len(x.get(k, ())) for x in LINES) for k in ("valid", "invalid", "valid_spelled_otherwise", "malformed")
    }
    print(f"{len(LINES)} schemas, {len(out.encode())} bytes, {counts}")


if __name__ == "__main__":
    main()
