"""Cachette's sleep backend behind vLLM's own factory and under vLLM's own backend, on the host device."""

import ast
import ctypes
import os
import pathlib
import types

import cachette_gpu.torch
import cachette_gpu.vllm
from cachette_gpu import _native
from cachette_gpu.torch import _adapter

_native.plugin.start("host", "expandable_segments:True")
_adapter.load = lambda torch, again: "the class"
_adapter.install = lambda library: None
cachette_gpu.vllm.register()

from vllm import device_allocator  # noqa: E402
from vllm.device_allocator.sleep_mode_backend import (  # noqa: E402
    CuMemBackend,
    SleepModeBackend,
    SleepModeBackendFactory,
)


def public(names):
    return {name for name in names if not name.startswith("_")}


# Whatever vLLM may call.
(protocol,) = (it for it in ast.parse(pathlib.Path("demanded.py").read_text()).body
               if isinstance(it, ast.ClassDef) and it.name == "MemAllocator")
demanded = public(it.name for it in protocol.body if isinstance(it, ast.FunctionDef))
assert demanded <= set(dir(cachette_gpu.vllm.Memory)), demanded - set(dir(cachette_gpu.vllm.Memory))
backends = public(dir(SleepModeBackend))
assert backends <= set(dir(cachette_gpu.vllm.SleepBackend)), backends - set(dir(cachette_gpu.vllm.SleepBackend))

model = types.SimpleNamespace(sleep_mode_backend="cachette")
ours = SleepModeBackendFactory.create_backend(model)
assert type(ours) is SleepModeBackendFactory.get_backend_class("cachette") is cachette_gpu.vllm.SleepBackend
alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(
    _native.plugin.addresses()["cachette_torch_alloc"])
memory = device_allocator.get_mem_allocator_instance()
tensors = {}


def write():
    for tag, address in tensors.items():
        ctypes.memset(address, len(tag), 4 << 20)


def kept():
    return {tag for tag, address in tensors.items() if ctypes.string_at(address, 4) == bytes([len(tag)]) * 4}


for tag in ("weights", "kv_cache", "runtime", "cudagraph"):
    with memory.use_memory_pool(tag=tag):
        tensors[tag] = alloc(4 << 20, 0, None)

# Ours keeps what vLLM's own keeps, at both levels.
for level in (1, 2):
    for backend in (CuMemBackend(), ours):
        write()
        assert backend.state() == "RUNNING"
        before = cachette_gpu.torch.memory_reserved(0)
        backend.suspend(level)
        assert backend.state() == "SUSPENDED"
        assert cachette_gpu.torch.memory_reserved(0) <= before - (16 << 20)
        backend.resume(["weights"])
        backend.resume()
        assert backend.state() == "RUNNING"
        expected = {"runtime", "cudagraph"} | ({"weights"} if level == 1 else set())
        assert kept() == expected, (level, backend, kept())
for backend in (CuMemBackend(), ours):
    write()
    backend.discard(("kv_cache",))
    backend.resume()
    assert kept() == {"weights", "runtime", "cudagraph"}, kept()

# The patch: connectors may register memory of `kv_cache`, and no other.
from vllm.distributed.kv_transfer.kv_connector import stable_memory  # noqa: E402

tree = ast.parse(pathlib.Path("patched/vllm/config/vllm.py").read_text())
(guard,) = (it for it in ast.walk(tree) if isinstance(it, ast.FunctionDef) and it.name == "_verify_kv_transfer_compat")
names = {"os": os}
exec(compile(ast.Module([guard], []), "vllm.py", "exec"), names)
config = types.SimpleNamespace(kv_transfer_config=types.SimpleNamespace(kv_connector="NixlConnector"), model_config=None)
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
refused = []
for known in (False, True):
    try:
        names[guard.name](config)
    except ValueError as error:
        refused.append((known, str(error)))
    stable_memory.set_is_stable(_native.Allocator.shared(0).is_stable)
assert len(refused) == 1 and not refused[0][0] and "NixlConnector" in refused[0][1], refused
caches = {tag: types.SimpleNamespace(data_ptr=lambda address=address: address) for tag, address in tensors.items()}
stable_memory.check_kv_caches({"kv_cache": caches["kv_cache"]})
try:
    stable_memory.check_kv_caches(caches)
    raise AssertionError("memory that may move was accepted")
except ValueError as error:
    assert "first: weights" in str(error), error
print("Cachette's backend keeps what vLLM's does, and has all of its methods")
