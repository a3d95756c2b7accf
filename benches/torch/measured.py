"""What the programs share: the choice of an allocator, and what is measured of a run."""

import argparse
import contextlib
import hashlib
import json
import os
import random
import statistics
import time

#: Steps that come before the ones that count: libraries load kernels and choose algorithms then.
WARM_UP = 10


def arguments(description, steps):
    """The command line, which has the same options for every program."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--allocator", default="native",
                        help="native, expandable, or cachette, with a configuration after a colon if any")
    parser.add_argument("--steps", type=int, default=steps, help="how many steps are run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="a very small model, to try the program")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu only tries the program")
    parser.add_argument("--limit", type=int, default=0, metavar="BYTES",
                        help="the most that the allocator may reserve, as a fraction of the device's memory (limit.py)")
    return parser.parse_args()


def switch(allocator, device="cuda"):
    """Puts an allocator in charge and settles what would make two runs differ; the PyTorch to use."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CACHETTE_ALLOC_CONF"):
        os.environ.pop(name, None)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    kind, _, config = allocator.partition(":")
    if kind == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    elif kind not in ("native", "cachette", "compiled"):
        raise SystemExit(f"there is no allocator named {kind!r}; choose native, expandable, cachette or compiled")
    import torch

    if kind in ("cachette", "compiled") and device == "cuda":
        import cachette_gpu.torch

        cachette_gpu.torch.enable(config, compiled=kind == "compiled")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = True
    return torch


def seed(torch, number):
    """Makes every run draw the same numbers."""
    random.seed(number)
    torch.manual_seed(number)


class Meter:
    """Times steps and watches memory."""

    def __init__(self, torch, options):
        self.torch, self.options = torch, options
        self.on_gpu = options.device == "cuda"
        self.times, self.outcome = [], []
        self.began = time.perf_counter()
        if self.on_gpu:
            self._set_limit()
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
            self.free_before, self.capacity = torch.cuda.mem_get_info()
            self.least_free = self.free_before

    def _set_limit(self):
        """Sets PyTorch's memory fraction."""
        if self.options.limit:
            total = self.torch.cuda.get_device_properties(0).total_memory
            self.torch.cuda.set_per_process_memory_fraction(self.options.limit / total)

    @contextlib.contextmanager
    def step(self):
        """Times what is inside, until the device has done it."""
        self._synchronise()
        began = time.perf_counter()
        yield
        self._synchronise()
        self.times.append(time.perf_counter() - began)
        if self.on_gpu:
            self.least_free = min(self.least_free, self.torch.cuda.mem_get_info()[0])

    def _synchronise(self):
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def result(self, value):
        """Keeps what a step came to, for the comparison of runs."""
        self.outcome.append(value)

    def report(self, program):
        """Prints everything as one line of JSON."""
        counted = self.times[WARM_UP:] or self.times
        outcome = json.dumps(self.outcome).encode()
        line = {
            "program": program,
            "allocator": self.options.allocator,
            "steps": len(self.times),
            "median_step_ms": statistics.median(counted) * 1e3,
            "total_steps_s": sum(self.times),
            "each_step_ms": [round(1e3 * step, 4) for step in self.times],
            "wall_s": time.perf_counter() - self.began,
            "outcome": self.outcome if len(self.outcome) <= 200 else None,
            "outcome_hash": hashlib.sha256(outcome).hexdigest()[:16],
            **self._memory(),
        }
        print(json.dumps(line), flush=True)

    def _memory(self):
        """Peaks as the allocator counts them, and as the device saw them from outside."""
        if not self.on_gpu:
            return {}
        figures = self.torch.cuda
        if self.options.allocator.startswith("cachette"):
            import cachette_gpu.torch

            figures = cachette_gpu.torch
        stats = figures.memory_stats()
        return {
            "peak_allocated": figures.max_memory_allocated(),
            "peak_requested": stats["requested_bytes.all.peak"],
            "peak_reserved": figures.max_memory_reserved(),
            "device_peak": self.free_before - self.least_free,
            "retries": stats["num_alloc_retries"],
            "device_calls": stats["num_device_alloc"] + stats["num_device_free"],
            "device": self.torch.cuda.get_device_name(),
            "torch": self.torch.__version__,
        }
