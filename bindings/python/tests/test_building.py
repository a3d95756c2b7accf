"""How the compiled class is built and kept, with a stand-in for the compiler."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cachette_gpu.torch import EnableError, _adapter, _compile, _kept


def test_it_is_compiled_once_and_kept(target: _adapter.Target, compiler: Path) -> None:
    built = _adapter.build(target)
    assert built.read_text() == "built\n"
    assert _adapter.build(target) == built
    assert len(compiler.read_text().splitlines()) == 1
    assert {it.name for it in built.parent.iterdir()} == {built.name, "lock"}, "nothing else is left"


def test_every_source_and_the_headers_are_named(target: _adapter.Target, compiler: Path) -> None:
    _adapter.build(target)
    call = compiler.read_text()
    for source in ("allocator", "figures", "pinned", "pools", "processes", "settings", "thrown", "watching"):
        assert f"/{source}.cpp" in call
    assert f"-isystem{target.home}/include" in call and f"-isystem{os.environ['CUDA_HOME']}/include" in call
    assert call.split(" -o ")[0].endswith(
        " ".join(f"{target.home}/lib/{name}.so" for name in ("libc10", "libc10_cuda", "libtorch_cpu")))
    assert "-D_GLIBCXX_USE_CXX11_ABI=1" in call


def test_another_pytorch_gets_a_class_of_its_own(target: _adapter.Target, compiler: Path) -> None:
    others = [dataclasses.replace(target, version="2.12.0 def"), dataclasses.replace(target, cxx11=False)]
    assert len({_adapter.build(it) for it in (target, *others)}) == 3


def test_what_was_built_needs_no_compiler_and_no_headers(target: _adapter.Target, compiler: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    built = _adapter.build(target)
    shutil.rmtree(target.home)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.delenv("CUDA_HOME")
    assert _adapter.build(target) == built


def test_what_does_not_compile_says_what_differs(target: _adapter.Target, compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    newer = dataclasses.replace(target, version="2.99.0 abc")
    with pytest.raises(EnableError) as raised:
        _adapter.build(newer)
    assert "2.99.0; 2.11 to 2.15 are known to work" in str(raised.value)
    assert ": allocator.hpp:3:5: error: no such class; use one of these" in str(raised.value)
    assert not list((tmp_path / "kept").glob("*.so")) and not list((tmp_path / "kept").glob("building-*"))


def test_a_function_that_the_class_lacks_is_named(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    source = tmp_path / "newer.cpp"
    source.write_text("struct Base { virtual void brandNew(int) = 0; };\nstruct Class final : Base {};\nClass made;\n")
    with pytest.raises(EnableError, match=r"2\.99\.0; .* newer\.cpp:3:.*error: .*abstract.*brandNew\(int\).*; use one of"):
        _compile.run([compiler, "-c", str(source), "-o", str(tmp_path / "made")], "2.99.0 abc", "2.11 to 2.15")


def test_the_temporary_folder_is_not_looked_at_without_need(target: _adapter.Target, compiler: Path, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CACHETTE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    planted = tmp_path / f"cachette-{os.geteuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    (planted / target.name()).write_text("of another user")
    assert _adapter.build(target).parent == tmp_path / "home/cachette"


def test_what_did_not_compile_is_tried_again_on_demand(target: _adapter.Target, compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    for _ in range(2):
        with pytest.raises(EnableError, match="no such class"):
            _adapter.build(target, again=False)
    assert len(compiler.read_text().splitlines()) == 1, "not at every start"
    (tmp_path / "broken").unlink()
    assert _adapter.build(target).is_file() and _adapter.build(target, again=False).is_file()


def test_a_killed_compiler_leaves_nothing_and_is_tried_again(target: _adapter.Target, compiler: Path,
                                                             tmp_path: Path) -> None:
    (tmp_path / "killed").touch()
    for _ in range(2):
        with pytest.raises(EnableError, match="was killed while it compiled the class; .* try again"):
            _adapter.build(target, again=False)
    assert [it.name for it in (tmp_path / "kept").iterdir()] == ["lock"]
    (tmp_path / "killed").unlink()
    (tmp_path / "kept/building-of-a-dead-process").mkdir()
    assert _adapter.build(target).read_text() == "built\n"
    assert not list((tmp_path / "kept").glob("building-*"))


def test_of_two_processes_one_compiles_and_the_other_waits(target: _adapter.Target, compiler: Path,
                                                           tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    program = f"""
