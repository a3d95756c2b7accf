"""Addresses of a pool's memory in files, restored by other processes."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest
from conftest import Run

import cachette_gpu

MiB = 1 << 20

SAVE = """
import cachette_gpu
allocator = cachette_gpu.Allocator("host", "expandable_segments:True")
pool = allocator.create_pool()
blocks = [pool.allocate(size) for size in (3 << 20, 1000, 9 << 20)]
pool.save_addresses({path!r})
print(*sorted(block.address for block in blocks))
"""

RESTORE = """
import cachette_gpu, ctypes
allocator = cachette_gpu.Allocator("host", "expandable_segments:True")
pool, blocks = allocator.restore_addresses({path!r})
for byte, block in enumerate(blocks):
    ctypes.memset(block.address, byte, block.requested)
others = [allocator.allocate(5 << 20), pool.allocate(5 << 20)]
for other in others:
    ctypes.memset(other.address, 99, 5 << 20)
for byte, block in enumerate(blocks):
    assert ctypes.string_at(block.address, block.requested) == bytes([byte]) * block.requested
print(*(block.address for block in blocks))
"""


@pytest.fixture
def allocator() -> cachette_gpu.Allocator:
    return cachette_gpu.Allocator("host", "expandable_segments:True")


def test_another_process_has_the_blocks_where_they_were(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "addresses")
    saved = run(SAVE.format(path=path)).stdout
    assert len(saved.split()) == 3
    assert run(RESTORE.format(path=path)).stdout == saved
    assert run(RESTORE.format(path=path)).stdout == saved


def test_taken_addresses_and_damaged_files_say_so_and_change_nothing(allocator: cachette_gpu.Allocator,
                                                                    tmp_path: Path) -> None:
    path, cut = tmp_path / "addresses", tmp_path / "cut"
    pool = allocator.create_pool()
    block = pool.allocate(3 * MiB)
    pool.save_addresses(path)
    reserved = allocator.reserved_bytes
    with pytest.raises(cachette_gpu.Error, match="are taken by the segment .* of this process; restore"):
        allocator.restore_addresses(path)
    cut.write_text(path.read_text()[:-5])
    with pytest.raises(cachette_gpu.Error, match="was cut or changed; copy it again"):
        allocator.restore_addresses(cut)
    with pytest.raises(cachette_gpu.Error, match="none failed: entity not found"):
        allocator.restore_addresses(tmp_path / "none")
    assert allocator.reserved_bytes == reserved
    block.free()


def test_segments_of_a_snapshot_are_restored_free(allocator: cachette_gpu.Allocator) -> None:
    first = allocator.create_pool()
    block = first.allocate(9 * MiB)
    wanted = [(it["address"], it["total_size"]) for it in allocator.snapshot()["segments"] if it["is_expandable"]]
    assert sum(size for _, size in wanted) >= 9 * MiB
    block.free()
    first.release()
    pool = allocator.create_pool()
    pool.restore_segments(wanted)
    assert pool.stats()["allocations"] == 0 and pool.stats()["reserved_bytes"] == sum(size for _, size in wanted)
    with pool:
        again = allocator.allocate(9 * MiB)
    assert again.address == wanted[0][0]
    ctypes.memset(again.address, 7, 9 * MiB)
    with pytest.raises(cachette_gpu.Error, match="segments are whole pages"):
        pool.restore_segments([(12345, 678)])


LIBRARY = os.environ.get("CACHETTE_TEST_CUDA", "")

#: A PyTorch with the function that its serializer of graphs calls; it plays that serializer's part.
SERIALIZER = """
import types
import torch
torch.cuda.memory._restore_expandable_segments = None
torch.cuda.current_stream = lambda device=None: types.SimpleNamespace(cuda_stream=0)
import cachette_gpu.torch
from cachette_gpu import _native
cachette_gpu.torch.enable(compiled=False)
allocator = _native.Allocator.shared(0)
first = allocator.create_pool()
block = first.allocate(9 << 20)
snapshot = torch._C._cuda_memorySnapshot((0, 0, False))
segments = [it for it in snapshot["segments"] if tuple(it["segment_pool_id"]) == first.id]
(segment,) = segments
keys = ("address", "total_size", "segment_type", "expandable_segment_base", "expandable_reservation_size",
        "expandable_segment_size", "expandable_segment_handle_type")
manifest = [{key: segment[key] for key in keys}]
address = block.address
block.free()
first.release()
pool = allocator.create_pool()
torch.cuda.memory._restore_expandable_segments([{**it, "is_expandable": True} for it in manifest], pool.id, 0)
assert pool.stats()["reserved_bytes"] == segment["total_size"]
with pool:
    assert allocator.allocate(9 << 20).address == address
print("restored")
"""


@pytest.mark.skipif(not LIBRARY, reason="CACHETTE_TEST_CUDA names no emulated CUDA library")
def test_what_pytorch_s_serializer_calls_restores_in_cachette(run: Run) -> None:
    assert run(SERIALIZER, torch="good", CACHETTE_CUDA_LIBRARY=LIBRARY).stdout == "restored\n"
