"""Runs the parts of a check, counts what passed, and prints one summary line."""
import os
import re
import subprocess
import sys
import time


class Suite:
    def __init__(self, log_dir):
        self.passed = self.failed = self.skipped = 0
        self.log_dir = log_dir
        os.makedirs(log_dir, exist_ok=True)
        self.start = time.time()

    def _report(self, name, passed, failed, skipped, seconds, note=""):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        word = "FAIL" if failed else "skip" if skipped and not passed else "ok"
        counts = f"{passed} passed" + (f", {failed} failed" if failed else "") + (f", {skipped} skipped" if skipped else "")
        print(f"  {word:4}  {name:44} {counts:24} {seconds:6.1f} s{note}", flush=True)

    def run(self, name, command, count=None, env=None, timeout=1200, skip=None):
        """Runs a command. `count(output, status)` gives (passed, failed, skipped); by default the exit status
        alone is one test. Exit status `skip`: it could not be run here, its last line says why. The output is kept in a log and shown when something failed."""
        t = time.time()
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                  env=dict(os.environ, **(env or {})), timeout=timeout)
            out, status = done.stdout.decode(errors="replace"), done.returncode
        except subprocess.TimeoutExpired as e:
            out, status = (e.stdout or b"").decode(errors="replace") + f"\nno end after {timeout} s", 124
        except OSError as e:
            out, status = str(e), 127
        log = os.path.join(self.log_dir, re.sub(r"[^A-Za-z0-9_.-]+", "-", name) + ".log")
        with open(log, "w") as f:
            f.write(out)
        if skip is not None and status == skip:
            self._report(name, 0, 0, 1, time.time() - t, f"  ({out.strip().splitlines()[-1]})")
            return False
        passed, failed, skipped = count(out, status) if count else ((1, 0, 0) if status == 0 else (0, 1, 0))
        if status != 0 and not failed:
            failed = 1
        self._report(name, passed, failed, skipped, time.time() - t)
        for line in sorted(set(re.findall(r"^(?:SKIPPED|\[  SKIPPED \]) .*$", out, re.M))):
            if not re.search(r"\d+ test\(s\), listed below", line):
                print("        " + line)
        if failed:
            print("\n".join("        " + line for line in out.splitlines()[-40:]))
        return failed == 0

    def skip(self, name, why):
        self._report(name, 0, 0, 1, 0.0, f"  ({why})")

    def finish(self):
        print(f"{time.time() - self.start:.0f} s")
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        sys.exit(1 if self.failed else 0)


def count_cmocka(out, _status):
    def number(pattern):
        return sum(int(n) for n in re.findall(pattern, out))
    return (number(r"\[  PASSED  \] (\d+) test"), number(r"\[  FAILED  \] [^\n]*?(\d+) test\(s\)"),
            number(r"\[  SKIPPED \] (\d+) test"))


def count_pytest(out, _status):
    last = next((l for l in reversed(out.splitlines()) if re.search(r" in [0-9.]+s", l)), "")
    def number(word):
        m = re.search(rf"(\d+) {word}", last)
        return int(m.group(1)) if m else 0
    return number("passed"), number("failed") + number("error"), number("skipped")


def count_summary(out, _status):
    """Counts of a command whose last line is 'N passed, N failed, N skipped'."""
    m = re.findall(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", out, re.M)
    return tuple(int(n or 0) for n in m[-1]) if m else (0, 1, 0)


def count_kernels(out, status):
    """`make cubins`: one test a kernel file."""
    m = re.search(r"(\d+) of (\d+) kernel files", out)
    return (int(m.group(1)), int(m.group(2)) - int(m.group(1)), 0) if m and status == 0 else (0, 1, 0)


def python_with_pytest():
    for p in (sys.executable, "python3", "/usr/bin/python3"):
        try:
            if subprocess.run([p, "-c", "import pytest"], capture_output=True).returncode == 0:
                return p
        except OSError:
            pass
    return None
