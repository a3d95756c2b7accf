"""`cachette_gpu.memory_saver`: every call of docs/memory_saver.md, behind a stand-in for PyTorch, on the host device."""

from __future__ import annotations

from pathlib import Path

from conftest import Run

MODE = """
import ctypes, os, sys, threading, types
import torch
from cachette_gpu import _native
_native.plugin.start("host", "expandable_segments:True")
import cachette_gpu, cachette_gpu.torch
from cachette_gpu.torch import _adapter
_adapter.load = lambda torch, again: "the class"
_adapter.install = lambda library: None
MiB = 1 << 20
"""

PRELUDE = MODE + """
from cachette_gpu.memory_saver import torch_memory_saver as saver

class Tensor:
    '''Memory of PyTorch's allocator, which this thread requests.'''
    is_cuda, dtype = True, "float32"

    def __init__(self, byte, size=4 * MiB):
        addresses = _native.plugin.addresses()
        alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(
            addresses["cachette_torch_alloc"])
        self.at, self.nbytes, self.shape = alloc(size, 0, None), size, (size // 4,)
        self.fill(byte)

    def fill(self, byte):
        self.byte = byte
        ctypes.memset(self.at, byte, self.nbytes)

    def data_ptr(self):
        return self.at

    def is_contiguous(self):
        return self.nbytes > 0

    def holds(self, byte):
        return ctypes.string_at(self.at, self.nbytes) == bytes([byte]) * self.nbytes

def free(*tensors):
    freeing = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(
        _native.plugin.addresses()["cachette_torch_free"])
    for tensor in tensors:
        freeing(tensor.at, tensor.nbytes, 0, None)

def reserved():
    cachette_gpu.torch.empty_cache()
    return cachette_gpu.torch.memory_reserved(0)

def fails(kind, text, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as why:
        assert text in str(why), why
    else:
        raise AssertionError(f"no {kind.__name__}")

def entered(*arguments, **named):
    with saver.region(*arguments, **named):
        pass
"""


def attempt(run: Run, text: str, **variables: str) -> None:
    run(PRELUDE + text, torch="good", CACHETTE_HOST_CAPACITY=str(1 << 30), **variables)


def test_regions_pause_and_resume_by_tag(run: Run) -> None:
    attempt(run, """
assert saver.enabled
with saver.region("weights", enable_cpu_backup=True, cpu_backup_backend="pinned"):
    weights = Tensor(1)
    with saver.region("cache"):
        cache = Tensor(2)      # the inner region has it
    more = Tensor(3)
with saver.region():
    default = Tensor(4)
outside = Tensor(5)
before = reserved()
assert before == 20 * MiB
slept = saver.pause("cache")
assert (slept["released"], slept["saved"]) == (4 * MiB, 0) and reserved() == 16 * MiB
assert weights.holds(1) and more.holds(3)
slept = saver.pause("weights")
assert (slept["released"], slept["saved"]) == (8 * MiB, 8 * MiB) and reserved() == 8 * MiB
assert saver.pause("weights")["released"] == 0 and saver.pause("none")["released"] == 0   # nothing is left of either
assert default.holds(4)
slept = saver.pause()
assert slept["released"] == 4 * MiB and reserved() == 4 * MiB and outside.holds(5)
assert sum(slept["left"]["by_label"].values()) == 4 * MiB and slept["left"]["outside"] == 0
saver.resume("cache")
assert reserved() == 8 * MiB
cache.fill(6)
saver.resume()
saver.resume()
assert reserved() == before and cache.holds(6) and weights.holds(1) and more.holds(3) and outside.holds(5)
""")


def test_one_tag_may_keep_some_contents_and_a_paused_region_takes_new_memory(run: Run) -> None:
    attempt(run, """
with saver.region("both", enable_cpu_backup=True):
    kept = Tensor(1)
with saver.region("both"):
    lost = Tensor(2)
for cycle in range(3):
    slept = saver.pause("both")
    assert slept["saved"] == kept.nbytes and slept["released"] == 8 * MiB, slept
    with saver.region("both", enable_cpu_backup=True):
        new = Tensor(3, 2 * MiB)
    with saver.region("both", enable_cpu_backup=True):
        other = Tensor(7, 2 * MiB)
    assert reserved() == 4 * MiB and saver.get_cpu_backup(new) is None
    saver.resume("both")
    lost.fill(4)
    assert kept.holds(1) and new.holds(3) and other.holds(7) and lost.holds(4)
    free(new, other)
assert len(saver._regions[("both", 1)].pools) <= 3, "a pause leaves no pool behind"
# Another thread is in no region.
with saver.region("thread"):
    found = []
    thread = threading.Thread(target=lambda: found.append(Tensor(8)))
    thread.start(); thread.join()
assert saver.pause("thread")["released"] == 0 and found[0].holds(8)
""")


