"""Trains a small convolutional network in JAX: prints every loss in full, and the median time of a step.

XLA_PYTHON_CLIENT_ALLOCATOR chooses who serves JAX's memory: `cuda_async` asks the driver's pool for every buffer,
`platform` asks the driver itself. Behind `cachette run` both are Cachette. The losses must be the same.
"""

import json
import os
import statistics
import sys
import time

# The same kernels in every run: nothing is measured to choose them, and each adds in a fixed order.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

STEPS = 50
WARM_UP = 10
BATCH = 256
CLASSES = 10


def initial(key):
    keys = jax.random.split(key, 4)
    return {
        "first": jax.random.normal(keys[0], (3, 3, 3, 64)) * 0.1,
        "second": jax.random.normal(keys[1], (3, 3, 64, 128)) * 0.03,
        "wide": jax.random.normal(keys[2], (8 * 8 * 128, 512)) * 0.01,
        "last": jax.random.normal(keys[3], (512, CLASSES)) * 0.03,
    }


def forward(weights, images):
    layout = ("NHWC", "HWIO", "NHWC")
    for name in ("first", "second"):
        images = jax.lax.conv_general_dilated(images, weights[name], (2, 2), "SAME", dimension_numbers=layout)
        images = jax.nn.relu(images)
    flat = images.reshape(images.shape[0], -1)
    return jax.nn.relu(flat @ weights["wide"]) @ weights["last"]


def loss(weights, images, labels):
    chosen = jax.nn.log_softmax(forward(weights, images))
    return -jnp.mean(jnp.take_along_axis(chosen, labels[:, None], axis=1))


@jax.jit
def gradient(weights, images, labels):
    return jax.value_and_grad(loss)(weights, images, labels)


@jax.jit
def update(weights, slopes):
    return jax.tree.map(lambda weight, slope: weight - 0.05 * slope, weights, slopes)


@jax.jit
def batch(key):
    images, labels = jax.random.split(key)
    return jax.random.normal(images, (BATCH, 32, 32, 3)), jax.random.randint(labels, (BATCH,), 0, CLASSES)


def main():
    weights = initial(jax.random.key(0))
    times = []
    for step in range(STEPS):
        start = time.perf_counter()
        images, labels = batch(jax.random.key(step + 1))
        value, slopes = gradient(weights, images, labels)
        weights = update(weights, slopes)
        jax.block_until_ready(weights)
        times.append(time.perf_counter() - start)
        print(float(value).hex())
    for name in sorted(weights):
        print(name, float(jnp.sum(jnp.abs(weights[name]))).hex())
    figures = {
        "device": jax.devices()[0].device_kind,
        "allocator": os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default"),
        "step_ms": round(1000 * statistics.median(times[WARM_UP:]), 4),
    }
    print(json.dumps(figures), file=sys.stderr)


if __name__ == "__main__":
    main()
