#!/usr/bin/env python3
"""Writes src/text/unicode_table.c: for each code point, the classes that Kimi's split pattern and cut use.

The tables are asked of the official encoder itself (package tiktoken, which brings its own Unicode version): an
encoding whose pattern is one class and whose vocabulary is the 256 bytes returns exactly the characters of that
class. So no other Unicode version can creep in. Run it in an environment that has tiktoken:

    python tools/unicode_table.py > src/text/unicode_table.c
"""
import tiktoken
from importlib.metadata import version

NOT_HAN = r"&&[^\p{Han}]"
CLASSES = [  # in the order of the bits in src/text/unicode.h
    r"\p{Han}",
    r"\p{L}",
    r"\p{N}",
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}" + NOT_HAN + "]",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}" + NOT_HAN + "]",
    r"\s",
    r"[\r\n]",
]
SHIFT = 7


def members(pattern):
    """The code points that match a one-character pattern in the official engine."""
    enc = tiktoken.Encoding(
        "probe", pat_str=pattern, mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={}
    )
    found = set()
    for base in range(0, 0x110000, 0x1000):
        text = "".join(map(chr, (c for c in range(base, base + 0x1000) if not 0xD800 <= c < 0xE000)))
        found.update(map(ord, enc.decode_bytes(enc.encode_ordinary(text)).decode()))
    return found


def main():
    flags = bytearray(0x110000)
    for bit, pattern in enumerate(CLASSES):
        for c in members(pattern):
            flags[c] |= 1 << bit
    for c in range(0x110000):
        if chr(c).isspace():
            flags[c] |= 0x80
    size = 1 << SHIFT
    blocks, index = {}, []
    for base in range(0, 0x110000, size):
        index.append(blocks.setdefault(bytes(flags[base : base + size]), len(blocks)))
    assert len(blocks) <= 256
    print("/* Made by tools/unicode_table.py with tiktoken %s. Do not edit. */" % version("tiktoken"))
    print("/* clang-format off */")
    print('#include "text/unicode.h"\n')
    table("unicode_index[0x110000 >> UNICODE_SHIFT]", index)
    table("unicode_flags[][1 << UNICODE_SHIFT]", [list(b) for b in blocks])


def table(name, rows):
    print(f"const u8 {name} = {{")
    if isinstance(rows[0], list):
        for row in rows:
            print("{")
            numbers(row)
            print("},")
    else:
        numbers(rows)
    print("};")


def numbers(row):
    for i in range(0, len(row), 30):
        print(",".join(map(str, row[i : i + 30])) + ",")


main()
