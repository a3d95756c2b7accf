"""Questions about CuPy, PyTorch and JAX with Cachette on a GPU; prints one JSON line for each.

usage: python3 benches/stacks/python.py [QUESTION ...]

Each question runs in its own processes, since an allocator is chosen once in a process. A question that fails prints
its error, and the exit status is 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

MIB = 1 << 20


# ---- Parts that run in their own process; each prints JSON on its last line ----


def results(allocator: str) -> dict[str, Any]:
    """Contents of a program with streams, matrices and a graph, and the exception for want of memory."""
    import cupy

    cachette = _enabled(allocator)
    digests = {}
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    parts = []
    for number, stream in enumerate(streams):
        with stream:
            array = cupy.arange(1 << 20, dtype=cupy.float32) * (number + 1)
            for _ in range(50):
                array = cupy.sqrt(array * array + 1)   # temporary arrays in each stream
            parts.append(array)
    cupy.cuda.Device().synchronize()
    digests["streams"] = _digest(*parts)
    left = cupy.sin(cupy.arange(512 * 512, dtype=cupy.float32)).reshape(512, 512)
    digests["matmul"] = _digest(left @ left.T)
    digests["sort"] = _digest(cupy.sort(left.ravel()), cupy.unique((left * 10).astype(cupy.int32)))
    digests["graph"] = _graph(cupy, cachette, left)
    return {"digests": digests, "exhaustion": _exhaust(cupy)}


def _graph(cupy: Any, cachette: Any, source: Any) -> str:
    """Replays a captured graph, with other arrays allocated in between; the contents of its result."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        given = source.copy()
    kept: list[Any] = []

    def body() -> Any:
        # All arrays stay alive without Cachette, whose capture has a pool instead.
        double = given * 2
        plus = double + 1
        product = plus * given
        if cachette is None:
            kept.extend([double, plus, product])
        return product + 0

    with stream:
        body()   # kernels are loaded before the capture
    stream.synchronize()
    if cachette is None:
        with stream:
            stream.begin_capture()
            result = body()
            graph = stream.end_capture()
        launch: Callable[[], None] = lambda: graph.launch(stream)
    else:
        with cachette.cupy.capture(stream) as captured:
            result = body()
        launch = captured.launch
    untouched = True
    for turn in range(5):
        with stream:
            given += turn
            others = [cupy.full((512, 512), -1, dtype=cupy.float32) for _ in range(8)]
        launch()
        stream.synchronize()
        untouched = untouched and all(bool((other == -1).all()) for other in others)
        del others
    assert untouched, "the graph wrote into memory of other arrays"
    return _digest(result)


def _exhaust(cupy: Any) -> dict[str, Any]:
    try:
        cupy.empty(1 << 44, dtype=cupy.uint8)
    except Exception as raised:
        kind = type(raised)
        small = cupy.ones(1000).sum().item()   # and it goes on
        return {"type": f"{kind.__module__}.{kind.__qualname__}", "cause": type(raised.__cause__).__name__,
                "goes_on": small == 1000}
    return {"type": None}


def pairs(_: str) -> dict[str, Any]:
    """The time of `cupy.empty` and `del` in alternating rounds: CuPy's own pool, Cachette by C functions, and Cachette
    by functions of Python, as for versions of CuPy before 14.2."""
    import cupy

    import cachette.cupy

    cupy.empty(1)
    cupy.get_default_memory_pool().free_all_blocks()
    times: dict[str, dict[int, list[float]]] = {"cupy": {}, "cachette": {}, "cachette_python": {}}
    catches = cachette.cupy.CATCHES
    for _ in range(15):
        for name in times:
            cachette.cupy.disable()
            if name != "cupy":
                cachette.cupy.CATCHES = catches if name == "cachette" else (1000, 0)
                cachette.cupy.enable()
            for size in (512, 64 << 10, 4 << 20):
                times[name].setdefault(size, []).append(_pair(cupy, size))
    medians = {name: {size: round(statistics.median(of_size)) for size, of_size in of_name.items()}
               for name, of_name in times.items()}
    ratio = {size: round(medians["cachette"][size] / medians["cupy"][size], 3) for size in medians["cupy"]}
    return {"unit": "ns a pair", "medians": medians, "cachette_over_cupy": ratio}


def _pair(cupy: Any, size: int, turns: int = 20_000) -> float:
    empty, dtype = cupy.empty, cupy.dtype("uint8")
    for _ in range(1000):
        array = empty(size, dtype)
        del array
    begun = time.perf_counter_ns()
    for _ in range(turns):
        array = empty(size, dtype)
        del array
    return (time.perf_counter_ns() - begun) / turns


def together(allocator: str) -> dict[str, Any]:
    """PyTorch and CuPy in turns: what is held from the device, over what both use at once at most."""
    if allocator == "cachette":
        import cachette.torch

        cachette.torch.enable()
    import cupy
    import torch

    _enabled(allocator)
    torch.cuda.init()
    own, most_held, most_used = cupy.get_default_memory_pool(), 0, 0
    sizes = [3 * MIB, 40 * MIB, 7 * MIB, 130 * MIB, 21 * MIB, 64 * MIB, 300 * MIB, 11 * MIB]
    for turn in range(40):
        order = sizes[turn % len(sizes):] + sizes[:turn % len(sizes)]
        arrays: list[Any]
        if turn % 2:
            arrays = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in order]
        else:
            arrays = [cupy.empty(size, dtype=cupy.uint8) for size in order]
        held = torch.cuda.memory_reserved()
        if allocator != "cachette":
            held += own.total_bytes()
        most_held, most_used = max(most_held, held), max(most_used, sum(order))
        del arrays
    return {"held": most_held, "used": most_used, "held_over_used": round(most_held / most_used, 3)}


