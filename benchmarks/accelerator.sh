#!/usr/bin/env bash
# Measures on the GPU or TPU that JAX finds, and tests there what the library computes, in less than ten minutes.
#
#   benchmarks/accelerator.sh [FOLDER [FLAG...]]
#
# Run it from the checkout, with an environment that has JAX for the accelerator, whose interpreter PYTHON names:
#   pip install --constraint constraints.txt '.[train,test,benchmarks,cuda13]'
# Results go to FOLDER, benchmarks/results by default. The flags, such as --smoke, are those of every benchmark.
set -uo pipefail
PYTHON=${PYTHON:-python}
folder=${1:-benchmarks/results}
[ $# = 0 ] || shift
# PyTorch needs memory beside XLA.
export XLA_PYTHON_CLIENT_PREALLOCATE=false
device=$("$PYTHON" -c 'import jax; print(jax.default_backend())') || exit 1
failed=0

# measure SECONDS FILE BENCHMARK FLAGS...: a part that fails, or takes longer, does not stop the others.
measure() {
  local seconds=$1 file="$folder/$2-$device.json" benchmark=$3
  shift 3
  timeout --kill-after=10 "$seconds" "$PYTHON" -m "benchmarks.$benchmark" --output="$file" "$@" && echo "wrote $file" || failed=1
}

measure 120 noised_loss noised_loss --sections seconds --repetitions=11 "$@"
measure 90 noised_loss_flat noised_loss --sections flat_in_k --repetitions=11 "$@"
measure 30 noised_loss_memory noised_loss --sections memory "$@"
measure 90 train_step_densenet train_step --model densenet_40_40 --repetitions=11 "$@"
measure 90 train_step_resnet train_step --model resnet50 --repetitions=11 "$@"

# Tests of several devices have a machine of their own: CPUs can be eight. By default a GPU multiplies float32 matrices
# with fewer digits.
[ "$device" = cpu ] ||
  TOPK_JAX_TEST_PLATFORMS="${device/gpu/cuda},cpu" JAX_DEFAULT_MATMUL_PRECISION=highest timeout --kill-after=10 120 \
    "$PYTHON" -m pytest -q --numprocesses=8 \
    -k "not pmap and not shard_map and not device and not sharding and not mesh and not transformations and not without_jit and not Explicit and not split and not class_axis and not no_candidates and not names_of_the_axis" \
    tests/parts/library || failed=1
exit $failed
