"""Compiles the class that replaces PyTorch's allocator, against the installed PyTorch.

The class is C++, in the folder ``adapter`` beside this file. :func:`build` compiles it once for each PyTorch, into the
folder of :mod:`._kept`. ``python3 -m cachette_gpu.torch`` does that ahead of time, even on a machine without a GPU. The
result needs neither a compiler nor headers.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _native
from . import _compile, _kept
from ._error import EnableError

SOURCES = Path(__file__).parent / "adapter"

#: The first version of PyTorch that has the classes, for both CUDA and ROCm.
FIRST = (2, 11)

#: The versions whose headers were tested. Later ones are also tried.
KNOWN = "2.11 to 2.15"


@dataclass(frozen=True)
class Target:
    """The PyTorch that a class is for."""

    #: Identifies this PyTorch.
    version: str
    #: The folder of the module ``torch``.
    home: Path
    rocm: bool
    #: Whether PyTorch was built with the newer ``std::string``.
    cxx11: bool

    def name(self) -> str:
        """The key of the compiled class.

        It does not depend on the compiler, so that a class can be copied to a machine without one.
        """
        digest = hashlib.sha256(repr((self.version, self.rocm, self.cxx11, _compile.FLAGS)).encode())
        for file in sorted(SOURCES.iterdir()):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return f"adapter-{digest.hexdigest()[:24]}.so"

    def arguments(self, sources: Iterable[Path]) -> list[str]:
        """The compiler's arguments, except for the output."""
        return _compile.arguments(self.home, self.version.split()[0], self.rocm, self.cxx11, sources)


def target_of(torch: Any) -> Target:
    """The target of the class, if PyTorch has the required classes."""
    number = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if number and (int(number[1]), int(number[2])) < FIRST:
        raise EnableError(f"the compiled class needs PyTorch 2.11 or later, and this is {torch.__version__}; install a "
                          "later one")
    version = f"{torch.__version__} {getattr(torch.version, 'git_version', '')}"
    cxx11 = bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True))
    return Target(version, Path(torch.__file__).parent, torch.version.cuda is None, cxx11)


def build(target: Target, *, again: bool = True) -> Path:
    """Returns the class as a shared library; compiles it if necessary. Several processes may call it at once.

    Without ``again`` it does not retry after a compiler error.
    """
    name = target.name()
    failed: list[str] = []
    for place in _kept.folders():
        if _kept.holds(place / name):
            return place / name
        try:
            return _build_in(place, name, target, again)
        except OSError as why:
            failed.append(f"in {place} ({why})")
    raise EnableError(f"the built class cannot be kept {', nor '.join(failed) or 'anywhere'}; set {_kept.VARIABLE} to a "
                      "folder of your own")


def _build_in(place: Path, name: str, target: Target, again: bool) -> Path:
    kept, refused = place / name, place / f"{name}.refused"
    with _kept.locked(place, "the class for PyTorch"):
        if _kept.holds(kept):
            return kept
        if refused.exists() and not again:
            raise EnableError(refused.read_text(errors="replace"))
        with _kept.new_folder(place) as new:
            made = new / "adapter.so"
            try:
                command = target.arguments(sorted(SOURCES.glob("*.cpp")))
                _compile.run([*command, "-o", str(made)], target.version, KNOWN)
            except _compile.Refused as why:
                refused.write_text(f"{why} (`python3 -m cachette_gpu.torch` tries again)")
                raise
            made.chmod(0o755)
            made.replace(kept)
        refused.unlink(missing_ok=True)
    return kept


def load(torch: Any, *, again: bool = True) -> ctypes.CDLL:
    """Returns the class, compiled and loaded, but not yet in use."""
    target = target_of(torch)
    path = build(target, again=again)
    try:
        return _open(path)
    except OSError:
        # The file may be damaged.
        return _load_anew(path, target)


def _open(path: Path) -> ctypes.CDLL:
    """Loads a file. A name without a folder would be looked for among the libraries of the system."""
    return ctypes.CDLL(os.path.join(os.curdir, path))


def _load_anew(path: Path, target: Target) -> ctypes.CDLL:
    try:
        path.unlink()
        return _open(build(target))
    except OSError as why:
        raise EnableError(f"the built class cannot be loaded ({why}); remove {path}, and look whether PyTorch itself "
                          "can be used") from why


def install(library: ctypes.CDLL) -> None:
    """Replaces PyTorch's allocator by the class, or raises ``RuntimeError`` as PyTorch does."""
    put = library.cachette_adapter_install
    put.argtypes, put.restype = [ctypes.c_char_p], ctypes.c_char_p
    why = put(os.fsencode(_native.__file__))
    if why is not None:
        raise RuntimeError(why.decode(errors="replace"))
