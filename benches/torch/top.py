"""What `cachette top` says of each process beside what NVML says, as JSON: PyTorch, CuPy, JAX and PyTorch without Cachette.

Each program takes memory and waits. `top` may differ from NVML by at most 1 % for each process; the exit status is 1
if it does. How long memory takes to change hands, and eight processes at once, are measured by `--example neighbours`.
"""

import json
import subprocess
import sys

MOST = 0.01
WAIT = "\nimport sys; print('ready', flush=True); sys.stdin.readline()"
PROGRAMS = {
    "PyTorch": "import cachette_gpu.torch; cachette_gpu.torch.enable(); import torch; "
               "x = torch.ones(3 << 30, dtype=torch.uint8, device='cuda'); "
               "torch.mm(*[torch.ones(4096, 4096, device='cuda')] * 2); torch.cuda.synchronize()",
    "CuPy": "import cachette_gpu.cupy; cachette_gpu.cupy.enable(); import cupy; x = cupy.ones(2 << 30, dtype='uint8')",
    "JAX": "import os; os.environ['XLA_PYTHON_CLIENT_MEM_FRACTION'] = '0.05'; import jax.numpy as jnp; "
           "x = jnp.ones((1 << 29,)).block_until_ready()",
    "PyTorch's own": "import torch; x = torch.ones(1 << 30, dtype=torch.uint8, device='cuda'); torch.cuda.synchronize()",
}


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main():
    children = {name: subprocess.Popen([sys.executable, "-c", program + WAIT], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True) for name, program in PROGRAMS.items()}
    started = {name: child.stdout.readline() == "ready\n" for name, child in children.items()}
    sample = json.loads(lines(sys.executable, "-m", "cachette_gpu", "top", "--json"))
    table = lines("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
    by_nvml = {int(pid): int(mib) << 20 for pid, mib in (line.split(",") for line in table.splitlines())}
    by_top = {process["pid"]: process for device in sample["devices"] for process in device["processes"]}
    failed = False
    for name, child in children.items():
        process, nvml = by_top.get(child.pid, {}), by_nvml.get(child.pid, 0)
        reserved = (process.get("cachette") or {}).get("reserved", 0)
        shown = reserved + (process.get("outside") or 0)
        differs = not started[name] or not nvml or abs(shown - nvml) > MOST * nvml
        failed |= differs
        print(json.dumps({"program": name, "started": started[name], "NVML": nvml, "top": shown, "of that Cachette": reserved,
                          "within 1 %": not differs}), flush=True)
        child.stdin.close()
        child.wait()
    sys.exit(failed)


if __name__ == "__main__":
    main()
