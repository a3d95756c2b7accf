"""Addresses of the memory of graphs, saved in files and restored in other processes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from .. import _native
from .._errors import Error
from ._device import Device, index_of
from ._enable import is_enabled
from ._pool import Pool

def save_addresses(pool: Pool | tuple[int, int] | Any, path: str | os.PathLike[str], device: Device = None) -> None:
    """Writes the addresses of a pool's memory to a file, for :func:`restore_addresses` in another process.

    ``pool`` is a :class:`Pool`, a ``torch.cuda.MemPool``, a ``torch.cuda.CUDAGraph`` or the identifier of a pool. The
    contents are not saved, and neither are the graph's kernels.
    """
    _opened(pool, _index(device)).save_addresses(path)


def restore_addresses(path: str | os.PathLike[str], device: Device = None) -> tuple[Pool, dict[int, Any]]:
    """Restores the memory of a pool where it was: the pool, and a tensor of bytes for each block, by its address.

    Call it before anything else allocates on the device; an error names what has an address. The contents are
    undefined. ``tensors[address].view(dtype).view(shape)`` is a tensor as the graph knows it. The memory belongs to the
    current stream, and stays as long as the pool or a tensor lives.
    """
    import torch

    index = _index(device)
    stream = torch.cuda.current_stream(index).cuda_stream
    native, blocks = _native.Allocator.shared(index).restore_addresses(path, stream)
    pool = Pool()
    pool._pools[index] = native
    return pool, {block.address: torch.from_dlpack(block) for block in blocks}


def restore_segments(segments: Iterable[Mapping[str, Any]], pool: tuple[int, int], device: Device = None) -> None:
    """Adds the elastic segments of a snapshot to a pool, at their addresses, free, for the current stream.

    PyTorch's serializer of graphs calls it as ``torch.cuda.memory._restore_expandable_segments``.
    """
    import torch

    index = _index(device)
    places = [(segment["address"], segment["total_size"]) for segment in segments]
    _opened(pool, index).restore_segments(places, torch.cuda.current_stream(index).cuda_stream)


def _index(device: Device) -> int:
    if not is_enabled():
        raise Error("addresses are saved and restored after cachette_gpu.torch.enable() at the start of the program")
    return index_of(device)


def _opened(pool: Any, device: int) -> _native.Pool:
    """Another user of a pool."""
    identifier = pool
    if not isinstance(pool, tuple):
        # That of a graph is a call.
        identifier = pool.id if hasattr(pool, "id") else pool.pool()
    return _native.Allocator.shared(device).open_pool(tuple(identifier))
