"""Compiles the class: the compiler, the headers and libraries of PyTorch and of its vendor, and what went wrong."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path

from . import _kept
from ._error import EnableError

#: Tried in this order if ``CXX`` is not set.
COMPILERS = ("c++", "g++", "clang++")

FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")

#: Headers of CUDA that must all exist.
CUDA_HEADERS = ("cuda_runtime_api.h", "crt/host_defines.h")
HIP_HEADERS = ("hip/hip_runtime_api.h",)

#: Where distributions install the headers of PyTorch.
SYSTEM = Path("/usr/include")

#: How long a compilation runs before the user is informed, in seconds.
PATIENCE = 2.0


class Refused(EnableError):
    """The compiler reported errors; a retry would fail again."""


def arguments(home: Path, version: str, rocm: bool, cxx11: bool, sources: Iterable[Path]) -> list[str]:
    """Returns the compiler and all of its arguments, except for the output."""
    headers = (torch_headers(home, version, rocm), hip_headers(home) if rocm else cuda_headers(home))
    stems = ("libc10", "libc10_hip" if rocm else "libc10_cuda", "libtorch_cpu")
    libraries = [library(home, stem) for stem in stems]
    vendor = ("-DUSE_ROCM", "-D__HIP_PLATFORM_AMD__") if rocm else ()
    # The compiler searches it in any case, and C++ headers must precede the standard headers.
    named = [f"-isystem{folder}" for folder in headers if folder != SYSTEM]
    # Libraries come last, and the result depends on them even if the linker finds them unused.
    return [*compiler(), *FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={int(cxx11)}", *vendor, *named, *map(str, sources),
            "-Wl,--no-as-needed", *map(str, libraries)]


def torch_headers(home: Path, version: str, rocm: bool) -> Path:
    """The folder of PyTorch's headers: of its package, or of the system if they are of this version."""
    name = "c10/hip/HIPCachingAllocator.h" if rocm else "c10/cuda/CUDACachingAllocator.h"
    number = ".".join(version.split(".")[:2])
    for folder in (home / "include", SYSTEM):
        if (folder / name).is_file() and (folder != SYSTEM or version_of(folder) == number):
            return folder
    raise EnableError(f"this PyTorch ({version}) came without its headers; install one from https://pytorch.org, or "
                      "the distribution's package of its headers")


def version_of(headers: Path) -> str:
    """The PyTorch version of these headers, such as ``2.12``."""
    try:
        text = (headers / "torch/headeronly/version.h").read_text()
    except OSError:
        return ""
    return ".".join(re.findall(r"^#define TORCH_VERSION_(?:MAJOR|MINOR) (\d+)", text, re.MULTILINE))


def cuda_headers(torch_home: Path) -> Path:
    """The folder of CUDA's headers: of a toolkit, or of the packages that PyTorch is installed with."""
    packages = torch_home.parent / "nvidia"
    folders = [*homes("CUDA_HOME", "CUDA_PATH", program="nvcc", usual="/usr/local/cuda"),
               *sorted(packages.glob("cu[0-9]*/include"), reverse=True), packages / "cuda_runtime/include"]
    return whole(folders, CUDA_HEADERS, "the headers of CUDA are not found; install the CUDA toolkit and set CUDA_HOME, "
                 "or `pip install nvidia-cuda-runtime nvidia-cuda-crt`")


def hip_headers(torch_home: Path) -> Path:
    """The folder of HIP's headers: of an installation of ROCm, of a distribution, or of ROCm's packages."""
    folders = [*homes("ROCM_HOME", "ROCM_PATH", "HIP_PATH", program="hipcc", usual="/opt/rocm"), SYSTEM,
               *(torch_home.parent / f"_rocm_sdk_{part}/include" for part in ("devel", "core"))]
    return whole(folders, HIP_HEADERS, "the headers of HIP are not found; install ROCm and set ROCM_HOME, or the "
                 "distribution's package of them (libamdhip64-dev)")


def homes(*variables: str, program: str, usual: str) -> list[Path]:
    """The header folders of a toolkit: from its variables, from the path, or the usual one."""
    found = shutil.which(program)
    named = [*map(os.environ.get, variables), str(Path(found).resolve().parent.parent) if found else None, usual]
    return [Path(home) / "include" for home in named if home]


def whole(folders: list[Path], names: Iterable[str], missing: str) -> Path:
    """The first folder that has all these files."""
    for folder in folders:
        if all((folder / name).is_file() for name in names):
            return folder
    raise EnableError(f"{missing} (looked in {', '.join(map(str, folders))})")


def library(home: Path, stem: str) -> Path:
    """A library of PyTorch by its stem: distributions add a version to its name, and keep it elsewhere."""
    found = [*loaded(stem), *sorted((home / "lib").glob(f"{stem}.so*"))]
    if not found:
        raise EnableError(f"PyTorch's library {stem} is neither loaded nor in {home / 'lib'}; install PyTorch anew")
    return found[0]


def loaded(stem: str) -> list[Path]:
    """The libraries of this process that have a stem."""
    try:
        mapped = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return []
    paths = {line.split(None, 5)[5] for line in mapped.splitlines() if f"/{stem}.so" in line}
    return sorted(path for path in map(Path, paths) if path.name.startswith(f"{stem}.so") and path.is_file())


def compiler() -> list[str]:
    """The C++ compiler, with the options from ``CXX``."""
    text = os.environ.get("CXX", "")
    try:
        named = shlex.split(text)
    except ValueError as why:
        raise EnableError(f"CXX is no command of a shell: {text} ({why}); write a compiler and its options, or unset "
                          "it") from why
    for name in named[:1] or COMPILERS:
        found = shutil.which(name)
        if found:
            return [found, *named[1:]]
    raise EnableError(f"there is no C++ compiler ({' '.join(named) or ', '.join(COMPILERS)}); install g++ 11 or later, "
                      "or name another one in CXX")


def run(command: list[str], version: str, known: str) -> None:
    """Compiles, with a message to the user if that takes long."""
    number = version.split()[0]
    line = f"compiling the class for PyTorch {number}, once on this machine; this takes about 20 seconds"
    waits = threading.Timer(PATIENCE, _kept.say, [line])
    waits.daemon = True
    waits.start()
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as why:
        raise EnableError(f"{command[0]} cannot be started ({why}); name another compiler in CXX") from why
    finally:
        waits.cancel()
    # The compiler runs several programs, and reports those that are killed.
    if done.returncode < 0 or "Killed" in done.stderr:
        raise EnableError(f"{command[0]} was killed while it compiled the class; see that it has a gigabyte of memory, "
                          "and try again")
    if done.returncode > 0 and os.strerror(errno.ENOSPC) in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if done.returncode > 0:
        raise Refused(f"the class does not compile with this PyTorch ({number}; {known} are known to work) and "
                      f"{command[0]}: {shortened(done.stderr)}; use one of these versions, or report it")


def shortened(said: str) -> str:
    """The first errors of a compiler in one line: the missing names and their locations."""
    told = [re.sub(r"^.*/(?=[^/]*:\d)", "", line.strip()) for line in said.splitlines()
            if re.search(r"error|undefined|note:.*virtual", line)]
    most = 4
    more = f" (and {len(told) - most} more)" if len(told) > most else ""
    return "; ".join(told[:most] or said.split("\n")[:1]) + more
