"""Pinned memory: PyTorch's host allocator is Cachette's with the compiled class, and PyTorch's own with the plug-in."""

import gc
import random
import threading
from typing import Any

import gpu
from gpu import MiB

pytestmark = gpu.MARKS

#: About a tenth of a second of a GPU's cycles.
LONG = 150_000_000

THREADS = 4
STEPS = 800
#: How many copies a thread compares at once.
LIVE = 16

#: What ``torch.cuda.host_memory_stats()`` has.
COUNTS = ("num_host_alloc", "num_host_free")
FIGURES = ("allocations", "active_requests", "allocated_bytes", "active_bytes")
TIMES = ("host_alloc_time", "host_free_time")


def emptied() -> Any:
    """PyTorch, without cached pinned memory."""
    torch = gpu.enabled()
    gc.collect()
    torch.cuda.synchronize()
    torch._C._host_emptyCache()
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()
    return torch


def active(torch: Any) -> int:
    return int(torch.cuda.host_memory_stats()["active_bytes.current"])


def test_n1_pinned_tensors_have_their_contents_and_exact_sizes() -> None:
    torch = emptied()
    before = active(torch)
    for count in (1, 100, 5 * MiB // 4 + 3, 33 * MiB // 4):
        source = torch.arange(count, dtype=torch.int32)
        pinned = source.pin_memory()
        assert pinned.is_pinned() and not source.is_pinned() and bool((pinned == source).all())
        wasted = active(torch) - before - 4 * count
        assert not gpu.COMPILED or 0 <= wasted < 4096, f"{wasted} bytes more than {4 * count}"
        assert bool((pinned.to("cuda", non_blocking=True).cpu() == source).all())
        del pinned
    torch.cuda.synchronize()


def test_n2_freed_memory_serves_again_without_the_driver() -> None:
    torch = emptied()
    address = torch.empty(3 * MiB, dtype=torch.uint8, pin_memory=True).data_ptr()
    asked = torch.cuda.host_memory_stats()["num_host_alloc"]
    for _ in range(10):
        assert torch.empty(3 * MiB, dtype=torch.uint8, pin_memory=True).data_ptr() == address
    assert torch.cuda.host_memory_stats()["num_host_alloc"] == asked


def test_n3_memory_waits_for_every_stream_that_copies_it() -> None:
    torch = emptied()
    streams = [torch.cuda.Stream() for _ in range(3)]
    pinned = torch.full((MiB,), 7.0).pin_memory()
    address = pinned.data_ptr()
    copies = []
    for place, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            torch.cuda._sleep((place + 1) * LONG)
            # Views have the context of their memory.
            copies.append(pinned[place:].to("cuda", non_blocking=True))
    del pinned
    for stream in streams:
        others = [torch.full((MiB,), 1.0).pin_memory() for _ in range(3)]
        assert address not in [it.data_ptr() for it in others] or streams[-1].query()
        del others
        stream.synchronize()
    for copy, stream in zip(copies, streams):
        with torch.cuda.stream(stream):
            assert bool((copy == 7).all())
    later = [torch.empty(MiB, pin_memory=True) for _ in range(4)]
    assert address in [it.data_ptr() for it in later]


class Copier:
    """One thread that copies both ways. Every tensor is filled with a number of its own, which is compared."""

    def __init__(self, torch: Any, seed: int) -> None:
        self.torch, self.random, self.number = torch, random.Random(seed), seed << 20
        self.streams = [torch.cuda.Stream() for _ in range(3)]
        self.live: list[Any] = []
        self.wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in self.streams]
        self.failure: BaseException | None = None
        torch.cuda.synchronize()

    def pinned(self) -> Any:
        self.number += 1
        count = int(64 * 2 ** self.random.uniform(0, 15))
        made = self.torch.empty(count, dtype=self.torch.int32, pin_memory=True)
        return made.fill_(self.number), self.number

    def upload(self) -> None:
        """The pinned tensor dies while streams still copy it."""
        source, number = self.pinned()
        for place in self.random.sample(range(3), self.random.randint(1, 3)):
            with self.torch.cuda.stream(self.streams[place]):
                if self.random.random() < 0.2:
                    self.torch.cuda._sleep(LONG // 200)
                self.live.append((source.to("cuda", non_blocking=True), number, place))

    def download(self) -> None:
        if not self.live:
            return
        tensor, number, place = self.random.choice(self.live)
        with self.torch.cuda.stream(self.streams[place]):
            target = self.torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            target.copy_(tensor, non_blocking=True)
            if self.random.random() < 0.5:
                # It dies at once, and its memory may not serve another request yet.
                return
            self.streams[place].synchronize()
            assert bool((target == number).all()), f"{number} came as {target.unique().tolist()[:4]}"

    def compare(self) -> None:
        if self.live:
            tensor, number, place = self.live.pop(self.random.randrange(len(self.live)))
            with self.torch.cuda.stream(self.streams[place]):
                self.wrong[place] += (tensor != number).sum()

    def run(self) -> None:
        try:
            for _ in range(STEPS):
                step = self.random.choices([self.upload, self.download, self.compare, self.torch._C._host_emptyCache],
                                           [40, 25, 30, 0.3])[0]
                step()
                while len(self.live) > LIVE:
                    self.compare()
            while self.live:
                self.compare()
        except BaseException as why:  # noqa: BLE001 - the test raises it again
            self.failure = why


def test_n3_random_copies_on_threads_keep_contents() -> None:
    torch = emptied()
    before = active(torch)
    for round_ in range(3):
        copiers = [Copier(torch, 10 * round_ + number + 1) for number in range(THREADS)]
        threads = [threading.Thread(target=copier.run) for copier in copiers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.cuda.synchronize()
        for copier in copiers:
            if copier.failure is not None:
                raise copier.failure
            assert [int(wrong) for wrong in copier.wrong] == [0, 0, 0]
    del copiers, copier, threads
    gc.collect()
    torch.cuda.synchronize()
    torch._C._host_emptyCache()
    # PyTorch's own looks at a block's events only when it needs a block of its size.
    assert active(torch) == before or not gpu.COMPILED


def test_n2_a_loader_pins_batches_on_its_threads() -> None:
    torch = emptied()
    from torch.utils.data import DataLoader, TensorDataset

    numbers = torch.arange(40_000, dtype=torch.int64)
    data = TensorDataset(numbers, numbers.double() / 2)
    for workers in (0, 2):
        loader = DataLoader(data, batch_size=1000, num_workers=workers, pin_memory=True)
        sums = [torch.zeros((), dtype=torch.float64, device="cuda") for _ in range(2)]
        for first, second in loader:
            assert first.is_pinned() and second.is_pinned()
            sums[0] += first.to("cuda", non_blocking=True).double().sum()
            sums[1] += second.to("cuda", non_blocking=True).sum()
        total = float(numbers.double().sum())
        assert [float(it) for it in sums] == [total, total / 2], f"{workers} workers"


def test_n6_a_graph_keeps_what_it_copies_while_it_lives() -> None:
    torch = emptied()
    target = torch.zeros(MiB, device="cuda")
    before = torch.full((MiB,), 3.0).pin_memory()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        inside = torch.full((MiB,), 4.0).pin_memory()
        target.copy_(inside, non_blocking=True)
        target.add_(before.to("cuda", non_blocking=True))
        addresses = [inside.data_ptr()]
        del inside
    if gpu.COMPILED:
        # PyTorch's own would reuse it, although the graph reads it.
        addresses.append(before.data_ptr())
        del before
    for _ in range(3):
        others = [torch.full((MiB,), -1.0).pin_memory() for _ in range(4)]
        assert not set(addresses) & {it.data_ptr() for it in others}
        target.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert bool((target == 7).all())
        del others
    if not gpu.COMPILED:
        return
    del graph
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    others = [torch.empty(MiB, pin_memory=True) for _ in range(6)]
    assert set(addresses) <= {it.data_ptr() for it in others}, "they serve again after the last graph"


def test_n6_memory_that_no_copy_uses_serves_in_the_capture() -> None:
    torch = emptied()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        torch.zeros(1, device="cuda").add_(1)
        address = torch.empty(MiB, pin_memory=True).data_ptr()
        assert torch.empty(MiB, pin_memory=True).data_ptr() == address


def test_n7_statistics_have_pytorchs_keys_and_follow_requests() -> None:
    torch = emptied()
    begun = torch.cuda.host_memory_stats()
    wanted = set(COUNTS) | {f"{it}.{kind}" for it in FIGURES for kind in ("current", "peak", "allocated", "freed")}
    wanted |= {f"{it}.{kind}" for it in TIMES for kind in ("total", "max", "min", "count", "avg")}
    assert wanted <= set(begun), wanted - set(begun)
    held = torch.empty(12 * MiB, dtype=torch.uint8, pin_memory=True)
    stats = torch.cuda.host_memory_stats()
    assert stats["num_host_alloc"] == begun["num_host_alloc"] + 1 == stats["host_alloc_time.count"]
    assert stats["active_requests.current"] == begun["active_requests.current"] + 1
    more = stats["active_bytes.current"] - begun["active_bytes.current"]
    assert more == (12 if gpu.COMPILED else 16) * MiB
    del held
    torch._C._host_emptyCache()
    stats = torch.cuda.host_memory_stats()
    if not gpu.COMPILED:
        return
    assert stats["active_bytes.current"] == begun["active_bytes.current"]
    assert stats["num_host_free"] == 1 and stats["active_bytes.peak"] >= 12 * MiB
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()
    stats = torch.cuda.host_memory_stats()
    assert stats["num_host_alloc"] == 0 and stats["active_bytes.peak"] == stats["active_bytes.current"]


def test_n8_pytorchs_own_can_be_kept() -> None:
    printed = gpu.run_json("""
import json, torch
torch.cuda.init()   # without it there are no statistics
held = torch.empty(3 << 20, dtype=torch.uint8, pin_memory=True)
print(json.dumps([held.is_pinned(), torch.cuda.host_memory_stats()["active_bytes.current"]]))
""", "pinned:native")
    assert printed == [True, 4 << 20]


def test_n4_other_ways_to_pin_keep_contents_too() -> None:
    for config in ("pinned_use_cuda_host_register:True,pinned_num_register_threads:4",
                   "pinned_use_background_threads:True", "pinned_reserve_segment_size_mb:64",
                   "pinned_max_cached_size_mb:1"):
        gpu.run("""
import torch
for step in range(200):
    source = torch.full((1000 * (step % 50 + 1),), step, dtype=torch.int32).pin_memory()
    copy = source.to("cuda", non_blocking=True)
    del source
    assert bool((copy == step).all())
torch._C._host_emptyCache()
""", config)


def test_a_process_may_end_with_pinned_tensors_in_use() -> None:
    gpu.run("""
import torch
held = [torch.ones(1 << 20).pin_memory() for _ in range(5)]
torch.cuda._sleep(100_000_000)
copies = [it.to("cuda", non_blocking=True) for it in held]
del held[2]
held.append(held)
""")


if __name__ == "__main__":
    gpu.main(globals())
