"""How the compiled class is built and kept, with a stand-in for the compiler; and for real where PyTorch's files are.

``CACHETTE_TEST_TORCH`` names a folder with PyTorch's own ``torch/include`` and ``torch/lib/libc10*.so`` and NVIDIA's
``nvidia/cu13``, as their wheels have them; nothing of it needs a GPU.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from conftest import Run

from cachette.torch import EnableError, _adapter

TORCH = os.environ.get("CACHETTE_TEST_TORCH")
EXERCISE = Path(__file__).parent / "adapter/exercise.cpp"


@pytest.fixture
def kit(tmp_path: Path) -> _adapter.Kit:
    return _adapter.Kit("2.11.0 abc", (tmp_path / "headers",), tmp_path / "lib", True)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes down how it was called, and makes a file of its name."""
    script = tmp_path / "compiler"
    calls = tmp_path / "calls"
    script.write_text(f"""#!/bin/sh
[ "$1" = --version ] && {{ echo stand-in 1; exit; }}
echo "$@" >> {calls}
[ -e {tmp_path}/broken ] && {{ echo 'allocator.hpp:3: no such class' >&2; exit 1; }}
while [ "$1" != -o ]; do shift; done
echo built > "$2"
""")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("CACHETTE_CACHE", str(tmp_path / "kept"))
    return calls


def test_it_is_compiled_once_and_kept(kit: _adapter.Kit, compiler: Path) -> None:
    built = _adapter.build(kit)
    assert built.read_text() == "built\n"
    assert _adapter.build(kit) == built
    assert len(compiler.read_text().splitlines()) == 1
    assert list(built.parent.iterdir()) == [built], "nothing else is left"


def test_every_source_and_the_headers_are_named(kit: _adapter.Kit, compiler: Path) -> None:
    _adapter.build(kit)
    call = compiler.read_text()
    for source in ("allocator", "figures", "pools", "processes", "thrown", "watching"):
        assert f"/{source}.cpp" in call
    assert f"-isystem{kit.headers[0]}" in call
    assert "-D_GLIBCXX_USE_CXX11_ABI=1" in call


def test_another_pytorch_or_compiler_gets_a_class_of_its_own(kit: _adapter.Kit, compiler: Path,
                                                             monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = _adapter.build(kit)
    second = _adapter.build(_adapter.Kit("2.12.0 def", kit.headers, kit.libraries, kit.cxx11))
    other = tmp_path / "other"
    other.write_text(Path(os.environ["CXX"]).read_text().replace("stand-in 1", "stand-in 2"))
    other.chmod(0o700)
    monkeypatch.setenv("CXX", str(other))
    third = _adapter.build(kit)
    assert len({first, second, third}) == 3


def test_what_does_not_compile_says_why_and_leaves_nothing(kit: _adapter.Kit, compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    with pytest.raises(EnableError, match="without `compiled`") as raised:
        _adapter.build(kit)
    assert "no such class" in str(raised.value) and "2.11.0" in str(raised.value)
    assert not list((tmp_path / "kept").iterdir())


def test_without_a_compiler_it_says_what_to_install(kit: _adapter.Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(EnableError, match=r"no C\+\+ compiler \(no-such-compiler\); install g\+\+"):
        _adapter.build(kit)


def test_a_place_that_cannot_be_written_says_which_variable(kit: _adapter.Kit, compiler: Path,
                                                            monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CACHETTE_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnableError, match="set CACHETTE_CACHE to a folder of your own"):
        _adapter.build(kit)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(kit: _adapter.Kit, compiler: Path, tmp_path: Path,
                                                      mode: int) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(mode)
    with pytest.raises(EnableError, match="other users may write to .*kept, .*chmod go-w.*set CACHETTE_CACHE"):
        _adapter.build(kit)
    assert not compiler.exists() and not list((tmp_path / "kept").iterdir())
    (tmp_path / "kept").chmod(0o755)
    assert _adapter.build(kit).is_file()


def test_a_class_that_others_may_write_to_is_refused(kit: _adapter.Kit, compiler: Path) -> None:
    built = _adapter.build(kit)
    built.chmod(0o664)
    with pytest.raises(EnableError, match=f"other users may write to {built}"):
        _adapter.build(kit)
    built.chmod(0o600)
    assert _adapter.build(kit) == built


@pytest.mark.parametrize("foreign", ["folder", "file"])
def test_what_belongs_to_another_user_is_refused(kit: _adapter.Kit, compiler: Path, monkeypatch: pytest.MonkeyPatch,
                                                 foreign: str) -> None:
    built = _adapter.build(kit)
    other = built.parent if foreign == "folder" else built
    if os.geteuid() == 0:
        os.chown(other, 12345, -1)
    else:
        # Nobody but root can give a file away, so every file of this user's is another's for once.
        own = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(EnableError, match="belongs to user [0-9]+ and not to this one .*set CACHETTE_CACHE"):
        _adapter.build(kit)


def test_the_umask_does_not_open_what_is_built(kit: _adapter.Kit, compiler: Path) -> None:
    before = os.umask(0)
    try:
        assert _adapter.build(kit) == _adapter.build(kit)
    finally:
        os.umask(before)


def test_headers_of_cuda_are_whole_or_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def headers(folder: Path, *names: str) -> Path:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        return folder

    headers(tmp_path / "half/include", "cuda_runtime_api.h")
    whole = headers(tmp_path / "site/nvidia/cu13/include", *_adapter.CUDA_HEADERS)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "half"))
    if not Path("/usr/local/cuda").exists():
        assert _adapter.cuda_headers(tmp_path / "site/torch") == whole
        with pytest.raises(EnableError, match="install the CUDA toolkit and set CUDA_HOME"):
            _adapter.cuda_headers(tmp_path / "elsewhere/torch")
    own = headers(tmp_path / "whole/include", *_adapter.CUDA_HEADERS)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "whole"))
    assert _adapter.cuda_headers(tmp_path / "site/torch") == own