def exchange(_: str) -> dict[str, Any]:
    """Memory of Cachette through DLPack: PyTorch, CuPy and JAX see the same contents, in other streams too."""
    import cachette.torch

    cachette.torch.enable()
    import cupy
    import jax
    import numpy
    import torch

    _enabled("cachette")
    allocator = cachette.Allocator("cuda:0")
    stream = allocator.create_stream()
    n = 1 << 20
    wanted = numpy.arange(n, dtype=numpy.float32)
    seen = {}
    memory = allocator.allocate(4 * n, stream)
    torch.from_dlpack(memory.view("float32", (n,))).copy_(torch.arange(n, dtype=torch.float32))
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        seen["cachette to torch"] = torch.from_dlpack(memory.view("float32", (n,))).cpu().numpy()
    with cupy.cuda.Stream(non_blocking=True):   # which lives on, since it is CuPy's current one
        seen["cachette to cupy"] = cupy.asnumpy(cupy.from_dlpack(memory.view("float32", (n,))))
        seen["array interface to cupy"] = cupy.asnumpy(cupy.asarray(memory.view("float32", (n,))))
    seen["cachette to jax"] = numpy.asarray(jax.dlpack.from_dlpack(memory.view("float32", (n,))))
    tensor = torch.arange(n, dtype=torch.float32, device="cuda")
    array = cupy.from_dlpack(tensor)
    seen["torch to cupy"] = cupy.asnumpy(array)
    seen["cupy to torch"] = torch.from_dlpack(array + 0).cpu().numpy()
    seen["torch to jax"] = numpy.asarray(jax.dlpack.from_dlpack(tensor))
    made = jax.numpy.arange(n, dtype=jax.numpy.float32)
    seen["jax to torch"] = torch.from_dlpack(made).cpu().numpy()
    seen["jax to cupy"] = cupy.asnumpy(cupy.from_dlpack(made))
    equal = {name: bool(numpy.array_equal(contents, wanted)) for name, contents in seen.items()}
    memory.free()
    still = allocator.memory_stats()["allocation.all.current"]
    return {"equal": equal, "blocks_left": still}


def _enabled(allocator: str) -> Any:
    if allocator != "cachette":
        return None
    import cachette.cupy

    cachette.cupy.enable()
    return sys.modules["cachette"]


def _digest(*arrays: Any) -> str:
    import cupy

    digest = hashlib.sha256()
    for array in arrays:
        digest.update(cupy.asnumpy(array).tobytes())
    return digest.hexdigest()[:16]


# ---- Questions ----


def ask_results() -> dict[str, Any]:
    own, ours = _part("results", "cupy"), _part("results", "cachette")
    equal = {name: own["digests"][name] == ours["digests"][name] for name in own["digests"]}
    same_type = own["exhaustion"]["type"] == ours["exhaustion"]["type"] == "cupy.cuda.memory.OutOfMemoryError"
    return {"equal": equal, "exhaustion": {"cupy": own["exhaustion"], "cachette": ours["exhaustion"]},
            "ok": all(equal.values()) and same_type and ours["exhaustion"]["goes_on"]}


def ask_pairs() -> dict[str, Any]:
    timed = _part("pairs", "")
    return {**timed, "ok": all(ratio <= 1 for ratio in timed["cachette_over_cupy"].values())}


def ask_together() -> dict[str, Any]:
    two, one = _part("together", "cupy"), _part("together", "cachette")
    return {"two_caches": two, "one_cache": one, "ok": one["held_over_used"] <= 1.05}


def ask_exchange() -> dict[str, Any]:
    exchanged = _part("exchange", "")
    return {**exchanged, "ok": all(exchanged["equal"].values())}


QUESTIONS = {"cupy_results": ask_results, "cupy_pair": ask_pairs, "torch_and_cupy": ask_together,
             "dlpack": ask_exchange}
PARTS = {"results": results, "pairs": pairs, "together": together, "exchange": exchange}


def _part(name: str, allocator: str) -> Any:
    done = subprocess.run([sys.executable, __file__, "--part", name, allocator], capture_output=True, text=True,
                          timeout=400, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} {allocator}: " + "\n".join(done.stderr.strip().splitlines()[-6:]))
    return json.loads(done.stdout.strip().splitlines()[-1])


@contextlib.contextmanager
def _timed(answer: dict[str, Any]) -> Iterator[None]:
    begun = time.monotonic()
    yield
    answer["seconds"] = round(time.monotonic() - begun, 1)


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--part"]:
        print(json.dumps(PARTS[arguments[1]](arguments[2])))
        return 0
    failed = False
    for name in arguments or QUESTIONS:
        answer: dict[str, Any] = {"question": name}
        try:
            with _timed(answer):
                answer.update(QUESTIONS[name]())
        except Exception as raised:
            answer["error"] = str(raised)
        failed = failed or not answer.get("ok", False)
        print(json.dumps(answer), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
