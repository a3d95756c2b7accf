"""Writes the traces of pinned memory: the requests of a loader, an offloading optimizer and a KV connector.

The sizes are those of published models and usual settings; the order and the lengths are drawn with a fixed seed.
Run it in this folder: python3 write.py
"""

from __future__ import annotations

import gzip
import random
from collections import deque

STREAM = 0


class Recorder:
    """The operations of one program; every allocation has a new number."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.number = 0

    def allocate(self, size: int) -> int:
        self.number += 1
        self.lines.append(f"a {self.number} {size} {STREAM}")
        return self.number

    def free(self, number: int) -> None:
        self.lines.append(f"f {number}")

    def write(self, name: str) -> None:
        text = "\n".join(self.lines) + "\n"
        with gzip.GzipFile(f"{name}.trace.gz", "wb", mtime=0) as file:
            file.write(text.encode())


def loader(into: Recorder, draw: random.Random, steps: int, sides: tuple[int, ...] = (224,)) -> None:
    """Batches of a DataLoader whose thread pins them: 4 workers with 2 batches each, and one batch in use.

    64 images in float32 and their labels, and 16 sequences of tokens of padded length (ids, mask and labels). The last
    batch of an epoch is smaller. With several sides, each batch draws one.
    """
    waiting: deque[list[int]] = deque()
    for step in range(steps):
        images = 64 if step % 100 != 99 else 23
        side = draw.choice(sides)
        tokens = 16 * draw.randrange(64, 1025, 8) * 8
        waiting.append([into.allocate(size) for size in (images * 3 * side * side * 4, images * 8, tokens, tokens, tokens)])
        if len(waiting) > 9:
            for number in waiting.popleft():
                into.free(number)
    for batch in waiting:
        for number in batch:
            into.free(number)


def multiscale(into: Recorder, draw: random.Random, steps: int) -> None:
    """The same with images of four sizes, as in multi-scale training: the hardest case for segments that stay."""
    loader(into, draw, steps, (224, 256, 288, 320))


def optimizer(into: Recorder, draw: random.Random, steps: int) -> None:
    """The state of an optimizer on the host, as for Qwen2.5-0.5B: weights and two moments in float32 for each tensor.

    Each step stages the gradients of a layer in bfloat16, two layers ahead, and frees them.
    """
    hidden, inner, keys, vocabulary, layers = 896, 4864, 128, 151_936, 24
    layer = [hidden * hidden, hidden, keys * hidden, keys, keys * hidden, keys, hidden * hidden]
    layer += [inner * hidden] * 3 + [hidden] * 2
    tensors = [vocabulary * hidden, hidden] + layer * layers
    state = [into.allocate(4 * count) for count in tensors for _ in range(3)]
    for _ in range(steps):
        ahead: deque[list[int]] = deque()
        for _ in range(layers):
            ahead.append([into.allocate(2 * count) for count in layer])
            if len(ahead) > 2:
                for number in ahead.popleft():
                    into.free(number)
        for numbers in ahead:
            for number in numbers:
                into.free(number)
    for number in state:
        into.free(number)


def connector(into: Recorder, draw: random.Random, requests: int) -> None:
    """The KV cache of prompts on the host, in chunks of 256 tokens, as for Qwen2.5-7B: 28 layers, 4 heads of 128.

    The last chunk of a prompt is shorter. The oldest chunks are freed above 3 GiB.
    """
    token, limit, held = 2 * 28 * 4 * 128 * 2, 3 << 30, 0
    chunks: deque[tuple[int, int]] = deque()
    for _ in range(requests):
        left = int(draw.lognormvariate(7.3, 0.8)) + 1
        while left > 0:
            size = min(left, 256) * token
            left -= 256
            while held + size > limit:
                number, freed = chunks.popleft()
                into.free(number)
                held -= freed
            chunks.append((into.allocate(size), size))
            held += size
    for number, _ in chunks:
        into.free(number)


def main() -> None:
    programs = {"loader": (loader, 1500), "optimizer": (optimizer, 60), "connector": (connector, 1500)}
    for name, (program, steps) in (programs | {"multiscale": (multiscale, 1500)}).items():
        recorder = Recorder()
        program(recorder, random.Random(44), steps)
        recorder.write(name)
    # The first three in one process: their operations alternate, so that all end together.
    everything = Recorder()
    parts: list[tuple[list[str], dict[str, int]]] = []
    for program, steps in programs.values():
        part = Recorder()
        program(part, random.Random(45), steps)
        parts.append((part.lines, {}))
    longest = max(len(lines) for lines, _ in parts)
    for step in range(longest):
        for lines, numbers in parts:
            for line in lines[step * len(lines) // longest : (step + 1) * len(lines) // longest]:
                kind, number, *rest = line.split()
                if kind == "a":
                    numbers[number] = everything.allocate(int(rest[0]))
                else:
                    everything.free(numbers.pop(number))
    everything.write("all")


if __name__ == "__main__":
    main()
