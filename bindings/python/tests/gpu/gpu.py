"""What the tests on a GPU share.

They run under pytest, and where that is absent as plain programs: ``python3 test_graphs.py``. ``CACHETTE_TEST_CONFIG``
is the configuration they enable Cachette with; with ``CACHETTE_TEST_COMPILED=1`` they enable the compiled class. With
``CACHETTE_TEST_HISTORY=1`` a history with Python's callers is recorded throughout.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from typing import Any

try:
    import pytest
except ImportError:
    pytest = None  # type: ignore[assignment]

MiB = 1 << 20
CONFIG = os.environ.get("CACHETTE_TEST_CONFIG", "")
COMPILED = os.environ.get("CACHETTE_TEST_COMPILED") == "1"
HISTORY = os.environ.get("CACHETTE_TEST_HISTORY") == "1"

#: What a program says that records a history throughout.
RECORD = 'cachette_gpu.torch.record_memory_history(context="all", stacks="python")\n'


def why_not() -> str | None:
    """Why these tests cannot run here."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    # Counting does not use the driver, which would not survive a fork.
    return None if torch.cuda.device_count() > 0 else "PyTorch finds no GPU"


WHY_NOT = why_not()
MARKS = [] if pytest is None else [pytest.mark.gpu, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]


def enabled() -> Any:
    """PyTorch with Cachette as its allocator, and nothing cached."""
    import torch

    import cachette_gpu.torch

    if not cachette_gpu.torch.is_enabled():
        cachette_gpu.torch.enable(CONFIG, compiled=COMPILED)
    # A test of histories may have stopped it.
    if HISTORY and not cachette_gpu.torch.is_history_enabled():
        cachette_gpu.torch.record_memory_history(context="all", stacks="python")
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    return torch


def run(program: str, config: str | None = CONFIG, compiled: bool = COMPILED, **variables: str) -> str:
    """What a program prints that runs in its own process; with ``config`` it begins by enabling Cachette."""
    enable = f"import cachette_gpu.torch\ncachette_gpu.torch.enable({config!r}, compiled={compiled})\n"
    prelude = "" if config is None else enable + (RECORD if HISTORY else "")
    done = subprocess.run([sys.executable, "-c", prelude + program], env={**os.environ, **variables},
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    # The first that needs the class compiles it.
    said = [line for line in done.stderr.splitlines() if "the class for PyTorch" not in line]
    assert not any("cachette" in line.lower() for line in said), done.stderr
    return done.stdout


def run_json(program: str, config: str | None = CONFIG, **variables: str) -> Any:
    """What a program prints, read as JSON."""
    return json.loads(run(program, config, **variables))


@contextlib.contextmanager
def raises(kind: type[BaseException], *texts: str) -> Iterator[None]:
    """Expects an exception whose text has all of ``texts`` in it."""
    try:
        yield
    except kind as why:
        for text in texts:
            assert text in str(why), f"{text!r} is not in: {why}"
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def main(module: dict[str, Any]) -> None:
    """Runs every test of a module, and ends with what came of it."""
    if WHY_NOT is not None:
        print(f"skipped: {WHY_NOT}")
        return
    failed = 0
    for name, test in list(module.items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print(f"ok      {name}", flush=True)
        except Exception:  # noqa: BLE001 - the next test shall run all the same
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    sys.exit(1 if failed else 0)
