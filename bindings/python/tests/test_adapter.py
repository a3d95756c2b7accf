"""What the compiled class is built with, and what it does where PyTorch's files are.

``CACHETTE_TEST_TORCH`` names folders, with colons between, each with PyTorch's own ``torch/include`` and
``torch/lib/libc10*.so`` and NVIDIA's ``nvidia/cu13``, as their wheels have them; nothing of it needs a GPU.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Run

from cachette_gpu.torch import EnableError, _adapter, _compile

TORCH = os.environ.get("CACHETTE_TEST_TORCH", "").split(":")
EXERCISE = Path(__file__).parent / "adapter/exercise.cpp"
STANDING_IN = Path(__file__).parent / "adapter/libtorch_cpu.cpp"


def test_headers_of_cuda_are_whole_or_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def headers(folder: Path, *names: str) -> Path:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        return folder

    headers(tmp_path / "half/include", "cuda_runtime_api.h")
    whole = headers(tmp_path / "site/nvidia/cu13/include", *_compile.CUDA_HEADERS)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "half"))
    if not Path("/usr/local/cuda").exists():
        assert _compile.cuda_headers(tmp_path / "site/torch") == whole
        with pytest.raises(EnableError, match="install the CUDA toolkit and set CUDA_HOME"):
            _compile.cuda_headers(tmp_path / "elsewhere/torch")
    own = headers(tmp_path / "whole/include", *_compile.CUDA_HEADERS)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "whole"))
    assert _compile.cuda_headers(tmp_path / "site/torch") == own


@pytest.mark.parametrize(("torch", "text"), [
    ("good", "EnableError | this PyTorch (2.11.0+stand.in) came without its headers"),
    ("good", "; or call cachette_gpu.torch.enable(compiled=False)"),
    ("rocm", "EnableError | this PyTorch (2.11.0+stand.in) came without its headers"),
    ("2.10", "EnableError | the compiled class needs PyTorch 2.11 or later, and this is 2.10.0+stand.in"),
    ("cpu", "EnableError | this PyTorch (2.11.0+stand.in) is for CPUs alone"),
    ("no-device", "EnableError | no GPU can be used: "),
])
def test_a_pytorch_that_it_cannot_be_built_for_is_left_alone(run: Run, tmp_path: Path, torch: str,
                                                             text: str) -> None:
    program = """
import cachette_gpu.torch
try:
    cachette_gpu.torch.enable(compiled=True)
except cachette_gpu.Error as why:
    print(type(why).__name__, "|", why)
assert not cachette_gpu.torch.is_enabled() and cachette_gpu.torch.config() is None
"""
    assert text in run(program, torch=torch, CACHETTE_CACHE=str(tmp_path)).stdout


def test_headers_and_libraries_of_distributions_are_found(target: _adapter.Target, compiler: Path, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("usr/c10/hip/HIPCachingAllocator.h", "usr/hip/hip_runtime_api.h", "torch/lib/libc10_hip.so.2.12"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (target.home / "lib/libc10.so").rename(target.home / "lib/libc10.so.2.12")
    monkeypatch.setattr(_compile, "SYSTEM", tmp_path / "usr")
    monkeypatch.setattr(_compile, "homes", lambda *variables, program, usual: [])
    rocm = dataclasses.replace(target, version="2.12.1", rocm=True)
    version = tmp_path / "usr/torch/headeronly/version.h"
    version.parent.mkdir(parents=True)
    version.write_text("#define TORCH_VERSION_MAJOR 2\n\n#define TORCH_VERSION_MINOR 9\n")
    with pytest.raises(EnableError, match="came without its headers"):
        _adapter.build(rocm)
    version.write_text("#define TORCH_VERSION_MAJOR 2\n\n#define TORCH_VERSION_MINOR 12\n")
    _adapter.build(rocm)
    call = compiler.read_text()
    assert "-DUSE_ROCM -D__HIP_PLATFORM_AMD__" in call and f"-isystem{tmp_path}/usr" not in call
    assert f"{target.home}/lib/libc10.so.2.12 {target.home}/lib/libc10_hip.so.2.12 " in call


def test_libraries_that_are_loaded_come_first(run: Run, tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    (tmp_path / "empty.cpp").touch()
    library = tmp_path / "libc10.so.2.12"
    subprocess.run([compiler, "-shared", "-o", str(library), str(tmp_path / "empty.cpp")], check=True)
    run(f"""
import ctypes, pathlib
from cachette_gpu.torch import _compile
held = ctypes.CDLL({str(library)!r})
assert _compile.library(pathlib.Path("/nowhere"), "libc10") == pathlib.Path({str(library)!r})
try:
    _compile.library(pathlib.Path("/nowhere"), "libc10_cuda")
