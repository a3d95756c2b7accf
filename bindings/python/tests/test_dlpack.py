"""Memory for other libraries: DLPack, the CUDA array interface and streams, on the host device."""

from __future__ import annotations

import collections.abc
import ctypes
import gc
import sys
from typing import Any

import pytest

import cachette_gpu

numpy = pytest.importorskip("numpy")


@pytest.fixture
def allocator() -> cachette_gpu.Allocator:
    return cachette_gpu.Allocator("host")


def name_of(capsule: object) -> str:
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, [ctypes.py_object]
    name: bytes = get(capsule)
    return name.decode()


def held(allocator: cachette_gpu.Allocator) -> int:
    gc.collect()
    return allocator.memory_stats()["allocation.all.current"]


def test_numpy_sees_the_memory(allocator: cachette_gpu.Allocator) -> None:
    memory = allocator.allocate(24)
    array = numpy.from_dlpack(memory.view("float32", (2, 3)))
    assert array.shape == (2, 3) and array.dtype == numpy.float32
    assert array.ctypes.data == memory.address == memory.data_ptr()
    array[:] = [[1, 2, 3], [4, 5, 6]]
    again = numpy.from_dlpack(memory.view("float32", (6,)))
    assert again.tolist() == [1, 2, 3, 4, 5, 6]
    assert numpy.from_dlpack(memory).dtype == numpy.uint8
    assert numpy.from_dlpack(memory).shape == (24,)


def test_the_memory_goes_back_with_its_last_user(allocator: cachette_gpu.Allocator) -> None:
    memory = allocator.allocate(24)
    array = numpy.from_dlpack(memory.view("int64", [3]))
    memory.free()
    assert memory.is_freed and held(allocator) == 1
    array[:] = 7
    part = array[1:]
    del array
    assert held(allocator) == 1 and part.tolist() == [7, 7]
    del part
    assert held(allocator) == 0


def test_a_view_keeps_the_memory(allocator: cachette_gpu.Allocator) -> None:
    view = allocator.allocate(24).view("uint8", (24,))
    assert held(allocator) == 1
    assert (view.dtype, view.shape, view.data_ptr() != 0) == ("uint8", (24,), True)
    assert repr(view).startswith("<cachette_gpu.View of uint8 [24] at 0x")
    del view
    assert held(allocator) == 0


