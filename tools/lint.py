#!/usr/bin/env python3
"""Checks of the source tree that a compiler does not make: which room includes which, where the environment and
CUDA may be named, whether every source file has its sentence in the tour, and the format of the code."""
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# room -> rooms whose headers it may include (docs/design.md, "The house")
LAYERS = {
    "base": set(),
    "format": {"base"},
    "text": {"base"},
    "media": {"base"},
    "device": {"base"},
    "kernels": {"base", "format", "device"},
    "model": {"base", "format", "device", "kernels"},
    "runtime": {"base", "format", "device", "kernels", "model"},
    "api": {"base", "text", "media", "runtime", "model", "format", "device", "kernels"},
    "server": {"base", "text", "media", "runtime", "api"},
}
problems = []


def room_of(path):
    return path.relative_to(ROOT / "src").parts[0]


def check_includes(path, text):
    room = room_of(path)
    allowed = LAYERS.get(room)
    if allowed is None:
        problems.append(f"{path.relative_to(ROOT)}: folder src/{room} is not a room of the house")
        return
    for target in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M):
        other = target.split("/")[0]
        if "/" not in target:
            if target == "moonlet.h" and room in ("api", "server"):
                continue
            problems.append(f'{path.relative_to(ROOT)}: include "{target}" is not written from src/')
        elif other != room and other not in allowed:
            problems.append(f"{path.relative_to(ROOT)}: room {room} may not include {target}")


def check_words(path, text):
    rel = path.relative_to(ROOT).as_posix()
    if "getenv(" in text and not rel.startswith(("src/base/opt", "tests/")):
        problems.append(f"{rel}: getenv outside base/opt.c")
    if rel.startswith("src/") and not rel.startswith(("src/device/", "src/kernels/gpu/")):
        found = re.search(r"\b(CUDA|HIP|(cuda|cu|hip)[A-Z]\w*|CU_?[A-Z]*[a-z]\w*)\b", text)  # "--device cuda" is none
        if found:
            problems.append(f"{rel}: {found.group()} is named outside device/ and kernels/gpu/")


def check_json(path, text):
    """jansson's view of a number beyond its types is an object (base/json.h): nobody else may go by it."""
    rel = path.relative_to(ROOT).as_posix()
    if not rel.startswith(("src/", "cmd/")) or rel.startswith("src/base/json"):
        return
    for word in set(re.findall(r"\b(json_(?:typeof|dump\w*|load\w*))\(", text)):
        problems.append(f"{rel}: {word}() outside base/json*.c")
    if "<jansson.h>" in text:
        problems.append(f"{rel}: <jansson.h> is included by base/json.h alone")


def check_tour(files):
    tour = (ROOT / "src/README.md").read_text()
    for f in files:
        rel = f.relative_to(ROOT / "src").as_posix()
        stem = re.sub(r"\.(c|h|cu|cuh)$", "", rel)
        if f"`{rel}`" not in tour and f"`{stem}`" not in tour:
            problems.append(f"src/README.md has no sentence for `{stem}`")


def check_format(files):
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not tool:
        print("lint: clang-format is not installed, format not checked", file=sys.stderr)
        return
    done = subprocess.run([tool, "--dry-run", "-Werror", *map(str, files)], capture_output=True, text=True)
    if done.returncode:
        first = sorted({line.split(":")[0] for line in done.stderr.splitlines() if "error:" in line})
        problems.extend(f"{Path(p).relative_to(ROOT)}: not formatted (make format)" for p in first)


def main():
    src = sorted(p for p in (ROOT / "src").rglob("*") if p.suffix in (".c", ".h", ".cu", ".cuh"))
    rest = sorted(p for d in ("cmd", "include", "tests", "examples") for p in (ROOT / d).rglob("*.[ch]"))
    for p in src:
        check_includes(p, p.read_text())
    for p in src + rest:
        check_words(p, p.read_text())
        check_json(p, p.read_text())
    check_tour(src)
    check_format([p for p in src + rest if p.suffix in (".c", ".h")])
    for p in problems:
        print(f"lint: {p}")
    sys.exit(1 if problems else 0)


main()
