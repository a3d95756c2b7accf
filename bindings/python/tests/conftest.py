"""What the tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent

#: Variables that would change what the tests see.
FOREIGN = ("CACHETTE_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
           "CACHETTE_NO_MEMORY_CACHING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run() -> Run:
    """Runs a program in a process of its own, since the plug-in is one in a process."""

    def run(program: str, *, torch: str | None = None, fails: bool = False,
            **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **variables}
        if torch is not None:
            environment["STAND_IN"] = torch
            environment["PYTHONPATH"] = str(HERE / "stand_in")
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True,
                              timeout=600, check=False)
        assert (done.returncode != 0) == fails, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run
