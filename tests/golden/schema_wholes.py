"""Schemas that combine others, and whole ones as people write them, by families (make_schemas.py)."""
import json
import uuid

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
    strs,
)


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