except _compile.EnableError as why:
    assert "libc10_cuda is neither loaded nor in /nowhere/lib" in str(why)
else:
    raise AssertionError
""")


def test_pytorch_is_asked_for_its_regions_and_annotations(run: Run) -> None:
    run("""
import types
from cachette_gpu import _native
from cachette_gpu.torch import _replace
asked = []
module = types.SimpleNamespace(_C=types.SimpleNamespace(
    _cuda_record_memory_history=lambda *arguments: asked.append(arguments), _cuda_memoryStats="PyTorch's own"))
_replace.replace(module, compiled=True)
assert module._C._cuda_memoryStats == "PyTorch's own"
record = module._C._cuda_record_memory_history
record("all", "all", "python", 100, False, False, False, ["oom"])
assert asked.pop() == ("all", None, "python", 100, False, False, False, []) and _native.plugin.is_history_enabled()
record("all", "all", "python", 100, True, True, False, [])
assert asked.pop() == ("all", None, "python", 100, False, True, False, [])
record("all", "all", "python", 100, False, False, False, [], True, True)
assert asked.pop()[7:] == ([], True, True), "2.14 has two arguments more"
try:
    record("all", "some", "python", 100, False, True, False, [])
except RuntimeError as why:
    assert asked == [] and "expected context" in str(why)
else:
    raise AssertionError
record(None, None)
assert asked.pop()[:2] == (None, None)
assert not _native.plugin.is_history_enabled()
""")


def test_the_command_says_why_there_is_none(run: Run) -> None:
    program = "import runpy, sys; sys.argv = ['x']; runpy.run_module('cachette_gpu.torch', run_name='__main__')"
    assert "error: this PyTorch" in run(program, torch="cpu", fails=True).stderr


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_another_standard_library_is_refused_by_name() -> None:
    done = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", "-D_LIBCPP_VERSION=1", "-xc++",
                           str(_adapter.SOURCES / "interface.hpp")], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "this is libc++; compile with libstdc++" in done.stderr


@pytest.mark.skipif(TORCH == [""], reason="CACHETTE_TEST_TORCH names no files of PyTorch")
@pytest.mark.parametrize("config", ["", "expandable_segments:True", "pinned:native"])
@pytest.mark.parametrize("files", TORCH)
def test_it_takes_pytorchs_place_and_does_all_it_is_asked(run: Run, tmp_path_factory: pytest.TempPathFactory,
                                                          files: str, config: str) -> None:
    place = tmp_path_factory.getbasetemp() / f"built-{TORCH.index(files)}"
    done = run(f"""
import ctypes, os, pathlib, subprocess
from cachette_gpu import _native
from cachette_gpu.torch import _adapter, _compile
home, place = pathlib.Path({files!r}), pathlib.Path({str(place)!r})
target = _adapter.Target("2.11", home / "torch", False, True)
place.mkdir(exist_ok=True)
for name in ("nvidia/cu13/lib/libcudart.so.13", "torch/lib/libc10.so", "torch/lib/libc10_cuda.so"):
    ctypes.CDLL(str(home / name), mode=ctypes.RTLD_GLOBAL)
standing_in = place / "libtorch_cpu.so"
if not standing_in.exists():
    # It is loaded and then found, as PyTorch's own is.
    command = [*_compile.compiler(), *_compile.FLAGS, "-fvisibility=default", "-isystem" + str(home / "torch/include"),
               "-Wl,-soname,libtorch_cpu.so", {str(STANDING_IN)!r}, str(home / "torch/lib/libc10.so")]
    _compile.run([*command, "-o", str(standing_in)], "2.11", _adapter.KNOWN)
ctypes.CDLL(str(standing_in), mode=ctypes.RTLD_GLOBAL)
built = _adapter.build(target)
program = place / "exercise.so"
if not program.exists():
    _compile.run([*target.arguments([pathlib.Path({str(EXERCISE)!r})]), "-fvisibility=default", "-o", str(program)],
                 "2.11", _adapter.KNOWN)
_native.plugin.start("host", {config!r})
_adapter.install(ctypes.CDLL(str(built)))
exercise = ctypes.CDLL(str(program)).exercise
exercise.restype = ctypes.c_char_p
why = exercise(os.fsencode(_native.__file__), {config != "pinned:native"})
assert why is None, why.decode()
try:
    _adapter.install(ctypes.CDLL(str(built)))
except RuntimeError as why:
    assert "in use already" in str(why)
else:
    raise AssertionError
""", CACHETTE_CACHE=str(place))
    assert "an observer of memory has failed: a tracker on another thread" in done.stderr
