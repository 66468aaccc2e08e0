"""What is valid by jsonschema, texts of values in several spellings, and short names for schemas (make_schemas.py)."""
import json
import random
import re

from jsonschema import Draft202012Validator

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
