#!/usr/bin/env python3
"""Checks of the source tree that a compiler does not make: which room includes which, where the environment and
CUDA may be named, whether every source file has its sentence in the tour, and the format of the code."""
import io
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# room -> rooms whose headers it may include (docs/design/design.md, "The house")
LAYERS = {
    "base": set(),
    "format": {"base"},
    "text": {"base"},
    "media": {"base"},
    "device": {"base", "format"},
    "kernels": {"base", "format", "device"},
    "model": {"base", "format", "device", "kernels"},
    "runtime": {"base", "format", "device", "kernels", "model"},
    "api": {"base", "text", "media", "runtime", "model", "format", "device", "kernels"},
    "server": {"base", "text", "media", "runtime", "api"},
}
# folder of kernels/gpu -> folders below it whose headers it may include
GPU_FOLDERS = {
    "device": set(),
    "rows": {"device"},
    "gemm": {"device", "rows"},
    "mla": {"device", "rows", "gemm"},
    "heads": {"device", "rows"},
    "vision": {"device", "rows"},
    "moe": {"device", "rows", "gemm"},
    "weights": {"device"},
    "comm": {"device", "rows"},
}
# folder of server -> folders whose headers it may include; what lies in server itself, and its server_internal.h,
# knows all
SERVER_FOLDERS = {
    "http": set(),
    "request": {"http"},
    "reply": {"http", "request"},
    "kv": {"http", "request", "reply"},
    "status": {"http", "request", "reply", "kv"},
}
# folder of cmd -> folders whose headers it may include; what lies in cmd itself may include all
CMD_FOLDERS = {
    "lib": set(),
    "run": {"lib"},
    "serve": {"lib"},
    "text": {"lib"},
    "eval": {"lib"},
    "tune": {"lib"},
    "quantize": {"lib"},
    "bench": {"lib"},
    "check": {"lib", "tune"},  # the layer that tune times is checked at its largest
}
COLUMNS = 120
DOC_COLUMNS = 100
C_FILES = (".c", ".h", ".cu", ".cuh", ".cc")
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


def check_video(path, text):
    """The program that decodes videos shares nothing with the other one but what they say to each other."""
    for target in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M):
        if not target.startswith("video/") and target != "media/video_pipe.h":
            problems.append(f"{path.relative_to(ROOT)}: video may not include {target}")


def check_json(path, text):
    """jansson's view of a number beyond its types is an object (base/json.h): nobody else may go by it."""
    rel = path.relative_to(ROOT).as_posix()
    if not rel.startswith(("src/", "cmd/")) or rel.startswith("src/base/json"):
        return
    for word in set(re.findall(r"\b(json_(?:typeof|dump\w*|load\w*))\(", text)):
        problems.append(f"{rel}: {word}() outside base/json*.c")
    if "<jansson.h>" in text:
        problems.append(f"{rel}: <jansson.h> is included by base/json.h alone")


def check_kernels(path, text):
    """Backends include what all share, not each other; inside of kernels/gpu includes go down as GPU_FOLDERS says."""
    parts = path.relative_to(ROOT / "src" / "kernels").parts
    backend, folder = parts[0] if len(parts) > 1 else "", parts[1] if len(parts) > 2 else ""
    for target in re.findall(r'^\s*#\s*include\s+"kernels/([^"]+)"', text, re.M):
        other = target.split("/")
        if len(other) > 1 and backend and other[0] not in (backend, "sampling"):
            problems.append(f"{path.relative_to(ROOT)}: backend {backend} may not include {target}")
        if folder and len(other) > 2 and other[1] not in GPU_FOLDERS[folder] | {folder}:
            if target != "gpu/moe/gate_fused.cuh":  # the gate runs in blocks behind those of a product
                problems.append(f"{path.relative_to(ROOT)}: kernels/gpu/{folder} may not include {target}")


def check_server(path, text):
    parts = path.relative_to(ROOT / "src" / "server").parts
    for target in re.findall(r'^\s*#\s*include\s+"server/([^"]+)"', text, re.M):
        other = target.split("/")
        allowed = SERVER_FOLDERS[parts[0]] | {parts[0]} if len(parts) > 1 else set(SERVER_FOLDERS)
        if len(other) > 1 and other[0] not in allowed:
            problems.append(f"{path.relative_to(ROOT)}: server/{parts[0]} may not include {target}")
        if len(other) == 1 and len(parts) > 1 and (path.suffix == ".h" or parts[0] not in ("status", "kv")):
            problems.append(f"{path.relative_to(ROOT)}: server/{parts[0]} may not include {target}")


