"""Graphs: their memory comes from pools that stay put."""

import gc

import gpu
from gpu import MiB

pytestmark = gpu.MARKS


def test_p12_a_graph_computes_what_it_captured() -> None:
    torch = gpu.enabled()
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)).cuda()
    given = torch.randn(64, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        model(given)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        result = model(given)
    for _ in range(3):
        given.copy_(torch.randn(64, 512, device="cuda"))
        graph.replay()
        with torch.no_grad():
            expected = model(given)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def test_p12_memory_of_a_graph_serves_nobody_else() -> None:
    torch = gpu.enabled()
    given = torch.ones(4 * MiB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        between = given * 2
        result = between + 1
        del between
    torch.cuda.empty_cache()
    others = [torch.full((4 * MiB,), float(-number), device="cuda") for number in range(8)]
    given.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((result == 11).all())
    for number, other in enumerate(others):
        assert bool((other == -number).all()), f"tensor {number} was overwritten"


def test_p6_memory_of_a_graph_goes_back_with_it() -> None:
    torch = gpu.enabled()
    # Libraries keep workspaces of their own, so that nothing but plain kernels is captured here.
    before = torch.cuda.memory_reserved()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = torch.ones(64 * MiB, dtype=torch.uint8, device="cuda") + 1
    assert torch.cuda.memory_reserved() >= before + 64 * MiB
    graph.replay()
    torch.cuda.synchronize()
    del result
    graph.reset()
    del graph
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + 2 * MiB


def test_p12_graphs_share_a_pool() -> None:
    torch = gpu.enabled()
    given = torch.zeros(MiB, device="cuda")
    pool = torch.cuda.graph_pool_handle()
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first, pool=pool):
        one = given + 1
    with torch.cuda.graph(second, pool=pool):
        two = one * 10
    for value in (3.0, 7.0):
        given.fill_(value)
        first.replay()
        second.replay()
        torch.cuda.synchronize()
        assert float(two[0]) == (value + 1) * 10


def test_p12_a_stream_that_joins_allocates_from_the_pool() -> None:
    torch = gpu.enabled()
    given = torch.ones(MiB, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            aside = given * 3
        torch.cuda.current_stream().wait_stream(side)
        result = aside + given
        aside.record_stream(torch.cuda.current_stream())
        del aside
    given.fill_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((result == 8).all())


def test_p12_a_hundred_captures_leave_nothing_behind() -> None:
    torch = gpu.enabled()

    def capture() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = torch.ones(MiB, device="cuda") * 2
        graph.replay()
        torch.cuda.synchronize()
        assert float(result[7]) == 2

    capture()
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    for _ in range(100):
        capture()
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + 4 * MiB


def test_p12_a_tensor_is_made_again_at_its_address() -> None:
    torch = gpu.enabled()
    if not gpu.COMPILED or not hasattr(torch.UntypedStorage, "_resize_with_addr_"):
        return
    tensor = torch.full((MiB,), 5.0, device="cuda")
    storage, address = tensor.untyped_storage(), tensor.data_ptr()
    storage.resize_(0)
    storage._resize_with_addr_(4 * MiB, address)
    assert storage.data_ptr() == address and bool((tensor == 5).all())
    other = torch.empty(0, device="cuda").untyped_storage()
    with gpu.raises(RuntimeError, "are in use; free them before"):
        other._resize_with_addr_(4 * MiB, address)


def test_p12_graphed_callables_train() -> None:
    torch = gpu.enabled()
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128)).cuda()
    sample = torch.randn(32, 128, device="cuda", requires_grad=True)
    given = torch.randn(32, 128, device="cuda")
    plain(given).square().mean().backward()
    expected = [it.grad.clone() for it in plain.parameters()]
    for parameter in plain.parameters():
        parameter.grad = None
    graphed = torch.cuda.make_graphed_callables(plain, (sample,))
    graphed(given.requires_grad_()).square().mean().backward()
    for parameter, gradient in zip(plain.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5)


if __name__ == "__main__":
    gpu.main(globals())
