"""`cachette_gpu.vllm`, with stand-ins for vLLM and PyTorch, on the host device."""

from __future__ import annotations

from importlib.metadata import entry_points

from conftest import Run

PRELUDE = """
import ctypes, sys, types
from cachette_gpu import _native
_native.plugin.start("host", "expandable_segments:True")
import cachette_gpu.torch, cachette_gpu.vllm
from cachette_gpu.torch import _adapter
_adapter.load = lambda torch, again: "the class"
_adapter.install = lambda library: None
cachette_gpu.vllm.register()
"""

WORKER = PRELUDE + """
addresses = _native.plugin.addresses()
alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(
    addresses["cachette_torch_alloc"])
from vllm.device_allocator import get_mem_allocator_instance
from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

# As vLLM's worker loads a model and makes its cache.
memory = get_mem_allocator_instance()
assert memory.get_current_usage() == 0
tensors = {}
for tag in ("weights", "kv_cache"):
    with memory.use_memory_pool(tag=tag):
        tensors[tag] = alloc(4 << 20, 0, None)
        ctypes.memset(tensors[tag], 7, 4 << 20)
outside = alloc(4 << 20, 0, None)
ctypes.memset(outside, 9, 4 << 20)
backend = SleepModeBackendFactory.create_backend(types.SimpleNamespace(sleep_mode_backend="cachette"))
read = lambda tag: ctypes.string_at(tensors[tag], 4)
reserved = lambda: cachette_gpu.torch.memory_reserved(0)
"""


def test_the_package_has_the_entry_point() -> None:
    (found,) = (it for it in entry_points(group="vllm.general_plugins") if it.name == "cachette")
    assert found.value == "cachette_gpu.vllm:register"
    assert found.load().__name__ == "register"


def test_without_the_variable_nothing_happens(run: Run) -> None:
    for value in ({}, {"CACHETTE_VLLM": "0"}, {"CACHETTE_VLLM": ""}):
        run("""
import sys
import cachette_gpu.vllm
cachette_gpu.vllm.register()
assert not {"cachette_gpu.torch", "torch", "vllm"} & set(sys.modules)
from cachette_gpu import _native
assert not _native.plugin.is_started()
""", torch="good", **value)


def test_pytorch_is_enabled_once_and_no_device_is_used(run: Run) -> None:
    done = run(PRELUDE + """
assert cachette_gpu.torch.is_enabled()
cachette_gpu.vllm.register()
from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory
assert SleepModeBackendFactory.registered == {"cachette": ("cachette_gpu.vllm", "SleepBackend")}
assert _native.plugin.devices() == []
""", torch="good", CACHETTE_VLLM="1")
    assert done.stderr == ""


def test_memory_of_the_tags_sleeps_and_wakes(run: Run) -> None:
    run(WORKER + """
assert memory.get_current_usage() == 8 << 20
before = reserved()
backend.suspend(1)
assert backend.state() == "SUSPENDED"
asleep = reserved()
assert asleep <= before - memory.get_current_usage()
backend.resume(["weights"])
assert read("weights") == b"\\7" * 4
assert asleep < reserved() < before
backend.resume()
assert backend.state() == "RUNNING" and reserved() == before
assert read("kv_cache") != b"\\7" * 4   # only the weights were kept
""", torch="good", CACHETTE_VLLM="1")


def test_level_2_keeps_nothing(run: Run) -> None:
    run(WORKER + """
backend.suspend(2)
backend.resume()
assert read("weights") != b"\\7" * 4
assert ctypes.string_at(outside, 4) == b"\\x09" * 4   # it has no tag
""", torch="good", CACHETTE_VLLM="1")


def test_memory_that_vllm_cannot_restore_is_kept_at_every_level(run: Run) -> None:
    for level in (1, 2):
        run(WORKER + f"""
for tag in ("runtime", "cudagraph"):
    with memory.use_memory_pool(tag=tag):
        tensors[tag] = alloc(4 << 20, 0, None)
        ctypes.memset(tensors[tag], 5, 4 << 20)
backend.suspend({level})
backend.resume()
assert read("runtime") == read("cudagraph") == b"\\5" * 4
""", torch="good", CACHETTE_VLLM="1")


def test_one_tag_is_discarded(run: Run) -> None:
    run(WORKER + """
before = reserved()
backend.discard(("kv_cache", "a tag without memory"))
assert backend.state() == "SUSPENDED"
assert reserved() < before
assert read("weights") == b"\7" * 4
memory.discard("weights")
assert reserved() <= before - memory.get_current_usage()
backend.resume()
assert reserved() == before
assert read("weights") != b"\7" * 4 and read("kv_cache") != b"\7" * 4
""", torch="good", CACHETTE_VLLM="1")


def test_graphs_are_captured_into_a_pool_with_a_tag(run: Run) -> None:
    run(WORKER + """
with memory.cudagraph_pool() as first, memory.cudagraph_pool() as again:
    assert first == again
with memory.use_memory_pool(tag="cudagraph") as pool:
    assert pool.id == first
# A communicator in a graph may have registered its memory, and the registration does not follow.
assert not backend.preserves_graphs_with_communicators()
""", torch="good", CACHETTE_VLLM="1")


def test_memory_that_connectors_register_never_moves(run: Run) -> None:
    run(WORKER + """
is_stable = _native.Allocator.shared(0).is_stable
assert is_stable(tensors["kv_cache"]) and not is_stable(tensors["weights"])
""", torch="good", CACHETTE_VLLM="1")


def test_vllms_own_backend_gets_cachettes_pools_too(run: Run) -> None:
    run(WORKER + """
memory.sleep(offload_tags=("weights",))   # as the backend `cumem` calls it
memory.wake_up(None)
assert read("weights") == b"\\7" * 4
assert get_mem_allocator_instance() is memory
""", torch="good", CACHETTE_VLLM="1")


def test_a_vllm_without_backends_is_told_and_goes_on(run: Run) -> None:
    done = run(PRELUDE + "assert cachette_gpu.torch.is_enabled()", torch="good", CACHETTE_VLLM="1", STAND_IN_VLLM="old")
    assert done.stderr.startswith("cachette: this vLLM has no sleep backends of others")
    assert "use vLLM 0.25 or later" in done.stderr
