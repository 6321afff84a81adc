"""Images per second of the program's training loop, and the time that it waits for data.

    python -m benchmarks.throughput [--workload digits cifar100 ...] [--repetitions=5]
        [--output=FILE.json]

Needs the program's dependencies and no download. Four recipes train with their own models and
losses: two on their own data, CIFAR-100 on random images of its shape, and ImageNet on the
photographs of `benchmarks.data`, decoded by two processes. The benchmark times epochs of the
program: batches, steps, and the metrics of every step on the host. The first epoch, which compiles,
does not count. Interleaved with them, the same step runs without the loop on batches that are
already on the devices. The difference is the cost of the loop. The benchmark uses all devices that
JAX sees. On a CPU the batches of the large networks are smaller than in the recipes, and there are
few of them.
"""

import contextlib
import importlib.metadata
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from benchmarks import command, data, markdown, timing
from configs import cifar100, digits, imagenet, synthetic_species
from train.configuration import Config
from train.configuration.parsing import parse
from train.data import Dataset, Examples, dataset_spec, streaming
from train.data.batches import Batch, Batches
from train.data.classes import Classes
from train.devices.devices import Devices
from train.reports.metric import LOSS
from train.run import loop
from train.run.checkpoints import Progress
from train.run.parts import Run, assemble
from train.run.reporting import SilentReporter
from train.run.run_folder import Facts
from train.training.state import TrainState

WORKERS = 2

TrainStep = Callable[[TrainState, Any], tuple[TrainState, Any]]


@dataclass(frozen=True)
class Workload:
    """A recipe, its data, and the length of its epochs.

    Attributes:
        config: makes the recipe's configuration.
        split: training images; None for the training images of the recipe's data set.
        steps: the steps of an epoch.
        cpu_steps: the steps of one on a CPU.
        cpu_batch: a batch that a CPU gets through in a second or a few; None for the recipe's.
    """

    config: Callable[[], Any]
    split: Callable[[], Examples] | None
    steps: int
    cpu_steps: int
    cpu_batch: int | None = None


def random_images() -> Examples:
    """A few thousand images of CIFAR-100's shape."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6400, 32, 32, 3), np.uint8)
    names = [str(label) for label in range(100)]
    return Examples.of_source(images, rng.integers(0, 100, len(images)), names, "benchmark")


def few_photographs() -> Examples:
    """JPEG files, enough for a batch: the same few again and again."""
    return data.encoded_images(data.photographs() * 8)


WORKLOADS = {
    "digits": Workload(digits.get_config, None, steps=200, cpu_steps=100),
    "synthetic_species": Workload(synthetic_species.get_config, None, steps=200, cpu_steps=200),
    "cifar100": Workload(cifar100.get_config, random_images, steps=100, cpu_steps=4, cpu_batch=16),
    "imagenet": Workload(imagenet.get_config, few_photographs, steps=50, cpu_steps=6, cpu_batch=8),
}


def main() -> None:
    """Measures every workload and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=5, what="timed epochs of each")
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    arguments = parser.parse_args()
    machine = timing.machine()
    for package in ("flax", "pillow"):
        machine["versions"][package] = importlib.metadata.version(package)
    results = {
        "machine": machine,
        "devices": jax.device_count(),
        "repetitions": arguments.repetitions,
        "workloads": [measure(name, arguments.repetitions) for name in arguments.workload],
    }
    command.write(results, arguments.output)


