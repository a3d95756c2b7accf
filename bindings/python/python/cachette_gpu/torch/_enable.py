"""Replaces PyTorch's allocator by Cachette."""

from __future__ import annotations

import os
import threading
from typing import Any

from .. import _native, _process
from . import _adapter, _kept, _replace, _settings
from ._error import EnableError

#: The hooks of PyTorch's wrapper, and the functions that they are set to.
HOOKS = {
    "set_init_fn": "cachette_torch_init",
    "set_reset_fn": "cachette_torch_reset",
    "set_memory_fraction_fn": "cachette_torch_memory_fraction",
    "set_base_alloc_fn": "cachette_torch_base_alloc",
    "set_record_stream_fn": "cachette_torch_record_stream",
    "set_begin_allocate_to_pool": "cachette_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "cachette_torch_end_allocate_to_pool",
    "set_release_pool": "cachette_torch_release_pool",
}

_lock = threading.Lock()
_enabled: Any = None


def enable(config: str | None = None, *, replace: bool = True, compiled: bool | None = None) -> None:
    """Makes Cachette the allocator of all of PyTorch's GPU memory, for the rest of the process.

    ``config`` is a text such as ``"elastic_setting:compact"``. By default it is read from ``CACHETTE_ALLOC_CONF``, or
    else from PyTorch's own variables. With ``replace`` Cachette replaces the functions of PyTorch that a pluggable
    allocator does not support: ``torch.cuda.memory_stats()`` and everything that depends on it.

    PyTorch gets a C++ class if it is compiled already or can be compiled, which takes about 20 seconds the first time.
    Otherwise it gets functions in its wrapper. A line on stderr reports the choice and the reason. ``compiled`` forces
    one of the two. With the class, requests cost less, and features work that a pluggable allocator does not support:
    ``torch.cuda.MemPool``, ``torch.compile(mode="reduce-overhead")``, tensors in other processes,
    ``torch.backends.cudnn.benchmark``, memory in profiles.
    """
    global _enabled
    with _lock:
        torch = usable_torch()
        if _enabled is not None:
            raise EnableError("Cachette is enabled already, with the configuration "
                              f"{_native.plugin.config()!r}; call enable() once in a process")
        made, text, backend = examine(torch, config)
        allocator, is_class, choice = _chosen(torch, compiled)
        shared = _process.start(backend, text, is_given=config is not None)
        if config is None and made is not None and not shared:
            _native.plugin.update_config(made)
        _change(torch, allocator, is_class)
        if replace:
            _replace.replace(torch, is_class)
        _enabled = allocator
        if compiled is None:
            _kept.say(choice)
    if os.environ.get("CACHETTE_SANITIZE") == "1":
        from . import _sanitize

        _sanitize.sanitize_process()


def is_enabled() -> bool:
    """Whether PyTorch's memory comes from Cachette."""
    return _enabled is not None


def config() -> str | None:
    """Cachette's configuration: the settings that differ from the default; ``None`` before it is enabled."""
    return _native.plugin.config()


def examine(torch: Any, config: str | None) -> tuple[str | None, str, str]:
    """What `enable` needs: the settings of PyTorch, the configuration, and the driver. It changes nothing."""
    if torch.cuda.is_initialized():
        raise EnableError("CUDA is initialised already, and memory of PyTorch's own allocator may be in use; "
                          "call cachette_gpu.torch.enable() before the first use of a GPU")
    _refuse_fork(torch)
    return _settings.check(torch), _native.normalise_config(config), _usable_backend(torch)


def usable_torch() -> Any:
    """PyTorch, if it supports pluggable allocators."""
    try:
        import torch
    except ModuleNotFoundError as why:
        raise EnableError(f"PyTorch cannot be imported ({why}); install it: pip install torch") from why
    except Exception as why:  # A missing library of the vendor is an OSError, and other damage may be anything.
        raise EnableError(f"PyTorch is installed, but cannot be imported ({why}); install it anew: pip install "
                          "--force-reinstall torch") from why
    if getattr(torch.version, "cuda", None) is None and getattr(torch.version, "hip", None) is None:
        raise EnableError(f"this PyTorch ({torch.__version__}) is for CPUs alone and never asks for GPU memory; "
                          "install a build for CUDA or ROCm, as https://pytorch.org says")
    memory = getattr(torch.cuda, "memory", None)
    for name in ("CUDAPluggableAllocator", "change_current_allocator"):
        if not hasattr(memory, name):
            raise _too_old(torch, f"torch.cuda.memory.{name}")
    wrapper = getattr(torch._C, "_CUDAPluggableAllocator", None)
    for name in HOOKS:
        if not hasattr(wrapper, name):
            raise _too_old(torch, f"torch._C._CUDAPluggableAllocator.{name}")
    return torch


def _too_old(torch: Any, name: str) -> EnableError:
    return EnableError(f"this PyTorch ({torch.__version__}) has no {name}, which Cachette needs; use PyTorch 2.11 or "
                       "another one that has it")


def _refuse_fork(torch: Any) -> None:
    """Raises in a child of a process that has used a GPU. PyTorch reports CUDA as not initialised there."""
    is_in_bad_fork = getattr(torch.cuda, "_is_in_bad_fork", None)
    if is_in_bad_fork is not None and is_in_bad_fork():
        raise EnableError("this process was forked after its parent had used a GPU, and no driver survives that; start "
                          "workers with the 'spawn' method, as in torch.multiprocessing.set_start_method('spawn')")


def _chosen(torch: Any, compiled: bool | None) -> tuple[Any, bool, str]:
    """The class or the wrapper, whether it is the class, and the choice as text."""
    if compiled is False:
        return _pluggable(torch), False, ""
    try:
        library = _adapter.load(torch, again=compiled is True)
    except EnableError as why:
        if compiled:
            raise EnableError(f"{why}; or call cachette_gpu.torch.enable(compiled=False)") from why
        return _pluggable(torch), False, f"plugged into PyTorch {torch.__version__} without the compiled class: {why}"
    return library, True, f"in the place of PyTorch {torch.__version__}'s allocator, by the compiled class"


def _pluggable(torch: Any) -> Any:
    """PyTorch's wrapper around our functions, with every hook set."""
    addresses = _native.plugin.addresses()
    wrapper = torch.cuda.memory.CUDAPluggableAllocator(
        _native.__file__, "cachette_torch_alloc", "cachette_torch_free")
    for setter, function in HOOKS.items():
        set_hook = getattr(wrapper._allocator, setter, None)
        if set_hook is None:
            raise _too_old(torch, f"{setter} of a CUDAPluggableAllocator")
        set_hook(addresses[function])
    return wrapper


def _change(torch: Any, allocator: Any, compiled: bool) -> None:
    """Replaces PyTorch's allocator."""
    try:
        if compiled:
            _adapter.install(allocator)
        else:
            torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as why:
        raise EnableError(f"PyTorch refuses another allocator ({why}); call cachette_gpu.torch.enable() before any "
                          "library uses a GPU, in a new process") from why


def _usable_backend(torch: Any) -> str:
    """The driver of this PyTorch, if it has a visible GPU."""
    backend = "hip" if torch.version.cuda is None else "cuda"
    if torch.cuda.device_count() == 0:
        why = _native.why_unusable(backend) or "PyTorch finds none"
        raise EnableError(f"no GPU can be used: {why}")
    return backend
