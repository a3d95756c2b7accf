"""A stand-in for PyTorch that records what it is given.

``STAND_IN`` says which PyTorch it plays: ``good``, ``silent`` (2.11, which does not tell its settings), ``rocm``,
``cpu``, ``2.10``, ``old``, ``older``, ``initialised``, ``forked``, ``no-device``, ``broken`` or
``refusing``.
"""

import contextlib
import ctypes
import os
import types

KIND = os.environ["STAND_IN"]
if KIND == "broken":
    raise OSError("libcublas.so.13: cannot open shared object file: No such file or directory")

__version__ = "2.10.0+stand.in" if KIND == "2.10" else "2.11.0+stand.in"
version = types.SimpleNamespace(cuda="13.0", hip=None)
if KIND == "cpu":
    version = types.SimpleNamespace(cuda=None, hip=None)
elif KIND == "rocm":
    version = types.SimpleNamespace(cuda=None, hip="7.2")

#: What was set, in order: pairs of the name and the value.
recorded = []


class _Wrapper:
    """``torch._C._CUDAPluggableAllocator``."""

    def __init__(self, alloc, free):
        self.alloc, self.free = alloc, free


def _setter(name):
    def set_hook(self, address):
        assert isinstance(address, int) and address > 0
        recorded.append((name, address))

    return set_hook


NAMES = ["set_init_fn", "set_reset_fn", "set_memory_fraction_fn", "set_base_alloc_fn", "set_record_stream_fn",
         "set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn", "set_release_pool"]
for _name in NAMES[:-1] if KIND == "old" else NAMES:
    setattr(_Wrapper, _name, _setter(_name))


def _refuse(*arguments):
    raise RuntimeError("CUDAPluggableAllocator does not yet support this")


class Node:
    """A node of autograd's graph."""

    def __init__(self, metadata):
        self.metadata = metadata


#: The node of a backward pass that runs, and the frames of TorchScript.
node, script = None, []


class _Settings:
    """PyTorch's own settings: it knows these keys, and keeps the text."""

    KEYS = {"backend", "expandable_segments", "expandable_segments_reserve_by_class", "future_key", "max_split_size_mb",
            "per_process_memory_fraction", "roundup_power2_divisions"}

    def __init__(self):
        self.text = None

    def get(self):
        if self.text is None:
            names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
            self.set(next((os.environ[name] for name in names if name in os.environ), ""))
        return self.text

    def set(self, env):
        for entry in filter(None, env.split(",")):
            key, value = entry.split(":", 1)
            if key not in self.KEYS:
                raise ValueError(f"Unrecognized key '{key}' in Accelerator allocator config.")
            if key == "per_process_memory_fraction" and not 0 <= float(value) <= 1:
                raise ValueError("per_process_memory_fraction is invalid, set it in [0.0, 1.0]")
        self.text = env


_settings = _Settings()
_C = types.SimpleNamespace(
    _accelerator_setAllocatorSettings=_settings.set,
    _current_autograd_node=lambda: node,
    _profiler=types.SimpleNamespace(
        gather_traceback=lambda python, scripted, cpp: list(script) if (python, scripted, cpp) == (0, 1, 0) else None,
        symbolize_tracebacks=lambda gathered: gathered),
    _CUDAPluggableAllocator=_Wrapper,
    _cuda_customAllocator=_Wrapper,
    _cuda_memoryStats=_refuse,
    _cuda_resetPeakMemoryStats=_refuse,
    _cuda_resetAccumulatedMemoryStats=_refuse,
    _cuda_getMemoryFraction=_refuse,
    _cuda_attach_out_of_memory_observer=_refuse,
    _cuda_checkPoolLiveAllocations=_refuse,
    _cuda_isHistoryEnabled=_refuse,
    _cuda_memorySnapshot=_refuse,
    _cuda_allocationTraceback=_refuse,
    _cuda_record_memory_history=_refuse,
    _cuda_record_memory_history_legacy=_refuse,
    _cuda_setMemoryMetadata=_refuse,
    _cuda_getMemoryMetadata=_refuse,
    _cuda_hostMemoryStats=_refuse,
)


if KIND != "silent":
    _C._accelerator_getAllocatorSettings = _settings.get


class CUDAPluggableAllocator:
    def __init__(self, path, alloc_name, free_name):
        library = ctypes.CDLL(path)
        address = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (alloc_name, free_name)]
        recorded.append(("CUDAPluggableAllocator", path, *address))
        self._allocator = _C._cuda_customAllocator(*address)


def change_current_allocator(allocator):
    if KIND == "refusing":
        raise RuntimeError("Can't swap an already initialized allocator")
    recorded.append(("change_current_allocator", allocator._allocator))


memory = types.SimpleNamespace(
    CUDAPluggableAllocator=CUDAPluggableAllocator, change_current_allocator=change_current_allocator,
    _set_allocator_settings=lambda env: _C._accelerator_setAllocatorSettings(env))
if KIND == "older":
    memory = types.SimpleNamespace()


@contextlib.contextmanager
def _graph(graph, **options):
    recorded.append(("graph", options))
    yield


cuda = types.SimpleNamespace(
    memory=memory,
    is_initialized=lambda: KIND == "initialised",
    _is_in_bad_fork=lambda: KIND == "forked",
    device_count=lambda: 0 if KIND == "no-device" else 1,
    current_device=lambda: 0,
    synchronize=lambda device=None: recorded.append(("synchronize", device)),
    mem_get_info=lambda: (1 << 30, 1 << 30),
    CUDAGraph=object,
    graph=_graph,
)
distributed = types.SimpleNamespace(is_available=lambda: False)
uint8 = "uint8"


def device(*named):
    return named


class _Bytes:
    """A tensor on the host; its elements are bytes."""

    def __init__(self, held, *viewed):
        self.bytes, self.viewed = bytes(held), viewed

    def view(self, other):
        return _Bytes(self.bytes, *self.viewed, other)


def frombuffer(held, dtype):
    return _Bytes(held, dtype)
