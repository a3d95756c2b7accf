"""The lines of a program that hold memory, in the text of an error; the library has no names of its own functions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TRAIN = """\
import json
import cachette_gpu
allocator = cachette_gpu.Allocator("host", "memory_limit:256MiB")
allocator.record_memory_history()
def activations():
    held = []
    for _ in range(20):
        held.append(allocator.allocate(1 << 20))
    return held
def weights():
    return allocator.allocate(100 << 20)
held = activations(), weights()
try:
    allocator.allocate(300 << 20)
except cachette_gpu.OutOfMemoryError as error:
    is_read = "holders" in vars(error)
    print(json.dumps([str(error), is_read, error.holders]))
"""


def test_m19_the_text_names_lines_of_python(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(TRAIN)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=600, check=True)
    text, is_read, holders = json.loads(done.stdout)
    lines = [line for line in text.splitlines() if ", allocated in" in line]
    assert lines == ["100.00 MiB in 1 block, allocated in weights train.py:11",
                     "20.00 MiB in 20 blocks, allocated in activations train.py:8"]
    assert not is_read, "no native frame is named for the text"
    assert [(it["bytes"], it["blocks"]) for it in holders] == [(100 << 20, 1), (20 << 20, 20)]
    names = [frame["name"] for frame in holders[0]["frames"]]
    assert names[-2:] == ["weights", "<module>"]
    assert not any("_native" in name for name in names), names
