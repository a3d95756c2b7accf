"""Compiles Cachette's class for the installed PyTorch ahead of time: ``python3 -m cachette.torch``.

It needs no GPU, so an image of a container can have it, and needs no compiler then. ``CACHETTE_CACHE`` says where it is
kept.
"""

from __future__ import annotations

import sys

from . import _adapter
from ._enable import usable_torch
from ._error import EnableError


def main() -> int:
    """Prints the path of the compiled class, or why there is none."""
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
