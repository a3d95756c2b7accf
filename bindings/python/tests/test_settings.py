"""PyTorch's settings, from its variables and while the program runs, with a stand-in for PyTorch."""

from __future__ import annotations

import pytest
from conftest import Run

ENABLE = """
import warnings, torch, cachette_gpu, cachette_gpu.torch
warnings.simplefilter("always")
"""


@pytest.mark.parametrize("torch", ["good", "silent"])
def test_settings_reach_cachette_by_either_function(run: Run, torch: str) -> None:
    run(ENABLE + """
cachette_gpu.torch.enable("expandable_segments:False")
torch.cuda.memory._set_allocator_settings("roundup_power2_divisions:4,max_split_size_mb:64")
assert cachette_gpu.torch.config().startswith("max_split_size_mb:64,roundup_power2_divisions:")
torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
assert cachette_gpu.torch.config() == ""
assert torch._settings.text == "expandable_segments:True"
""", torch=torch)


def test_a_text_that_pytorch_refuses_raises_its_error(run: Run) -> None:
    run(ENABLE + """
cachette_gpu.torch.enable()
try:
    torch.cuda.memory._set_allocator_settings("foo:1,bar:2")
except ValueError as why:
    assert type(why) is ValueError and "Unrecognized key 'foo'" in str(why)
else:
    raise AssertionError
assert cachette_gpu.torch.config() == ""
""", torch="good")


def test_a_text_that_cachette_refuses_says_where(run: Run) -> None:
    run(ENABLE + """
cachette_gpu.torch.enable()
try:
    torch.cuda.memory._set_allocator_settings("expandable_segments:False,max_split_size_mb:2")
except cachette_gpu.ConfigError as why:
    assert "at byte 44: max_split_size_mb: '2' is not allowed; use a whole number of MiB" in str(why), why
else:
    raise AssertionError
assert cachette_gpu.torch.config() == ""
""", torch="good")


def test_with_the_class_pytorch_hands_on_what_cachette_refuses(run: Run) -> None:
    run("""
import cachette_gpu
from cachette_gpu.torch import _settings
texts = []
def from_cpp(text):
    texts.append(text)
    if text:
        raise ValueError(text)
change = _settings.raise_ours(from_cpp)
change("")
for text, kind, wanted in (("Cachette: at byte 0: no", cachette_gpu.ConfigError, "at byte 0: no"),
                           ("Unrecognized key", ValueError, "Unrecognized key")):
    try:
        change(text)
    except ValueError as why:
        assert type(why) is kind and str(why) == wanted
    else:
        raise AssertionError
assert len(texts) == 3
""")


def test_a_key_that_pytorch_alone_has_gives_one_warning(run: Run) -> None:
    run(ENABLE + """
cachette_gpu.torch.enable()
with warnings.catch_warnings(record=True) as seen:
    torch._C._accelerator_setAllocatorSettings("future_key:3,expandable_segments:False")
only, = seen
assert only.category is UserWarning and only.filename == "<string>", only
assert "goes on without this setting of PyTorch: at byte 0: there is no key 'future_key'" in str(only.message)
assert cachette_gpu.torch.config() == "expandable_segments:False"
""", torch="good")


def test_a_warning_comes_at_the_start_as_well(run: Run) -> None:
    done = run(ENABLE + """
cachette_gpu.torch.enable()
assert cachette_gpu.torch.config() == "max_split_size_mb:64"
""", torch="good", PYTORCH_ALLOC_CONF="future_key:3,expandable_segments_reserve_by_class:[a:1G],max_split_size_mb:64")
    assert done.stderr.count("UserWarning: Cachette goes on without this setting") == 1
    assert "PYTORCH_ALLOC_CONF: at byte 0: there is no key 'future_key'" in done.stderr


@pytest.mark.parametrize(("value", "config"), [
    ("0.0", "per_process_memory_fraction:0"), ("0.5", "per_process_memory_fraction:0.5"), ("1.0", "")])
def test_m15_pytorchs_variable_sets_the_fraction(run: Run, value: str, config: str) -> None:
    text = f"per_process_memory_fraction:{value}"
    run(ENABLE + f"cachette_gpu.torch.enable(); found = cachette_gpu.torch.config(); assert found == {config!r}, found",
        torch="good", PYTORCH_CUDA_ALLOC_CONF=text, PYTORCH_ALLOC_CONF="per_process_memory_fraction:0.75")


@pytest.mark.parametrize("torch", ["good", "silent"])
@pytest.mark.parametrize("arguments", ["", "'expandable_segments:True'"])
def test_what_pytorch_refuses_at_the_start_names_its_variable(run: Run, torch: str, arguments: str) -> None:
    done = run(f"import cachette_gpu.torch; cachette_gpu.torch.enable({arguments})", torch=torch, fails=True,
               PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:-0.1")
    assert "ConfigError: PYTORCH_CUDA_ALLOC_CONF: PyTorch refuses it: per_process_memory_fraction is invalid" in done.stderr


def test_settings_made_before_enable_hold_after_it(run: Run) -> None:
    for text, config in (("", "max_split_size_mb:64,expandable_segments:False"), ("'never_block:True'", "never_block:True")):
        run(ENABLE + f"""
torch.cuda.memory._set_allocator_settings("max_split_size_mb:64")
cachette_gpu.torch.enable({text})
assert cachette_gpu.torch.config() == {config!r}, cachette_gpu.torch.config()
assert torch._C._accelerator_getAllocatorSettings() == "max_split_size_mb:64"
""", torch="good", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False")


def test_settings_stay_pytorchs_where_nothing_is_replaced(run: Run) -> None:
    run(ENABLE + """
cachette_gpu.torch.enable(replace=False)
torch.cuda.memory._set_allocator_settings("max_split_size_mb:64")
assert cachette_gpu.torch.config() == ""
""", torch="good")