@pytest.mark.parametrize(("version", "name"), [(None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned"),
                                               ((1, 3), "dltensor_versioned"), ((2, 0), "dltensor_versioned")])
def test_each_consumer_gets_its_version(allocator: cachette_gpu.Allocator, version: Any, name: str) -> None:
    capsule = allocator.allocate(24).__dlpack__(max_version=version)
    assert name_of(capsule) == name
    assert held(allocator) == 1
    del capsule   # no consumer took the tensor, so the capsule deletes it
    assert held(allocator) == 0


class Once:
    """A producer that remembers its capsule."""

    def __init__(self, view: cachette_gpu.View, version: tuple[int, int] | None) -> None:
        self.view, self.version, self.capsule = view, version, None

    def __dlpack__(self, **arguments: Any) -> object:
        self.capsule = self.view.__dlpack__(max_version=self.version)
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.view.__dlpack_device__()


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_the_deleter_runs_once(allocator: cachette_gpu.Allocator, version: Any) -> None:
    producer = Once(allocator.allocate(24).view("uint8", (24,)), version)
    array = numpy.from_dlpack(producer)
    assert name_of(producer.capsule) == ("used_dltensor" if version is None else "used_dltensor_versioned")
    producer.view = None   # type: ignore[assignment]
    producer.capsule = None
    assert held(allocator) == 1
    del array
    assert held(allocator) == 0
    other = allocator.allocate(24)
    assert held(allocator) == 1
    del other


def test_host_memory_says_where_it_is(allocator: cachette_gpu.Allocator) -> None:
    memory = allocator.allocate(24)
    assert memory.__dlpack_device__() == memory.view("uint8", (24,)).__dlpack_device__() == (1, 0)
    assert not hasattr(memory, "__cuda_array_interface__")
    assert not hasattr(memory.view("uint8", (24,)), "__cuda_array_interface__")


def test_what_the_protocol_forbids_is_a_buffer_error(allocator: cachette_gpu.Allocator) -> None:
    memory = allocator.allocate(24)
    for arguments, text in (({"copy": True}, "without a copy"), ({"dl_device": (2, 0)}, "copy it there first"),
                            ({"stream": 5}, "host has no streams"), ({"stream": 0}, "host has no streams")):
        with pytest.raises(BufferError, match=text):
            memory.__dlpack__(**arguments)   # type: ignore[arg-type]
    memory.__dlpack__(copy=False, dl_device=(1, 0), stream=-1)
    memory.__dlpack__(stream=None, copy=None)


def test_a_shape_or_type_that_does_not_fit_is_a_value_error(allocator: cachette_gpu.Allocator) -> None:
    memory = allocator.allocate(24)
    for dtype, shape, text in (("float32", (7,), "needs 28 bytes, and the memory has 24 bytes"),
                               ("float32", (-1,), "is no shape"), ("float31", (1,), "there is no type \"float31\""),
                               ("uint8", (1 << 62, 1 << 62), "can be counted")):
        with pytest.raises(ValueError, match=text):
            memory.view(dtype, shape)
    assert memory.view("complex128", (1,)).shape == (1,)
    assert numpy.from_dlpack(memory.view("float64", ())).shape == ()


@pytest.mark.parametrize("length", [65, 10**9, 10**12, 2**60])
def test_a_shape_without_end_is_refused_at_once(allocator: cachette_gpu.Allocator, length: int) -> None:
    with pytest.raises(ValueError, match="more than 64 values"):
        allocator.allocate(24).view("uint8", range(length))


def test_a_length_that_is_not_true_is_not_believed(allocator: cachette_gpu.Allocator) -> None:
    class Endless(collections.abc.Sequence[int]):
        def __len__(self) -> int:
            return sys.maxsize

        def __getitem__(self, place: Any) -> Any:
            return 1

    with pytest.raises(ValueError, match="more than 64 values"):
        allocator.allocate(24).view("uint8", Endless())
    with pytest.raises(TypeError):
        allocator.allocate(24).view("uint8", "24")  # type: ignore[arg-type]


def test_no_bytes_are_an_empty_array(allocator: cachette_gpu.Allocator) -> None:
    array = numpy.from_dlpack(allocator.allocate(0).view("float32", (0, 5)))
    assert array.shape == (0, 5)


def test_freed_memory_is_not_exported(allocator: cachette_gpu.Allocator) -> None:
    memory = allocator.allocate(24)
    memory.free()
    for ask in (memory.__dlpack__, memory.__dlpack_device__, memory.data_ptr, lambda: memory.view("uint8", (1,))):
        with pytest.raises(cachette_gpu.Error, match="already freed"):
            ask()


def test_sleeping_memory_is_not_exported() -> None:
    pool = cachette_gpu.Allocator("host", "expandable_segments:True").create_pool()
    memory = pool.allocate(1 << 20)
    view = memory.view("uint8", (1 << 20,))
    before = numpy.from_dlpack(memory)
    before[:] = 7
    pool.sleep()
    for export in (memory.__dlpack__, view.__dlpack__, lambda: numpy.from_dlpack(view)):
        with pytest.raises(cachette_gpu.Error, match="sleeps; wake it first"):
            export()
    pool.wake()
    assert (numpy.from_dlpack(view) == 7).all() and (before == 7).all()


def test_a_stream_tells_its_handle(allocator: cachette_gpu.Allocator) -> None:
    stream = allocator.create_stream()
    assert stream.__cuda_stream__() == (0, stream.handle)


def test_pytorch_for_cpus_takes_it_too(allocator: cachette_gpu.Allocator) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.from_dlpack(allocator.allocate(24).view("bfloat16", (3, 4)))
    assert tensor.shape == (3, 4) and tensor.dtype == torch.bfloat16
    tensor.fill_(2)
    assert tensor.sum().item() == 24
    del tensor
    assert held(allocator) == 0
