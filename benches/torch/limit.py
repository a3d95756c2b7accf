"""Trains programs with little more memory than they allocate, and shows with which allocators they finish.

    python3 benches/torch/limit.py --json limit.json

The peak of allocated bytes is measured first, with PyTorch's allocator and without a limit. Then every program runs
under a memory fraction of 1.01, 1.02 and 1.05 times that peak with each allocator. The step time is the median over
the steps of the time under the limit, divided by the time of the same step and allocator without a limit. Over several
rounds the fastest time of each step counts.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
PROGRAMS = ("train_gpt2", "train_resnet")
ALLOCATORS = {"PyTorch": "native", "expandable": "expandable", "Cachette": "compiled:expandable_segments:True"}
FACTORS = (1.01, 1.02, 1.05)
#: What PyTorch's exception is called in a traceback.
OUT_OF_MEMORY = "OutOfMemoryError"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", action="append", help=f"only this one; may be repeated (of {', '.join(PROGRAMS)})")
    parser.add_argument("--factor", action="append", type=float, help="only this one; may be repeated")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=30, help="steps of each run (default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, help="a file for everything that was measured")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that one run may take")
    parser.add_argument("--folder", type=pathlib.Path, default=HERE, help="the folder of the programs")
    parser.add_argument("rest", nargs="*", help="after --, options for the programs, such as --tiny")
    return parser.parse_args()


def run(program, name, limit, options):
    """The figures of one run, or why there are none."""
    command = [sys.executable, str(options.folder / f"{program}.py"), "--allocator", ALLOCATORS[name], "--steps",
               str(options.steps), "--limit", str(limit), *options.rest]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"failure": f"it took more than {options.timeout} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    said = done.stderr[-2000:]
    return {"failure": "out of memory" if OUT_OF_MEMORY in said else said or f"exit {done.returncode}"}


def measure(options):
    """Every run, round by round; without a limit first."""
    runs = []
    for number in range(options.rounds):
        for program in options.program or PROGRAMS:
            peak = None
            for factor in (None, *(options.factor or FACTORS)):
                for name in ALLOCATORS:
                    if factor is not None and peak is None:
                        continue
                    limit = int(factor * peak) if factor else 0
                    began = time.perf_counter()
                    figures = run(program, name, limit, options)
                    runs.append({**figures, "round": number, "program": program, "allocator": name, "factor": factor,
                                 "limit": limit, "process_s": time.perf_counter() - began})
                    if factor is None and name == "PyTorch":
                        peak = figures.get("peak_allocated")
                    outcome = figures.get("failure") or f"{figures['median_step_ms']:.2f} ms a step"
                    print(f"round {number + 1}: {program}, {factor or 'no limit'}, {name}: {outcome}", file=sys.stderr,
                          flush=True)
    return runs


def fastest(runs):
    """The fastest time of each step over the rounds."""
    return [min(times) for times in zip(*(run["each_step_ms"] for run in runs))]


def rows(runs):
    """One row for each program and factor, with a cell for each allocator."""
    table = []
    keys = dict.fromkeys((run["program"], run["factor"]) for run in runs if run["factor"] is not None)
    for program, factor in keys:
        row = {"program": program, "factor": factor}
        for name in ALLOCATORS:
            of_allocator = [run for run in runs if (run["program"], run["allocator"]) == (program, name)]
            limited = [run for run in of_allocator if run["factor"] == factor]
            free = [run for run in of_allocator if run["factor"] is None]
            row[name] = cell(limited, free)
        table.append(row)
    return table


def cell(limited, free):
    """Whether all runs finished, how often the allocator retried, and the step time against no limit."""
    failures = [run["failure"] for run in limited + free if "failure" in run]
    if failures:
        return {"finished": False, "failure": failures[0]}
    ratios = [under / without for under, without in zip(fastest(limited), fastest(free))]
    return {"finished": True, "retries": max(run["retries"] for run in limited), "step_time": statistics.median(ratios),
            "same": len({run["outcome_hash"] for run in limited + free}) == 1}


def text_of(found):
    if not found["finished"]:
        return found["failure"].strip().splitlines()[-1]
    other = "" if found["same"] else ", OTHER LOSSES"
    return f"{found['retries']} retries, {found['step_time']:.3f}{other}"


def show(table):
    """The rows as Markdown."""
    print("| program | limit / allocated | " + " | ".join(ALLOCATORS) + " |")
    print("|---|---|" + "---|" * len(ALLOCATORS))
    for row in table:
        cells = [text_of(row[name]) for name in ALLOCATORS]
        print(f"| {row['program']} | {row['factor']} | " + " | ".join(cells) + " |")
    if not table:
        print("no program finished without a limit, so there is no peak to limit", file=sys.stderr)


def main():
    options = arguments()
    runs = measure(options)
    table = rows(runs)
    show(table)
    if options.json:
        options.json.write_text(json.dumps({"runs": runs, "table": table}, indent=1) + "\n")
    return 0 if table else 1


if __name__ == "__main__":
    sys.exit(main())
