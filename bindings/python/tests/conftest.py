"""What the tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cachette_gpu.torch import _adapter, _compile

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
    """Runs a program in its own process, since the plug-in is one in a process."""

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


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _adapter.Target:
    """A PyTorch for CUDA, with empty files where its headers and libraries are."""
    for name in ("torch/include/c10/cuda/CUDACachingAllocator.h", "torch/lib/libc10.so", "torch/lib/libc10_cuda.so",
                 "torch/lib/libtorch_cpu.so",
                 *(f"cuda/include/{name}" for name in _compile.CUDA_HEADERS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    return _adapter.Target("2.11.0 abc", tmp_path / "torch", False, True)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes down how it was called, and makes a file of its name."""
    script = tmp_path / "compiler"
    calls = tmp_path / "calls"
    script.write_text(f"""#!/bin/sh
echo "$@" >> {calls}
[ -e {tmp_path}/broken ] && {{ echo '/x/allocator.hpp:3:5: error: no such class' >&2; exit 1; }}
[ -e {tmp_path}/killed ] && kill -9 $$
while [ "$1" != -o ]; do shift; done
echo half > "$2"
while [ -e {tmp_path}/held ]; do sleep 0.05; done
[ -e {tmp_path}/slow ] && sleep 3
echo built > "$2"
""")
    script.chmod(0o700)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("CACHETTE_CACHE", str(tmp_path / "kept"))
    return calls
