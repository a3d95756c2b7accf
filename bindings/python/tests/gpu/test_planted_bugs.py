"""The sanitizer on a GPU: planted bugs are found, and their correct twins and other correct programs are not."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import gpu
from gpu import MiB

pytestmark = gpu.MARKS

Planted = Callable[[Any, Any, bool], None]


def sanitized(program: Callable[[Any, Any], None], **options: Any) -> list[str]:
    """The kinds of the findings in a program, which gets PyTorch and a side stream."""
    torch = gpu.enabled()
    import cachette_gpu.torch

    with cachette_gpu.torch.sanitize(**options) as sanitizer:
        program(torch, torch.cuda.Stream())
        torch.cuda.synchronize()
    for finding in sanitizer.findings:
        for step in finding["steps"]:
            assert step["lines"], f"a step without a line\n{sanitizer.text()}"
    return [finding["kind"] for finding in sanitizer.findings]


def planted(kind: str) -> Callable[[Planted], Callable[[], None]]:
    """A test that finds ``kind`` in a program with a bug, and nothing in the program without it.

    An elastic segment may move the chunk before its memory is reused, and that is then what is found.
    """
    kinds = {kind, "unmapped_too_early"} if kind == "reused_too_early" else {kind}

    def made(program: Planted) -> Callable[[], None]:
        def test() -> None:
            found = sanitized(lambda torch, side: program(torch, side, False))
            assert kinds.intersection(found), f"not found: {found}"
            found = sanitized(lambda torch, side: program(torch, side, True))
            assert not found, f"the correct program was reported: {found}"

        test.__name__ = program.__name__
        test.program = program  # type: ignore[attr-defined]
        return test

    return made


reused, host = planted("reused_too_early"), planted("host_access_too_early")


def ones(torch: Any) -> Any:
    return torch.ones(MiB, device="cuda")


def twos(torch: Any, size: int = MiB) -> Any:
    """The next request, which writes at once."""
    return torch.full((size,), 2.0, device="cuda")


def used(torch: Any, x: Any, side: Any) -> Any:
    """Reads a tensor on a side stream, after the current one."""
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        return x * 3


def read_and_reused(torch: Any, side: Any, before: Callable[[], Any] = lambda: None,
                    after: Callable[[Any], Any] = lambda x: None) -> None:
    """A side stream reads a tensor, which is freed, and the next request reuses its memory.

    The program does something before the read, and something with the tensor after it.
    """
    x = ones(torch)
    before()
    kept = used(torch, x, side)
    after(x)
    del x
    twos(torch)
    del kept


@reused
def test_a_missing_record_stream(torch: Any, side: Any, fixed: bool) -> None:
    read_and_reused(torch, side, after=lambda x: fixed and x.record_stream(side))


@reused
def test_a_wait_that_comes_after_the_free_and_the_next_use(torch: Any, side: Any, fixed: bool) -> None:
    x = ones(torch)
    kept = used(torch, x, side)
    if fixed:
        torch.cuda.current_stream().wait_stream(side)
    del x
    twos(torch)
    torch.cuda.current_stream().wait_stream(side)
    del kept


@reused
def test_an_event_recorded_too_early(torch: Any, side: Any, fixed: bool) -> None:
    event = torch.cuda.Event()

    def after(_: Any) -> None:
        if fixed:
            event.record(side)
        event.wait()

    read_and_reused(torch, side, lambda: fixed or event.record(side), after)


@reused
def test_an_event_waited_for_before_it_was_recorded(torch: Any, side: Any, fixed: bool) -> None:
    event = torch.cuda.Event()

    def after(_: Any) -> None:
        event.record(side)
        if fixed:
            event.wait()

    read_and_reused(torch, side, lambda: fixed or event.wait(), after)


@reused
def test_a_wait_stream_the_wrong_way_round(torch: Any, side: Any, fixed: bool) -> None:
    own = torch.cuda.current_stream()
    waiting, other = (own, side) if fixed else (side, own)
    read_and_reused(torch, side, after=lambda _: waiting.wait_stream(other))


@reused
def test_a_side_stream_kept_over_iterations(torch: Any, side: Any, fixed: bool) -> None:
    kept = []
    for _ in range(4):
        x = ones(torch)
        kept.append(used(torch, x, side))
        if fixed:
            x.record_stream(side)


@reused
def test_a_prefetched_batch_without_a_record(torch: Any, side: Any, fixed: bool) -> None:
    batches = [torch.full((MiB,), float(number)).pin_memory() for number in range(4)]
    total = torch.zeros((), device="cuda")
    for batch in batches:
        with torch.cuda.stream(side):
            loaded = batch.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        if fixed:
            loaded.record_stream(torch.cuda.current_stream())
        total += loaded.mean()
        del loaded


@reused
def test_a_late_write_into_the_memory_of_the_next_owner(torch: Any, side: Any, fixed: bool) -> None:
    x = ones(torch)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.fill_(7)
    if fixed:
        x.record_stream(side)
    del x
    twos(torch)


@reused
def test_a_record_of_another_stream(torch: Any, side: Any, fixed: bool) -> None:
    x, other = ones(torch), torch.cuda.Stream()
    kept = used(torch, x, side)
    x.record_stream(side if fixed else other)
    del x
    other.synchronize()
    twos(torch)
    del kept


@reused
def test_one_of_two_side_streams_is_not_recorded(torch: Any, side: Any, fixed: bool) -> None:
    x, other = ones(torch), torch.cuda.Stream()
    kept = used(torch, x, side), used(torch, x, other)
    x.record_stream(side)
    if fixed:
        x.record_stream(other)
    del x
    side.synchronize()
    twos(torch)
    del kept


@reused
def test_a_chain_of_waits_that_begins_too_early(torch: Any, side: Any, fixed: bool) -> None:
    other = torch.cuda.Stream()

    def after(_: Any) -> None:
        if fixed:
            other.wait_stream(side)
        torch.cuda.current_stream().wait_stream(other)

    read_and_reused(torch, side, lambda: fixed or other.wait_stream(side), after)


@reused
def test_a_synchronization_of_another_stream(torch: Any, side: Any, fixed: bool) -> None:
    stream = side if fixed else torch.cuda.current_stream()
    read_and_reused(torch, side, after=lambda _: stream.synchronize())


@reused
def test_a_synchronization_before_the_use(torch: Any, side: Any, fixed: bool) -> None:
    read_and_reused(torch, side, lambda: fixed or side.synchronize(), lambda _: fixed and side.synchronize())


@reused
def test_a_part_of_the_block_reused(torch: Any, side: Any, fixed: bool) -> None:
    x = torch.ones(8 * MiB, device="cuda")
    kept = used(torch, x, side)
    if fixed:
        x.record_stream(side)
    del x
    twos(torch, 3 * MiB)
    del kept


@reused
def test_a_block_reused_as_a_part_of_a_larger_one(torch: Any, side: Any, fixed: bool) -> None:
    x, z = ones(torch), ones(torch)
    kept = used(torch, z, side)
    if fixed:
        z.record_stream(side)
    del x, z
    kept = kept, twos(torch, 2 * MiB), twos(torch, MiB), twos(torch, MiB)
    del kept


@reused
def test_a_second_use_after_the_recorded_one(torch: Any, side: Any, fixed: bool) -> None:
    x, event = ones(torch), torch.cuda.Event()
    kept = [used(torch, x, side)]
    event.record(side)
    kept.append(used(torch, x, side))
    if fixed:
        event.record(side)
    event.wait()
    del x
    twos(torch)
    del kept


@reused
def test_an_event_recorded_again_elsewhere_before_the_wait(torch: Any, side: Any, fixed: bool) -> None:
    event, other = torch.cuda.Event(), torch.cuda.Stream()

    def after(_: Any) -> None:
        event.record(side)
        if not fixed:
            event.record(other)
        event.wait()

    read_and_reused(torch, side, after=after)


@reused
def test_a_side_stream_that_does_not_wait_for_the_owner(torch: Any, side: Any, fixed: bool) -> None:
    ones(torch)
    y = torch.empty(MiB, device="cuda")
    if fixed:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y.fill_(2)
    side.synchronize()


@reused
def test_a_free_on_another_thread(torch: Any, side: Any, fixed: bool) -> None:
    held = [ones(torch)]
    kept = used(torch, held[0], side)
    if fixed:
        held[0].record_stream(side)
    thread = threading.Thread(target=lambda: held.clear())  # noqa: PLW0108 - a line of the program frees it
    thread.start()
    thread.join()
    twos(torch)
    del kept


@reused
def test_a_view_used_on_a_side_stream(torch: Any, side: Any, fixed: bool) -> None:
    x = ones(torch)
    kept = used(torch, x.view(4, -1)[2], side)
    if fixed:
        x.record_stream(side)
    del x
    twos(torch)
    del kept


@reused
def test_a_use_by_a_thread_of_the_program(torch: Any, side: Any, fixed: bool) -> None:
    x, kept = ones(torch), []
    thread = threading.Thread(target=lambda: kept.append(used(torch, x, side)))
    thread.start()
    thread.join()
    if fixed:
        x.record_stream(side)
    del x, thread
    twos(torch)
    del kept


@reused
def test_a_custom_operator(torch: Any, side: Any, fixed: bool) -> None:
    scale = custom_operator(torch)
    x = ones(torch)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        kept = scale(x)
    if fixed:
        x.record_stream(side)
    del x
    twos(torch)
    del kept


def custom_operator(torch: Any) -> Any:
    if not hasattr(torch.ops.cachette_test, "scale"):
        @torch.library.custom_op("cachette_test::scale", mutates_args=())
        def scale(x: torch.Tensor) -> torch.Tensor:
            return x * 3

        globals()["_kept_operator"] = scale
    return torch.ops.cachette_test.scale


@reused
def test_a_graph_that_still_runs_when_its_input_is_freed(torch: Any, side: Any, fixed: bool) -> None:
    x = ones(torch)
    graph, kept = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        kept.append(x * 3)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        graph.replay()
    if fixed:
        x.record_stream(side)
    del x
    twos(torch)


@planted("used_after_free")
def test_a_graph_replayed_after_its_input_was_freed(torch: Any, side: Any, fixed: bool) -> None:
    x = ones(torch)
    graph, kept = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        kept.append(x * 3)
    if not fixed:
        del x
    graph.replay()


@host
def test_a_pinned_buffer_filled_again_while_it_is_copied(torch: Any, side: Any, fixed: bool) -> None:
    buffer = torch.ones(MiB).pin_memory()
    x = buffer.to("cuda", non_blocking=True)
    if fixed:
        torch.cuda.current_stream().synchronize()
    buffer.fill_(2)
    del x


@host
def test_a_copy_read_before_it_has_ended(torch: Any, side: Any, fixed: bool) -> None:
    y = ones(torch).to("cpu", non_blocking=True)
    if fixed:
        torch.cuda.current_stream().synchronize()
    y.sum()


@host
def test_a_copy_read_by_numpy_before_it_has_ended(torch: Any, side: Any, fixed: bool) -> None:
    y = ones(torch).to("cpu", non_blocking=True)
    if fixed:
        event = torch.cuda.Event()
        event.record()
        while not event.query():
            pass
    y.numpy()


def test_memory_of_a_sleeping_pool_is_refused_before_it_is_used() -> None:
    gpu.run("""
