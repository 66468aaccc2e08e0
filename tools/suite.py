#!/usr/bin/env python3
"""Runs the parts of `make check` or `make check-all` as tools/parts.py lists them, as many at a time as there are
processors for.

    tools/suite.py check|all [--build build] [--only WORD] [--list]

Prints a line a part when it ends (its time, and how long it kept processors busy), what was skipped and why, the ten
busiest parts, and the summary. Outputs are kept in BUILD/logs. Exit status 1 when a part failed or could not be run
because one that it needs failed."""
import argparse
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import parts as table


# ---- What an output says: (passed, failed, skipped) ----


def count_status(_out, status):
    return (1, 0, 0) if status == 0 else (0, 1, 0)


def count_cmocka(out, _status):
    def number(pattern):
        return sum(int(n) for n in re.findall(pattern, out))

    return (
        number(r"\[  PASSED  \] (\d+) test"),
        number(r"\[  FAILED  \] [^\n]*?(\d+) test\(s\)"),
        number(r"\[  SKIPPED \] (\d+) test"),
    )


def count_pytest(out, _status):
    last = next((line for line in reversed(out.splitlines()) if re.search(r" in [0-9.]+s", line)), "")

    def number(word):
        m = re.search(rf"(\d+) {word}", last)
        return int(m.group(1)) if m else 0

    return number("passed"), number("failed") + number("error"), number("skipped")


