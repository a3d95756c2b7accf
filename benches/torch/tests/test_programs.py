"""Tries the comparison of programs with programs that need no PyTorch."""

import json
import pathlib
import subprocess
import sys

RUNNER = pathlib.Path(__file__).resolve().parent.parent / "programs"

PROGRAM = '''
import json, os, sys
allocator = sys.argv[sys.argv.index("--allocator") + 1]
print("other output")
{body}
print(json.dumps(dict(rank=0, losses=[loss])))
'''


def compare(folder, body, *options):
    """The last row of the table, the exit status, and the losses that were kept."""
    for name in ("loader", "compiled_graphs"):
        (folder / f"{name}.py").write_text(PROGRAM.format(body=body))
    command = [sys.executable, "-B", RUNNER, "--folder", folder, "--json", folder / "kept.json", "--jobs", "2",
               *(options or ("--program", "loader"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return done.stdout.splitlines()[-1], done.returncode, json.loads((folder / "kept.json").read_text())


def test_equal_losses_are_reported(tmp_path):
    row, status, kept = compare(tmp_path, "loss = '0x1.8p+0'")
    assert (row, status) == ("| `loader` | 1 | equal | equal | equal | equal |", 0)
    assert kept["loader, class"] == {"losses": [["0x1.8p+0"]]}


def test_other_losses_are_reported(tmp_path):
    row, status, _ = compare(tmp_path, "loss = allocator == 'compiled:expandable_segments:True'")
    assert (row, status) == ("| `loader` | 1 | equal | equal | equal | UNEQUAL |", 1)


def test_a_failure_on_cachette_is_reported(tmp_path):
    row, status, kept = compare(tmp_path, "loss = 1\nif allocator.startswith('cachette:'): sys.exit('why')")
    assert (row, status) == ("| `loader` | 1 | equal | failed | equal | equal |", 1)
    assert "why" in kept["loader, plugged"]["failure"]


def test_a_program_that_differs_from_itself_proves_nothing(tmp_path):
    row, status, _ = compare(tmp_path, "loss = os.getpid()")
    assert (row, status) == ("| `loader` | 1 | UNEQUAL | UNEQUAL | UNEQUAL | UNEQUAL |", 0)


def test_what_pytorch_refuses_is_not_tried(tmp_path):
    row, status, kept = compare(tmp_path, "loss = 1", "--program", "compiled_graphs")
    assert (row, status) == ("| `compiled_graphs` | 1 | equal | refused by PyTorch | equal | equal |", 0)
    assert "compiled_graphs, plugged" not in kept


def test_a_run_that_hangs_is_ended(tmp_path):
    hanging = "import time\nloss = 1\nif allocator == 'compiled:expandable_segments:False': time.sleep(3600)"
    row, status, _ = compare(tmp_path, hanging, "--program", "loader", "--timeout", "8")
    assert (row, status) == ("| `loader` | 1 | equal | equal | failed | equal |", 1)
