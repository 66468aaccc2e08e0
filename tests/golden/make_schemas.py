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
import re
from pathlib import Path

from schema_oracle import LINES, oddly_spelled
from schema_values import (
    anything,
    arrays,
    consts,
    counts_of_properties,
    enums,
    formats,
    lengths,
    numbers,
    objects,
    odd_names,
    patterns,
    patterns_of_names,
    types,
)
from schema_wholes import all_of, alternatives, classes, depths, notes, odd_forms, references, tools
from schema_random import randoms

HERE = Path(__file__).resolve().parent


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
