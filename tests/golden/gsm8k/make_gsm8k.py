#!/usr/bin/env python3
"""Writes the golden files of `moonlet eval gsm8k`: lm-evaluation-harness itself draws the shots, builds the prompts and
scores canned answers. Needs lm_eval (0.4.13 was used) and GSM8K's train.jsonl and test.jsonl:

    make_gsm8k.py TRAIN TEST

shots.jsonl, docs.jsonl: excerpts of GSM8K (MIT, OpenAI; see LICENSE). answers.jsonl: the canned answer of each
document. golden.jsonl: for every document what lm_eval made of it, once with shots from shots.jsonl and once from
docs.jsonl. draws.json: shot numbers that lm_eval's generator draws from the whole training split."""
import hashlib
import json
import random
import sys
import tempfile
from pathlib import Path

import lm_eval
import numpy
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

HERE = Path(__file__).resolve().parent
ODD = [
    "#### {a}",
    "so\n#### {a}.",
    "#### {c}",
    "#### ${a}",
    "The answer is {a}",
    "The answer is ${a}.00.",
    "####{a}",
    "#### {a} #### 7",
    "#### 7\n#### {a}",
    "##### {a}",
    "",
    "no number",
    "####  {a}",
    "#### -{a}",
    "-{a}",
    "minus - {a}",
    "#### {a}..",
    "#### .",
    "#### ,",
    "{a} apples, 3 pears",
    "#### {a}\n\nQuestion: 5",
    "１２ is twelve",
    "#### ٣",
    "$",
    "$$",
    "...",
    ".",
    ",,",
    "#### {a},",
    "{a}.",
    "#### \\boxed{{{a}}}",
    "#### {a}.0",
    "**{a}**",
    "{a}%",
    "1{c}",
    "#### +{a}",
    "-",
    "--{a}",
    "5-{a}",
    "#### {a}\r\n",
    "{a}\u00a0",
    "#### {a} dollars",
    "ANSWER: {a}",
    "$-{a}",
    "-${a}",
    "#### {a}\n#### {a}",
    "[invalid]",
    "#### #### {a}",
    "#### {a}e3",
]


def rows(path, n):
    return [json.loads(line) for line in Path(path).read_text().splitlines()][:n]


def write(name, items):
    (HERE / name).write_text("".join(json.dumps(i) + "\n" for i in items))


class Canned(LM):
    def __init__(self, answers):
        super().__init__()
        self.answers, self.prompts = answers, {}

    def generate_until(self, requests):
        out = []
        for r in requests:
            self.prompts[r.doc_id] = r.args[0]
            out.append(self.answers[r.doc_id])
        return out

    def loglikelihood(self, requests):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


def evaluate(docs, shots, same_split, answers, n_shots):
    with tempfile.TemporaryDirectory() as d:
        Path(d, "docs.jsonl").write_text("".join(json.dumps(x) + "\n" for x in docs))
        Path(d, "shots.jsonl").write_text("".join(json.dumps(x) + "\n" for x in shots))
        source = Path(lm_eval.__file__).parent / "tasks/gsm8k/gsm8k.yaml"
        lines = [
            x
            for x in source.read_text().splitlines()
            if not x.startswith(("dataset_", "task:", "fewshot_split", "tag:", "  - math_"))
        ]
        lines += [
            "task: gsm8k_local",
            "dataset_path: json",
            f"fewshot_split: {'test' if same_split else 'train'}",
            f"dataset_kwargs: {{data_files: {{train: {d}/shots.jsonl, test: {d}/docs.jsonl}}}}",
        ]
        Path(d, "gsm8k_local.yaml").write_text("\n".join(lines) + "\n")
        model = Canned(answers)
        result = lm_eval.simple_evaluate(
            model,
            tasks=["gsm8k_local"],
            num_fewshot=n_shots,
            bootstrap_iters=100,
            task_manager=TaskManager(include_path=d),
            cache_requests=False,
        )
        return model.prompts, result


def main():
    train, test = rows(sys.argv[1], 7473), rows(sys.argv[2], 1319)
    shots, docs = train[:40], test[: len(ODD) + 11]
    docs[3], docs[4] = test[146], test[489]  # references with a comma and other odd ones
    answers = []
    for i, d in enumerate(docs):
        a = d["answer"].split("#### ")[-1]
        plain = a.replace(",", "")
        comma = f"{int(plain):,}"
        answers.append(ODD[i].format(a=plain, c=comma) if i < len(ODD) else d["answer"] if i % 3 else d["answer"][:60])
    write("shots.jsonl", shots)
    write("docs.jsonl", docs)
    write("answers.jsonl", [{"answer": a} for a in answers])
    golden, totals = [], {}
    for name, same in (("shots", False), ("same", True)):
        prompts, result = evaluate(docs, shots, same, answers, 5)
        of = {
            i: {"draw": name, "doc": i, "prompt_sha256": hashlib.sha256(p.encode()).hexdigest()}
            for i, p in prompts.items()
        }
        for s in result["samples"]["gsm8k_local"]:
            of[s["doc_id"]][s["filter"]] = [str(s["filtered_resps"][0]), bool(s["exact_match"])]
        golden += [of[i] for i in sorted(of)]
        r = result["results"]["gsm8k_local"]
        totals[name] = {
            f: [r[f"exact_match,{f}"], r[f"exact_match_stderr,{f}"]] for f in ("strict-match", "flexible-extract")
        }
    write("golden.jsonl", golden)
    rnd = random.Random(1234)
    draws = {str(k): [rnd.sample(range(len(train)), k) for _ in range(20)] for k in (5, 10, 1)}
    numpy.random.seed(1)
    small = random.Random(7)
    draws = {
        "lm_eval_1234": draws,
        "small": [
            small.sample(range(n), k) for n, k in ((1, 1), (5, 5), (20, 3), (21, 5), (22, 5), (85, 6), (86, 6), (3, 0))
        ],
        "python": {"seed": 2**40 + 3, "random": [random.Random(2**40 + 3).random()]},
        "numpy_randint_1": numpy.random.randint(512, 1025, size=8).tolist()
        + numpy.random.randint(1, 2, size=2).tolist(),
        "numpy_exponential": numpy.random.exponential(0.25, size=4).tolist(),
        "totals": totals,
    }
    shuffled = list(range(12))
    random.Random(1).shuffle(shuffled)
    draws["shuffle_1"] = shuffled
    x = numpy.random.RandomState(3).rand(37)
    draws["sample"] = x.tolist()
    draws["percentiles"] = {str(q): float(numpy.percentile(x, q)) for q in (0, 1, 25, 50, 90, 95, 99, 99.9, 100)}
    draws["mean_std"] = [float(x.mean()), float(x.std())]
    (HERE / "draws.json").write_text(json.dumps(draws, indent=1) + "\n")


main()