def measure(name: str, repetitions: int) -> dict[str, Any]:
    """Images per second of the loop and of only the step, and the share of time without data."""
    workload = WORKLOADS[name]
    on_cpu = jax.default_backend() == "cpu"
    recipe = workload.config()
    if on_cpu and workload.cpu_batch is not None:
        recipe.dataset.batch_size = workload.cpu_batch
    config = parse(recipe.to_dict())
    batch_size = config.dataset.batch_size
    num_steps = workload.cpu_steps if on_cpu else workload.steps
    parts = _assembled(config, workload)
    split, devices, train_step = parts.data.dataset.train, parts.devices, parts.train_step
    state = parts.initial_state()
    endless = Batches(examples=split, size=batch_size, seed=0)
    training = streaming.stream(endless, range(10**9), num_workers=WORKERS)
    alone = []
    with contextlib.closing(training) as batches:
        on_devices = [_split(devices, next(batches)) for _ in range(num_steps)]
        bare_state = devices.place(state)
        state = devices.place(state)

        def steps_alone(*_epoch: Any) -> None:
            nonlocal bare_state
            bare_state, seconds = _steps_alone(train_step, bare_state, on_devices)
            alone.append(seconds)

        nothing: Any = SimpleNamespace(metrics={LOSS: 0.0}, save=lambda *_saved: None)
        epochs: Any = SimpleNamespace(
            config=SimpleNamespace(
                num_epochs=1 + repetitions,
                select_by="loss",
                stop_after=None,
                checkpoint=SimpleNamespace(every_steps=None, every_minutes=None),
            ),
            data=SimpleNamespace(steps_per_epoch=num_steps),
            train_step=train_step,
            devices=devices,
        )
        _, progress = loop.run(
            epochs,
            state,
            Progress(),
            batches,
            validate=lambda _state: nothing,
            checkpoints=nothing,
            reporter=SilentReporter(),
            after_epoch=steps_alone,
        )
    images = num_steps * batch_size
    return {
        "workload": name,
        "model": config.model.name,
        "loss": config.loss.name,
        "batch": batch_size,
        "steps": num_steps,
        "images_per_second": _rates(images, progress.epoch_seconds[1:]),
        "step_alone_images_per_second": _rates(images, alone[1:]),
        "data_wait_share": progress.data_wait_share,
    }


def _assembled(config: Config, workload: Workload) -> Run:
    """The parts of the recipe, on its own data set or on the images of the workload."""
    if workload.split is None:
        return assemble(config)
    spec, split = dataset_spec(config.dataset), workload.split()
    names = tuple(str(label) for label in range(spec.num_classes or 0))
    counts = np.bincount(split.labels, minlength=len(names))
    assert spec.image_shape is not None
    parts = assemble(config, Facts(Classes(names, tuple(counts.tolist())), spec.image_shape))
    parts.data.dataset = Dataset(split, split, split, names, spec.image_shape)
    return parts


def tables(results: Mapping[str, Any]) -> str:
    """The rates as a Markdown table."""
    header = ["recipe", "model", "batch", "steps per epoch", "images/s", "best"]
    header += ["step alone, images/s", "best", "waiting for data, %"]
    return (
        f"{markdown.machine(results['machine'])}; {results['devices']} device(s); medians and the "
        f"best of {results['repetitions']} epochs.\n\n"
        + markdown.table(header, (_line(row) for row in results["workloads"]))
        + "\n"
    )


def _line(row: Mapping[str, Any]) -> list[str]:
    rates = (row["images_per_second"], row["step_alone_images_per_second"])
    return [
        f"`{row['workload']}`",
        f"`{row['model']}`",
        str(row["batch"]),
        str(row["steps"]),
        *(f"{rate[which]:,.0f}" for rate in rates for which in ("median", "best")),
        f"{100 * row['data_wait_share']:.1f}",
    ]


def _steps_alone(
    train_step: TrainStep, state: TrainState, batches: Sequence[Any]
) -> tuple[TrainState, float]:
    """The state after a step on every batch, and the seconds that they took."""
    start = time.perf_counter()
    for batch in batches:
        state, metrics = train_step(state, batch)
    jax.block_until_ready((state, metrics))
    return state, time.perf_counter() - start


def _split(devices: Devices, batch: Batch) -> Any:
    """A batch on the devices."""
    requests = np.zeros(jax.local_device_count(), np.int32)
    share = devices.split({**batch, "request": requests})
    return jax.block_until_ready(jax.tree.map(jax.device_put, share))


def _rates(images: int, seconds: Sequence[float]) -> dict[str, float]:
    return {"median": images / statistics.median(seconds), "best": images / min(seconds)}


if __name__ == "__main__":
    main()
