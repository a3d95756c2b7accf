"""Runs a model of three operators in ONNX Runtime beside PyTorch, with batches of changing size, and prints figures.

`--memory cachette` gives both libraries one cache; `--memory native` leaves each its own. The outputs must be the same,
and those of PyTorch for the same weights within rounding. The model is written here, so no other package is needed.
"""

import argparse
import gc
import hashlib
import json
import random
import statistics
import struct
import time

WIDTH = 2048
LAYERS = 4
MOST = 4096
RUNS = 200
FLOAT = 1


def number(field, value):
    """A field of a protocol buffer with an integer."""
    return varint(field << 3) + varint(value)


def block(field, data):
    """A field with bytes, text or another message."""
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def tensor(name, shape, data):
    return b"".join(number(1, size) for size in shape) + number(2, FLOAT) + block(8, name) + block(9, data)


def node(kind, inputs, output):
    return b"".join(block(1, name) for name in inputs) + block(2, output) + block(4, kind)


def value(name):
    """An input or output of batches of any size."""
    shape = block(1, block(2, "batch")) + block(1, number(1, WIDTH))
    return block(1, name) + block(2, block(1, number(1, FLOAT) + block(2, shape)))


def model(weights, biases):
    graph, last = block(2, "layers"), "x"
    for layer, (weight, bias) in enumerate(zip(weights, biases)):
        product, total, out = f"p{layer}", f"s{layer}", f"o{layer}"
        graph += block(1, node("MatMul", [last, f"w{layer}"], product))
        graph += block(1, node("Add", [product, f"b{layer}"], total)) + block(1, node("Relu", [total], out))
        graph += block(5, tensor(f"w{layer}", weight.shape, weight.tobytes()))
        graph += block(5, tensor(f"b{layer}", bias.shape, bias.tobytes()))
        last = out
    graph += block(11, value("x")) + block(12, value(last))
    return number(1, 8) + block(7, graph) + block(8, number(2, 17)), last


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", choices=["cachette", "native"], default="cachette")
    is_ours = parser.parse_args().memory == "cachette"
    import numpy as np
    import torch
    if is_ours:
        import cachette_gpu.onnxruntime
        import cachette_gpu.torch
        cachette_gpu.torch.enable()
    import onnxruntime as ort
    ort.preload_dlls()

    torch.backends.cuda.matmul.allow_tf32 = False
    draw = np.random.default_rng(1)
    weights = [(draw.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32) for _ in range(LAYERS)]
    biases = [draw.standard_normal(WIDTH).astype(np.float32) for _ in range(LAYERS)]
    text, output = model(weights, biases)
    options = {"use_tf32": "0"}
    entry = cachette_gpu.onnxruntime.provider(0, **options) if is_ours else ("CUDAExecutionProvider", options)
    session = ort.InferenceSession(text, providers=[entry])
    assert session.get_providers()[0] == "CUDAExecutionProvider", session.get_providers()
    own = [(torch.from_numpy(weight).cuda(), torch.from_numpy(bias).cuda()) for weight, bias in zip(weights, biases)]
    free_before, _ = torch.cuda.mem_get_info()

    chance, digest, times, most, off = random.Random(7), hashlib.sha256(), [], 0, 0.0
    for step in range(RUNS):
        batch = chance.randrange(1, MOST)
        x = draw.standard_normal((batch, WIDTH)).astype(np.float32)
        begun = time.perf_counter()
        y, = session.run([output], {"x": x})
        times.append(time.perf_counter() - begun)
        digest.update(struct.pack("<i", batch) + y.tobytes())
        # PyTorch works with other sizes in between, in the same cache or in its own.
        h = torch.from_numpy(x).cuda()
        for weight, bias in own:
            h = torch.relu(h @ weight + bias)
        off = max(off, float((h.cpu() - torch.from_numpy(y)).abs().max()))
        most = max(most, free_before - torch.cuda.mem_get_info()[0])
        del h
    found = {"memory": "cachette" if is_ours else "native", "onnxruntime": ort.__version__, "torch": torch.__version__,
             "output": digest.hexdigest()[:16], "largest difference to PyTorch": off,
             "milliseconds a run": round(1e3 * statistics.median(times), 3), "held at most, MiB": most >> 20}
    if is_ours:
        stats = cachette_gpu.onnxruntime.stats(0)
        found["peak requested, MiB"] = stats["requested_bytes.all.peak"] >> 20
        found["peak reserved, MiB"] = stats["reserved_bytes.all.peak"] >> 20
        before = stats["allocated_bytes.all.current"]
        del session, y
        gc.collect()
        found["freed with the session, MiB"] = (before - cachette_gpu.onnxruntime.stats(0)["allocated_bytes.all.current"]) >> 20
    print(json.dumps(found))


if __name__ == "__main__":
    main()
