"""Functions of the program that the allocator calls: observers of failed requests, and progress of a sleep."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
from conftest import Run

import cachette_gpu

MiB = 1 << 20


@pytest.fixture
def pool() -> cachette_gpu.Pool:
    return cachette_gpu.Allocator("host", "expandable_segments:True").create_pool()


def test_an_interrupt_during_a_sleep_is_raised_when_it_is_done(pool: cachette_gpu.Pool) -> None:
    # A shell without job control ignores it for programs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    held = [pool.allocate(4 * MiB) for _ in range(8)]
    calls = []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        os.kill(os.getpid(), signal.SIGINT)
        while True:  # until Python has run the handler
            pass

    with pytest.raises(KeyboardInterrupt):
        pool.sleep(progress=progress)
    assert len(calls) == 1 and pool.is_asleep
    with pytest.raises(KeyboardInterrupt):
        pool.wake(progress)
    assert len(calls) == 2 and not pool.is_asleep
    pool.sleep()
    pool.wake()
    assert len(held) == 8


def test_an_observer_may_end_the_program() -> None:
    allocator = cachette_gpu.Allocator("host", "memory_limit:4M")

    def observe(figures: dict[str, int]) -> None:
        sys.exit(figures["requested"] >> 20)

    allocator.on_out_of_memory(observe)
    for call in (allocator.allocate, allocator.create_pool().allocate):
        with pytest.raises(SystemExit) as ended:
            call(7 * MiB)
        assert ended.value.code == 7
    assert allocator.allocate(MiB).bytes == MiB, "nothing is raised later"


def test_an_inner_request_raises_in_the_function_that_made_it() -> None:
    outer, inner = (cachette_gpu.Allocator("host", "memory_limit:4M") for _ in range(2))
    caught: list[object] = []

    def observe(_: dict[str, int]) -> None:
        try:
            inner.allocate(8 * MiB)
        except SystemExit as ended:
            caught.append(ended.code)

    inner.on_out_of_memory(lambda _: sys.exit(3))
    outer.on_out_of_memory(observe)
    with pytest.raises(cachette_gpu.OutOfMemoryError):
        outer.allocate(8 * MiB)
    assert caught == [3]


def test_an_observer_of_pytorchs_memory_may_end_the_program(run: Run) -> None:
    run("""
import ctypes
from cachette_gpu import _native
_native.plugin.start("host", "memory_limit:4M")
alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(
    _native.plugin.addresses()["cachette_torch_alloc"])
def observe(*figures):
    raise KeyboardInterrupt
_native.plugin.on_out_of_memory(observe)
try:
    alloc(8 << 20, 0, None)
    for _ in range(10_000):
        pass
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("the interrupt was lost")
""")


def test_memory_that_an_observer_frees_has_the_stack_of_the_observer() -> None:
    allocator = cachette_gpu.Allocator("host", "memory_limit:4M")
    allocator.record_memory_history(stacks="python")
    held: list[Any] = [allocator.allocate(MiB)]

    def observer(_: dict[str, int]) -> None:
        held.clear()

    allocator.on_out_of_memory(observer)

    def outer() -> None:
        with pytest.raises(cachette_gpu.OutOfMemoryError):
            allocator.allocate(8 * MiB)

    outer()
    events = allocator.snapshot()["device_traces"][0]
    stacks = {event["action"]: [frame["name"] for frame in event["frames"]] for event in events}
    assert stacks["free_requested"][:2] == ["observer", "outer"]
    assert stacks["oom"][0] == "outer"
