"""Cachette as the allocator of ONNX Runtime's GPU providers.

>>> import cachette_gpu.onnxruntime
>>> providers = [cachette_gpu.onnxruntime.provider(device=0)]  # for onnxruntime.InferenceSession

Sessions with such a provider share one cache with all other libraries of the process that use Cachette.
"""

from __future__ import annotations

from typing import Any

from . import _native, _process
from ._errors import Error
from .torch._figures import flatten

__all__ = ["empty_cache", "last_error", "provider", "stats"]

#: The provider of a backend, and how the names of its options begin.
_PROVIDERS = {"cuda": ("CUDAExecutionProvider", "gpu_external"),
              "hip": ("MIGraphXExecutionProvider", "migraphx_external")}

#: Options that contradict the functions, and why.
_REFUSED = {
    "device_id": "it is the argument `device`",
    "user_compute_stream": "with functions for memory, ONNX Runtime works in the default stream",
    "has_user_compute_stream": "with functions for memory, ONNX Runtime works in the default stream",
    "enable_cuda_graph": "the default stream, in which ONNX Runtime works then, cannot be captured",
}


def provider(device: int = 0, **options: Any) -> tuple[str, dict[str, str]]:
    """An entry for ``providers`` of ``onnxruntime.InferenceSession``, whose memory comes from Cachette.

    It is for CUDA, or for MIGraphX where ONNX Runtime or the process uses ROCm. ``options`` are further options of the
    provider. The configuration is that of the process: ``CACHETTE_ALLOC_CONF``, or what another ``enable()`` was given.
    """
    backend = _backend()
    name, prefix = _PROVIDERS[backend]
    functions = _native.onnxruntime.addresses(device)
    own = dict(zip((f"{prefix}_{it}" for it in ("alloc", "free", "empty_cache")), map(str, functions)))
    for option, value in options.items():
        why = _REFUSED.get(option) or ("it is a function of Cachette" if option in own else None)
        is_off = option != "device_id" and str(value).lower() in ("0", "false")
        if why is not None and not is_off:
            raise Error(f"the option {option!r} cannot be used with Cachette's memory, since {why}; leave it out")
    _process.start(backend, _native.normalise_config(), is_given=False)
    return name, {"device_id": str(device), **{key: str(value) for key, value in options.items()}, **own}


def stats(device: int = 0) -> dict[str, Any]:
    """The statistics of a device, with keys such as ``"allocated_bytes.all.current"``; of all libraries together."""
    return flatten(_native.plugin.memory_stats(device))


def empty_cache(device: int = 0) -> int:
    """Releases the unused memory of a device; returns the number of bytes."""
    return _native.onnxruntime.empty_cache(device)


def last_error(device: int = 0) -> str | None:
    """Why the last request of ONNX Runtime on a device failed; ``None`` if none did."""
    return _native.onnxruntime.last_error(device)


def _backend() -> str:
    """The driver of the process, or that of the installed ONNX Runtime."""
    running = _native.plugin.backend()
    if running is not None:
        return "hip" if running == "hip" else "cuda"
    try:
        import onnxruntime
    except (ImportError, OSError):  # The latter is for a missing library of the vendor.
        return "cuda"
    available = onnxruntime.get_available_providers()
    for backend, (name, _) in _PROVIDERS.items():
        if name in available:
            return backend
    raise Error(f"this ONNX Runtime ({onnxruntime.__version__}) has no provider for GPUs; install onnxruntime-gpu or "
                "onnxruntime-migraphx")
