#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/vectors.jsonl from the official encoder (official_tokenizer.py; needs tiktoken).

    python tests/golden/make_tokenizer_vectors.py

A line is {"text" or "text_b64" or "parts": [[unit, times], ...], "specials", "ids"}; a long result is {"n", "sha256"}
in place of "ids": the hash of the ids as little-endian int32. Malformed bytes (text_b64) were decoded with
errors="replace" before the official encoder saw them."""
import base64
import hashlib
import json
import random
import struct
import unicodedata
from pathlib import Path

from official_tokenizer import Official

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "data/kimi-k2.5"

SAMPLES = """The quick brown fox doesn't jump; it'll've jumped. I'M HERE, YOU'RE THERE, we'D go.
Der Übermut tut selten gut, größer als Straße. L'été dernier, j'ai aperçu l'œuvre. ¿Dónde está el niño? Ça va?
Съешь же ещё этих мягких французских булок, да выпей чаю. Ο Όμηρος έγραψε την Οδύσσεια. Հայերեն լեզու. ქართული ენა
你好，世界！ 今天天气怎么样？ 「引用」、《书名》；第3章：共計１２３元。 漢字かな交じり文、カタカナ ー 々〇〆 ㍿ 한국어 텍스트입니다. ㄱㄴㄷ
مرحبا بالعالم ١٢٣٤٥ — שלום עולם — नमस्ते दुनिया १२३४ — স্বাগতম — வணக்கம் — ಕನ್ನಡ — ไทยแลนด์ ประเทศ — ພາສາລາວ — မြန်မာ — ភាសាខ្មែរ — བོད་ཡིག — አማርኛ
🙂 👨‍👩‍👧‍👦 🏳️‍🌈 🇨🇭 👍🏽 e\u0301 n\u0303 a\u0308\u0323 \u0301start Ａｂｃ ǅungla ʰ ª º ⅷ ½ ² ㊿ \U0001d400\U0001d41a \U00020000\U0002a6d6 \U00016ff0 ⼀ ⺀
1 12 123 1234 12345 1234567890 3.14159 1e-9 0xDEADBEEF 1,000,000 １２３４ ٣٤٥٦ Ⅷ½²
it's IT'S it'\u017f IT'\u017fX we'LL we'Ll 'twas 's 'S 'll don't'd've x'rE x'vE x'r x'l
def f(x: int) -> str:\n    \"\"\"doc\"\"\"\n\treturn f"{x!r:>10}"  # ok\r\n\r\n\r\n  class A_b2C(object): pass
#include <stdio.h>\nint main(void) { for (int i=0;i<10;++i) printf("%d\\n", i); return 0; }
{"a": [1, 2.5e10, null, true], "b\\u00e9": "x\\n"}  <a href="https://example.com/?q=1&r=%20">k</a>  $$\\frac{a}{b}$$
HTTPServerError getElementById XMLHttpRequest snake_case_name SCREAMING_SNAKE camelCase iPhone McDonald's ABCdefGHI ABC'sDEF
a\u200bb c\u00adD \ufeffbom \u180eM a\u180eb  \u180e \x00\x01\x1c\x1d\x1e\x1f\x7f \x85\xa0\u2000\u2028\u2029\u3000x \ufffd \ufffe \U0010ffff
  leading,   inner   and trailing   
