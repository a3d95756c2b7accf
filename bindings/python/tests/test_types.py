"""The stubs say what is there, and the installed package says what it is."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run

import cachette_gpu
from cachette_gpu import _native

PACKAGE = Path(cachette_gpu.__file__).parent

#: Modules inside the library, which stubs can only write as classes.
MODULES = ("cupy", "onnxruntime", "plugin")


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_the_stubs_agree_with_the_library(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text("".join(f"cachette_gpu._native.{name}\n" for name in MODULES))
    command = [sys.executable, "-m", "mypy.stubtest", "--allowlist", str(allowed), "cachette_gpu._native"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def stubbed(module: str) -> dict[str, list[str]]:
    """The functions of a module in the stubs, with the names of their parameters."""
    tree = ast.parse((PACKAGE / "_native.pyi").read_text())
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == module)
    functions = (node for node in found.body if isinstance(node, ast.FunctionDef))
    return {node.name: [argument.arg for argument in node.args.args] for node in functions}


@pytest.mark.parametrize("module", MODULES)
def test_the_stubs_of_an_inner_module_agree_with_it(module: str) -> None:
    there = {name: value for name, value in vars(getattr(_native, module)).items()
             if inspect.isbuiltin(value) and not name.startswith("_")}
    stubs = stubbed(module)
    assert sorted(stubs) == sorted(there)
    for name, function in there.items():
        assert stubs[name] == list(inspect.signature(function).parameters), name


def test_the_package_is_typed_and_has_its_licences() -> None:
    assert (PACKAGE / "py.typed").exists()
    metadata = importlib.metadata.metadata("cachette-gpu")
    assert metadata["License-Expression"] == "MIT OR Apache-2.0"
    assert set(metadata.get_all("License-File") or ()) == {"LICENSE-MIT", "LICENSE-APACHE"}
    files = {file.name: file for file in importlib.metadata.files("cachette-gpu") or ()}
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        assert files[name].read_text().strip()


def test_the_metadata_names_every_supported_python() -> None:
    metadata = importlib.metadata.metadata("cachette-gpu")
    classifiers = metadata.get_all("Classifier") or ()
    for minor in range(10, 15):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers
    assert "Typing :: Typed" in classifiers
    assert metadata.get_all("Project-URL")
    assert metadata["Requires-Python"] == ">=3.10"


def compile_class(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cachette_gpu.torch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_check_says_which_mode_pytorch_would_get() -> None:
    done = compile_class("--check")
    found = json.loads(done.stdout)
    assert found["cachette"] == cachette_gpu.__version__
    assert found["mode"] in (None, "plug-in", "class")
    assert (found["mode"] == "class") == (found["why"] is None)
    assert (found["error"] is None, done.stderr) == (done.returncode == 0, "")


@pytest.mark.parametrize(("torch", "config", "error"), [
    ("good", "", None),
    ("no-device", "", "no GPU can be used"),
    ("initialised", "", "CUDA is initialised already"),
    ("cpu", "", "for CPUs alone"),
    ("good", "nonsense", "at byte 0"),
])
def test_check_fails_where_enable_would(run: Run, torch: str, config: str, error: str | None) -> None:
    program = """
import runpy, sys
sys.argv[1:] = ["--check"]
runpy.run_module("cachette_gpu.torch", run_name="__main__")
"""
    done = run(program, torch=torch, fails=error is not None, CACHETTE_ALLOC_CONF=config)
    found = json.loads(done.stdout)
    assert (found["error"] is None) if error is None else (error in found["error"])
    assert done.returncode == (error is not None) and "Traceback" not in done.stderr
    run("import cachette_gpu.torch; cachette_gpu.torch.enable()", torch=torch, fails=error is not None,
        CACHETTE_ALLOC_CONF=config)


def test_help_is_no_error_and_a_wrong_option_is_one() -> None:
    done = compile_class("--help")
    assert (done.returncode, done.stderr) == (0, "") and "--check" in done.stdout
    done = compile_class("--chekc")
    assert (done.returncode, done.stdout) == (2, "") and "--chekc" in done.stderr


@pytest.mark.parametrize("kind", ["Allocator", "Allocation", "Pool", "Pinned", "PinnedAllocation", "Stream", "View"])
def test_signatures_show_every_default(kind: str) -> None:
    for name, function in inspect.getmembers(getattr(cachette_gpu, kind), inspect.isroutine):
        if name.startswith("_"):
            continue
        parameters = inspect.signature(function).parameters
        assert ... not in [parameter.default for parameter in parameters.values()], name
        assert "bytes" not in parameters, name
