#!/usr/bin/env bash
# Everything of this project that is worth measuring on an accelerator, in parts of nine minutes.
#
#   benchmarks/accelerator.sh PART...            on the accelerator that JAX finds
#   benchmarks/accelerator.sh --smoke PART...    on the CPU, small, to see that a part works
#   benchmarks/accelerator.sh                    the names of the parts
#
# Run it from the checkout, with an environment that has JAX for the accelerator:
#   pip install --constraint constraints.txt '.[train,test,benchmarks,cuda13]'
# PYTHON names its interpreter (python by default). A part writes to benchmarks/results, or to RESULTS, and
# prints what it wrote. It is stopped after nine minutes, or after SECONDS_OF_A_PART. To continue the evidence, run
# the same command again.
set -euo pipefail

PARTS="machine on_device losses kernel memory other_losses selection estimators step_densenet step_resnet
  steps_on_device networks input throughput throughput_large exactness kill_and_resume evidence_average evidence_noise_20
  evidence_noise_40 evidence_tail"
PYTHON=${PYTHON:-python}
SECONDS_OF_A_PART=${SECONDS_OF_A_PART:-540}
# The folder of Tiny ImageNet's images at 32 by 32 pixels.
TINY_IMAGENET=${TINY_IMAGENET:-tiny_imagenet_32}

smoke=false
if [ "${1:-}" = --smoke ]; then
  smoke=true
  shift
  export JAX_PLATFORMS=cpu
