"""Which backend's code needs which other one's, by the symbols of the built objects: a backend links itself alone and
what all share. The cpu backend begins with ref's table, and says so with one function."""
import re
import subprocess
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2] / "build/src/kernels"


def symbols(folder):
    """(defined, needed) of all objects in a folder of build/src/kernels."""
    defined, needed = set(), set()
    objects = sorted((KERNELS / folder).rglob("*.o"))
    assert objects, folder
    for line in subprocess.run(["nm", *objects], check=True, capture_output=True, text=True).stdout.splitlines():
        word = line.split()
        if len(word) == 2 and word[0] == "U":
            needed.add(word[1])
        elif len(word) == 3 and word[1].isupper():
            defined.add(word[2])
    return defined, needed


def test_backends_link_no_other():
    ref, cpu, gpu = (symbols(f) for f in ("ref", "cpu", "gpu"))
    assert not gpu[1] & ref[0] and not gpu[1] & cpu[0]
    assert not ref[1] & gpu[0] and not ref[1] & cpu[0]
    assert not cpu[1] & gpu[0]
    assert {s for s in cpu[1] & ref[0]} <= {"ops_init_ref", "ops_set_threads"}, cpu[1] & ref[0]


def test_no_static_state_in_the_gpu_backend_and_its_device():
    """A backend is a value: nothing that a call could change lies outside of it."""
    objects = sorted((KERNELS / "gpu").rglob("*.o")) + sorted((KERNELS.parent / "device").glob("*.o"))
    lines = subprocess.run(["objdump", "-t", *objects], check=True, capture_output=True, text=True).stdout.splitlines()
    found = re.findall(r"^.* O \.(?:t?bss|t?data(?!\.rel\.ro))\S*\s+\w+\s+(\S+)$", "\n".join(lines), re.M)
    assert [f for f in found if not f.startswith("host.")] == []  # device_host()'s table of functions