from pathlib import Path
from cachette_gpu.torch import _adapter
target = _adapter.Target({target.version!r}, Path({str(target.home)!r}), False, True)
print(_adapter.build(target).read_text(), end="")
"""

    def start() -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", program], text=True, **pipes)

    first = start()
    while not compiler.exists():
        assert first.poll() is None
    second = start()
    assert second.stderr is not None
    assert "another process compiles the class" in second.stderr.readline()
    held.unlink()
    said = [it.communicate(timeout=600) for it in (first, second)]
    assert [out for out, _ in said] == ["built\n", "built\n"], said
    assert "another process" not in said[0][1]
    assert len(compiler.read_text().splitlines()) == 1


def test_a_long_compilation_is_announced(target: _adapter.Target, compiler: Path, tmp_path: Path,
                                         monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(_compile, "PATIENCE", 0.0)
    (tmp_path / "slow").touch()
    _adapter.build(target)
    assert capfd.readouterr().err.startswith("cachette: compiling the class for PyTorch 2.11.0, once on this machine")
    _adapter.build(target)
    assert capfd.readouterr().err == ""


def test_without_a_compiler_it_says_what_to_install(target: _adapter.Target, compiler: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(EnableError, match=r"no C\+\+ compiler \(no-such-compiler\); install g\+\+"):
        _adapter.build(target)


def test_a_read_only_home_is_made_up_for(target: _adapter.Target, compiler: Path, tmp_path: Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CACHETTE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/sys/nothing-can-be-made-here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    built = _adapter.build(target)
    assert built.parent == tmp_path / f"cachette-{os.geteuid()}" and built.parent.stat().st_mode & 0o777 == 0o700
    assert _adapter.build(target) == built and len(compiler.read_text().splitlines()) == 1
    built.parent.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o777)
    built.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EnableError, match="other users may write to"):
        _adapter.build(target)


@pytest.mark.parametrize("error", [errno.ENOTDIR, errno.ENOSPC, errno.EDQUOT, errno.ENOLCK])
def test_a_home_that_keeps_no_files_is_made_up_for(target: _adapter.Target, compiler: Path, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    monkeypatch.delenv("CACHETTE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null" if error == errno.ENOTDIR else str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    locked = _kept.locked

    def without_room(folder: Path, what: str) -> contextlib.AbstractContextManager[None]:
        if folder.is_relative_to(tmp_path / "home"):
            raise OSError(error, os.strerror(error))
        return locked(folder, what)

    monkeypatch.setattr(_kept, "locked", without_room)
    assert _adapter.build(target).parent == tmp_path / f"cachette-{os.geteuid()}"


def test_without_any_folder_every_reason_is_named(target: _adapter.Target, compiler: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CACHETTE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setattr("tempfile.tempdir", "/dev/zero")
    with pytest.raises(EnableError, match="in /dev/null/cachette .*, nor in /dev/zero/.*; set CACHETTE_CACHE to"):
        _adapter.build(target)


def test_a_compiler_without_room_for_its_output_is_not_remembered(target: _adapter.Target, compiler: Path,
                                                                  tmp_path: Path) -> None:
    script = compiler.parent / "compiler"
    before = script.read_text()
    script.write_text("#!/bin/sh\necho 'cc1plus: error: No space left on device' >&2\nexit 1\n")
    with pytest.raises(EnableError, match="No space left on device.*; set CACHETTE_CACHE to a folder of your own"):
        _adapter.build(target)
    script.write_text(before)
    assert _adapter.build(target, again=False).exists()


def test_a_compiler_that_cannot_be_started_is_named(target: _adapter.Target, compiler: Path, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF, but of no machine")
    program.chmod(0o700)
    monkeypatch.setenv("CXX", str(program))
    with pytest.raises(EnableError, match=r"program cannot be started \(.*Exec format error.*; name another compiler"):
        _adapter.build(target)
    monkeypatch.setenv("CXX", "'g++")
    with pytest.raises(EnableError, match="CXX is no command of a shell: 'g"):
        _adapter.build(target)


def test_a_class_in_the_working_directory_is_found(target: _adapter.Target, monkeypatch: pytest.MonkeyPatch,
                                                   tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    source, folder = tmp_path / "one.cpp", tmp_path / "here"
    source.write_text("int one = 1;")
    folder.mkdir(mode=0o700)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CACHETTE_CACHE", ".")
    monkeypatch.setattr(_adapter, "target_of", lambda torch: target)
    simple = [compiler, "-shared", "-fPIC", str(source)]
    monkeypatch.setattr(_adapter.Target, "arguments", lambda self, sources: simple)
    assert _adapter.load(None).one


def test_a_damaged_class_is_compiled_anew(target: _adapter.Target, monkeypatch: pytest.MonkeyPatch,
                                          tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    monkeypatch.setenv("CACHETTE_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(_adapter, "target_of", lambda torch: target)
    source, kept = tmp_path / "one.cpp", tmp_path / "kept" / target.name()
    simple = [compiler, "-shared", "-fPIC", str(source)]
    monkeypatch.setattr(_adapter.Target, "arguments", lambda self, sources: simple)
    kept.parent.mkdir(mode=0o700)
    kept.write_text("garbage")
    source.write_text("int one = 1;")
    assert _adapter.load(None).one
    # What cannot be loaded for another reason is said.
    monkeypatch.setattr(_adapter, "target_of", lambda torch: dataclasses.replace(target, version="another"))
    source.write_text("extern int two; int *one = &two;")
    with pytest.raises(EnableError, match=r"cannot be loaded .*two.*; remove .*kept/adapter-"):
        _adapter.load(None)


def test_a_place_that_cannot_be_written_says_which_variable(target: _adapter.Target, compiler: Path,
                                                            monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CACHETTE_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnableError, match="set CACHETTE_CACHE to a folder of your own"):
        _adapter.build(target)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(target: _adapter.Target, compiler: Path, tmp_path: Path,
                                                      mode: int) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(mode)
    with pytest.raises(EnableError, match="other users may write to .*kept, .*chmod go-w.*set CACHETTE_CACHE"):
        _adapter.build(target)
    assert not compiler.exists() and not list((tmp_path / "kept").iterdir())
    (tmp_path / "kept").chmod(0o755)
    assert _adapter.build(target).is_file()


def test_a_class_that_others_may_write_to_is_refused(target: _adapter.Target, compiler: Path) -> None:
    built = _adapter.build(target)
    built.chmod(0o664)
    with pytest.raises(EnableError, match=f"other users may write to {built}"):
        _adapter.build(target)
    built.chmod(0o600)
    assert _adapter.build(target) == built


@pytest.mark.parametrize("foreign", ["folder", "file"])
def test_what_belongs_to_another_user_is_refused(target: _adapter.Target, compiler: Path,
                                                 monkeypatch: pytest.MonkeyPatch, foreign: str) -> None:
    built = _adapter.build(target)
    other = built.parent if foreign == "folder" else built
    if os.geteuid() == 0:
        os.chown(other, 12345, -1)
    else:
        # Only root can give a file away, so here every file of this user counts as another's.
        own = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(EnableError, match="belongs to user [0-9]+ and not to this one .*set CACHETTE_CACHE"):
        _adapter.build(target)


def test_the_umask_does_not_open_what_is_built(target: _adapter.Target, compiler: Path) -> None:
    before = os.umask(0)
    try:
        assert _adapter.build(target) == _adapter.build(target)
    finally:
        os.umask(before)
