#!/usr/bin/env python3
"""Writes src/kernels/gpu/device/wgmma_widths.h: the lists of registers that an asm statement needs for a product of
every width N of PTX's wgmma. --check: exit status 1 when the file is not what this writes."""
import sys
from pathlib import Path

FILE = Path(__file__).parent.parent / "src/kernels/gpu/device/wgmma_widths.h"
HEAD = """/* kernels/gpu/device/wgmma_widths.h: by tools/make_wgmma_widths.py: for wgmma's N columns, of which a thread has N / 2
 * sums, operands 0 .. N/2 - 1 of the asm statement.
 * WGMMA_LIST_N: their places in the instruction. WGMMA_SUMS_N(S): S(0), .. of the sums. WGMMA_AT_N: the numbers of the
 * seven operands behind them. */
"""


def text():
    widths = range(8, 257, 8)
    out = [HEAD]
    out.append(
        "#define WGMMA_WIDTHS(X) \\\n    "
        + " \\\n    ".join(" ".join(f"X({n})" for n in widths[i : i + 8]) for i in range(0, 32, 8))
        + "\n"
    )
    for n in widths:
        new = range(n // 2 - 4, n // 2)
        before = f'WGMMA_LIST_{n - 8} ", ' if n > 8 else '"'
        out.append(f"#define WGMMA_LIST_{n} {before}{', '.join(f'%{i}' for i in new)}\"\n")
        before = f"WGMMA_SUMS_{n - 8}(S), " if n > 8 else ""
        out.append(f"#define WGMMA_SUMS_{n}(S) {before}{', '.join(f'S({i})' for i in new)}\n")
        out.append(f"#define WGMMA_AT_{n} {', '.join(str(i) for i in range(n // 2, n // 2 + 7))}\n")
    return "/* clang-format off */\n".join([out[0], "".join(out[1:])]) + "/* clang-format on */\n"


if sys.argv[1:] == ["--check"]:
    sys.exit(FILE.read_text() != text())
FILE.write_text(text())