def count_summary(out, _status):
    """A command whose last line is 'N passed, N failed, N skipped'."""
    m = re.findall(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", out, re.M)
    return tuple(int(n or 0) for n in m[-1]) if m else (0, 1, 0)


def count_kernels(out, status):
    """`make cubins`: one test a kernel file."""
    m = re.search(r"(\d+) of (\d+) kernel files", out)
    return (int(m.group(1)), int(m.group(2)) - int(m.group(1)), 0) if m and status == 0 else (0, 1, 0)


COUNTS = {
    "status": count_status,
    "cmocka": count_cmocka,
    "pytest": count_pytest,
    "summary": count_summary,
    "kernels": count_kernels,
}
SKIPPED_LINES = r"^(?:SKIPPED|\[  SKIPPED \]|skipped:) .*$"
FAILED_LINES = r"^(?:FAIL|not ok|\[  FAILED  \]|E  )|\berror:|: FAIL|ERROR: |Sanitizer:|Traceback"


# ---- The table, expanded ----


class Part:
    """One command of the table; `state` goes from waiting to running to passed, failed or skipped."""

    def __init__(self, row, path=None, **names):
        stem = os.path.splitext(path)[0] if path else ""
        names.update(path=path, stem=stem, file=os.path.basename(stem), test="/".join(stem.split("/")[-2:]))
        self.names = names
        self.name = self.fill(row["name"])
        self.command = [self.fill(w) for w in shlex.split(row["run"], comments=False)]
        self.env = {k: self.fill(v) for k, v in row.get("env", {}).items()}
        self.needs = [self.fill(n) for n in row.get("needs", ())]
        self.after = self.needs + [self.fill(n) for n in row.get("after", ())]
        self.tools = row.get("tools", ())
        self.cores = row.get("cores", 0.5 if path in row.get("waits", ()) else 1)
        self.alone = row.get("alone", False)
        self.count = COUNTS[row.get("count", "status")]
        self.skip_status = row.get("skip_status")
        self.timeout = row.get("timeout", 1200)
        self.state, self.result, self.note, self.out = "waiting", (0, 0, 0), "", ""
        self.seconds, self.cpu = 0.0, 0.0  # by the clock; of processors, by it and the children it waited for

    def fill(self, text):
        return re.sub(r"\{(\w+)\}", lambda m: str(self.names[m[1]]), text)


def expand(rows, **names):
    parts = []
    for row in rows:
        if "each" in row:
            parts += [
                Part(row, path, **names)
                for path in sorted(glob.glob(row["each"]))
                if path not in row.get("without", ())
            ]
        else:
            parts.append(Part(row, **names))
    known = {p.name for p in parts}
    for p in parts:
        for need in p.after:
            if need not in known:
                sys.exit(f"tools/parts.py: {p.name} needs {need}, which is no part")
    return parts


# ---- Running ----

# What it says when it dies at the end of a program that has passed: a fault of its own, once in hundreds of runs
# (github.com/google/sanitizers/issues/1353), which says nothing of the program.
SANITIZER_CRASHED = "LeakSanitizer has encountered a fatal error"


class Suite:
    def __init__(self, parts, log_dir, cores):
        self.parts, self.log_dir, self.cores = parts, log_dir, cores
        self.by_name = {p.name: p for p in parts}
        self.free, self.running = cores, 0
        self.change = threading.Condition()
        self.start = time.time()
        os.makedirs(log_dir, exist_ok=True)

    def blocked(self, p):
        """Why a part will not run, with the state that follows, or None."""
        missing = [t for t in p.tools if not any(map(shutil.which, t.split("|")))]
        if missing:
            return "skipped", f"{', '.join(missing)} not installed: tools/setup all"
        for need in map(self.by_name.get, p.needs):
            if need.state == "failed":
                return "failed", f"not run: {need.name} failed"
            if need.state == "skipped":
                return "skipped", need.note
        return None

    def next_part(self):
        """The first part of the table that may start now. One that wants the machine for itself, or more processors
        than are free, holds up nothing but what needs it: it starts when the others of its time have ended, last if
        need be."""
        for p in self.parts:
            if p.state != "waiting" or any(self.by_name[n].state in ("waiting", "running") for n in p.after):
                continue
            if self.blocked(p) or (self.running == 0 if p.alone else min(p.cores, self.cores) <= self.free):
                return p
        return None

    def run(self):
        with self.change:
            while any(p.state in ("waiting", "running") for p in self.parts):
                p = self.next_part()
                if not p:
                    self.change.wait()
                    continue
                why = self.blocked(p)
                if why:
                    self.end(p, why[0], (0, int(why[0] == "failed"), int(why[0] == "skipped")), why[1])
                    continue
                p.state, p.held = "running", self.cores if p.alone else min(p.cores, self.cores)
                self.free -= p.held
                self.running += 1
                threading.Thread(target=self.execute, args=(p,), daemon=True).start()

    def run_once(self, p):
        """(output, exit status); what it took of processors is added to p.cpu"""
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **p.env}
        if not p.alone:  # a thread that spins takes the time of the part beside it
            env.setdefault("GOMP_SPINCOUNT", "100")
        try:
            done = subprocess.Popen(
                p.command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )
            killed = []
            late = threading.Timer(p.timeout, lambda: (killed.append(1), os.killpg(done.pid, 9)))
            late.start()
            out = done.stdout.read()
            _, status, used = os.wait4(done.pid, 0)
            late.cancel()
            done.returncode = status = os.waitstatus_to_exitcode(status)
            p.cpu += used.ru_utime + used.ru_stime
            if killed:
                out, status = out + f"\nno end after {p.timeout} s".encode(), 124
        except OSError as e:
            out, status = str(e).encode(), 127
        return out.decode(errors="replace"), status

    def execute(self, p):
        begin, note = time.time(), ""
        p.out, status = self.run_once(p)
        if SANITIZER_CRASHED in p.out:
            note = "run again: at first LeakSanitizer itself crashed"
            p.out, status = self.run_once(p)
        p.seconds = time.time() - begin
        with open(os.path.join(self.log_dir, re.sub(r"[^A-Za-z0-9_.-]+", "-", p.name) + ".log"), "w") as log:
            log.write(p.out)
        with self.change:
            self.free += p.held
            self.running -= 1
            if p.skip_status is not None and status == p.skip_status:
                self.end(p, "skipped", (0, 0, 1), (p.out.strip().splitlines() or ["no reason given"])[-1])
            else:
                passed, failed, skipped = p.count(p.out, status)
                failed = failed or int(status != 0)
                self.end(
                    p,
                    "failed" if failed else "passed" if passed or not skipped else "skipped",
                    (passed, failed, skipped),
                    note,
                )
            self.change.notify()

    def end(self, p, state, result, note=""):
        p.state, p.result, p.note = state, result, note
        passed, failed, skipped = result
        word = {"failed": "FAIL", "skipped": "skip", "passed": "ok"}[state]
        counts = (
            f"{passed} passed" + (f", {failed} failed" if failed else "") + (f", {skipped} skipped" if skipped else "")
        )
        print(
            f"  {word:4}  {p.name:48} {counts:24} {p.seconds:6.1f} s, {p.cpu:6.1f} busy"
            + (f"  ({note})" if note else ""),
            flush=True,
        )
        for line in sorted(set(re.findall(SKIPPED_LINES, p.out, re.M))):
            if not re.search(r"\d+ test\(s\), listed below", line):
                print("        " + line)
        if failed and p.out:
            print("\n".join("        " + line for line in p.out.splitlines()[-40:]), flush=True)

    def finish(self):
        for p in self.parts:  # where a log is cut, its end is what is left
            if p.state == "failed":
                print(f"failed: {p.name}" + "".join(f"\n        {line[:600]}" for line in what_failed(p.out)))
        slow = sorted((p for p in self.parts if p.cpu), key=lambda p: -p.cpu)[:10]
        print("most busy: " + ", ".join(f"{p.name} {p.cpu:.0f} s" for p in slow))
        busy = sum(p.cpu for p in self.parts)
        print(f"{time.time() - self.start:.0f} s on {self.cores} processors, which were busy {busy:.0f} s")
        passed, failed, skipped = (sum(p.result[i] for p in self.parts) for i in range(3))
        print(f"{passed} passed, {failed} failed, {skipped} skipped")
        return 1 if failed else 0


