#!/usr/bin/env python3
"""Are the kernels of two builds byte for byte the same code?

    tools/same_kernels.py OLD NEW [--names FILE]

OLD and NEW are folders with .cubin files (build/gpu). Compared are the code (.text.KERNEL) and the constants
(.nv.constant0.KERNEL) of every kernel, whichever file it lies in. --names maps old kernel names to new ones where they
changed: lines "old new", # begins a comment. For changes that must not change what runs: formatting, moves, renames.
Exit status 1 when anything differs."""
import argparse
import struct
import sys
from pathlib import Path

SECTIONS = (".text.", ".nv.constant0.")


def sections(path):
    """(section name, bytes) of the kernels' sections of a 64-bit little-endian ELF file."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit(f"{path}: not a 64-bit little-endian ELF file")
    (at,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    heads = [struct.unpack_from("<IIQQQQ", data, at + i * size) for i in range(count)]
    table = heads[names][4]
    for name, _type, _flags, _address, offset, length in heads:
        word = data[table + name : data.index(b"\0", table + name)].decode()
        if word.startswith(SECTIONS):
            yield word, data[offset : offset + length]


def kernels(folder):
    found = {}
    for path in sorted(Path(folder).rglob("*.cubin")):
        for name, code in sections(path):
            if name in found:
                raise SystemExit(f"{path}: {name} is in another file too")
            found[name] = code
    if not found:
        raise SystemExit(f"{folder}: no kernels")
    return found


def renamed(name, names):
    lead = next(s for s in SECTIONS if name.startswith(s))
    return lead + names.get(name[len(lead) :], name[len(lead) :])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--names")
    args = parser.parse_args()
    lines = Path(args.names).read_text().splitlines() if args.names else []
    names = dict(line.split() for line in (line.split("#")[0].strip() for line in lines) if line)
    old, new = kernels(args.old), kernels(args.new)
    expected = {renamed(name, names): code for name, code in old.items()}
    problems = [f"missing: {name}" for name in expected if name not in new]
    problems += [f"new: {name}" for name in new if name not in expected]
    problems += [f"differs: {name}" for name, code in expected.items() if name in new and new[name] != code]
    for line in problems:
        print(line)
    same = sum(new.get(name) == code for name, code in expected.items())
    size = sum(map(len, expected.values()))
    print(f"{same} of {len(expected)} sections are the same, {size} bytes")
    sys.exit(bool(problems))


main()