def test_kept_contents_can_be_read(run: Run) -> None:
    attempt(run, """
with saver.region("weights", enable_cpu_backup=True):
    one, two = Tensor(1), Tensor(2)
with saver.region("lost"):
    lost = Tensor(3)
assert saver.get_cpu_backup(one) is None
saver.pause()
for zero_copy in (False, True):
    copy = saver.get_cpu_backup(two, zero_copy=zero_copy)
    assert copy.bytes == bytes([2]) * two.nbytes and copy.viewed == ("uint8", "float32", two.shape)
assert saver.get_cpu_backup(lost) is None
host = types.SimpleNamespace(is_cuda=False)
fails(ValueError, "pass one of those", saver.get_cpu_backup, host)
strided = types.SimpleNamespace(is_cuda=True, is_contiguous=lambda: False)
fails(ValueError, "pass one of those", saver.get_cpu_backup, strided)
saver.resume()
assert one.holds(1) and two.holds(2)
""")


def test_contents_go_to_files_and_a_cut_file_wakes_nothing(run: Run, tmp_path: Path) -> None:
    attempt(run, """
folder = os.path.join(os.environ["TMP_PATH"], "made", "here")
fails(ValueError, "call set_disk_backup_dir() first", entered, enable_disk_backup=True)
saver.set_disk_backup_dir(folder)
with saver.region("weights", enable_disk_backup=True):
    weights = Tensor(1)
with saver.region("cache", enable_cpu_backup=True):
    cache = Tensor(2)

def file():
    paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return next(path for path in paths if os.path.exists(path) and os.readlink(path).startswith(folder))

for cycle in range(2):
    slept = saver.pause()
    assert slept["saved"] == 8 * MiB and os.listdir(folder) == [] and os.stat(file()).st_size >= 4 * MiB
    assert saver.get_cpu_backup(weights).bytes == bytes([1]) * weights.nbytes
    saver.resume()
    assert weights.holds(1) and cache.holds(2)
saver.pause()
path = file()
with open(path, "rb") as opened:
    whole = opened.read()
os.truncate(path, len(whole) - 1)
for tag in ("weights", None):
    fails(cachette_gpu.PoolError, "file", saver.resume, tag)
fails(cachette_gpu.PoolError, "file", saver.get_cpu_backup, weights)
saver.resume("cache")
assert cache.holds(2)
with open(path, "r+b") as opened:
    opened.write(whole)
saver.resume()
assert weights.holds(1)
os.rmdir(folder)     # before the next pause: there is no place for contents, and they stay on the host
fails(cachette_gpu.PoolError, "file", saver.pause, "weights")
saver.resume()
assert weights.holds(1)
""", TMP_PATH=str(tmp_path))
    attempt(run, """
with saver.region(enable_disk_backup=True):
    weights = Tensor(1)
saver.pause(); saver.resume()
assert weights.holds(1)
""", TMS_DISK_BACKUP_DIR=str(tmp_path))


def test_graphs_have_pools_of_a_tag(run: Run) -> None:
    attempt(run, """
graph = torch.cuda.CUDAGraph()
with saver.cuda_graph(graph, tag="graph", enable_cpu_backup=True, stream="one", capture_error_mode="relaxed"):
    pass
kind, options = torch.recorded[-1]
assert kind == "graph" and options["stream"] == "one" and options["capture_error_mode"] == "relaxed"
# The same pool again is the region's own, and is counted once.
with saver.cuda_graph(graph, pool=options["pool"], tag="graph", enable_cpu_backup=True):
    pass
given = cachette_gpu.torch.Pool()
with given:
    inside = Tensor(1)
with saver.cuda_graph(graph, pool=given, tag="given", enable_cpu_backup=True):
    pass
with saver.cuda_graph(graph, pool=given.id, tag="given", enable_cpu_backup=True):
    pass
slept = saver.pause("given")
assert slept["released"] == slept["saved"] == 4 * MiB and given.is_asleep
with saver.region("given", enable_cpu_backup=True):      # a tag that only a graph had
    beside = Tensor(2)
saver.resume()
assert inside.holds(1) and beside.holds(2) and not given.is_asleep
# A graph whose pool is of the region: the pool pauses as long as the graph may use it, though nothing is allocated there.
with saver.region("own", enable_cpu_backup=True):
    scratch = Tensor(3)
with saver.cuda_graph(graph, tag="own", enable_cpu_backup=True):
    identifier = torch.recorded[-1][1]["pool"]
user = _native.Allocator.shared(0).open_pool(identifier)     # as PyTorch's graph
free(scratch)
saver.pause("own")
with saver.region("own", enable_cpu_backup=True):
    new = Tensor(4)
assert user.is_asleep
saver.resume("own")
assert not user.is_asleep and new.holds(4)
# Pools end with their graphs.
free(inside, new, beside)
identifier = given.id
given.release()
assert saver.pause("given")["saved"] == 0
fails(cachette_gpu.PoolError, "pool", _native.Allocator.shared(0).open_pool, identifier)
""")


