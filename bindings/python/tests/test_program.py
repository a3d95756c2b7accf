"""The program ``cachette``, as the package brings it."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import cachette_gpu

SCRIPT = [str(Path(sysconfig.get_path("scripts")) / "cachette")]
MODULE = [sys.executable, "-m", "cachette_gpu"]

#: The emulated library of CUDA, which the project's own CI builds.
LIBRARY = os.environ.get("CACHETTE_TEST_CUDA", "")
FRONT = Path(cachette_gpu.__file__).with_name("libcachette_front.so")

#: A machine without a GPU, whatever this one has.
VARIABLES = {**os.environ, "CACHETTE_CUDA_LIBRARY": "/no/such/cuda.so", "CACHETTE_HIP_LIBRARY": "/no/such/hip.so"}

both = pytest.mark.parametrize("program", [SCRIPT, MODULE], ids=["command", "module"])


def cachette(program: list[str], *arguments: str | bytes, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*program, *arguments], env={**VARIABLES, **variables}, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=600, check=False)


@both
def test_it_says_its_version_and_what_to_do_next(program: list[str]) -> None:
    done = cachette(program, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"cachette {cachette_gpu.__version__} (")
    assert done.stdout.endswith("; backends cuda, hip, host)\n")
    done = cachette(program)
    assert (done.returncode, done.stderr) == (0, "") and "cachette doctor" in done.stdout


@both
def test_exit_statuses_are_those_of_the_program(program: list[str], tmp_path: Path) -> None:
    done = cachette(program, "replya")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: cachette [OPTIONS]" in done.stderr and "Traceback" not in done.stderr
    done = cachette(program, "snapshot", "info", b"/no/such/\xff.pickle")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("error: ")
    memory = tmp_path / "memory.json"
    cachette_gpu.Allocator("host").dump_snapshot(memory)
    done = cachette(program, "snapshot", "info", str(memory))
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


@both
def test_a_reader_that_leaves_early_is_no_error(program: list[str]) -> None:
    child = subprocess.Popen([*program, "man", "replay"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    assert (child.stderr.read(), child.wait(timeout=60)) == (b"", 0)
    child.stderr.close()


@both
def test_an_interrupt_ends_it(program: list[str]) -> None:
    child = subprocess.Popen([*program, "snapshot", "info", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    with child.stdin, child.stdout:
        # More than a pipe holds: it has all but the rest only if the program reads.
        child.stdin.write(b"{" + b" " * (1 << 20))
        child.stdin.flush()
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == -signal.SIGINT


@both
def test_the_conformance_suite_starts_children_of_the_same_python(program: list[str]) -> None:
    done = cachette(program, "conformance", "--backend", "host", "--isolate", "--filter", "events")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_doctor_examines_the_python_of_the_package() -> None:
    done = cachette(SCRIPT, "doctor", "--json", PATH="/no/such/folder")
    assert done.returncode == 0, done.stdout + done.stderr
    texts = [finding["text"] for finding in json.loads(done.stdout)["findings"]]
    assert f"cachette-gpu {cachette_gpu.__version__} in Python {platform.python_version()}" in texts


def test_run_has_the_exit_status_of_a_program_that_cannot_be_started() -> None:
    done = cachette(SCRIPT, "run", "--", "true")
    assert done.returncode == 1 and done.stderr.startswith("error: ")


@pytest.mark.skipif(not LIBRARY, reason="CACHETTE_TEST_CUDA names no emulated CUDA library")
@pytest.mark.skipif(not FRONT.exists(), reason="this package was built without the front")
def test_run_finds_the_front_of_the_package() -> None:
    text = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxPushCurrent_v2(context) == cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0
assert cuda.cuMemFree_v2(memory) == 0
raise SystemExit(7)
"""
    done = cachette(SCRIPT, "run", "--", sys.executable, "-c", text, CACHETTE_CUDA_LIBRARY=LIBRARY)
    assert done.returncode == 7, done.stderr
    assert "in front of" in done.stderr and "requests 1, " in done.stderr
