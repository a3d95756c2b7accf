"""What `cachette_gpu.torch.enable` checks and does, with a stand-in for PyTorch."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Run

ENABLE = """
import cachette_gpu.torch
try:
    cachette_gpu.torch.enable({arguments})
except cachette_gpu.Error as why:
    print(type(why).__name__, "|", why)
    assert not cachette_gpu.torch.is_enabled()
"""


def attempt(run: Run, torch: str, arguments: str = "", **variables: str) -> str:
    return run(ENABLE.format(arguments=arguments), torch=torch, **variables).stdout


def test_without_pytorch_it_says_how_to_install_it(run: Run) -> None:
    program = "import sys; sys.modules['torch'] = None" + ENABLE.format(arguments="")
    assert "EnableError | PyTorch cannot be imported" in run(program).stdout
    assert "pip install torch" in run(program).stdout


@pytest.mark.parametrize(("torch", "arguments", "text"), [
    ("cpu", "", "EnableError | this PyTorch (2.11.0+stand.in) is for CPUs alone"),
    ("broken", "", "EnableError | PyTorch is installed, but cannot be imported (libcublas.so.13: cannot open"),
    ("older", "", "has no torch.cuda.memory.CUDAPluggableAllocator"),
    ("old", "", "has no torch._C._CUDAPluggableAllocator.set_release_pool"),
    ("initialised", "", "call cachette_gpu.torch.enable() before the first use of a GPU"),
    ("forked", "", "EnableError | this process was forked after its parent had used a GPU"),
    ("good", "'nonsense'", "ConfigError | "),
    ("refusing", "", "EnableError | PyTorch refuses another allocator (Can't swap an already initialized allocator)"),
    ("no-device", "", "EnableError | no GPU can be used: "),
])
def test_each_check_says_what_to_do(run: Run, torch: str, arguments: str, text: str) -> None:
    assert text in attempt(run, torch, arguments)


def test_the_checks_come_in_order(run: Run) -> None:
    assert "for CPUs alone" in attempt(run, "cpu", "'nonsense'")
    assert "CUDA is initialised" in attempt(run, "initialised", "'nonsense'")
    assert "ConfigError" in attempt(run, "no-device", "'nonsense'")


def test_without_the_class_it_is_plugged_in_and_a_line_says_why(run: Run) -> None:
    program = "import cachette_gpu.torch, torch; cachette_gpu.torch.enable({}); print(torch.recorded[-1][0])"
    done = run(program.format(""), torch="good")
    assert done.stdout == "change_current_allocator\n"
    assert done.stderr.startswith("cachette: plugged into PyTorch 2.11.0+stand.in without the compiled class: this "
                                  "PyTorch (2.11.0+stand.in) came without its headers; install")
    assert done.stderr.count("\n") == 1
    assert run(program.format("compiled=False"), torch="good").stderr == ""


def test_the_class_is_chosen_where_it_can_be_had(run: Run) -> None:
    done = run("""
import cachette_gpu.torch
from cachette_gpu.torch import _adapter
_adapter.load = lambda torch, again: "the class"
_adapter.install = lambda library: print("installed", library)
cachette_gpu.torch.enable()
""", torch="good")
    assert done.stdout == "installed the class\n"
    assert done.stderr == "cachette: in the place of PyTorch 2.11.0+stand.in's allocator, by the compiled class\n"


def test_a_mistake_in_the_environment_names_its_variable(run: Run) -> None:
    output = attempt(run, "good", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:no")
    assert "ConfigError | PYTORCH_CUDA_ALLOC_CONF: at byte 20" in output


def test_everything_is_set_before_the_allocator_is_changed(run: Run) -> None:
    run("""
import torch, cachette_gpu.torch
from cachette_gpu import _native
refusing = torch._C._cuda_hostMemoryStats
cachette_gpu.torch.enable("expandable_segments:False")
names = [it[0] for it in torch.recorded]
assert names == ["CUDAPluggableAllocator", *torch.NAMES, "change_current_allocator"] , names
_, path, alloc, free = torch.recorded[0]
addresses = _native.plugin.addresses()
assert (path, alloc, free) == (_native.__file__, addresses["cachette_torch_alloc"], addresses["cachette_torch_free"])
hooks = dict(it for it in torch.recorded if len(it) == 2)
assert hooks["set_record_stream_fn"] == addresses["cachette_torch_record_stream"]
assert len(set(hooks.values())) == 9
assert cachette_gpu.torch.is_enabled()
assert cachette_gpu.torch.config() == "expandable_segments:False"
assert torch._C._cuda_hostMemoryStats is refusing
""", torch="good")


def test_a_second_time_is_an_error(run: Run) -> None:
    run("""