def check_commands(path, text):
    folder = path.relative_to(ROOT / "cmd").parts[0]
    for target in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M):
        other = target.split("/")
        if other == ["moonlet.h"]:
            continue
        if len(other) == 1:
            problems.append(f'{path.relative_to(ROOT)}: include "{target}" is not written from src/ or as cmd/...')
        elif other[0] == "cmd" and len(other) > 2 and folder in CMD_FOLDERS:
            if other[1] not in CMD_FOLDERS[folder] | {folder}:
                problems.append(f"{path.relative_to(ROOT)}: cmd/{folder} may not include {target}")


def check_header(path, text):
    """A first line that names a file names this one."""
    rel = path.relative_to(ROOT / "src" if "src" in path.relative_to(ROOT).parts[:1] else ROOT).as_posix()
    named = re.match(r"/\* ([\w/]+\.(?:c|h|cu|cuh)): ", text)
    if named and named.group(1) != rel:
        problems.append(f"{path.relative_to(ROOT)}: its first line names {named.group(1)}")


STATIC_FUNCTION = re.compile(
    r"^static\s+(?:__device__\s+)?(?:__forceinline__\s+|inline\s+)?[\w ]+?[\s*]+(\w+)\([^;{]*?\)\s*\{", re.M
)
STATIC_VALUE = re.compile(r"^static (?:const |_Thread_local )?[\w *]+?\b(\w+)(?:\[[^\]]*\])* ?[=;]", re.M)


def check_static_names(files):
    """A static name stands in one file, so that grep finds it once. The CPU's instruction sets have the same ones on
    purpose."""
    places = {}
    for path in files:
        rel = path.relative_to(ROOT).as_posix()
        if rel.startswith("src/kernels/cpu/vec_"):
            continue
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        text = re.sub(r"^template\s*<.*>\s*", "", text, flags=re.M)
        for name in STATIC_FUNCTION.findall(text) + STATIC_VALUE.findall(text):
            places.setdefault(name, set()).add(rel)
    for name, where in sorted(places.items()):
        if len(where) > 1:
            problems.append(f"static {name} stands in {', '.join(sorted(where))}")


def check_generated():
    if subprocess.run([sys.executable, ROOT / "tools/make_wgmma_widths.py", "--check"]).returncode:
        problems.append("src/kernels/gpu/device/wgmma_widths.h is not what tools/make_wgmma_widths.py writes")


def check_tour(files):
    """The tour has a sentence for every file; of kernels/gpu, which has a README of its own, for every folder."""
    tour = (ROOT / "src/README.md").read_text()
    for f in files:
        rel = f.relative_to(ROOT / "src").as_posix()
        stem = re.sub(r"\.(c|h|cu|cuh)$", "", rel)
        folder = f"{rel.rsplit('/', 1)[0]}/"
        if folder.startswith("kernels/gpu/"):
            if f"`{folder}`" not in tour:
                problems.append(f"src/README.md has no sentence for `{folder}`")
        elif f"`{rel}`" not in tour and f"`{stem}`" not in tour:
            problems.append(f"src/README.md has no sentence for `{stem}`")
    for name in re.findall(r"^- `([\w/]+)`", tour, re.M):
        if not list((ROOT / "src").glob(f"{name.rstrip('/')}*")):
            problems.append(f"src/README.md: there is no `{name}`")


def report_unformatted(tool, options, files, pattern):
    done = subprocess.run([tool, *options, *map(str, files)], capture_output=True, text=True)
    if done.returncode:
        first = sorted(set(re.findall(pattern, done.stderr, re.M))) or [f"{tool}: {done.stderr.strip()[-200:]}"]
        problems.extend(f"{p.removeprefix(f'{ROOT}/')}: not formatted (make format)" for p in first)


