"""Streams and threads: memory is not reused before its uses have ended."""

import threading

import gpu
from gpu import MiB

pytestmark = gpu.MARKS

#: About a tenth of a second of a GPU's cycles.
LONG = 150_000_000


def test_e2_recorded_memory_waits_for_its_stream() -> None:
    torch = gpu.enabled()
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    memory = torch.ones(2 * MiB, device="cuda")
    address = memory.data_ptr()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        result = memory.clone()
    memory.record_stream(side)
    del memory
    early = torch.zeros(2 * MiB, device="cuda")
    assert early.data_ptr() != address
    torch.cuda.synchronize()
    assert bool((result == 1).all())
    del early
    late = [torch.empty(2 * MiB, device="cuda") for _ in range(2)]
    assert address in [it.data_ptr() for it in late]


def test_e1_a_view_protects_its_base() -> None:
    torch = gpu.enabled()
    side = torch.cuda.Stream()
    base = torch.arange(2 * MiB, dtype=torch.float32, device="cuda")
    view = base[MiB:]
    address = base.data_ptr()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        result = view.clone()
    view.record_stream(side)
    del base, view
    assert torch.empty(2 * MiB, device="cuda").data_ptr() != address
    torch.cuda.synchronize()
    assert float(result[0]) == float(MiB)


def test_prefetching_through_a_second_stream_keeps_contents() -> None:
    torch = gpu.enabled()
    copies = torch.cuda.Stream()
    batches = [torch.full((MiB,), float(number)).pin_memory() for number in range(40)]
    total = torch.zeros((), dtype=torch.float64, device="cuda")

    def load(number: int) -> "torch.Tensor":
        with torch.cuda.stream(copies):
            return batches[number].to("cuda", non_blocking=True)

    ahead = load(0)
    for number in range(len(batches)):
        torch.cuda.current_stream().wait_stream(copies)
        batch = ahead
        batch.record_stream(torch.cuda.current_stream())
        if number + 1 < len(batches):
            ahead = load(number + 1)
        total += batch.double().mean()
    assert float(total) == sum(range(len(batches)))


def test_memory_may_be_freed_by_another_thread() -> None:
    torch = gpu.enabled()
    before = torch.cuda.memory_allocated()
    held = [torch.ones(MiB, device="cuda") for _ in range(8)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert torch.cuda.memory_allocated() == before


def test_threads_with_streams_of_their_own_do_not_meet() -> None:
    torch = gpu.enabled()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                kept = torch.full((1000 + number,), float(number), device="cuda")
                for turn in range(300):
                    size = 1 + (turn * 7919 * (number + 1)) % (2 * MiB)
                    memory = torch.full((size,), float(turn), device="cuda")
                    assert float(memory[-1]) == turn
                assert bool((kept == number).all())
        except BaseException as why:  # noqa: BLE001 - a thread cannot raise elsewhere
            failures.append(why)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_backward_runs_on_a_thread_of_its_own() -> None:
    torch = gpu.enabled()
    weight = torch.randn(512, 512, device="cuda", requires_grad=True)
    for _ in range(5):
        (weight @ weight).sum().backward()
    assert torch.isfinite(weight.grad).all()


if __name__ == "__main__":
    gpu.main(globals())
