"""Compiles Cachette's class for the installed PyTorch ahead of time: ``python3 -m cachette_gpu.torch``.

It needs no GPU, so an image of a container can have it, and needs no compiler then. ``CACHETTE_CACHE`` says where it is
kept.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys

from .._errors import Error
from . import _adapter, _kept
from ._enable import examine, usable_torch
from ._error import EnableError


def check() -> dict[str, str | None]:
    """The versions, and the mode of ``enable()``: ``class``, ``plug-in`` or none; if not the first, with the reason.

    ``error`` is what ``enable()`` would raise on this machine.
    """
    found: dict[str, str | None] = {
        "python": platform.python_version(), "cachette": importlib.metadata.version("cachette-gpu"),
        "torch": None, "cuda": None, "hip": None, "mode": None, "why": None, "error": None,
    }
    try:
        torch = usable_torch()
        found.update(torch=torch.__version__, cuda=torch.version.cuda, hip=torch.version.hip, mode="plug-in")
        target = _adapter.target_of(torch)
        if not any(_kept.holds(place / target.name()) for place in _kept.folders()):
            target.arguments(())
        found["mode"] = "class"
    except EnableError as why:
        found["why"] = str(why)
    if found["mode"] is None:
        found["error"] = found["why"]
        return found
    try:
        examine(torch, None)
    except Error as why:
        found["error"] = str(why)
    return found


def main() -> int:
    """Prints the path of the compiled class, or why there is none."""
    text, more = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(prog="python3 -m cachette_gpu.torch", description=text, epilog=more)
    parser.add_argument("--check", action="store_true",
                        help="compile nothing, and print as JSON what enable() would use; exit status 1 if it would "
                             "raise an error. The command `cachette doctor` reads this.")
    if parser.parse_args().check:
        found = check()
        print(json.dumps(found))
        return 0 if found["error"] is None else 1
    try:
        print(_adapter.build(_adapter.target_of(usable_torch())))
    except EnableError as why:
        print(f"error: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
