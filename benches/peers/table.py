"""Prints what one run of the peers measured as Markdown tables: python3 table.py FOLDER [--json FILE].

The file has the same figures for `benches/plots/comparison`.
"""

import json
import pathlib
import statistics
import sys


def rows(folder, name):
    """The microbenchmarks of a peer: {(workload, parameter): least ns}, by allocator."""
    found = {}
    path = folder / f"{name}.csv"
    if not path.exists():
        return found
    for line in path.read_text().splitlines():
        fields = line.split(",")
        if len(fields) == 4 and fields[3].replace(".", "", 1).isdigit():
            runs = found.setdefault(fields[0], {}).setdefault((fields[1], fields[2]), [])
            runs.append(float(fields[3]))
    return {name: least(runs) for name, runs in found.items()}


def least(runs):
    """The least of all runs: the processor changes its speed, so a median mixes two of them."""
    return {key: min(values) for key, values in runs.items()}


RMM_CASES = {
    ("a_fixed_1KiB", "1"): ("pair", "1KiB"),
    ("b_fixed_1MiB", "1"): ("pair", "1MiB"),
    ("c_mix_512B_64MiB_1000live", "1"): ("churn", "512B-64MiB"),
    ("a_fixed_1KiB", "4"): ("threads_own_stream", "4"),
    ("a_fixed_1KiB", "16"): ("threads_own_stream", "16"),
}


def rmm_rows(folder):
    """RMM's program counts pairs a second over all threads; the same figures by allocator."""
    found = {}
    path = folder / "rmm.csv"
    for line in path.read_text().splitlines()[1:] if path.exists() else []:
        system, _, resource, case, threads, *_, per_second, _, _ = line.split(",")
        key = RMM_CASES.get((case, threads))
        if key and float(per_second) > 0:
            found.setdefault(f"{system} {resource}", {})[key] = 1e9 / float(per_second)
    return found


def plugged(folder):
    """PyTorch with its own allocator and with Cachette in its place, and Cachette's functions alone."""
    found = {**rows(folder, "torch"), **rows(folder, "torch-plugin"), **rows(folder, "torch-class")}
    names = ("torch", "torch-plugin", "torch-class", "plugin-functions")
    if not all(name in found for name in names):
        return
    print("| workload, ns a pair | PyTorch's own | Cachette plugged in | Cachette's class | Cachette's functions alone "
          "| own / plugged in | own / class |")
    print("|---|---|---|---|---|---|---|")
    for key, own in found["torch"].items():
        plugin, of_class, alone = (found[name].get(key) for name in names[1:])
        if plugin and of_class and alone:
            print(f"| {key[0]} {key[1]} | {own:.0f} | {plugin:.0f} | {of_class:.0f} | {alone:.1f} | {own / plugin:.2f} "
                  f"| {own / of_class:.2f} |")
    print()


def pairs_of(folder):
    """Nanoseconds of a pair by workload: Cachette's, and those of each peer."""
    runs = {}
    for path in sorted(folder.glob("cachette-bench-*.json")):
        for row in json.loads(path.read_text()):
            runs.setdefault((row["workload"], str(row["parameter"])), []).append(row["ns_per_pair"])
    peers = {}
    for name in ("torch", "torch-expandable", "driver"):
        peers.update(rows(folder, name))
    peers.update(rmm_rows(folder))
    return least(runs), peers


def microbenchmarks(folder):
    ours, peers = pairs_of(folder)
    if not ours:
        return
    names = list(peers)
    print("| workload | Cachette | " + " | ".join(names) + " | PyTorch / Cachette |")
    print("|---|---|" + "---|" * (len(names) + 1))
    for key, ns in ours.items():
        cells = [f"{peers[name][key]:.0f}" if key in peers[name] else "" for name in names]
        torch = peers.get("torch", {}).get(key)
        ratio = f"{torch / ns:.1f}" if torch else ""
        print(f"| {key[0]} {key[1]} | {ns:.1f} | " + " | ".join(cells) + f" | {ratio} |")


CONFIGURATIONS = ("direct", "elastic, no recycling", "elastic", "compact")


def replayed(folder):
    """The least of every replay: {trace: {configuration: {figure: value}}}, and the order of the traces."""
    runs = {}
    for path in sorted(folder.glob("cachette-replay-*.json")):
        for row in json.loads(path.read_text()):
            if "ratio" not in row:
                continue
            trace = row["trace"].removesuffix(".gz").removesuffix(".trace")
            figures = runs.setdefault(trace, {}).setdefault(row["name"], {})
            for figure, key in (("cold", "cold_ns_per_op"), ("steady", "steady_ns_per_op"), ("ratio", "ratio")):
                figures.setdefault(figure, []).append(row[key] if row[key] is not None else float("nan"))
            figures.setdefault("requested", []).append(row["peak_requested"])
    for name in ("torch", "torch-expandable"):
        path = folder / f"{name}-replay.csv"
        for line in path.read_text().splitlines() if path.exists() else []:
            fields = line.split(",")
            values = dict(field.split("=") for field in fields[3:])
            trace = pathlib.Path(fields[2]).name.removesuffix(".trace")
            if trace not in runs:
                continue
            requested = next(iter(runs[trace].values()))["requested"][0]
            figures = runs[trace].setdefault(name, {})
            figures.setdefault("cold", []).append(float(values["cold_ns"]))
            figures.setdefault("steady", []).append(float(values["steady_ns"]))
            figures.setdefault("ratio", []).append(int(values["peak_reserved"]) / requested)
    return {
        trace: {name: least(figures) for name, figures in configurations.items()}
        for trace, configurations in runs.items()
    }


def replays(folder):
    found = replayed(folder)
    if not found:
        return
    first = next(iter(found.values()))
    names = [name for name in ("torch", "torch-expandable", *CONFIGURATIONS) if name in first]
    for figure, title, form in (
        ("ratio", "reserved / requested", "{:.4f}"),
        ("cold", "ns an operation, cold", "{:.0f}"),
        ("steady", "ns an operation, third pass", "{:.0f}"),
    ):
        print(f"\n| {title} | " + " | ".join(names) + " |")
        print("|---|" + "---|" * len(names))
        for trace, configurations in found.items():
            cells = [form.format(configurations[name][figure]) for name in names]
            print(f"| {trace} | " + " | ".join(cells) + " |")
        means = [
            statistics.geometric_mean([configurations[name][figure] for configurations in found.values()])
            for name in names
        ]
        print("| geometric mean | " + " | ".join(form.format(mean) for mean in means) + " |")


def figures(folder):
    """All figures of the tables."""
    ours, peers = pairs_of(folder)
    pairs = {"Cachette": ours, **peers} if ours else peers
    machine = folder / "machine.txt"
    return {
        "machine": machine.read_text().split("\n")[:3] if machine.exists() else [],
        "pairs": {name: {" ".join(key): ns for key, ns in found.items()} for name, found in pairs.items()},
        "replays": replayed(folder),
    }


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    if sys.argv[2:3] == ["--json"]:
        pathlib.Path(sys.argv[3]).write_text(json.dumps(figures(folder), indent=1) + "\n")
    plugged(folder)
    microbenchmarks(folder)
    replays(folder)
