"""Tries the runner on a small folder of tests, with stand-ins for PyTorch and for Cachette."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

RUNNER = pathlib.Path(__file__).resolve().parent.parent / "upstream"

STAND_INS = {
    "torch/__init__.py": "from . import cuda\n",
    "torch/cuda.py": "import types\n"
                     "settings = []\n"
                     "memory = types.SimpleNamespace(_set_allocator_settings=settings.append)\n"
                     "def device_count(): return 1\n",
    "torch/testing/__init__.py": "",
    "torch/testing/_internal/__init__.py": "",
    "torch/testing/_internal/support.py": "known = True\n",
    "cachette_gpu/__init__.py": "",
    "cachette_gpu/torch.py": "kind = None\n"
                             "def is_enabled(): return kind is not None\n"
                             "def enable(config=None, *, compiled):\n"
                             "    global kind\n"
                             "    kind = 'class' if compiled else 'plugged'\n",
}

#: Outcomes by setting are in the names: each test that is named after a misfortune meets it on the class alone.
TESTS = {
    "test_some.py": '''
import os, signal, subprocess, sys, time, unittest
from torch.testing._internal.support import known, newer_name
import cachette_gpu.torch

on_class = cachette_gpu.torch.kind == "class"

class TestSome(unittest.TestCase):
    def test_passes(self): assert known
    def test_name_of_a_newer_version(self):
        with newer_name("argument"):
            assert not newer_name
    def test_fails_everywhere(self): assert False
    def test_fails_on_class(self): assert not on_class, "a message of this test"
    def test_hangs(self): time.sleep(3600 if on_class else 0)
    def test_aborts(self):
        if on_class: os.abort()
    def test_after_the_abort(self): pass
    def test_exits(self):
        if on_class: os._exit(0)
    def test_skips(self): self.skipTest("always")
    @unittest.expectedFailure
    def test_is_expected_to_fail(self): assert False
    def test_allocator_backend(self): assert not on_class
    def test_program_has_the_same_allocator(self):
        program = "import torch, cachette_gpu.torch; print(cachette_gpu.torch.kind)"
        found = subprocess.check_output([sys.executable, "-c", program], text=True)
        assert found.strip() == str(cachette_gpu.torch.kind)
    def test_left_out(self): assert False

def test_expandable_by_the_variable():
    expandable = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") == "expandable_segments:True"
    assert not (expandable and on_class)
''',
    "test_cuda.py": "class TestCudaOptims:\n    def test_one(self): pass\ndef test_kept(): pass\n",
    "test_lone.py": '''
import os, pathlib, time
place = pathlib.Path(os.environ["LONE"])

def test_needs_total_memory():
    place.mkdir()
    time.sleep(0.3)
    place.rmdir()
''',
    "test_first_try.py": '''
import os, pathlib
place = pathlib.Path(os.environ["LONE"]).with_name("first")

def test_passes_alone():
    tried = place.exists()
    place.touch()
    assert tried
''',
    "test_leftovers.py": '''
left = []

def test_fails():
    left.append("a tensor")
    assert False

def test_finds_nothing():
    assert not left

def test_finds_nothing_either():
    assert not left
''',
    "test_end.py": '''
import atexit, os
import cachette_gpu.torch

def test_crashes_when_the_process_ends():
    if cachette_gpu.torch.kind == "class": atexit.register(os.abort)
''',
    "test_broken.py": "import no_such_module\ndef test_never(): pass\n",
    "test_turned_expandable_segments.py": '''
import unittest
import torch

class TestTurned(unittest.TestCase):
    expandable_segments = False
    def test_turned(self):
        assert self.expandable_segments and torch.cuda.settings == ["expandable_segments:True"]
''',
}


@pytest.fixture
def upstream(tmp_path):
    """Runs the runner on the folder; its exit status, what it printed, and the outcomes that it kept."""
    for base, files in (("site", STAND_INS), ("test", TESTS)):
        for name, text in files.items():
            file = tmp_path / base / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def upstream(*options, files=("test_some.py",)):
        variables = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "LONE": str(tmp_path / "lone")}
        done = subprocess.run([sys.executable, "-B", RUNNER, tmp_path / "test", "--results", tmp_path / "results",
                               "--files", ",".join(files), *options],
                              env=variables, capture_output=True, text=True, timeout=300, check=False)
        kept = {file.stem: {test.rpartition("::")[2]: found["outcome"] for test, found in json.loads(
            file.read_text()).items()} for file in (tmp_path / "results").glob("*.json")}
        return done, kept

    return upstream


def test_a_run_goes_on_after_crashes_and_hangs(upstream):
    done, kept = upstream("--only", "native,class", "--deselect", "test_left_out", "--test-limit", "6")
    assert done.returncode == 1, done.stderr
    native, on_class = kept["native"], kept["class"]
    assert native == {**dict.fromkeys(native, "passed"), "test_fails_everywhere": "failed", "test_skips": "skipped",
                      "test_is_expected_to_fail": "xfailed"}
    assert on_class == {**native, "test_fails_on_class": "failed", "test_hangs": "timed out", "test_aborts": "crashed",
                        "test_exits": "crashed", "test_allocator_backend": "failed"}
    assert "test_left_out" not in native
    assert "a message of this test" in done.stdout
    assert "| `test_some.py::TestSome::test_aborts` | passed | crashed |" in done.stdout
    assert "test_fails_everywhere` |" not in done.stdout
    # Four count; the name of the allocator may differ.
    assert next(line for line in done.stdout.splitlines() if line.startswith("| class")).endswith("| 4 |")


def test_the_plan_leaves_tests_out(upstream):
    done, kept = upstream("--only", "native", files=("test_cuda.py",))
    assert done.returncode == 0, done.stderr
    assert kept["native"] == {"test_kept": "passed"}


def test_the_status_is_good_without_differences(upstream):
    done, kept = upstream("--only", "native,plugged", "-k", "passes or program or backend or everywhere")
    assert done.returncode == 0, done.stderr
    assert len(kept["plugged"]) == 4
    assert "No test differs." in done.stdout


def test_native_runs_can_be_only_what_failed(upstream):
    done, kept = upstream("--natively-what-failed", "-k", "passes or fails or expandable or skips")
    assert done.returncode == 1, done.stderr
    assert set(kept["native"]) == {"test_fails_everywhere", "test_fails_on_class", "test_skips"}
    assert set(kept["native-expandable"]) == set(kept["native"]) | {"test_expandable_by_the_variable"}
    assert kept["class"]["test_expandable_by_the_variable"] == "passed"
    assert kept["class-expandable"]["test_expandable_by_the_variable"] == "failed"


def test_kept_outcomes_serve_a_later_run(upstream):
    upstream("--only", "native,class", "-k", "passes or fails_on")
    done, _ = upstream("--only", "class", "--what-failed", "-k", "passes or fails_on")
    assert done.returncode == 1
    assert "class, test_some.py: 1 of 1" in done.stderr
    assert "native, " not in done.stderr


def test_tests_of_all_memory_run_alone(upstream):
    done, kept = upstream("--jobs", "5", files=("test_lone.py",))
    assert done.returncode == 0, done.stderr + done.stdout
    assert all(kept[setting] == {"test_needs_total_memory": "passed"} for setting in kept) and len(kept) == 5


def test_what_failed_beside_others_is_tried_alone(upstream):
    done, kept = upstream("--only", "class", files=("test_first_try.py",))
    assert done.returncode == 0, done.stderr
    assert kept["class"] == {"test_passes_alone": "passed"}


def test_what_a_failed_test_leaves_behind_fails_no_other(upstream):
    _, kept = upstream("--only", "class", files=("test_leftovers.py",))
    passed = {"test_finds_nothing": "passed", "test_finds_nothing_either": "passed"}
    assert kept["class"] == {"test_fails": "failed", **passed}


def test_a_crash_at_the_end_of_a_process_is_reported(upstream):
    done, kept = upstream("--only", "native,class", files=("test_end.py",))
    assert done.returncode == 1
    assert kept["class"] == {"test_crashes_when_the_process_ends": "passed", "end of the process": "crashed"}


def test_a_file_that_cannot_be_imported_is_reported(upstream):
    done, _ = upstream("--only", "class", files=("test_broken.py",))
    assert done.returncode == 2
    assert "no_such_module" in done.stderr


def test_a_file_for_expandable_segments_turns_them_on(upstream):
    done, kept = upstream("--only", "native,class", files=("test_turned_expandable_segments.py",))
    assert done.returncode == 0, done.stdout
    assert kept["class"] == {"test_turned": "passed"}


def test_a_run_ends_at_its_limit(upstream):
    done, kept = upstream("--only", "class", "-k", "hangs", "--limit", "5")
    # A slow machine does not even list the tests in time.
    assert done.returncode == 2, done.stderr
    assert not kept.get("class")
    assert "for want of time" in done.stdout


def test_files_that_are_not_listed_in_time_are_reported(upstream):
    done, _ = upstream("--only", "class", "--limit", "0")
    assert done.returncode == 2, done.stderr
    assert "0 tests and 1 files were not run for want of time" in done.stdout
    assert "No test ran." in done.stdout


def test_files_are_taken_out_of_git_with_their_imports(tmp_path):
    source = {"test/test_one.py": "from part.two import x\nimport json\n", "test/part/__init__.py": "",
              "test/part/two.py": "from . import three\nfrom tools.four import y\n", "test/part/three.py": "",
              "test/unused.py": "", "tools/__init__.py": "", "tools/four.py": ""}
    for name, text in source.items():
        file = tmp_path / "git" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    git = ["git", "-C", tmp_path / "git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "files"]):
        subprocess.run([*git, *arguments], check=True)
    subprocess.run([sys.executable, "-B", RUNNER, "--prepare", tmp_path / "git", tmp_path / "out", "--files",
                    "test_one.py"], check=True)
    written = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*.py")}
    assert written == set(source) - {"test/unused.py"}