def what_failed(out):
    """The first lines of a test's output that say what failed, each with the one behind it."""
    lines = out.splitlines()
    said = [i for i, line in enumerate(lines) if re.search(FAILED_LINES, line)][:6]
    return [lines[j] for j in sorted({j for i in said for j in (i, i + 1) if j < len(lines)})] or lines[-3:]


def python_with_pytest():
    for p in (sys.executable, "python3", "/usr/bin/python3"):
        try:
            if subprocess.run([p, "-c", "import pytest"], capture_output=True).returncode == 0:
                return p
        except OSError:
            pass
    sys.exit("pytest is not installed: tools/setup check")


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("which", choices=["check", "all"])
    ap.add_argument("--build", default="build", help="the folder of the finished build")
    ap.add_argument("--only", metavar="WORD", action="append", help="parts whose name holds WORD, and what they need")
    ap.add_argument("--list", action="store_true", help="name the parts and end")
    a = ap.parse_args()
    names = {
        "python": python_with_pytest(),
        "build": a.build,
        "here": os.getcwd(),
        "fuzz_s": os.environ.get("FUZZ_SECONDS", "4"),
    }
    parts = expand(table.CHECK if a.which == "check" else table.ALL, **names)
    if a.only:
        keep = {p.name for p in parts if any(w in p.name for w in a.only)}
        while True:
            more = keep | {n for p in parts if p.name in keep for n in p.after}
            if more == keep:
                break
            keep = more
        parts = [p for p in parts if p.name in keep]
    if a.list:
        for p in parts:
            print(
                p.name,
                "|",
                shlex.join(p.command),
                "|",
                "alone" if p.alone else f"cores {p.cores}",
                "|",
                ", ".join(p.after),
            )
        return 0
    suite = Suite(
        parts, os.path.join(a.build, "logs" if a.which == "check" else "logs-all"), max(2, len(os.sched_getaffinity(0)))
    )
    suite.run()
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
