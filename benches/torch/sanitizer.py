"""Runs correct programs with and without the sanitizer: no findings, and what a step costs.

    python3 benches/torch/sanitizer.py --compiled

Prints the median step of both runs, their ratio and the findings. The exit status is 1 after a finding or a failure,
or if a step of a training program takes more than five times as long.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
#: The programs with step times, and the steps that are enough for a median.
TIMED = {"train_gpt2": 25, "train_resnet": 25, "generate_llama": 40}
#: Programs whose findings are counted alone.
OTHERS = ("loader", "lightning_trainer", "hugging_face_trainer", "compiled_default")
MOST = 5


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiled", action="store_true", help="use the compiled class")
    parser.add_argument("--program", action="append", choices=[*TIMED, *OTHERS], help="only this one; may be repeated")
    parser.add_argument("--timeout", type=float, default=180, help="seconds that one run may take")
    parser.add_argument("rest", nargs="*", help="after --, options for the programs, such as --tiny")
    return parser.parse_args()


def run(program, sanitize, options):
    """What a program prints, and its number of findings."""
    folder = HERE if program in TIMED else HERE / "programs"
    allocator = "compiled:" if options.compiled else "cachette:"
    steps = ["--steps", str(TIMED[program])] if program in TIMED else []
    command = [sys.executable, str(folder / f"{program}.py"), "--allocator", allocator, *steps, *options.rest]
    environment = {**os.environ, "CACHETTE_SANITIZE": "1" if sanitize else "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=options.timeout,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(f"{program} failed with status {done.returncode}\n{done.stderr[-4000:]}")
    said = re.search(r"cachette sanitizer: (no|\d+) findings?", done.stderr)
    if sanitize and said is None:
        raise SystemExit(f"{program} ended without the sanitizer's summary\n{done.stderr[-4000:]}")
    found = 0 if said is None or said[1] == "no" else int(said[1])
    if found:
        print(done.stderr[-8000:])
    return done.stdout.strip().splitlines()[-1], found


def main():
    options = arguments()
    failed = False
    for program in options.program or [*TIMED, *OTHERS]:
        line, found = run(program, True, options)
        text = f"{program:24} findings {found}"
        failed |= found > 0
        if program in TIMED:
            plain, _ = run(program, False, options)
            slow, fast = (json.loads(it)["median_step_ms"] for it in (line, plain))
            text += f"   step {fast:8.1f} ms, sanitized {slow:8.1f} ms, ratio {slow / fast:.2f}"
            failed |= program.startswith("train") and slow / fast > MOST
        print(text, flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
