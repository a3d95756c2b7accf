"""A graph of PyTorch whose memory another process has at the same addresses, and that it launches without a capture."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import gpu

pytestmark = gpu.MARKS

#: The most milliseconds of a restore.
BOUND = 50

#: Captures a graph of copies and fills, whose nodes are plain values, and saves its nodes and addresses.
SAVE = """
import ctypes, json, torch
path = {path!r}
size = {mib} << 18
cuda = ctypes.CDLL("libcuda.so.1")
def check(status):
    assert status == 0, status

def zero(tensor):
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    check(cuda.cuMemsetD8Async(ctypes.c_uint64(tensor.data_ptr()), 0, ctypes.c_size_t(tensor.nbytes), stream))

graph = torch.cuda.CUDAGraph(keep_graph=True)
with torch.cuda.graph(graph):
    source = torch.empty(size, device="cuda")
    middle, result, zeros = torch.empty_like(source), torch.empty_like(source), torch.empty_like(source)
    middle.copy_(source)
    zero(zeros)
    result[: size // 2].copy_(middle[: size // 2])
    result[size // 2 :].copy_(zeros[size // 2 :])
    del middle
source.fill_(3)
graph.replay()
torch.cuda.synchronize()
assert float(result[0]) == 3 and float(result[-1]) == 0

raw, count = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t()
check(cuda.cuGraphGetNodes(raw, None, ctypes.byref(count)))
found = (ctypes.c_void_p * count.value)()
check(cuda.cuGraphGetNodes(raw, found, ctypes.byref(count)))
nodes = []
for node in found:
    kind, values = ctypes.c_int(), ctypes.create_string_buffer(256)
    check(cuda.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
    ask = {{1: cuda.cuGraphMemcpyNodeGetParams, 2: cuda.cuGraphMemsetNodeGetParams}}[kind.value]
    check(ask(ctypes.c_void_p(node), values))
    nodes.append((kind.value, values.raw.hex()))
cachette_gpu.torch.save_addresses(graph, path)
places = {{"source": source.data_ptr(), "result": result.data_ptr()}}
with open(path + ".json", "w") as file:
    json.dump({{"nodes": nodes, "places": places, "size": size}}, file)
print(json.dumps(places))
"""

#: Restores the memory, builds the graph of its nodes, and launches it.
RESTORE = """
import ctypes, json, time, torch
path = {path!r}
with open(path + ".json") as file:
    saved = json.load(file)
torch.cuda.init()
cachette_gpu.torch.memory_reserved()
begun = time.perf_counter()
pool, tensors = cachette_gpu.torch.restore_addresses(path)
restored = 1000 * (time.perf_counter() - begun)
size, places = saved["size"], saved["places"]
source, result = (tensors[places[name]].view(torch.float32)[:size] for name in ("source", "result"))
assert source.data_ptr() == places["source"] and result.data_ptr() == places["result"]
other = torch.full((size,), 9.0, device="cuda")
source.fill_(5)
result.fill_(7)

cuda = ctypes.CDLL("libcuda.so.1")
def check(status):
    assert status == 0, status
context, graph, node, launched = (ctypes.c_void_p() for _ in range(4))
check(cuda.cuCtxGetCurrent(ctypes.byref(context)))
check(cuda.cuGraphCreate(ctypes.byref(graph), 0))
for kind, values in saved["nodes"]:
    add = {{1: cuda.cuGraphAddMemcpyNode, 2: cuda.cuGraphAddMemsetNode}}[kind]
    before = ctypes.c_void_p(node.value)
    check(add(ctypes.byref(node), graph, ctypes.byref(before) if before else None, ctypes.c_size_t(bool(before)),
              ctypes.create_string_buffer(bytes.fromhex(values)), context))
check(cuda.cuGraphInstantiateWithFlags(ctypes.byref(launched), graph, ctypes.c_ulonglong(0)))
check(cuda.cuGraphLaunch(launched, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))
torch.cuda.synchronize()
assert bool((result[: size // 2] == 5).all()) and bool((result[size // 2 :] == 0).all())
assert bool((other == 9).all()), "the graph wrote memory of another tensor"
again = torch.cuda.CUDAGraph()
with torch.cuda.graph(again, pool=pool.id):
    result.copy_(source * 2 + 1)
again.replay()
torch.cuda.synchronize()
assert bool((result == 11).all())
print(json.dumps({{"milliseconds": restored, "reserved": pool.stats()["reserved_bytes"]}}))
"""

#: Takes the addresses before the restore.
LATE = """
import json, torch
path = {path!r}
with open(path) as file:
    segments = [line.split() for line in file if line.startswith("segment ")]
import ctypes
cuda, taken = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
torch.cuda.init()
cachette_gpu.torch.memory_reserved()
base, bytes = int(segments[0][1], 16), int(segments[0][2])
status = cuda.cuMemAddressReserve(ctypes.byref(taken), ctypes.c_size_t(bytes), ctypes.c_size_t(0),
                                  ctypes.c_uint64(base), ctypes.c_ulonglong(0))
assert status == 0 and taken.value == base, (status, hex(taken.value))
reserved = torch.cuda.memory_reserved()
try:
    cachette_gpu.torch.restore_addresses(path)
except cachette_gpu.Error as why:
    print(why)
assert torch.cuda.memory_reserved() == reserved
assert float(torch.ones(1000, device="cuda").sum()) == 1000
"""


def test_a_graph_runs_in_a_new_process_without_a_capture() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for mib in (16, 512):
            path = str(Path(folder) / f"graph-{mib}")
            gpu.run(SAVE.format(path=path, mib=mib))
            for _ in range(3):
                figures = json.loads(gpu.run(RESTORE.format(path=path, mib=mib)))
                print(f"{figures['reserved'] >> 20} MiB restored in {figures['milliseconds']:.2f} ms")
                assert figures["milliseconds"] <= BOUND


def test_a_taken_address_names_what_has_it_and_the_program_goes_on() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "graph")
        gpu.run(SAVE.format(path=path, mib=16))
        said = gpu.run(LATE.format(path=path))
        assert "are taken by " in said and "restore before anything else allocates" in said, said


def test_pytorch_s_serializer_works_on_the_class() -> None:
    torch = gpu.enabled()
    if not gpu.COMPILED or not hasattr(torch.cuda, "_graph_serialization"):
        return
    program = "import torch\nfrom torch.cuda import _graph_kernel_capture\n_graph_kernel_capture.start()\n"
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "graph.pt")
        gpu.run(program + f"""
graph = torch.cuda.CUDAGraph(keep_graph=True)
source = torch.full((1 << 20,), 2.0, device="cuda")
with torch.cuda.graph(graph):
    result = source * 3 + 1
torch.cuda._graph_serialization.save(graph, {path!r}, tensors={{"source": source, "result": result}})
""")
        gpu.run(f"""
import torch
graph, tensors = torch.cuda._graph_serialization.load({path!r})
tensors["source"].fill_(5)
graph.replay()
torch.cuda.synchronize()
assert bool((tensors["result"] == 16).all())
""")


if __name__ == "__main__":
    gpu.main(globals())
