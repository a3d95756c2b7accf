"""The compiled class: what PyTorch asks its own allocator alone works as well."""

import tempfile

import gpu

pytestmark = gpu.MARKS


def run(program: str, **variables: str) -> str:
    return gpu.run("import torch\nMiB = 1 << 20\n" + program, compiled=True, **variables)


def test_pytorch_knows_it_by_name_and_counts_by_itself() -> None:
    run("""
assert torch.cuda.get_allocator_backend() == "cachette"
held = torch.empty(8 * MiB, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_allocated() == 8 * MiB == torch.accelerator.memory_allocated()
assert torch.cuda.memory_stats()["allocation.all.current"] == 1
del held
assert torch.cuda.memory_allocated() == 0 and torch.cuda.max_memory_allocated() == 8 * MiB
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == 0
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()
""")


def test_a_request_that_is_too_large_raises_pytorchs_own_error() -> None:
    run("""
seen = []
torch._C._cuda_attach_out_of_memory_observer(lambda *figures: seen.append(figures))
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as why:
    assert "CUDA out of memory. Tried to allocate" in str(why), why
else:
    raise AssertionError
assert len(seen) == 1 and seen[0][0] == 0, seen
assert float(torch.ones(4, device="cuda").sum()) == 4
""")


def test_memory_pools_of_pytorch_hold_their_tensors() -> None:
    run("""
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    inside = torch.full((MiB,), 7.0, device="cuda")
outside = torch.full((MiB,), 8.0, device="cuda")
segments = pool.snapshot()
held = [(it["address"], it["address"] + it["total_size"]) for it in segments]
assert any(start <= inside.data_ptr() < end for start, end in held), held
assert not any(start <= outside.data_ptr() < end for start, end in held), held
assert pool.use_count() == 1, pool.use_count()
assert float(inside.sum()) == 7 * MiB
before = torch.cuda.memory_reserved()
del inside, pool
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() < before
""")


def test_compiled_graphs_save_and_restore_their_pool() -> None:
    run("""
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).cuda()
compiled = torch.compile(model, mode="reduce-overhead")
with torch.no_grad():
    for size in (32, 64, 32, 64, 16, 32):
        for turn in range(4):
            data = torch.randn(size, 256, device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            first = compiled(data).clone()
            torch.testing.assert_close(first, model(data), rtol=1e-2, atol=1e-2)
            chained = compiled(compiled(data))
            torch.testing.assert_close(chained, model(model(data)), rtol=1e-2, atol=1e-2)
print("cudagraphs", torch._dynamo.utils.counters["inductor"]["cudagraph_skips"])
assert torch._dynamo.utils.counters["inductor"]["cudagraph_skips"] == 0
""")


def test_compiled_training_with_graphs_learns_as_without() -> None:
    run("""
def losses(mode):
    torch.manual_seed(2)
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.GELU(), torch.nn.Linear(128, 1)).cuda()
    step = torch.compile(model, mode=mode) if mode else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = []
    for turn in range(12):
        torch.manual_seed(turn)
        loss = step(torch.randn(64, 128, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(float(loss))
    return seen
plain, graphs = losses(None), losses("reduce-overhead")
assert all(abs(one - other) < 1e-3 for one, other in zip(plain, graphs)), (plain, graphs)
""")


def test_tensors_go_to_other_processes() -> None:
    run("""
import os, pathlib, subprocess, sys, tempfile
program = '''
import sys
import cachette_gpu.torch
cachette_gpu.torch.enable({config!r}, compiled=True)
import torch
import torch.multiprocessing as processes

def work(inbox, outbox):
    tensor = inbox.get()
    tensor.mul_(2)
    torch.cuda.synchronize()
    outbox.put(float(tensor.sum()))
    del tensor
    inbox.get()

if __name__ == "__main__":
    context = processes.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    worker = context.Process(target=work, args=(inbox, outbox))
    worker.start()
    tensor = torch.full((1 << 20,), 3.0, device="cuda")
    inbox.put(tensor)
    assert outbox.get(timeout=120) == 6 << 20
    assert float(tensor.sum()) == 6 << 20
    inbox.put(None)
    worker.join(60)
    assert worker.exitcode == 0, worker.exitcode
    print("shared")
'''
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "shares.py"
    path.write_text(program.format(config=%r))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and "shared" in done.stdout, done.stdout + done.stderr
""" % gpu.CONFIG)


def test_cudnn_may_try_out_algorithms() -> None:
    run("""
torch.backends.cudnn.benchmark = True
layer = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
data = torch.randn(8, 16, 64, 64, device="cuda")
result = layer(data)
torch.backends.cudnn.benchmark = False
torch.testing.assert_close(result, layer(data), rtol=1e-2, atol=1e-2)
""")