def check_format(code, python, strict):
    """The formatters' output changes with their versions, so these are fixed: clang-format 14, black 23."""
    clang = shutil.which("clang-format-14")
    if clang:
        report_unformatted(clang, ["--dry-run", "-Werror"], code, r"^([^:\n]+):\d+:\d+: error:")
    black = shutil.which("black")
    if black and " 23." not in subprocess.run([black, "--version"], capture_output=True, text=True).stdout:
        black = None
    if black:
        report_unformatted(black, ["--check", "--quiet", "--verbose"], python, r"^would reformat (.+)$")
    for tool, name in ((clang, "clang-format-14"), (black, "black 23")):
        if not tool and strict:
            problems.append(f"{name} is not installed (tools/setup all)")
        elif not tool:
            print(f"lint: {name} is not installed, its format is not checked", file=sys.stderr)


def long_c_lines(text):
    """Lines of more than COLUMNS columns. Strings may stand beyond: they are not broken, so that grep finds them."""
    rows = enumerate(text.split("\n"), 1)
    return [
        i for i, line in rows if len(line) > COLUMNS and len(re.sub(r'"(\\.|[^"\\])*"|\s*\\$', "", line)) > COLUMNS - 2
    ]


def long_python_lines(text):
    """The same of Python, where a string that is no docstring may be of several lines."""
    found = {i for i, line in enumerate(text.split("\n"), 1) if len(line) > COLUMNS}
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline) if found else ():
        if token.type == tokenize.STRING and before not in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            found -= set(range(token.start[0], token.end[0] + 1))
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type
    return sorted(found)


def check_columns(path, lines):
    problems.extend(f"{path.relative_to(ROOT)}:{i}: more than {COLUMNS} columns" for i in lines)


def check_docs():
    """Links lead somewhere; prose in docs/ has at most DOC_COLUMNS columns, but for tables, code and links."""
    for path in sorted(p for p in ROOT.rglob("*.md") if not p.relative_to(ROOT).parts[0].startswith(("build", "."))):
        rel, code = path.relative_to(ROOT), False
        for i, line in enumerate(path.read_text().split("\n"), 1):
            code ^= line.lstrip().startswith("```")
            if code:
                continue
            for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", line):
                if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
                    problems.append(f"{rel}:{i}: there is no {target}")
            prose = not line.startswith(("|", "    ")) and "](" not in line
            if rel.parts[0] == "docs" and prose and len(line) > DOC_COLUMNS:
                problems.append(f"{rel}:{i}: more than {DOC_COLUMNS} columns")


def python_files():
    """All that git does not ignore, scripts without an ending too."""
    rest = (p for p in (ROOT / "tools").iterdir() if p.is_file() and not p.suffix)
    scripts = [p for p in rest if p.read_text().startswith("#!/usr/bin/env python3")]
    return sorted(p for d in ("bench", "tests", "tools") for p in (ROOT / d).rglob("*.py")) + scripts


def main():
    strict = sys.argv[1:] == ["--strict"]  # formatters must be there
    src = sorted(p for p in (ROOT / "src").rglob("*") if p.suffix in C_FILES)
    folders = ("bench", "cmd", "include", "tests", "examples", "video")
    rest = sorted(p for d in folders for p in (ROOT / d).rglob("*") if p.suffix in C_FILES)
    python = python_files()
    for p in src:
        check_includes(p, p.read_text())
        check_header(p, p.read_text())
        if room_of(p) == "kernels":
            check_kernels(p, p.read_text())
        if room_of(p) == "server":
            check_server(p, p.read_text())
    for p in src + rest:
        check_words(p, p.read_text())
        check_json(p, p.read_text())
        check_columns(p, long_c_lines(p.read_text()))
    for p in rest:
        if p.relative_to(ROOT).parts[0] == "video":
            check_video(p, p.read_text())
            check_header(p, p.read_text())
        if p.relative_to(ROOT).parts[0] == "cmd":
            check_commands(p, p.read_text())
            check_header(p, p.read_text())
    for p in python:
        check_columns(p, long_python_lines(p.read_text()))
    check_static_names(src + [p for p in rest if p.relative_to(ROOT).parts[0] == "cmd"])
    check_generated()
    check_tour(src)
    check_docs()
    check_format(src + rest, python, strict)
    for p in problems:
        print(f"lint: {p}")
    sys.exit(1 if problems else 0)


main()