def test_memory_outside_all_regions_and_of_the_whole_process(run: Run) -> None:
    text = """
everywhere = Tensor(1)
with saver.region("tag"):
    with saver.disable():
        inside = Tensor(2)
    tagged = Tensor(3)
slept = saver.pause()
assert slept["released"] == RELEASED * MiB and slept["saved"] == SAVED * MiB, slept
assert inside.holds(2)
saver.resume()
if SAVED:
    assert everywhere.holds(1)
with saver.disable():
    scratch = Tensor(4, 32 * MiB)
    held = reserved()
    free(scratch)
assert cachette_gpu.torch.memory_reserved(0) == held - 32 * MiB, "what is unused at the end goes to the device"
"""
    for variables, released, saved in (({}, 4, 0), ({"TMS_INIT_ENABLE": "1"}, 8, 0),
                                       ({"TMS_INIT_ENABLE": "1", "TMS_INIT_ENABLE_CPU_BACKUP": "1"}, 8, 4)):
        attempt(run, text.replace("RELEASED", str(released)).replace("SAVED", str(saved)), **variables)


def test_settings_and_wrong_calls(run: Run) -> None:
    attempt(run, """
fails(ValueError, "set one of", entered, enable_cpu_backup=True, enable_disk_backup=True)
fails(ValueError, "requires enable_cpu_backup=True", entered, cpu_backup_backend="pinned")
assert saver.hook_mode == "torch"
for mode in ("preload", "torch"):
    saver.hook_mode = mode
fails(ValueError, "no hook mode", setattr, saver, "hook_mode", "other")
saver.retain_cpu_backup = False
assert saver.retain_cpu_backup is False
fails(NotImplementedError, "copy what is needed", setattr, saver, "retain_cpu_backup", True)
fails(cachette_gpu.Error, "use NCCL 2.29.7 or later", setattr, saver, "suspends_nccl", True)
assert saver.suspends_nccl is False
assert saver.memory_margin_bytes == 0
saver.memory_margin_bytes = 1 << 28
assert saver.memory_margin_bytes == 1 << 28 and cachette_gpu.torch.get_per_process_memory_fraction() == 0.75
from cachette_gpu.memory_saver import configure_subprocess
with configure_subprocess():
    pass
""")


def test_a_wake_that_lacks_memory_can_be_repeated(run: Run) -> None:
    attempt(run, """
with saver.region("weights", enable_cpu_backup=True):
    weights = Tensor(1, 64 * MiB)
saver.pause()
saver.memory_margin_bytes = (1 << 30) - 32 * MiB
fails(cachette_gpu.Error, "memory", saver.resume)
copy = saver.get_cpu_backup(weights)
assert copy.bytes[-1] == 1
saver.memory_margin_bytes = 0
saver.resume()
assert weights.holds(1)
""")


def test_communicators_are_suspended_all_or_none(run: Run) -> None:
    attempt(run, """
from cachette_gpu import memory_saver

class Group:
    def __init__(self, pointer):
        self.pointer = pointer

    def _get_backend(self, device):
        if self.pointer is None:
            raise RuntimeError("no backend for this device")
        return types.SimpleNamespace(_comm_ptr=lambda: self.pointer)

groups = [Group(1), Group(2), Group(2), Group(None), Group(0)]
torch.distributed = types.SimpleNamespace(
    is_available=lambda: True, is_initialized=lambda: True,
    distributed_c10d=types.SimpleNamespace(_world=types.SimpleNamespace(pg_map=groups)))
calls, refused = [], set()

def nccl(name):
    def call(communicator, *arguments):
        calls.append((name, communicator.value, *arguments))
        return int((name, communicator.value) in refused)
    return call

memory_saver._nccl = nccl
saver.suspends_nccl = True
saver.pause("some tag")
assert calls == []
saver.pause(); saver.pause()
assert calls == [("ncclCommSuspend", 1, 1), ("ncclCommSuspend", 2, 1)]
refused.add(("ncclCommResume", 1))
calls.clear()
fails(cachette_gpu.Error, "ncclCommResume failed with status 1", saver.resume)
refused.clear()
saver.resume(); saver.resume()
assert calls == [("ncclCommResume", 2), ("ncclCommResume", 1), ("ncclCommResume", 1)]
refused.add(("ncclCommSuspend", 2))
calls.clear()
fails(cachette_gpu.Error, "ncclCommSuspend failed with status 1", saver.pause)
assert calls[-1] == ("ncclCommResume", 1)
refused.clear()
saver.pause(); saver.resume()
assert calls[-1] == ("ncclCommResume", 1)
""")


def test_libraries_find_the_module_by_its_name(run: Run) -> None:
    attempt(run, """
from cachette_gpu.memory_saver import install
install(); install()
import torch_memory_saver
assert torch_memory_saver.torch_memory_saver is saver
sys.modules["torch_memory_saver"] = types.ModuleType("torch_memory_saver")
fails(cachette_gpu.Error, "call install() before the libraries that import it", install)
""")


def test_cuda_must_not_be_initialised_before_the_import(run: Run) -> None:
    run(MODE + """
from cachette_gpu.memory_saver import torch_memory_saver as saver
assert not saver.enabled
for call in (lambda: saver.region("tag").__enter__(), lambda: saver.disable().__enter__()):
    try:
        call()
    except cachette_gpu.EnableError as why:
        assert "import cachette_gpu.memory_saver" in str(why)
    else:
        raise AssertionError
""", torch="initialised")
