"""Runs every program with every allocator, in turns, and puts the figures side by side.

    python3 benches/torch/compare.py --rounds 2 --json results.json

Allocators take turns within a round, so that a machine that grows warm or busy harms all of them alike. Step times are
medians over the rounds; the ratio is to PyTorch's own allocator in the same run.

    python3 benches/torch/compare.py --turn 5 --rounds 3

On a machine whose pace changes within seconds, the processes live side by side and take turns of a few steps: then the
ratio is that of the same steps, each at the fastest of all rounds.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

from turns import compare_steps, run_in_turns

HERE = pathlib.Path(__file__).parent
PROGRAMS = ("train_gpt2", "generate_llama", "train_resnet")
ALLOCATORS = ("native", "expandable", "cachette:expandable_segments:True",
              "compiled:expandable_segments:True")
#: Enough steps for steady figures, and few enough for all runs to end within minutes.
STEPS = {"train_gpt2": 60, "generate_llama": 150, "train_resnet": 80}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="only this one; may be repeated")
    parser.add_argument("--allocator", action="append",
                        help=f"only this one; may be repeated (default: {', '.join(ALLOCATORS)})")
    parser.add_argument("--json", type=pathlib.Path, help="a file for everything that was measured")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that one run may take")
    parser.add_argument("--turn", type=int, default=0, metavar="STEPS",
                        help="run the allocators side by side, so many steps each in turn")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no program begins after so many seconds")
    parser.add_argument("rest", nargs="*", help="after --, options for the programs, such as --tiny")
    return parser.parse_args()


def command_of(program, allocator, options):
    """The command line of one run."""
    # What is given after -- comes later, and so it counts.
    return [sys.executable, str(HERE / f"{program}.py"), "--allocator", allocator, "--steps", str(STEPS[program]),
            "--turn", str(options.turn), *options.rest]


def run(program, allocator, options):
    """The figures of one run, or why there are none."""
    command = command_of(program, allocator, options)
    began = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"program": program, "allocator": allocator, "failure": f"it took more than {options.timeout} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        return {"program": program, "allocator": allocator, "failure": done.stderr[-2000:] or f"exit {done.returncode}"}
    return {**json.loads(lines[-1]), "process_s": time.perf_counter() - began}


def run_round(program, options):
    """The figures of a program with each allocator, one after the other or side by side."""
    allocators = options.allocator or ALLOCATORS
    if not options.turn:
        yield from (run(program, allocator, options) for allocator in allocators)
        return
    commands = {allocator: command_of(program, allocator, options) for allocator in allocators}
    for allocator, figures in run_in_turns(commands, options.timeout).items():
        yield {"program": program, "allocator": allocator, **figures}


def measure(options):
    """Every run, round by round."""
    runs, began = [], time.perf_counter()
    for number in range(options.rounds):
        for program in options.program or PROGRAMS:
            if time.perf_counter() - began > options.seconds:
                print(f"time is up: round {number + 1} ends before {program}", file=sys.stderr)
                return runs
            for figures in run_round(program, options):
                runs.append({"round": number, **figures})
                outcome = figures.get("failure") or f"{figures['median_step_ms']:.2f} ms a step"
                print(f"round {number + 1}: {program}, {figures['allocator']}: {outcome}", file=sys.stderr, flush=True)
    return runs


def rows(runs):
    """One row a program and allocator: medians over the rounds, and whether the outcome is the native one's."""
    table = []
    for program in dict.fromkeys(run["program"] for run in runs):
        of_program = [run for run in runs if run["program"] == program]
        good = [run for run in of_program if "failure" not in run]
        native = [run for run in good if run["allocator"] == "native"]
        base = statistics.median(run["median_step_ms"] for run in native) if native else None
        for allocator in dict.fromkeys(run["allocator"] for run in of_program):
            mine = [run for run in good if run["allocator"] == allocator]
            table.append(row(program, allocator, mine, native, base))
    return table


def row(program, allocator, mine, native, base):
    """One line of the table."""
    line = {"program": program, "allocator": allocator, "runs": len(mine)}
    if not mine:
        return {**line, "failure": "no run succeeded"}
    median = statistics.median(run["median_step_ms"] for run in mine)
    line["step_ms"] = median
    line["ratio"] = median / base if base else None
    if native and mine[0].get("step_ms"):
        line.update(compare_steps(mine, native))
    line["same"] = len({run["outcome_hash"] for run in mine + native}) == 1 if native else None
    if "peak_reserved" in mine[0]:
        for figure in ("peak_allocated", "peak_reserved", "device_peak"):
            line[figure] = statistics.median(run[figure] for run in mine)
        line["reserved_to_allocated"] = line["peak_reserved"] / line["peak_allocated"]
    return line


def show(table):
    """The rows as Markdown."""
    print("| program | allocator | step | to native | allocated | reserved | ratio | by the device | same outcome |")
    print("|---|---|---|---|---|---|---|---|---|")
    for line in table:
        cells = [line["program"], line["allocator"]]
        if "failure" in line:
            print("| " + " | ".join([*cells, line["failure"], *[""] * 6]) + " |")
            continue
        cells.append(f"{line['step_ms']:.2f} ms")
        cells.append(f"{line['ratio']:.3f}" if line["ratio"] else "")
        if "peak_reserved" in line:
            cells += [f"{line[figure] / 2**30:.3f} GiB" for figure in ("peak_allocated", "peak_reserved")]
            cells += [f"{line['reserved_to_allocated']:.3f}", f"{line['device_peak'] / 2**30:.3f} GiB"]
        else:
            cells += [""] * 4
        cells.append({True: "yes", False: "NO", None: ""}[line["same"]])
        print("| " + " | ".join(cells) + " |")


def main():
    options = arguments()
    runs = measure(options)
    table = rows(runs)
    show(table)
    if options.json:
        options.json.write_text(json.dumps({"runs": runs, "table": table}, indent=1))
    for failed in (run for run in runs if "failure" in run):
        print(f"\n{failed['program']} with {failed['allocator']}: {failed['failure']}", file=sys.stderr)
    sys.exit(1 if any("failure" in run for run in runs) else 0)


if __name__ == "__main__":
    main()
