"""moonlet text match: what a JSON Schema lets pass, against the labels of an oracle (tests/golden/make_schemas.py)."""
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOONLET = os.environ.get("MOONLET", str(ROOT / "build/moonlet"))
NANO = str(ROOT / "models/nano")
SCHEMAS = ROOT / "tests/golden/schemas.jsonl"
LABELS = ("valid", "invalid", "malformed", "valid_spelled_otherwise")
REFUSED_MOST = 0.03  # of the schemas
SHOWN_MOST = 20
# name of a schema: why a valid text of it may be rejected
KNOWN = {"space/between_tokens": "an empty line: space has one line's end at most, so that no model writes it for ever"}


def load():
    """The lines of the corpus, and (index of the line, label, text) of each text."""
    lines = [json.loads(x) for x in SCHEMAS.read_text(encoding="utf-8").split("\n")[:-1]]
    return lines, [(i, label, text) for i, x in enumerate(lines) for label in LABELS for text in x.get(label, ())]


def match(requests):
    """Answers of one run, one for one."""
    asked = "".join(json.dumps(x) + "\n" for x in requests).encode()
    done = subprocess.run([MOONLET, "text", "match", "-m", NANO], input=asked, capture_output=True, timeout=300)
    answers = [json.loads(x) for x in done.stdout.decode().split("\n")[:-1]]
    said = done.stderr.decode(errors="replace")[-1000:]
    assert done.returncode in (0, 1) and len(answers) == len(requests), f"status {done.returncode}: {said}"
    return answers


def form_complaint(answer, size):
    """What is wrong with an answer whatever the text is, or None."""
    if set(answer) != {"accepts", "prefix"} or not isinstance(answer["accepts"], bool) or type(answer["prefix"]) != int:
        return "not of the form {accepts, prefix}"
    if answer["accepts"] and answer["prefix"] != size:
        return f"accepted, but the prefix is not {size}"
    return None if 0 <= answer["prefix"] <= size else f"the prefix is not within 0 and {size}"


def complaint(name, label, text, answer):
    """What is wrong with the answer to a text, or None."""
    wrong = form_complaint(answer, len(text.encode()))
    if wrong:
        return wrong
    if label == "valid" and not answer["accepts"] and name not in KNOWN:
        return "rejected"
    return "accepted" if label in ("invalid", "malformed") and answer["accepts"] else None


def refusals(texts, answers):
    """{index of a line: its error} of the schemas of which every text was answered with an error."""
    errors, taken = {}, set()
    for (i, _, _), answer in zip(texts, answers):
        if set(answer) == {"error"}:
            errors.setdefault(i, answer["error"])
        else:
            taken.add(i)
    return {i: e for i, e in errors.items() if i not in taken}


def show(title, rows):
    """Prints the first rows of a list."""
    if rows:
        print(f"{len(rows)} {title}:")
    for row in rows[:SHOWN_MOST]:
        print("   ", row[:400])


def test_matcher_agrees_with_the_oracle():
    lines, texts = load()
    assert len(lines) >= 300 and KNOWN.keys() <= {x["name"] for x in lines}
    answers = match([{"schema": lines[i]["schema"], "text": text} for i, _, text in texts])
    refused = refusals(texts, answers)
    wrong = []
    for (i, label, text), answer in zip(texts, answers):
        why = None if i in refused else complaint(lines[i]["name"], label, text, answer)
        if why:
            wrong.append(f"{lines[i]['name']}: {label} text {text!r} {why}: {json.dumps(answer)}")
    show("schemas were refused", [f"{lines[i]['name']}: {error}" for i, error in refused.items()])
    show("answers are wrong", wrong)
    assert not wrong, f"{len(wrong)} of {len(texts)} answers are wrong"
    assert len(refused) <= REFUSED_MOST * len(lines), f"{len(refused)} of {len(lines)} schemas were refused"