def test_profiles_tell_of_memory() -> None:
    run("""
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as profiled:
    held = torch.empty(4 * MiB, dtype=torch.uint8, device="cuda")
    del held
usage = [it.device_memory_usage for it in profiled.key_averages() if it.key == "aten::empty"]
assert usage and usage[0] == 4 * MiB, usage
""")


def test_snapshots_of_pytorch_itself_show_what_is_held() -> None:
    run("""
import torch.cuda.memory as memory
held = torch.empty(6 * MiB, dtype=torch.uint8, device="cuda")
memory._record_memory_history()
other = torch.empty(3 * MiB, dtype=torch.uint8, device="cuda")
taken = memory._snapshot()
active = [block for it in taken["segments"] for block in it["blocks"] if block["state"] == "active_allocated"]
assert {6 * MiB, 3 * MiB} <= {it["requested_size"] for it in active}, active
assert any(it["action"] == "alloc" and it["size"] == 3 * MiB for it in taken["device_traces"][0])
""")


def test_annotations_of_pytorch_are_in_its_history() -> None:
    run("""
import torch.cuda.memory as memory
memory._record_memory_history(stacks="python")
with torch.profiler.record_function("a step"):
    held = torch.empty(3 * MiB, dtype=torch.uint8, device="cuda")
taken = memory._snapshot()
names = [it["name"] for it in taken["external_annotations"]]
assert "a step" in names, names
memory._record_memory_history(enabled=None)
""")


def test_histories_have_frames_of_forward_passes_and_torchscript() -> None:
    run("""
import torch.cuda.memory as memory
memory._record_memory_history(stacks="python")
x = torch.randn(10, 10, device="cuda", requires_grad=True)
with torch.autograd.detect_anomaly(check_nan=False):
    (x * 2).sum().backward()
scripted = torch.jit.CompilationUnit("def scripted(x: Tensor):\\n    return x + 1\\n").scripted
y = scripted(x.detach())
taken = memory._snapshot()
lines = [line for it in taken["device_traces"][0] for line in it.get("forward_frames", [])]
assert lines and all(isinstance(line, str) and line.endswith("\\n") for line in lines), lines
blocks = {block["address"]: block for it in taken["segments"] for block in it["blocks"]}
assert blocks[y.data_ptr()]["frames"][0]["name"].endswith("scripted"), blocks[y.data_ptr()]
memory._record_memory_history(enabled=None)
""")


def test_caching_can_be_switched_off() -> None:
    run("""
torch.cuda.init()
torch.cuda.memory.caching_allocator_enable(False)
memory = torch.ones(MiB, device="cuda")
assert float(memory.sum()) == MiB
del memory
assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()
torch.cuda.memory.caching_allocator_enable(True)
memory = torch.ones(MiB, device="cuda")
assert torch.cuda.memory_reserved() > 0
""")


def test_views_protect_their_base_on_other_streams() -> None:
    run("""
side = torch.cuda.Stream()
memory = torch.ones(2 * MiB, device="cuda")
address = memory.data_ptr()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    torch.cuda._sleep(150_000_000)
    result = memory.clone()
memory.record_stream(side)
del memory
assert torch.zeros(2 * MiB, device="cuda").data_ptr() != address
torch.cuda.synchronize()
assert bool((result == 1).all())
""")


def test_without_a_compiler_nothing_has_changed() -> None:
    with tempfile.TemporaryDirectory() as empty:
        gpu.run("""
import contextlib, io
import cachette_gpu.torch
try:
    cachette_gpu.torch.enable(compiled=True)
except cachette_gpu.torch.EnableError as why:
    assert "no C++ compiler" in str(why) and "enable(compiled=False)" in str(why), why
else:
    raise AssertionError
import torch
assert torch.cuda.get_allocator_backend() == "native"
with contextlib.redirect_stderr(io.StringIO()) as said:
    cachette_gpu.torch.enable()
assert torch.cuda.get_allocator_backend() == "pluggable"
assert "without the compiled class: there is no C++ compiler" in said.getvalue()
""", None, CXX="no-such-compiler", CACHETTE_CACHE=empty)


def test_the_class_is_chosen_where_it_can_be_compiled() -> None:
    gpu.run("""
import contextlib, io
import cachette_gpu.torch, torch
with contextlib.redirect_stderr(io.StringIO()) as said:
    cachette_gpu.torch.enable()
assert "by the compiled class" in said.getvalue(), said.getvalue()
assert torch.cuda.get_allocator_backend() == "cachette"
memory = torch.zeros(1, device="cuda")
assert cachette_gpu.torch.memory_allocated() > 0
""", None)


if __name__ == "__main__":
    gpu.main(globals())