@pytest.mark.parametrize(("torch", "text"), [
    ("good", "EnableError | this PyTorch (2.11.0+stand.in) came without its headers"),
    ("rocm", "EnableError | this PyTorch (2.11.0+stand.in) is for ROCm, and the class is for CUDA"),
    ("cpu", "EnableError | this PyTorch (2.11.0+stand.in) is for CPUs alone"),
    ("no-device", "EnableError | no GPU can be used: "),
])
def test_a_pytorch_that_it_cannot_be_built_for_is_left_alone(run: Run, torch: str, text: str) -> None:
    program = """
import cachette.torch
try:
    cachette.torch.enable(compiled=True)
except cachette.Error as why:
    print(type(why).__name__, "|", why)
assert not cachette.torch.is_enabled() and cachette.torch.config() is None
"""
    assert text in run(program, torch=torch).stdout


def test_pytorch_is_asked_for_its_regions_and_annotations(run: Run) -> None:
    run("""
import types
from cachette import _native
from cachette.torch import _replace
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
    program = "import runpy, sys; sys.argv = ['x']; runpy.run_module('cachette.torch', run_name='__main__')"
    assert "error: this PyTorch" in run(program, torch="cpu", fails=True).stderr


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_another_standard_library_is_refused_by_name() -> None:
    done = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", "-D_LIBCPP_VERSION=1", "-xc++",
                           str(_adapter.SOURCES / "interface.hpp")], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "this is libc++; compile with libstdc++" in done.stderr


@pytest.mark.skipif(TORCH is None, reason="CACHETTE_TEST_TORCH names no files of PyTorch")
@pytest.mark.parametrize("config", ["", "expandable_segments:True"])
def test_it_takes_pytorchs_place_and_does_all_it_is_asked(run: Run, tmp_path_factory: pytest.TempPathFactory,
                                                          config: str) -> None:
    place = tmp_path_factory.getbasetemp() / "built"
    run(f"""
import ctypes, pathlib, subprocess
from cachette import _native
from cachette.torch import _adapter
home, place = pathlib.Path({TORCH!r}), pathlib.Path({str(place)!r})
headers = (home / "torch/include", _adapter.cuda_headers(home / "torch"))
kit = _adapter.Kit("2.11", headers, home / "torch/lib", True)
built = _adapter.build(kit)
program = place / "exercise.so"
if not program.exists():
    _adapter._compile([_adapter.compiler(), *kit.arguments([pathlib.Path({str(EXERCISE)!r})]), "-fvisibility=default",
                       "-o", str(program)], kit)
for name in ("nvidia/cu13/lib/libcudart.so.13", "torch/lib/libc10.so", "torch/lib/libc10_cuda.so"):
    ctypes.CDLL(str(home / name), mode=ctypes.RTLD_GLOBAL)
_native.plugin.start("host", {config!r})
_adapter.install(ctypes.CDLL(str(built)))
exercise = ctypes.CDLL(str(program)).exercise
exercise.restype = ctypes.c_char_p
why = exercise()
assert why is None, why.decode()
try:
    _adapter.install(ctypes.CDLL(str(built)))
except RuntimeError as why:
    assert "in use already" in str(why)
else:
    raise AssertionError
""", CACHETTE_CACHE=str(place))
