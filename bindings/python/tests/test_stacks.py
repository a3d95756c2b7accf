"""The code of the program that histories name."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import cachette_gpu


@pytest.fixture
def allocator() -> cachette_gpu.Allocator:
    return cachette_gpu.Allocator("host", "expandable_segments:False")


def met(allocator: cachette_gpu.Allocator, count: int) -> list[weakref.ref[Any]]:
    """Functions that are gone, and whose code a history has met."""
    codes = []
    for number in range(count):
        names: dict[str, Any] = {"allocator": allocator}
        exec(compile("def made():\n    allocator.allocate(512).free()", f"{number}.py", "exec"), names)
        names["made"]()
        codes.append(weakref.ref(names["made"].__code__))
    return codes


def kept(codes: list[weakref.ref[Any]]) -> int:
    """How many codes are kept. They are dropped between two instructions of the main thread."""
    for _ in range(100):
        gc.collect()
    return sum(code() is not None for code in codes)


def test_a_cleared_history_keeps_no_code(allocator: cachette_gpu.Allocator) -> None:
    allocator.record_memory_history(stacks="python", max_entries=10)
    codes = met(allocator, 50)
    assert kept(codes) == 50
    allocator.record_memory_history(stacks="python", max_entries=10, clear_history=True)
    assert kept(codes) == 0
    assert len(met(allocator, 5)) == 5
    events = allocator.snapshot()["device_traces"][0]
    assert events[0]["frames"][0]["name"] == "made"


def test_another_history_keeps_its_stacks_when_one_is_cleared(allocator: cachette_gpu.Allocator) -> None:
    other = cachette_gpu.Allocator("host", "")
    other.record_memory_history(stacks="python")
    allocator.record_memory_history(stacks="python")
    memory = other.allocate(512)
    allocator.record_memory_history(stacks="python", clear_history=True)
    later = other.allocate(512)
    for address in (memory.address, later.address):
        frames = other.allocation_traceback(address)
        assert frames is not None
        assert frames[0]["name"] == "test_another_history_keeps_its_stacks_when_one_is_cleared"


def test_names_that_are_no_text_are_shown_as_far_as_they_are(allocator: cachette_gpu.Allocator) -> None:
    allocator.record_memory_history(stacks="python")
    names: dict[str, Any] = {"allocator": allocator}
    exec(compile("def made():\n    return allocator.allocate(512)", "caf\udce9.py", "exec"), names)
    memory = names["made"]()
    frames = allocator.allocation_traceback(memory.address)
    assert frames is not None
    assert frames[0]["name"] == "made"
    assert frames[0]["filename"].startswith("caf") and frames[0]["filename"].endswith(".py")
