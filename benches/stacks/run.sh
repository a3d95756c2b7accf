#!/bin/sh
# Programs alone and behind `cachette run`, on a machine with an NVIDIA device.
#
#     benches/stacks/run.sh FOLDER [OUT]
#
# FOLDER has cachette, libcachette_front.so and libcachette_c.so, all of a release build. OUT gets the outputs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "$1" && pwd)
out=${2:-$(mktemp -d)}
mkdir -p "$out"
front="$folder/cachette run --front $folder/libcachette_front.so --"
failed=0

# Tells whether a comparison of numbers holds.
verdict() { # what, comparison
    if python3 -c "raise SystemExit(0 if $2 else 1)"; then echo "PASS $1"; else echo "FAIL $1"; failed=1; fi
}

# The median of five rounds for a call and a size. The processor of some machines has two speeds, and changes them.
median() { # files, call, bytes
    sed -n "s/.*\"$2\", \"bytes\": $3, \"median_ns\": \([0-9.]*\).*/\1/p" "$out/$1".[12345] | sort -n | sed -n 3p
}

cc -O2 "$here/pair.c" -o "$out/pair" -ldl
for round in 1 2 3 4 5; do
    "$out/pair" > "$out/driver.$round"
    "$out/pair" "$folder/libcachette_c.so" > "$out/own.$round"
    $front "$out/pair" > "$out/front.$round" 2> "$out/pair.summary"
done
cat "$out/pair.summary"
for bytes in 4096 1048576 67108864; do
    driver=$(median driver async $bytes)
    own=$(median own own $bytes)
    front_ns=$(median front async $bytes)
    echo "async $bytes bytes: driver $driver ns, front $front_ns ns, Cachette's own $own ns"
    verdict "at least 10 times faster than the driver" "$driver >= 10 * $front_ns"
    verdict "at most 40 ns above Cachette's own" "$front_ns <= $own + 40"
    driver=$(median driver sync $bytes)
    front_ns=$(median front sync $bytes)
    echo "sync $bytes bytes: driver $driver ns, front $front_ns ns"
done

for allocator in cuda_async platform; do
    export XLA_PYTHON_CLIENT_ALLOCATOR=$allocator
    # In turns, so that both see the same machine; the first run of each warms the files up.
    for round in 1 2 3; do
        python3 "$here/jax_step.py" > "$out/$allocator.driver" 2> "$out/$allocator.driver.$round"
        $front python3 "$here/jax_step.py" > "$out/$allocator.front" 2> "$out/$allocator.front.$round"
    done
    grep '^cachette' "$out/$allocator.front.3" || true
    same=1
    cmp "$out/$allocator.driver" "$out/$allocator.front" || same=0
    verdict "JAX $allocator: $(wc -l < "$out/$allocator.driver") figures are the same bit for bit" $same
    ms() { sed -n 's/.*"step_ms": \([0-9.]*\).*/\1/p' "$out/$allocator.$1".[123] | sort -n | sed -n 2p; }
    echo "JAX $allocator: a step takes $(ms driver) ms alone and $(ms front) ms in front"
    verdict "JAX $allocator: within 2 %" "$(ms front) <= 1.02 * $(ms driver)"
done
echo "outputs are in $out"
exit $failed
