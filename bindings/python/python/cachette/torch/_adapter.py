"""Builds the class that takes the place of PyTorch's allocator, against the PyTorch that is installed.

The class is C++, in the folder ``adapter`` beside this file; :func:`build` compiles it once for each PyTorch and keeps
it in :func:`folder`. ``python3 -m cachette.torch`` does that ahead of time, on a machine without a GPU too.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _native
from ._error import EnableError

SOURCES = Path(__file__).parent / "adapter"

#: The variable that says where built classes are kept.
CACHE = "CACHETTE_CACHE"

#: Tried in this order where ``CXX`` names none.
COMPILERS = ("c++", "g++", "clang++")

FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")

#: Without one of these the headers of CUDA are not whole.
CUDA_HEADERS = ("cuda_runtime_api.h", "crt/host_defines.h")


@dataclass(frozen=True)
class Kit:
    """What the class is compiled with."""

    #: Tells one PyTorch from another.
    version: str
    #: The folders of PyTorch's and CUDA's headers.
    headers: tuple[Path, ...]
    #: The folder of PyTorch's libraries.
    libraries: Path
    #: Whether PyTorch was built with the newer ``std::string``.
    cxx11: bool

    def arguments(self, sources: Iterable[Path]) -> list[str]:
        """The compiler's arguments, but for the result."""
        # Libraries come last, and are named in the result even if the linker thinks that nobody needs them.
        return [*FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={int(self.cxx11)}",
                *(f"-isystem{path}" for path in self.headers), *map(str, sources),
                "-Wl,--no-as-needed", f"-L{self.libraries}", "-lc10", "-lc10_cuda"]


def kit_of(torch: Any) -> Kit:
    """What the class is compiled with for this PyTorch."""
    if torch.version.cuda is None:
        raise EnableError(f"this PyTorch ({torch.__version__}) is for ROCm, and the class is for CUDA; call "
                           "cachette.torch.enable() without `compiled`")
    home = Path(torch.__file__).parent
    headers = home / "include"
    if not (headers / "c10/cuda/CUDACachingAllocator.h").is_file():
        raise EnableError(f"this PyTorch ({torch.__version__}) came without its headers; install one from "
                           "https://pytorch.org, or call cachette.torch.enable() without `compiled`")
    version = f"{torch.__version__} {getattr(torch.version, 'git_version', '')}"
    return Kit(version, (headers, cuda_headers(home)), home / "lib", bool(torch._C._GLIBCXX_USE_CXX11_ABI))


def cuda_headers(torch_home: Path) -> Path:
    """The folder of CUDA's headers: of a toolkit, or of the packages that PyTorch is installed with."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    homes += [str(Path(nvcc).parent.parent) if nvcc else None, "/usr/local/cuda"]
    packages = torch_home.parent / "nvidia"
    tried = [Path(home) / "include" for home in homes if home]
    tried += [*sorted(packages.glob("cu[0-9]*/include"), reverse=True), packages / "cuda_runtime/include"]
    for folder in tried:
        if all((folder / name).is_file() for name in CUDA_HEADERS):
            return folder
    raise EnableError("the headers of CUDA are not found; install the CUDA toolkit and set CUDA_HOME, or "
                       "`pip install nvidia-cuda-runtime nvidia-cuda-crt`, or call cachette.torch.enable() without "
                       f"`compiled` (looked in {', '.join(map(str, tried))})")


def compiler() -> str:
    """The C++ compiler."""
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise EnableError(f"there is no C++ compiler ({named or ', '.join(COMPILERS)}); install g++, or call "
                       "cachette.torch.enable() without `compiled`")


def folder() -> Path:
    """Where built classes are kept: ``CACHETTE_CACHE``, or ``cachette`` in the user's folder for caches."""
    named = os.environ.get(CACHE)
    if named:
        return Path(named)
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as why:
        raise EnableError(f"there is no home folder to keep the built class in ({why}); set {CACHE}") from why
    return caches / "cachette"


def build(kit: Kit) -> Path:
    """The class as a shared library, compiled unless it was before. Several processes may do so at once."""
    command = [compiler(), *kit.arguments(sorted(SOURCES.glob("*.cpp")))]
    kept = folder() / f"adapter-{_name(kit, command, sorted(SOURCES.iterdir()))}.so"
    try:
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _refuse_foreign(kept.parent)
        if kept.exists():
            _refuse_foreign(kept)
            return kept
        with tempfile.TemporaryDirectory(dir=kept.parent) as place:
            made = Path(place) / "adapter.so"
            _compile([*command, "-o", str(made)], kit)
            made.chmod(0o755)
            # Whoever is first wins; the others put the same there.
            made.replace(kept)
    except OSError as why:
        raise EnableError(f"the built class cannot be kept in {kept.parent} ({why}); set {CACHE} to a folder of your "
                           "own") from why
    return kept


def _refuse_foreign(path: Path) -> None:
    """Raises if another user could have put code at this path, which would run in this process.

    The name of a built class can be foretold. Folders further up are left to the user, as for programs in ``PATH``.
    """
    found = path.stat()
    owner, own = found.st_uid, os.geteuid()
    if owner not in (own, 0):
        raise EnableError(f"{path} belongs to user {owner} and not to this one ({own}), so no class is loaded from it; "
                           f"set {CACHE} to a folder of your own")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise EnableError(f"other users may write to {path}, so no class is loaded from it; look at what is there and "
                           f"`chmod go-w {path}`, or set {CACHE} to a folder of your own")


def _name(kit: Kit, command: list[str], files: Iterable[Path]) -> str:
    """Tells what is compiled, and how, from everything else."""
    told = subprocess.run([command[0], "--version"], capture_output=True, check=False)
    digest = hashlib.sha256(repr((kit.version, command)).encode() + told.stdout)
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:24]


def _compile(command: list[str], kit: Kit) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        told = "\n".join(done.stderr.strip().splitlines()[:20])
        raise EnableError(f"the class does not compile against this PyTorch ({kit.version.split()[0]}; 2.11 is known "
                           f"to work); call cachette.torch.enable() without `compiled`. {command[0]} says:\n{told}")


def load(torch: Any) -> ctypes.CDLL:
    """The class, built and loaded; it is not in place yet."""
    path = build(kit_of(torch))
    try:
        return ctypes.CDLL(str(path))
    except OSError as why:
        raise EnableError(f"the built class cannot be loaded ({why}); remove {path} and try again, or call "
                           "cachette.torch.enable() without `compiled`") from why


def install(library: ctypes.CDLL) -> None:
    """Puts the class in the place of PyTorch's allocator, or raises ``RuntimeError`` as PyTorch does."""
    put = library.cachette_adapter_install
    put.argtypes, put.restype = [ctypes.c_char_p], ctypes.c_char_p
    why = put(os.fsencode(_native.__file__))
    if why is not None:
        raise RuntimeError(why.decode(errors="replace"))
