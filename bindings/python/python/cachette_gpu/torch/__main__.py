"""Compiles Cachette's class for the installed PyTorch ahead of time: ``python3 -m cachette_gpu.torch``.

It needs no GPU, so an image of a container can have it, and needs no compiler then. ``CACHETTE_CACHE`` says where it is
kept. With ``--check`` it compiles nothing, and prints as JSON what ``enable()`` would use; ``cachette doctor`` reads it.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys

from . import _adapter, _kept
from ._enable import usable_torch
from ._error import EnableError


def check() -> dict[str, str | None]:
    """The versions, and the mode of ``enable()``: ``class``, ``plug-in`` or none, with the reason if it is not the first."""
    found: dict[str, str | None] = {
        "python": platform.python_version(), "cachette": importlib.metadata.version("cachette-gpu"),
        "torch": None, "cuda": None, "hip": None, "mode": None, "why": None,
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
    return found


def main() -> int:
    """Prints the path of the compiled class, or why there is none."""
    if sys.argv[1:] == ["--check"]:
        print(json.dumps(check()))
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(_adapter.build(_adapter.target_of(usable_torch())))
    except EnableError as why:
        print(f"error: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