import cachette_gpu.torch
cachette_gpu.torch.enable("never_block:True")
try:
    cachette_gpu.torch.enable()
except cachette_gpu.torch.EnableError as why:
    assert "enabled already, with the configuration 'never_block:True'" in str(why)
else:
    raise AssertionError
""", torch="good")


def test_a_refusal_of_pytorch_leaves_the_allocators_of_the_process_started(run: Run) -> None:
    run("""
import cachette_gpu.torch
def attempt(config):
    try:
        cachette_gpu.torch.enable(config, compiled=False)
    except cachette_gpu.torch.EnableError as why:
        return str(why)
    raise AssertionError
assert "PyTorch refuses another allocator" in attempt("never_block:True")
assert not cachette_gpu.torch.is_enabled() and cachette_gpu.torch.config() == "never_block:True"
# PyTorch would use them at once if it had not refused, so they come first.
assert "with the configuration 'never_block:True'; all libraries share it" in attempt("expandable_segments:False")
""", torch="refusing")


def test_the_functions_of_pytorch_answer(run: Run) -> None:
    run("""
import torch, cachette_gpu.torch
cachette_gpu.torch.enable()
nested = torch._C._cuda_memoryStats(0)
assert nested["allocated_bytes"]["all"] == {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
assert cachette_gpu.torch.memory_stats()["num_ooms"] == nested["num_ooms"] == 0
torch._C._cuda_resetPeakMemoryStats(0)
torch._C._cuda_resetAccumulatedMemoryStats(0)
torch._C._cuda_attach_out_of_memory_observer(lambda *figures: None)
assert torch._C._cuda_isHistoryEnabled() is False
assert not hasattr(torch._C, "_accelerator_getDeviceStats")
""", torch="good")


def test_nothing_of_pytorch_is_replaced_unless_wanted(run: Run) -> None:
    run("""
import torch, cachette_gpu.torch
before = dict(vars(torch._C))
cachette_gpu.torch.enable(replace=False)
assert vars(torch._C) == before
""", torch="good")


def test_rocm_uses_hip(run: Run) -> None:
    run("""
import cachette_gpu, cachette_gpu.torch
cachette_gpu.torch.enable()
try:
    free, total = cachette_gpu.torch.mem_get_info(0)
except cachette_gpu.Error as why:
    assert "'hip'" in str(why), why   # there is no such device here
else:
    assert 0 < free <= total
""", torch="rocm")


def test_before_it_is_enabled_there_are_no_figures(run: Run) -> None:
    run("""
import cachette_gpu.torch
assert not cachette_gpu.torch.is_enabled() and cachette_gpu.torch.config() is None
assert cachette_gpu.torch.memory_stats() == {} and cachette_gpu.torch.memory_allocated() == 0
assert cachette_gpu.torch.memory_summary() == "Cachette is not enabled.\\n"
cachette_gpu.torch.reset_peak_memory_stats()
cachette_gpu.torch.empty_cache()
""", torch="good")


def test_a_device_is_named_in_many_ways(run: Run) -> None:
    run("""
from types import SimpleNamespace as Device
from cachette_gpu.torch._device import index_of
second, current = Device(type="cuda", index=2), Device(type="cuda", index=None)
assert [index_of(it) for it in (None, 0, "cuda", "cuda:3", second, current)] == [0, 0, 0, 3, 2, 0]
for wrong, kind in ((-1, ValueError), ("cpu", ValueError), ("cuda:x", ValueError), (True, TypeError), (1.5, TypeError),
                    (Device(type="cpu", index=0), ValueError)):
    try:
        index_of(wrong)
    except kind:
        continue
    raise AssertionError(wrong)
""", torch="good")


@pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for the front needs a C compiler")
def test_behind_the_front_a_line_says_that_there_are_two_caches(run: Run, tmp_path: Path) -> None:
    front = tmp_path / "libfront.so"
    subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", front], input="int cachette_front_library(void) { return 1; }",
                   text=True, check=True)
    enable = ENABLE.format(arguments="compiled=False")
    behind = run(enable, torch="good", LD_PRELOAD=str(front)).stderr
    assert "behind `cachette run`, whose front has a second cache and limit" in behind
    assert "cachette run" not in run(enable, torch="good").stderr
