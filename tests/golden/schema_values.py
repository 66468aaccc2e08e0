"""Schemas of single values, objects and arrays, by families (make_schemas.py)."""
import json
import random

from schema_oracle import (
    BOOL,
    INT,
    NULL,
    NUM,
    STR,
    Text,
    arr,
    case,
    cases,
    closed,
    either,
    ints,
    nums,
    obj,
    one_of,
    ref,
    spelled,
    strs,
)


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
