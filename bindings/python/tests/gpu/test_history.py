"""Histories and snapshots: PyTorch's own functions record, and PyTorch's own tools read what they give."""

import pathlib
import pickle
import tempfile

import gpu
from gpu import MiB

pytestmark = gpu.MARKS


def train(torch, steps=3):
    """A small training; its last batch stays allocated."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        batch = torch.randn(64 + 32 * step, 256, device="cuda")
        loss = torch.nn.functional.mse_loss(model(batch), batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    return model, batch


def plain(text):
    """In the place of PyTorch's drawing of flame graphs, which wants to download a program."""
    return str(text)


def test_h2_a_training_is_recorded_and_read_by_pytorchs_tools() -> None:
    torch = gpu.enabled()
    from torch.cuda import _memory_viz

    torch.cuda.memory._record_memory_history(max_entries=100_000)
    try:
        held = train(torch)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "snapshot.pickle"
            torch.cuda.memory._dump_snapshot(str(path))
            taken = pickle.loads(path.read_bytes())
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    device = torch.cuda.current_device()
    actions = {event["action"] for event in taken["device_traces"][device]}
    assert {"alloc", "free_requested", "free_completed"} <= actions, actions
    live = {block["address"] for segment in taken["segments"] for block in segment["blocks"]
            if block["state"] == "active_allocated"}
    assert held[1].data_ptr() in live
    assert sum(segment["allocated_size"] for segment in taken["segments"]) >= held[1].numel() * 4
    assert "active_allocated" in _memory_viz.segments(taken, format_flamegraph=plain)
    assert _memory_viz.memory(taken, format_flamegraph=plain)
    for page in (_memory_viz.trace_plot(taken), _memory_viz.segment_plot(taken)):
        assert "<script" in page
    assert "TOTAL MEM" in _memory_viz.trace(taken)
    assert _memory_viz.segsum(taken)


def test_h1_native_callers_are_known_whoever_has_the_interpreter() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    cachette_gpu.torch.record_memory_history(stacks="all")
    try:
        memory = torch.empty(3 * MiB, dtype=torch.uint8, device="cuda")
        frames = cachette_gpu.torch.allocation_traceback(memory.data_ptr())
    finally:
        cachette_gpu.torch.record_memory_history(None)
    assert frames and all(set(frame) == {"name", "filename", "line"} for frame in frames)


def test_h1_frees_by_python_have_their_callers() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    def let_go(held):
        held.clear()

    cachette_gpu.torch.record_memory_history(stacks="python", clear_history=True)
    try:
        let_go([torch.empty(3 * MiB, dtype=torch.uint8, device="cuda")])
        (trace, *_) = [trace for trace in cachette_gpu.torch.snapshot()["device_traces"] if trace]
    finally:
        cachette_gpu.torch.record_memory_history(None)
    (freed,) = [event for event in trace if event["action"] == "free_requested" and event["size"] == 3 * MiB]
    assert any(frame["name"].endswith("let_go") for frame in freed["frames"]), freed


def test_h13_events_carry_what_the_program_says() -> None:
    torch = gpu.enabled()
    torch.cuda.memory._record_memory_history()
    try:
        torch.cuda.memory._set_memory_metadata("forward")
        assert torch.cuda.memory._get_memory_metadata() == "forward"
        memory = torch.empty(5 * MiB, dtype=torch.uint8, device="cuda")
        torch.cuda.memory._set_memory_metadata("")
        taken = torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    events = [event for trace in taken["device_traces"] for event in trace]
    (found,) = [it for it in events if it["action"] == "alloc" and it["addr"] == memory.data_ptr()]
    assert found["user_metadata"] == "forward"


def test_h2_bad_arguments_are_pytorchs_errors() -> None:
    torch = gpu.enabled()
    with gpu.raises(RuntimeError, "expected state to be 'state', 'all', or None"):
        torch.cuda.memory._record_memory_history("some")
    with gpu.raises(RuntimeError, "Unknown TraceEntry action: some"):
        torch.cuda.memory._record_memory_history(skip_actions=["some"])
    assert torch._C._cuda_isHistoryEnabled() == gpu.HISTORY


def test_h11_segments_of_one_pool() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    pool = cachette_gpu.torch.Pool()
    with pool:
        memory = torch.empty(4 * MiB, dtype=torch.uint8, device="cuda")
    segments = torch.cuda.memory_snapshot(pool.id)
    addresses = {block["address"] for segment in segments for block in segment["blocks"]}
    assert memory.data_ptr() in addresses
    assert len(segments) < len(torch.cuda.memory_snapshot())
    del memory
    pool.release()


def test_m19_an_exhausted_device_leaves_a_report() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    total = torch.cuda.mem_get_info()[1]
    with gpu.raises(torch.OutOfMemoryError):
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    report = cachette_gpu.torch.last_out_of_memory()
    assert report["requested"] == 2 * total and report["hints"]
    assert "tried to allocate" in report["report"]
    assert f'device="{torch.cuda.current_device()}"' in cachette_gpu.torch.metrics()


if __name__ == "__main__":
    gpu.main(globals())
