#!/usr/bin/env python3
"""Runs commands and draws what they print as an SVG picture of a terminal, for the README.

usage: tools/terminal_svg.py OUT.svg 'COMMAND' ['COMMAND' ...]

Output goes to a pseudo-terminal, so commands print what a person would see; dimmed text (reasoning) is drawn
grey, half blocks in 24-bit colours (a picture) as two rectangles each. Lines wrap at 104 columns."""
import os
import pty
import re
import subprocess
import sys
from html import escape

COLUMNS, CHAR_W, LINE_H = 104, 8.4, 19


def run(command):
    """Standard output and error are a terminal, standard input is empty."""
    master, slave = pty.openpty()
    child = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    out = bytearray()
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        out.extend(data)
    child.wait()
    return out.decode(errors="replace").replace("\r", "")


def cells(text):
    """(character, style) pairs, escape sequences taken out. A style is dim or not, or a half block's two colours."""
    dim, i, upper, lower = False, 0, None, None
    while i < len(text):
        m = re.match(r"\033\[([\d;]*)m", text[i:])
        if m:
            rgb = re.fullmatch(r"([34])8;2;(\d+);(\d+);(\d+)", m.group(1))
            colour = "#%02x%02x%02x" % tuple(map(int, rgb.groups()[1:])) if rgb else None
            if rgb and rgb.group(1) == "3":
                upper = colour
            elif rgb:
                lower = colour
            else:
                dim, upper, lower = m.group(1) == "2", None, None
            i += m.end()
        else:
            yield text[i], (upper, lower) if text[i] == "\u2580" and upper else dim
            i += 1


def lines(text):
    line = []
    for ch, dim in cells(text):
        if ch == "\n":
            yield line
            line = []
            continue
        if len(line) == COLUMNS:
            yield line
            line = []
        line.append((ch, dim))
    if line:
        yield line


def spans(line):
    i = 0
    while i < len(line):
        j = i
        while j < len(line) and line[j][1] == line[i][1]:
            j += 1
        yield i, "".join(c for c, _ in line[i:j]), line[i][1]
        i = j


def blocks(x, y, n, style):
    """n half blocks: what is above, what is below."""
    for row, colour in enumerate(style):
        if colour:
            yield (
                f'<rect x="{16 + x * CHAR_W:.1f}" y="{32 + y * LINE_H + row * LINE_H / 2:.1f}" '
                f'width="{n * CHAR_W + 0.5:.1f}" height="{LINE_H / 2 + 0.5:.1f}" fill="{colour}"/>'
            )


def main():
    out, commands = sys.argv[1], sys.argv[2:]
    rows = []
    for c in commands:
        rows.append([(ch, None) for ch in "$ " + c])
        rows.extend(lines(run(c)))
        rows.append([])
    w, h = COLUMNS * CHAR_W + 32, len(rows) * LINE_H + 44
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h:.0f}" viewBox="0 0 {w:.0f} {h:.0f}">',
        f'<rect width="{w:.0f}" height="{h:.0f}" rx="8" fill="#14161c"/>',
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14">',
    ]
    svg += [
        f'<circle cx="{18 + 18 * i}" cy="16" r="5" fill="{c}"/>'
        for i, c in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    ]
    for y, line in enumerate(rows):
        for x, text, dim in spans(line):
            if isinstance(dim, tuple):
                svg += blocks(x, y, len(text), dim)
                continue
            color = "#7fd1ff" if dim is None else "#7d8590" if dim else "#e6edf3"
            svg.append(
                f'<text x="{16 + x * CHAR_W:.1f}" y="{46 + y * LINE_H}" fill="{color}" xml:space="preserve" '
                f'textLength="{len(text) * CHAR_W:.1f}">{escape(text)}</text>'
            )
    svg += ["</g>", "</svg>", ""]
    with open(out, "w") as f:
        f.write("\n".join(svg))


main()
