"""`cachette_gpu.onnxruntime`: the three functions, called as ONNX Runtime calls them, on the host device."""

from __future__ import annotations

import pytest
from conftest import Run

PRELUDE = """
import ctypes
import cachette_gpu, cachette_gpu.onnxruntime as ort
from cachette_gpu import _native
_native.plugin.start("host", CONFIG)

def functions(options, prefix="gpu_external"):
    # ONNX Runtime reads the addresses as decimal numbers.
    types = {"alloc": (ctypes.c_void_p, ctypes.c_size_t), "free": (None, ctypes.c_void_p), "empty_cache": (None,)}
    return [ctypes.CFUNCTYPE(*types[name])(int(options[f"{prefix}_{name}"])) for name in types]

stats = lambda: ort.stats(0)
"""


def attempt(run: Run, text: str, config: str = "") -> str:
    return run(PRELUDE.replace("CONFIG", repr(config)) + text).stdout


def test_the_provider_has_its_name_device_and_functions(run: Run) -> None:
    attempt(run, """
name, options = ort.provider(device=0, arena_extend_strategy="kSameAsRequested", cudnn_conv_use_max_workspace=1)
assert name == "CUDAExecutionProvider"
assert {key: value for key, value in options.items() if "external" not in key} == {
    "device_id": "0", "arena_extend_strategy": "kSameAsRequested", "cudnn_conv_use_max_workspace": "1"}
assert all(isinstance(value, str) for value in options.values())
addresses = [options[f"gpu_external_{it}"] for it in ("alloc", "free", "empty_cache")]
assert len(set(addresses)) == 3 and all(it.isdecimal() for it in addresses)
assert ort.provider(device=1)[1]["gpu_external_alloc"] != addresses[0]
""")


def test_memory_belongs_to_the_component_that_asked_for_it(run: Run) -> None:
    attempt(run, """
import threading
allocate, free, _ = functions(ort.provider()[1])
by_label = lambda: cachette_gpu._native.Allocator.shared(0).memory_holders()["by_label"]
held = [allocate(1 << 20)]
with cachette_gpu.component("kv_cache"):
    held.append(allocate(2 << 20))
    with cachette_gpu.component("weights") as weights:
        held.append(allocate(4 << 20))
        with weights:
            held.append(allocate(8 << 20))
    held.append(allocate(16 << 20))
    thread = threading.Thread(target=lambda: held.append(allocate(32 << 20)))
    thread.start(); thread.join()
assert by_label() == {"onnxruntime": 33 << 20, "kv_cache": 18 << 20, "weights": 12 << 20}, by_label()
try:
    with cachette_gpu.component("failed"):
        raise ValueError
except ValueError:
    held.append(allocate(64 << 20))
assert by_label()["onnxruntime"] == 97 << 20 and "failed" not in by_label()
for address in held:
    free(address)
assert by_label() == {}, by_label()
""")


def test_memory_is_allocated_freed_and_released(run: Run) -> None:
    attempt(run, """
alloc, free, empty_cache = functions(ort.provider()[1])
memory = alloc(1000)
assert memory % 512 == 0
assert stats()["allocated_bytes.all.current"] == 1024
free(memory)
assert alloc(1000) == memory
free(memory); free(None)
assert stats()["allocated_bytes.all.current"] == 0
assert stats()["reserved_bytes.all.current"] == 2 << 20
empty_cache()
assert stats()["reserved_bytes.all.current"] == 0
free(alloc(1000))
assert ort.empty_cache() == 2 << 20
assert alloc(0) is None and ort.last_error() is None
""")


def test_want_of_memory_is_null_and_the_reason_is_kept(run: Run) -> None:
    attempt(run, """
alloc, free, _ = functions(ort.provider()[1])
assert ort.last_error() is None
assert alloc(64 << 20) is None
assert "out of memory" in ort.last_error().lower(), ort.last_error()
assert alloc(1 << 20) is not None
alloc, *_ = functions(ort.provider(device=3)[1])
assert alloc(100) is None
assert "1 device" in ort.last_error(3), ort.last_error(3)
assert ort.last_error(1) is None
""", "memory_limit:8M")


def test_every_device_has_its_own_functions_and_others_are_refused(run: Run) -> None:
    attempt(run, """
assert len({ort.provider(device)[1]["gpu_external_alloc"] for device in range(16)}) == 16
for wrong, kind in ((16, ValueError), (-1, OverflowError)):
    try:
        ort.provider(wrong)
    except kind:
        continue
    raise AssertionError(wrong)
""")


@pytest.mark.parametrize("option", ["user_compute_stream", "has_user_compute_stream", "enable_cuda_graph", "device_id",
                                    "gpu_external_alloc"])
def test_an_option_that_contradicts_is_refused_by_its_name(run: Run, option: str) -> None:
    assert f"the option '{option}' cannot be used with Cachette's memory" in attempt(run, f"""
try:
    ort.provider({option}="1")
except cachette_gpu.Error as why:
    print(why)
""")


def test_an_option_that_is_off_contradicts_nothing_but_a_device_does(run: Run) -> None:
    attempt(run, """
assert ort.provider(enable_cuda_graph=0, has_user_compute_stream=False)[1]["enable_cuda_graph"] == "0"
try:
    ort.provider(device=1, device_id=0)
except cachette_gpu.Error as why:
    assert "it is the argument `device`" in str(why)
else:
    raise AssertionError
""")


def test_rocm_has_migraphx(run: Run) -> None:
    attempt(run, """
_native.plugin.backend = lambda: "hip"
name, options = ort.provider()
assert name == "MIGraphXExecutionProvider"
alloc, free, _ = functions(options, "migraphx_external")
free(alloc(1000))
assert stats()["allocation.all.allocated"] == 1
""")


def test_an_installed_onnx_runtime_says_which_provider_it_has(run: Run) -> None:
    assert run("""
import sys, types
import cachette_gpu, cachette_gpu.onnxruntime as ort
def installed(*providers):
    sys.modules["onnxruntime"] = types.SimpleNamespace(__version__="1.31", get_available_providers=lambda: providers)
installed("MIGraphXExecutionProvider", "CPUExecutionProvider")
assert ort._backend() == "hip"
installed("CUDAExecutionProvider", "CPUExecutionProvider")
assert ort._backend() == "cuda"
installed("CPUExecutionProvider")
try:
    ort.provider()
except cachette_gpu.Error as why:
    print(why)
""").stdout == ("this ONNX Runtime (1.31) has no provider for GPUs; install onnxruntime-gpu or onnxruntime-migraphx\n")


def test_threads_without_python_allocate_too(run: Run) -> None:
    attempt(run, """
import threading
alloc, free, _ = functions(ort.provider()[1])   # ctypes releases the GIL around each call
def work(seed):
    for turn in range(2000):
        free(alloc(1 + (turn * 977 * seed) % 200_000))
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
[it.start() for it in threads]; [it.join() for it in threads]
assert stats()["allocated_bytes.all.current"] == 0
assert stats()["allocation.all.allocated"] == 8000
""")
