"""Random programs on several threads and streams: no byte changes while its tensor lives."""

import os
import queue
import random
import threading
from typing import Any

import gpu
from gpu import MiB

pytestmark = gpu.MARKS

THREADS = 4
STEPS = 1500
#: How many tensors a thread keeps.
LIVE = 40


class Worker:
    """One thread of a program. Every tensor is filled with a number of its own, which every use compares."""

    def __init__(self, torch: Any, seed: int, handed: "queue.Queue[Any]", graphs: bool) -> None:
        self.torch, self.random, self.handed, self.graphs = torch, random.Random(seed), handed, graphs
        self.exhausted = 0
        self.streams = [torch.cuda.Stream() for _ in range(2)]
        self.wrong = {}
        for stream in self.streams:
            with torch.cuda.stream(stream):
                self.wrong[stream] = torch.zeros((), dtype=torch.int64, device="cuda")
        # PyTorch's plug-ins have no such pools.
        self.pool = torch.cuda.MemPool() if gpu.COMPILED else None
        self.live: list[Any] = []
        self.number = seed % 1024 << 20
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for _ in range(STEPS):
                step = self.random.choices(
                    [self.allocate, self.free, self.use_elsewhere, self.hand_over, self.take, self.upload,
                     self.from_pool, self.capture, self.torch.cuda.empty_cache, self.torch.cuda.memory_snapshot],
                    [40, 25, 12, 8, 8, 6, 6 * gpu.COMPILED, self.graphs, 0.5, 0.1])[0]
                try:
                    step()
                except self.torch.OutOfMemoryError:
                    self.exhausted += 1
                    for _ in range(LIVE // 4):
                        self.free()
                while len(self.live) > LIVE:
                    self.free()
            while self.live:
                self.free()
        except BaseException as why:  # noqa: BLE001 - the test raises it again
            self.failure = why

    def compare(self, tensor: Any, number: int, stream: Any) -> None:
        with self.torch.cuda.stream(stream):
            try:
                self.wrong[stream] += (tensor != number).sum()
            except self.torch.OutOfMemoryError:
                self.exhausted += 1
                assert bool((tensor.cpu() == number).all())

    def allocate(self) -> None:
        self.number += 1
        stream = self.random.choice(self.streams)
        bytes_ = int(512 * 2 ** self.random.uniform(0, 17))
        with self.torch.cuda.stream(stream):
            tensor = self.torch.full((bytes_ // 4,), self.number, dtype=self.torch.int32, device="cuda")
        self.live.append((tensor, self.number, stream))

    def take_out(self) -> Any:
        return self.live.pop(self.random.randrange(len(self.live))) if self.live else None

    def free(self) -> None:
        if taken := self.take_out():
            self.compare(*taken)

    def use_elsewhere(self) -> None:
        if taken := self.take_out():
            tensor, number, stream = taken
            other = next(each for each in self.streams if each is not stream)
            other.wait_stream(stream)
            self.compare(tensor, number, other)
            tensor.record_stream(other)

    def hand_over(self) -> None:
        if taken := self.take_out():
            tensor, number, stream = taken
            self.handed.put((tensor, number, stream.record_event()))

    def take(self) -> None:
        try:
            tensor, number, event = self.handed.get_nowait()
        except queue.Empty:
            return
        stream = self.random.choice(self.streams)
        stream.wait_event(event)
        self.compare(tensor, number, stream)
        tensor.record_stream(stream)

    def upload(self) -> None:
        self.number += 1
        stream = self.random.choice(self.streams)
        host = self.torch.full((self.random.randrange(1, MiB // 4),), self.number, dtype=self.torch.int32,
                               pin_memory=True)
        with self.torch.cuda.stream(stream):
            self.live.append((host.to("cuda", non_blocking=True), self.number, stream))

    def from_pool(self) -> None:
        with self.torch.cuda.use_mem_pool(self.pool):
            self.allocate()

    def capture(self) -> None:
        torch, stream = self.torch, self.streams[0]
        graph = torch.cuda.CUDAGraph()
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        torch.cuda.current_stream().synchronize()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for number in range(3):
                first = torch.full((MiB << number,), number, dtype=torch.int32, device="cuda")
                wrong += (first + 1 != number + 1).sum()
        for _ in range(3):
            graph.replay()
        torch.cuda.current_stream().synchronize()
        assert int(wrong) == 0


def run_history(seed: int, graphs: bool = True) -> int:
    """Runs a program. Returns how many of its requests found no memory."""
    torch = gpu.enabled()
    before = torch.cuda.memory_allocated()
    handed: queue.Queue[Any] = queue.Queue()
    # The start of a capture waits for the device, and no second one may begin meanwhile.
    workers = [Worker(torch, seed * THREADS + number, handed, graphs and number == 0) for number in range(THREADS)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for worker in workers:
        if worker.failure is not None:
            raise worker.failure
    while not handed.empty():
        workers[0].take()
    torch.cuda.synchronize()
    assert sum(int(wrong) for worker in workers for wrong in worker.wrong.values()) == 0
    exhausted = sum(worker.exhausted for worker in workers)
    del workers, worker, threads, thread
    assert torch.cuda.memory_allocated() == before
    torch.cuda.empty_cache()
    assert before > 0 or torch.cuda.memory_reserved() == 0
    return exhausted


def limit(bytes_: int) -> None:
    """Limits the memory of this process."""
    torch = gpu.enabled()
    torch.cuda.set_per_process_memory_fraction(bytes_ / torch.cuda.get_device_properties(0).total_memory)


def run_alone(program: str) -> None:
    """Runs statements of this module in a process without the history and the settings of other tests."""
    paths = os.pathsep.join(filter(None, [os.path.dirname(__file__), os.environ.get("PYTHONPATH")]))
    gpu.run(f"from test_random_histories import *\n{program}", PYTHONPATH=paths)


def test_no_byte_changes_in_three_random_programs() -> None:
    run_alone("assert [run_history(seed) for seed in range(3)] == [0, 0, 0]")


def test_no_byte_changes_while_requests_find_no_memory() -> None:
    run_alone("limit(600 * MiB)\nassert min(run_history(seed, graphs=False) for seed in range(3, 6)) > 0")


if __name__ == "__main__":
    gpu.main(globals())