\n\n\n \n \t\n   x\n\n  \r\n\r y\t\tz \v\f w   \n
!!! ... ???!? ---- ==== **bold** ~~~ //\\\\ ((())) \n!!\n\n\r\n :-) <|not special|> [BOS [EOS]] <|im_end| > |><|
A\u0301\u0302B \u0301\u0301A \u0301AB \u0301Ab x\u0301Y !\u0301A !\u0301\u0301 \u0301! 1\u0301 中\u0301A \u0301中 A中b 中A中 ーA ʰAB aʰB AʰB ʰʰ
""".splitlines()

BAD = [
    b"\xff",
    b"a\xffb",
    b"\xc3",
    b"\xc3(",
    b"\xe2\x82",
    b"\xe2\x82a",
    b"\xe2(\xa1",
    b"\xf0\x9f\x98",
    b"\xf0\x9f\x98\x00",
    b"\xf0\x9f(",
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf!",
    b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80",
    b"\xc0\xaf",
    b"\xe0\x80\xaf",
    b"\xf0\x80\x80\xaf",
    b"\x80\x80\x80",
    b"ok \xfe\xfe\xff\xff ok",
    b"\xe4\xbd\xa0\xe5\xa5",
    b"\xe2\x82\xe2\x82\xac",
    bytes(range(128, 256)),
    bytes(range(256)),
    b"<|im_end\xff|>",
    b"<|im_end|>\xe2",
]


def short_cases(names):
    for s in SAMPLES:
        yield s, False
    yield "\n".join(SAMPLES), False
    yield "", True
    for c in map(
        chr,
        list(range(256))
        + [
            0x17F,
            0x1C5,
            0x2B0,
            0x301,
            0x3005,
            0x3007,
            0x3021,
            0x3031,
            0x303B,
            0x180E,
            0x2E80,
            0x2FF0,
            0x31C0,
            0xFA0E,
            0x16FE2,
            0x16FF0,
        ],
    ):
        yield "a" + c + "B" + c + c + " " + c + "1\n", False
    for name in names[:24] + names[-3:]:
        yield f"x{name} y{name}{name}\n{name[:-1]} {name}'s", True
        yield f"x{name} y", False
    yield "".join(names), True
    yield "<|<|im_end|>|> [[EOS]] <|im_<|im_end|>end|> <|reserved_token_16358<|reserved_token_163589|>", True
    r = random.Random(11)
    by = {}
    for c in range(0x110000):
        if not 0xD800 <= c < 0xE000:
            by.setdefault(unicodedata.category(chr(c)), []).append(chr(c))
    for _ in range(300):
        yield "".join(r.choice(by[r.choice(sorted(by))]) for _ in range(r.randrange(2, 30))), False
    for _ in range(200):
        pool = "aA1 中\u0301ʰ'.\n\r\t\u3000sSlL\u017f"
        yield "".join(r.choice(pool) for _ in range(r.randrange(2, 40))), False


def long_cases():
    """[[unit, times], ...] on both sides of the cuts."""
    for unit in [
        "a",
        "A",
        "q",
        " ",
        "\n",
        "\t",
        "!",
        "7",
        "中",
        "é",
        "\u0301",
        "ʰ",
        "\u3000",
        "\x1c",
        "\x85",
        "🙂",
        "aA",
        "A\u0301",
        "Aa ",
        "ab",
        "\u0301A",
        "\r\n",
        " \n",
        "'s",
        "x'",
        "\0",
    ]:
        for times in [12_499, 12_500, 12_501, 24_999, 25_000, 25_001, 50_001]:
            yield [["x ", 1], [unit, times], ["z", 1]]
    for before in [399_990, 399_998, 399_999, 400_000, 400_001, 799_999]:
        yield [["a b ", before // 4], ["xyz w"[: before % 4], 1], ["Hello world<|im_end|>\n\n  next", 1]]
    for before in [24_990, 24_995, 24_999, 25_000]:
        yield [["-", before], ["<|im_end|>", 3]]
        yield [[" ", before], ["\x1f\x1c", 3], ["  \n x", 1]]
    yield [["word ", 90_000]]
    yield [["中文，", 150_000]]
    yield [["a", 1_000_000]]
    yield [[" ", 1_000_000]]
    yield [["e\u0301", 500_000]]
    yield [["1", 30_000], [" ", 30_000], ["1", 30_000], ["\n", 30_000]]


def main():
    o = Official(MODEL)
    lines = []

    def add(key, value, text, specials):
        ids = o.encode(text, specials)
        line = {key: value, "specials": specials}
        if len(ids) <= 400:
            line["ids"] = ids
        else:
            line["n"] = len(ids)
            line["sha256"] = hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()
        lines.append(json.dumps(line, separators=(",", ":")))

    for text, specials in short_cases(list(o.names.values())):
        add("text", text, text, specials)
    for data in BAD:
        add("text_b64", base64.b64encode(data).decode(), data.decode("utf-8", "replace"), True)
    for parts in long_cases():
        text = "".join(unit * times for unit, times in parts)
        add("parts", parts, text, True)
    out = HERE / "tokenizer/vectors.jsonl"
    out.parent.mkdir(exist_ok=True)
    out.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} vectors, {out.stat().st_size} bytes")


main()
