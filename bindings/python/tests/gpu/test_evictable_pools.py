"""Evictable pools and registered memory on a GPU."""

import gpu

pytestmark = gpu.MARKS

ELASTIC = "expandable_segments:True"


def test_layers_of_twice_the_limit_take_turns_and_keep_their_weights() -> None:
    gpu.run("""
import torch, cachette_gpu.torch
torch.manual_seed(0)
layers = []
for number in range(8):
    pool = cachette_gpu.torch.Pool(priority=number % 2)
    with pool:
        layer = torch.nn.Linear(4096, 4096, device="cuda")
    layers.append((pool, layer, layer.weight.detach().cpu()))
assert any(pool.is_asleep for pool, _, _ in layers)
batch = torch.randn(16, 4096, device="cuda")
for _ in range(3):
    for pool, layer, weight in layers:
        with pool.make_resident(), torch.no_grad():
            batch = torch.tanh(layer(batch))
            assert torch.equal(layer.weight.cpu(), weight)
assert torch.cuda.memory_reserved() <= 256 << 20
""", ELASTIC + ",memory_limit:256MiB")


#: Programs that keep a registration compare the buffer's id, which changes with the memory behind an address.
IDENTITY = """
import ctypes, torch, cachette_gpu, cachette_gpu.torch
cuda = ctypes.CDLL("libcuda.so.1")
def identity(tensor):
    value = ctypes.c_ulonglong()
    status = cuda.cuPointerGetAttribute(ctypes.byref(value), 7, ctypes.c_ulonglong(tensor.data_ptr()))
    assert status == 0, status
    return value.value
allocator = cachette_gpu.Allocator.shared(0)
"""


def test_a_registration_goes_stale_by_sleep_and_a_registered_pool_refuses_that() -> None:
    gpu.run(IDENTITY + """
plain, registered = cachette_gpu.torch.Pool(), cachette_gpu.torch.Pool(registered=True)
with plain:
    one = torch.ones(8 << 20, device="cuda")
with registered:
    other = torch.ones(8 << 20, device="cuda")
before = [identity(one), identity(other)]
plain.sleep(); plain.wake()
assert identity(one) != before[0], "another buffer is at the address: a registration of it is stale"
assert not allocator.is_stable(one.data_ptr()) and allocator.is_stable(other.data_ptr())
try:
    registered.sleep()
except cachette_gpu.PoolError as why:
    assert "before_sleep" in str(why)
else:
    raise AssertionError("a registered pool fell asleep")
assert identity(other) == before[1]
# Nor does freed memory leave it.
address = other.data_ptr()
del other
torch.cuda.empty_cache()
torch.ones(1 << 30, dtype=torch.uint8, device="cuda")
with registered:
    again = torch.ones(8 << 20, device="cuda")
assert again.data_ptr() == address and identity(again) == before[1]
""", ELASTIC)


def test_a_callback_ends_registrations_before_sleep() -> None:
    gpu.run(IDENTITY + """
ended = []
pool = cachette_gpu.torch.Pool(registered=True, before_sleep=ended.append)
with pool:
    tensor = torch.full((8 << 20,), 3.0, device="cuda")
pool.sleep()
assert ended == [pool.id]
pool.wake()
assert bool((tensor == 3).all())
""", ELASTIC)


if __name__ == "__main__":
    gpu.main(globals())
