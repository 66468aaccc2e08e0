"""What nano writes at temperature 1 under hundreds of schemas: every answer that came to its end is valid by Python's
jsonschema, every other one is the beginning of one."""
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

from jsonschema.validators import validator_for

from serve_client import MOONLET, NANO, ROOT

AT_A_TIME, LONGEST = 32, 120
ENDED_LEAST, REFUSED_MOST = 450, 20  # of 610 schemas


def schemas():
    lines = (ROOT / "tests/golden/schemas.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    return [(x["name"], x["schema"]) for x in map(json.loads, lines)]


def closing_tokens(server):
    """Quotes, brackets and ends more likely, commas and digits less, so that answers which would ramble on come to
    their end."""
    more, less = {'"': 60, "<|im_end|>": 60, "[EOS]": 60, "}": 40, "]": 40}, [
        ",",
        ', "',
        ',"',
        '","',
        '",',
        '","":"',
        '":"',
    ]
    wanted = more | dict.fromkeys(less, -80) | {str(i): -60 for i in range(100)}
    ids = {x: server.post("/tokenize", {"prompt": x, "add_special_tokens": False})["tokens"] for x in wanted}
    return {str(ids[x][0]): by for x, by in wanted.items() if len(ids[x]) == 1}


def ask(server, seed, schema, bias):
    how = {"json_schema": json.dumps(schema), "temperature": 1, "sampling_seed": seed, "max_new_tokens": LONGEST}
    if bias:
        how["logit_bias"] = bias
    status, answer, _ = server.request("POST", "/generate", {"text": "Some JSON:\n", "sampling_params": how})
    return status, answer


def sample(server, which, bias):
    """Answers to these of the schemas: (ended: name, schema, text), (cut off), refused."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        answers = list(pool.map(lambda x: ask(server, x[0], x[1][1], bias), enumerate(which)))
    ended, cut, refused = [], [], []
    for (name, schema), (status, answer) in zip(which, answers):
        if status != 200:
            refused.append(f"{name}: {status} {answer}")
            continue
        why = answer["meta_info"]["finish_reason"]["type"]
        assert why in ("stop", "length"), answer
        (ended if why == "stop" else cut).append((name, schema, answer["text"]))
    return ended, cut, refused


def prefixes(texts):
    """How much of each text could go on, as `moonlet text match` says."""
    asked = "".join(json.dumps({"schema": schema, "text": text}) + "\n" for schema, text in texts).encode()
    done = subprocess.run([MOONLET, "text", "match", "-m", str(NANO)], input=asked, capture_output=True, timeout=300)
    return [json.loads(x)["prefix"] for x in done.stdout.decode().split("\n")[:-1]]


def complaint(name, schema, text):
    kind = validator_for(schema, default=None) or validator_for(
        {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    )
    try:
        value = json.loads(text)
    except ValueError as e:
        return f"{name}: no JSON: {e}: {text[:200]!r}"
    for error in kind(schema, format_checker=kind.FORMAT_CHECKER).iter_errors(value):
        return f"{name}: {error.message[:200]}: {text[:200]!r}"
    return None


def test_every_finished_answer_is_valid(server):
    ended, cut, refused = sample(server, schemas(), None)
    more, still_cut, none = sample(server, [x[:2] for x in cut], closing_tokens(server))
    assert not none
    wrong = [bad for x in ended + more if (bad := complaint(*x))]
    cut += still_cut
    for (name, _, text), prefix in zip(cut, prefixes([x[1:] for x in cut])):
        if prefix < len(text.rstrip("\ufffd").encode()):
            wrong.append(f"{name}: cut off, and only {prefix} bytes could go on: {text[:200]!r}")
    print(
        f"{len(ended)} ended, {len(more)} more with closing tokens made likely, {len(still_cut)} not, {len(refused)} refused"
    )
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])
    assert len(ended) + len(more) >= ENDED_LEAST and len(refused) <= REFUSED_MOST, refused