import torch, cachette_gpu.torch
with cachette_gpu.torch.sanitize(raise_on_finding=True):
    pool = cachette_gpu.torch.Pool()
    with pool:
        x = torch.ones(1 << 20, device="cuda")
    pool.sleep()
    try:
        x.sum()
    except cachette_gpu.torch.SanitizerError as why:
        assert "while its pool was asleep" in str(why), why
    else:
        raise AssertionError("it was not found")
    pool.wake()
    assert float(x.sum()) == 1 << 20
""", "expandable_segments:True")


def test_reads_before_writes_are_found_on_request() -> None:
    assert sanitized(lambda torch, side: torch.empty(MiB, device="cuda").sum(), reads_before_writes=True) == [
        "read_before_written"]
    assert not sanitized(lambda torch, side: ones(torch).sum(), reads_before_writes=True)


# Correct programs.


def test_a_training_loop_with_a_prefetcher_has_no_finding() -> None:
    def program(torch: Any, side: Any) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        batches = [torch.randn(512, 256).pin_memory() for _ in range(12)]

        def load(batch: Any) -> Any:
            with torch.cuda.stream(side):
                return batch.to("cuda", non_blocking=True)

        ahead = load(batches[0])
        for number in range(len(batches)):
            torch.cuda.current_stream().wait_stream(side)
            batch = ahead
            batch.record_stream(torch.cuda.current_stream())
            if number + 1 < len(batches):
                ahead = load(batches[number + 1])
            loss = (model(batch) - batch).square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        loss.item()

    assert not sanitized(program)


def test_a_forward_pass_on_two_streams_has_no_finding() -> None:
    def program(torch: Any, side: Any) -> None:
        weight = torch.randn(1024, 1024, device="cuda", requires_grad=True)
        for _ in range(5):
            x = torch.randn(512, 1024, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                left = x @ weight
            right = x @ weight
            torch.cuda.current_stream().wait_stream(side)
            left.record_stream(torch.cuda.current_stream())
            x.record_stream(side)
            (left * right).mean().backward()
            weight.grad = None

    assert not sanitized(program)


def test_threads_with_separate_streams_have_no_finding() -> None:
    def program(torch: Any, side: Any) -> None:
        def work(number: int) -> None:
            with torch.cuda.stream(torch.cuda.Stream()):
                for turn in range(50):
                    memory = torch.full((1 + turn * 7919 % MiB,), float(number), device="cuda")
                    assert float(memory[-1]) == number

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert not sanitized(program)


def test_graphed_callables_have_no_finding() -> None:
    def program(torch: Any, side: Any) -> None:
        model = torch.nn.Linear(256, 256).cuda()
        x = torch.randn(64, 256, device="cuda", requires_grad=True)
        graphed = torch.cuda.make_graphed_callables(model, (x,))
        for _ in range(5):
            graphed(torch.randn(64, 256, device="cuda", requires_grad=True)).sum().backward()

    assert not sanitized(program)


def test_streams_made_outside_are_said_and_not_followed() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    with cachette_gpu.torch.sanitize() as sanitizer:
        outside = torch.cuda.ExternalStream(torch.cuda.Stream().cuda_stream)
        with torch.cuda.stream(outside):
            ones(torch)
        torch.cuda.synchronize()
    assert "streams that were made outside of PyTorch" in sanitizer.text()


def test_the_process_is_sanitized_by_a_variable() -> None:
    program = f"""
import cachette_gpu.torch
cachette_gpu.torch.enable({gpu.CONFIG!r}, compiled={gpu.COMPILED})
import torch
side = torch.cuda.Stream()
x = torch.ones(1 << 20, device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    y = x * 3
del x
z = torch.zeros(1 << 20, device="cuda")
"""
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "CACHETTE_SANITIZE": "1"},
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "memory was reused while another stream could still use it" in done.stderr
    assert "cachette sanitizer: 1 finding\n" in done.stderr, done.stderr


if __name__ == "__main__":
    gpu.main(globals())
