"""The program ``cachette``, as a command of the package and as ``python3 -m cachette_gpu``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from . import _native

#: The library that ``cachette run`` puts in front of the driver, in packages that have it.
FRONT = Path(__file__).with_name("libcachette_front.so")


def main() -> int:
    """Runs the program with the arguments of the command line, and returns its exit status."""
    # Python only notes an interrupt, and the program below never returns to see it. Other handlers stay: a shell lets
    # programs in the background ignore interrupts.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Python ignores it, and programs that `cachette run` starts would inherit that.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    # `cachette doctor` examines the PyTorch beside this package.
    if sys.executable:
        os.environ.setdefault("CACHETTE_PYTHON", sys.executable)
    if FRONT.exists():
        os.environ.setdefault("CACHETTE_FRONT", str(FRONT))
    return _native.run_program(["cachette", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
