"""Settings that are changed while the program runs."""

import gpu
from gpu import MiB

pytestmark = gpu.MARKS


def test_a_setting_holds_for_the_next_request_and_is_reset() -> None:
    torch = gpu.enabled()
    for text, bytes_taken in (("roundup_power2_divisions:4", 96 * MiB), ("", 84 * MiB)):
        torch._C._accelerator_setAllocatorSettings(text)
        torch.cuda.empty_cache()
        before = torch.cuda.memory_stats()["active_bytes.all.allocated"]
        tensor = torch.empty(84 * MiB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_stats()["active_bytes.all.allocated"] - before == bytes_taken, text
        del tensor


def test_a_text_that_pytorch_refuses_raises_its_error() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    before = cachette_gpu.torch.config()
    with gpu.raises(ValueError, "foo"):
        torch._C._accelerator_setAllocatorSettings("foo:1,bar:2")
    assert cachette_gpu.torch.config() == before


if __name__ == "__main__":
    gpu.main(globals())
