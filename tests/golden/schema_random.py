"""Random schemas with instances and mutants (make_schemas.py)."""
import json
import random

from schema_oracle import (
    BOOL,
    INT,
    NULL,
    NUM,
    arr,
    case,
    closed,
    either,
    ints,
    nums,
    oddly_spelled,
    one_of,
    oracle,
    ref,
    strs,
)
from schema_values import FORMATS


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
