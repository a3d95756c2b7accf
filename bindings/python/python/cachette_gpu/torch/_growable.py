"""Tensors whose memory comes and goes by rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import _native
from .._errors import Error
from ._device import Device, index_of
from ._enable import is_enabled

if TYPE_CHECKING:
    from ._pool import Pool


class Growable:
    """A tensor of a full shape, and memory behind some of its rows; made by :func:`growable`.

    A row is an entry of the first dimension. Only committed rows may be read or written. Memory comes in pages of at
    least 2 MiB, and a page has memory while any row in it is committed.
    """

    def __init__(self, native: _native.Growable, shape: Sequence[int], dtype: Any) -> None:
        import torch

        self._native = native
        self._rows = shape[0]
        self._row_bytes = math.prod(shape[1:]) * dtype.itemsize
        memory = torch.from_dlpack(native)
        self._tensor = memory[: self._rows * self._row_bytes].view(dtype).view(tuple(shape))

    @property
    def tensor(self) -> Any:
        """The tensor, with the full shape. Its address never changes, so graphs that use it stay valid."""
        return self._tensor

    @property
    def committed_bytes(self) -> int:
        """The bytes of the committed rows."""
        return self._native.committed

    def commit(self, rows: slice | range) -> None:
        """Puts memory behind rows without any, such as ``slice(0, 128)``. Their contents are undefined.

        Fails like a request of the same bytes if memory is short, and then changes nothing.
        """
        self._native.commit(*self._bytes_of(rows))

    def decommit(self, rows: slice | range) -> None:
        """Takes the memory of committed rows away, after the work that the stream has queued so far.

        The stream is that which was current when the tensor was made. Record other streams that use the rows first.
        """
        self._native.decommit(*self._bytes_of(rows))

    def record_stream(self, stream: Any) -> None:
        """Records that a stream of PyTorch also uses the rows that are committed now."""
        self._native.record_stream(stream.cuda_stream)

    def _bytes_of(self, rows: slice | range) -> tuple[int, int]:
        start, stop, step = rows.indices(self._rows) if isinstance(rows, slice) else (rows.start, rows.stop, rows.step)
        if step != 1 or not 0 <= start <= stop <= self._rows:
            raise ValueError(f"{rows} is no range of the {self._rows} rows; pass slice(start, stop) within them")
        return start * self._row_bytes, stop * self._row_bytes

    def __repr__(self) -> str:
        return f"<cachette_gpu.torch.Growable {tuple(self._tensor.shape)}, {self.committed_bytes} bytes committed>"


def growable(shape: Sequence[int], dtype: Any = None, *, device: Device = None, pool: Pool | None = None) -> Growable:
    """Reserves a tensor without memory; :meth:`Growable.commit` puts memory behind its rows.

    It may be larger than the device's memory. Memory comes and goes in the order of the current stream. In a ``pool``
    it sleeps, wakes and is evicted with the pool. It needs :func:`cachette_gpu.torch.enable`.
    """
    import torch

    if not is_enabled():
        raise Error("growable() needs cachette_gpu.torch.enable() at the start of the program")
    shape = tuple(shape)
    if not shape or any(length < 0 for length in shape):
        raise ValueError(f"{shape} is no shape of a growable tensor; pass at least one length, and none below 0")
    dtype = torch.get_default_dtype() if dtype is None else dtype
    index = index_of(device)
    owner = _native.Allocator.shared(index) if pool is None else pool._pool_of(index)
    stream = torch.cuda.current_stream(index).cuda_stream
    return Growable(owner.allocate_growable(math.prod(shape) * dtype.itemsize, stream), shape, dtype)