fi
if [ $# = 0 ]; then
  echo "parts: "$PARTS
  exit 2
fi

if $smoke; then
  device=cpu
  RESULTS=${RESULTS:-$(mktemp -d)}
else
  device=$("$PYTHON" -c 'import jax; print(jax.default_backend())')
  RESULTS=${RESULTS:-benchmarks/results}
  if [ "$device" = cpu ]; then
    echo "JAX finds no accelerator here; --smoke runs a part on the CPU" >&2
    exit 2
  fi
fi
mkdir -p "$RESULTS"

# limited COMMAND...: the command for at most the time of a part.
limited() { timeout --signal=INT --kill-after=20 "$SECONDS_OF_A_PART" "$@"; }

# measured NAME FLAGS...: the benchmark of that name, with its results in a file.
measured() {
  local name=$1 file="$RESULTS/$1${suffix:-}-$device.json"
  shift
  limited "$PYTHON" -m "benchmarks.$name" --output="$file" "$@"
  echo "wrote $file"
}

# study PATH: a study of the evidence, as far as the time goes.
study() {
  local name=${1##*/}
  local file="docs/evidence/studies/$1.toml" runs="$RESULTS/runs-$name-$device"
  if $smoke; then
    # Prints the commands of the first runs, but does not start them.
    limited "$PYTHON" -m train.compare --study="$file" --runs="$runs" --plan | tail -n 3
    echo "wrote nothing: the study can be read"
    return
  fi
  if [ ! -d "$TINY_IMAGENET" ]; then
    echo "the images of Tiny ImageNet are not in $TINY_IMAGENET" >&2
    exit 2
  fi
  # The studies name the folder as it is called in the working directory.
  [ -e tiny_imagenet_32 ] || ln -s "$TINY_IMAGENET" tiny_imagenet_32
  if limited "$PYTHON" -m train.compare --study="$file" --runs="$runs" --json="$RESULTS/$name-$device.json"; then
    echo "wrote $RESULTS/$name-$device.json"
  else
    echo "wrote runs to $runs; the same command goes on"
  fi
}

# A run of the digits that is killed after its first checkpoint resumes, with the results of a run that is not killed.
kill_and_resume() {
  local folder="$RESULTS/kill_and_resume-$device" epochs=30
  $smoke && epochs=4
  rm -rf "$folder"
  mkdir -p "$folder"
  # Sums in another order would give other results.
  export XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_deterministic_ops=true"
  local run=("$PYTHON" -m train.main --config=configs/digits.py
    "--config.num_epochs=$epochs" --config.checkpoint.every_steps=10)
  limited "${run[@]}" --workdir="$folder/whole" >"$folder/whole.log"
  "${run[@]}" --workdir="$folder/killed" >"$folder/killed.log" 2>&1 &
  local process=$!
  until [ -n "$(ls "$folder/killed/checkpoints" 2>/dev/null)" ]; do
    kill -0 "$process" || exit 1
    sleep 0.1
  done
  kill -KILL "$process"
  wait "$process" || true
  if [ -e "$folder/killed/results.json" ]; then
    echo "the run ended before it was killed" >&2
    exit 1
  fi
  limited "${run[@]}" --workdir="$folder/killed" >>"$folder/killed.log"
  "$PYTHON" - "$folder" <<'END'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
whole, killed = (
    json.loads((folder / name / "results.json").read_text()) for name in ("whole", "killed")
)
equal = all(whole[split] == killed[split] for split in ("validation", "test"))
(folder / "outcome.json").write_text(json.dumps({"equal": equal}) + "\n")
sys.exit(0 if equal else "the results of the killed run are not those of the whole one")
END
  echo "wrote $folder/outcome.json"
}

run_part() {
  # Options of parts that would take too long on a CPU.
  local few=()
  $smoke && few=(--repetitions=1)
  case $1 in
    machine)
      "$PYTHON" -c 'import json; from benchmarks import timing; print(json.dumps(timing.machine()))' \
        >"$RESULTS/machine-$device.json"
      echo "wrote $RESULTS/machine-$device.json"
      ;;
    losses)
      $smoke && few+=(--smallest)
      # PyTorch needs memory beside XLA.
      XLA_PYTHON_CLIENT_PREALLOCATE=false measured losses --sections seconds expected flat_in_k "${few[@]}"
      ;;
    kernel)
      $smoke && few+=(--smallest)
      measured kernel "${few[@]}"
      ;;
    memory)
      $smoke && few+=(--smallest)
      suffix=_memory measured losses --sections memory "${few[@]}"
      ;;
    on_device)
      $smoke && few+=(losses.cross_entropy losses.noised_top_k_hinge)
      measured on_device "${few[@]}"
      ;;
    other_losses | selection) measured "$1" "${few[@]}" ;;
    estimators)
      $smoke && few=(--repetitions=2)
      measured estimators "${few[@]}"
      ;;
    step_densenet)
      $smoke && few+=(--batch=2)
      suffix=_densenet measured train_step --model densenet_40_40 "${few[@]}"
      ;;
    step_resnet)
      $smoke && few+=(--batch=2)
      suffix=_resnet measured train_step --model resnet50 "${few[@]}"
      ;;
    steps_on_device)
      # Measured results are kept, so that the same command can be run again to continue.
      $smoke && few+=(digits features)
      XLA_PYTHON_CLIENT_PREALLOCATE=false measured steps_on_device "${few[@]}"
      ;;
    networks)
      # Measured results are kept, so that the same command can be run again to continue. PyTorch needs memory beside
      # XLA.
      local networks=(--networks=resnet50,densenet121,efficientnet_b0,vit_base_patch16_224 --compile_limit=120)
      $smoke && networks=(--networks=shufflenet --image_size=64 --batch_size=2)
      XLA_PYTHON_CLIENT_PREALLOCATE=false measured networks "${networks[@]}" "${few[@]}"
      ;;
    input) measured data "${few[@]}" ;;
    throughput) measured throughput --workload digits synthetic_species "${few[@]}" ;;
    throughput_large) suffix=_large measured throughput --workload cifar100 imagenet "${few[@]}" ;;
    exactness)
      local selected=(tests/parts/library)
      $smoke && selected=(tests/parts/library/losses/test_softmax.py)
      local platforms="$device,cpu" workers=8
      [ "$device" = gpu ] && platforms=cuda,cpu
      $smoke && platforms=cpu workers=1
      # Tests of several devices have a machine of their own: CPUs can be eight. By default a GPU
      # multiplies float32 matrices with fewer digits. Each worker takes the memory that it needs.
      TOPK_JAX_TEST_PLATFORMS=$platforms JAX_DEFAULT_MATMUL_PRECISION=highest \
        XLA_PYTHON_CLIENT_PREALLOCATE=false limited "$PYTHON" -m pytest -q -p no:benchmark \
        --numprocesses="$workers" \
        -k "not pmap and not shard_map and not device and not sharding and not mesh and not transformations and not without_jit and not Explicit and not split and not class_axis and not no_candidates and not names_of_the_axis" \
        --junitxml="$RESULTS/exactness-$device.xml" "${selected[@]}" || true
      "$PYTHON" -m benchmarks.exactness "$RESULTS/exactness-$device.xml" --output="$RESULTS/exactness-$device.json"
      rm "$RESULTS/exactness-$device.xml"
      echo "wrote $RESULTS/exactness-$device.json"
      ;;
    kill_and_resume) kill_and_resume ;;
    evidence_average) study average_tiny_imagenet_5 ;;
    evidence_noise_20) study noise_tiny_imagenet_20 ;;
    evidence_noise_40) study noise_tiny_imagenet_40 ;;
    evidence_tail) study tail_tiny_imagenet ;;
    *)
      echo "there is no part '$1'; the parts are "$PARTS >&2
      exit 2
      ;;
  esac
}

for part in "$@"; do
  run_part "$part"
done
