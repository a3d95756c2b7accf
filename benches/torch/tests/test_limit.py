"""Tries the runs under a limit with a program that needs no PyTorch."""

import json
import pathlib
import subprocess
import sys

LIMIT = pathlib.Path(__file__).resolve().parent.parent / "limit.py"

#: Allocates 1000 bytes; PyTorch needs 1.04 times that, its expandable segments retry below, Cachette does not.
PROGRAM = '''
import json, sys
value = lambda name: sys.argv[sys.argv.index(name) + 1]
allocator, limit = value("--allocator"), int(value("--limit"))
if allocator == "native" and 0 < limit < 1040:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory.")
slow = 3.0 if allocator == "expandable" and 0 < limit < 1040 else 2.0
print("other output")
print(json.dumps(dict(peak_allocated=1000, median_step_ms=slow, each_step_ms=[9.0, slow, slow], outcome_hash="x",
                      retries=6 if slow == 3.0 else 0)))
'''


def limited(folder, program, *options):
    """The printed rows, the exit status and the file."""
    (folder / "fake.py").write_text(program)
    command = [sys.executable, "-B", LIMIT, "--folder", folder, "--program", "fake", "--json", folder / "kept.json",
               *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return done.stdout.splitlines()[2:], done.returncode, json.loads((folder / "kept.json").read_text())


def test_each_allocator_finishes_or_runs_out(tmp_path):
    rows, status, kept = limited(tmp_path, PROGRAM, "--factor", "1.02", "--factor", "1.05")
    assert rows == [
        "| fake | 1.02 | out of memory | 6 retries, 1.500 | 0 retries, 1.000 |",
        "| fake | 1.05 | 0 retries, 1.000 | 0 retries, 1.000 | 0 retries, 1.000 |",
    ]
    assert status == 0
    assert [run["limit"] for run in kept["runs"]] == [0] * 3 + [1020] * 3 + [1050] * 3


def test_the_fastest_time_of_each_step_counts(tmp_path):
    program = PROGRAM.replace("[9.0, slow, slow]", "[9.0, slow, slow * (1 + len(sys.argv) % 2)]")
    rows, _, kept = limited(tmp_path, program, "--factor", "1.05", "--rounds", "2")
    assert rows == ["| fake | 1.05 | 0 retries, 1.000 | 0 retries, 1.000 | 0 retries, 1.000 |"]
    assert len(kept["runs"]) == 12


def test_a_program_that_never_finishes_has_no_rows(tmp_path):
    rows, status, kept = limited(tmp_path, "import sys; sys.exit('broken')")
    assert (rows, status) == ([], 1)
    assert kept["runs"][0]["failure"].startswith("broken")
