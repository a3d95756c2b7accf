"""The number of a device, from any of its names."""

from __future__ import annotations

from typing import Any

#: ``None`` for the current device, a number, ``"cuda:1"`` or a ``torch.device``.
Device = int | str | Any | None


def index_of(device: Device = None) -> int:
    """The number of ``device``; the current one for ``None`` and for a name without a number."""
    number = _number_of(device)
    if number is None:
        import torch

        return int(torch.cuda.current_device())
    if number < 0:
        raise ValueError(f"device numbers begin at 0, and {number} was given")
    return number


def _number_of(device: Device) -> int | None:
    """The number that ``device`` names; ``None`` if it names none."""
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        return device
    if isinstance(device, str):
        return _number_in(device)
    if isinstance(device, bool) or not hasattr(device, "index") or not hasattr(device, "type"):
        raise TypeError(f"a device is None, a number, a name such as 'cuda:0' or a torch.device, not {device!r}")
    if device.type != "cuda":
        raise ValueError(f"a device of type 'cuda' is needed, not {str(device)!r}")
    return None if device.index is None else int(device.index)


def _number_in(name: str) -> int | None:
    """The number in a name such as ``"cuda:1"``; ``None`` if it has none."""
    kind, colon, number = name.partition(":")
    if kind != "cuda" or (colon and not number.isdecimal()):
        raise ValueError(f"{name!r} is no name of a GPU; write 'cuda' or 'cuda:0'")
    return int(number) if colon else None
