"""The folder of compiled classes, and its permissions."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ._error import EnableError

#: The variable that names the folder of compiled classes.
VARIABLE = "CACHETTE_CACHE"

#: The prefix of temporary build folders.
BUILDING = "building-"


def folders() -> Iterator[Path]:
    """The folders of compiled classes: only ``CACHETTE_CACHE``, or ``cachette`` in the user's cache folder.

    If the latter is not writable, a folder of this user among the temporary files is used.
    """
    named = os.environ.get(VARIABLE)
    if named:
        yield Path(named)
        return
    # Without a home folder only the other one is used.
    with contextlib.suppress(RuntimeError):
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cachette"
    with contextlib.suppress(FileNotFoundError):
        yield Path(tempfile.gettempdir()) / f"cachette-{os.geteuid()}"


def holds(path: Path) -> bool:
    """Whether the file exists; raises if it is not trustworthy."""
    try:
        if not path.is_file():
            return False
    except OSError:
        return False
    refuse_foreign(path.parent)
    refuse_foreign(path)
    return True


def refuse_foreign(path: Path) -> None:
    """Raises if another user could have written code to this path, which would run in this process.

    The name of a compiled class is predictable. Parent folders are not checked, as for programs in ``PATH``.
    """
    # A link in a temporary folder may belong to another user.
    for found in (path.lstat(), path.stat()):
        owner, own = found.st_uid, os.geteuid()
        if owner not in (own, 0):
            raise EnableError(f"{path} belongs to user {owner} and not to this one ({own}), so no class is loaded from "
                              f"it; set {VARIABLE} to a folder of your own")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise EnableError(f"other users may write to {path}, so no class is loaded from it; look at what is there and "
                          f"`chmod go-w {path}`, or set {VARIABLE} to a folder of your own")


@contextlib.contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Creates a folder and locks it: of several processes one builds, and the others wait for it.

    The lock ends with the process that holds it, even after a crash.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    refuse_foreign(folder)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process compiles {what}, and this one waits for it ({folder / 'lock'})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary build folder. First removes what killed processes left behind; the caller holds the lock."""
    for left in folder.glob(f"{BUILDING}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=BUILDING) as place:
        yield Path(place)


def say(text: str) -> None:
    """Writes one line for the user."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"cachette: {text}", file=sys.stderr, flush=True)
