"""The allocators of the process, which all libraries share."""

from __future__ import annotations

import ctypes
import sys
import threading

from . import _native
from ._errors import EnableError, Error

_lock = threading.Lock()


def start(backend: str, config: str, *, is_given: bool) -> bool:
    """Starts the allocators on a driver, without using it yet; ``config`` is a text in its shortest form.

    Returns whether another library had started them. Then their configuration stays, and another one is an error if the
    caller was given it.
    """
    with _lock:
        if not _native.plugin.is_started():
            try:
                _native.plugin.start(backend, config)
            except Error as why:
                raise EnableError(str(why)) from why
            if hasattr(ctypes.CDLL(None), "cachette_front_library"):
                print("cachette: this program runs behind `cachette run`, whose front has a second cache and limit; leave "
                      "out one of the two", file=sys.stderr)
            return False
        running, settings = _native.plugin.backend(), _native.plugin.config()
        # Host memory stands in for any driver.
        if running not in (backend, "host"):
            raise EnableError(f"Cachette runs on '{running}' in this process, and this library uses '{backend}'; "
                              "use libraries of one vendor in a process")
        if is_given and config != settings:
            raise EnableError(f"Cachette is in use in this process, with the configuration {settings!r}; all libraries "
                              "share it, so leave out `config` or pass the same")
        return True
