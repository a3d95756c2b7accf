"""Runs each program natively and on Cachette, and tells whether the losses are equal bit by bit.

    python3 benches/torch/programs --jobs 4 --json programs.json

The native run comes first and is repeated: where it differs from itself, equal losses prove nothing, and the table says
so. The exit status is 1 if a program fails on Cachette, or has other losses than natively.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

#: The programs, and the ranks that `torchrun` starts; without any, Python runs the program itself.
PROGRAMS = {"ddp_gloo": 2, "fsdp_nccl": 1, "nccl_pool": 1, "loader": 0, "compiled_default": 0, "compiled_graphs": 0,
            "lightning_trainer": 0, "hugging_face_trainer": 0}
#: The settings, and the allocators of `measured.py` that they are.
SETTINGS = {"native": "native", "native again": "native", "plugged": "cachette:expandable_segments:False",
            "class": "compiled:expandable_segments:False", "class-expandable": "compiled:expandable_segments:True"}
#: PyTorch refuses these with a plugged-in allocator.
REFUSED = {("nccl_pool", "plugged"), ("compiled_graphs", "plugged")}


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="benches/torch/programs", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="only this one; may be repeated")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent,
                        help="where the programs are")
    parser.add_argument("--jobs", type=int, default=1, help="programs side by side (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=180, metavar="SECONDS", help="for one run")
    parser.add_argument("--limit", type=float, default=3600, metavar="SECONDS", help="for everything")
    parser.add_argument("--json", type=pathlib.Path, help="a file for the losses and failures")
    parser.add_argument("rest", nargs="*", help="after --, options for the programs, such as --device cpu")
    return parser.parse_args()


class Runs:
    """The losses of each program in each setting, or why there are none."""

    def __init__(self, options):
        self.options, self.found = options, {}
        self.keeping = threading.Lock()
        self.deadline = time.monotonic() + options.limit

    def all(self):
        """Runs everything; native runs come first, so that the others find compiled kernels."""
        programs = self.options.program or list(PROGRAMS)
        first, *others = SETTINGS
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(lambda program: self.one(program, first), programs))
            rest = [(program, setting) for setting in others for program in programs]
            list(pool.map(lambda run: self.one(*run), rest))
        return programs

    def one(self, program, setting):
        """Runs a program once."""
        if (program, setting) in REFUSED:
            return
        limit = min(self.options.timeout, self.deadline - time.monotonic())
        found = run(self.command(program, setting), limit) if limit > 0 else {"failure": "no time was left"}
        print(f"{program}, {setting}: {found.get('failure', 'ran')}", file=sys.stderr, flush=True)
        with self.keeping:
            self.found[program, setting] = found
            if self.options.json:
                kept = {", ".join(name): run for name, run in self.found.items()}
                self.options.json.write_text(json.dumps(kept, indent=1))

    def command(self, program, setting):
        """The command line of one run."""
        launcher = [sys.executable]
        if PROGRAMS[program]:
            # The name of a machine without a network may have no address.
            launcher += ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
                         "--nproc-per-node", str(PROGRAMS[program])]
        return [*launcher, str(self.options.folder / f"{program}.py"), "--allocator", SETTINGS[setting],
                *self.options.rest]

    def verdict(self, program, setting):
        """How a run compares to the native one."""
        if (program, setting) in REFUSED:
            return "refused by PyTorch"
        native, mine = self.found[program, "native"], self.found[program, setting]
        if "failure" in mine:
            return "failed"
        if "failure" in native:
            return "ran"
        return "equal" if mine["losses"] == native["losses"] else "UNEQUAL"

    def is_good(self, program, setting):
        """Whether a run on Cachette is as it should be; what fails or changes natively proves nothing."""
        verdict = self.verdict(program, setting)
        if verdict == "failed":
            return "failure" in self.found[program, "native"]
        return verdict != "UNEQUAL" or self.verdict(program, "native again") != "equal"


def run(command, limit):
    """The losses of all ranks, or the end of what was printed."""
    variables = {**os.environ, "TORCHINDUCTOR_DETERMINISTIC": "1", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                 "NCCL_SOCKET_IFNAME": "lo"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables,
                               start_new_session=True)
    try:
        printed, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failure": f"it took more than {limit:.0f} s"}
    finally:
        end(process)
    lines = sorted(line for line in printed.splitlines() if line.startswith('{"rank"'))
    if process.returncode != 0 or not lines:
        return {"failure": f"exit status {process.returncode}: {(errors or printed)[-3000:]}"}
    return {"losses": [json.loads(line)["losses"] for line in lines]}


def end(process):
    """Leaves no process behind; asked to end, `torchrun` ends its ranks, which are in other groups."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, kind)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)


def main():
    runs = Runs(arguments())
    programs = runs.all()
    columns = list(SETTINGS)[1:]
    print("| program | steps | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 2))
    for program in programs:
        native = runs.found[program, "native"]
        steps = str(len(native["losses"][0])) if "losses" in native else "native run failed"
        print("| " + " | ".join([f"`{program}`", steps, *(runs.verdict(program, name) for name in columns)]) + " |")
    sys.exit(not all(runs.is_good(program, name) for program in programs for name in columns[1:]))


if __name__ == "__main__":
    main()
