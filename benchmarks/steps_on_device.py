"""The time and memory of the training step of every recipe, on a GPU or TPU.

    python -m benchmarks.steps_on_device [--batch=N] [--repetitions=21] [--output=FILE.json]
        [NAME...]

Needs the program's dependencies, and no data set. The step has the batch of the recipe or of
`--batch`, on one device. Recipes of a user's own data get 1,000 classes of images of 224 by 224
pixels, or of rows of 2,048 features. Each recipe has a process of its own, because JAX knows the
highest memory of a process, not of a step. A compiler of GPUs tries kernels, which takes memory,
too. So one process compiles the step, and another one runs it from JAX's persistent cache. If the
output file exists, only what it lacks is measured.
"""

import importlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import command, markdown, timing
from train.configuration import Config
from train.configuration.parsing import parse
from train.data import dataset_spec
from train.data.classes import Classes
from train.foundation.errors import first_line
from train.run.plan import StepPlanner, Target
from train.run.run_folder import Facts

# What stands for a user's own data.
_CLASSES, _PIXELS, _FEATURES = 1_000, 224, 2_048


def main() -> None:
    """Measures every step and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=21, what="timed steps of each")
    parser.add_argument("names", nargs="*", metavar="NAME", help="recipes, such as imagenet")
    parser.add_argument(
        "--batch", type=command.integer(1), help="examples of a step; by default the recipe's"
    )
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "machine": timing.machine(),
        "repetitions": arguments.repetitions,
        "steps": {},
    }
    if arguments.output is not None and arguments.output.exists():
        results["steps"] = json.loads(arguments.output.read_text())["steps"]
    with command.keeping(results, arguments.output) as keep:
        for recipe in arguments.names or _recipes():
            name = recipe if arguments.batch is None else f"{recipe}, {arguments.batch}"
            if name in results["steps"]:
                continue
            results["steps"][name] = _measured_alone(recipe, arguments.batch, arguments.repetitions)
            keep()


def _measured_alone(recipe: str, batch: int | None, repetitions: int) -> dict[str, Any]:
    """The result of `measured` in a process that does not compile."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
        # Every program is cached, however small it is and however fast it compiles.
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        for part in (0, repetitions):
            found: dict[str, Any] = timing.in_process_of_its_own(measured, recipe, batch, part)
            if "failed" in found:
                break
    return found


def measured(recipe: str, batch: int | None, repetitions: int) -> dict[str, Any]:
    """The account of a step, and its memory and median seconds; without repetitions, no seconds."""
    device = jax.local_devices()[0]
    config = _configuration(recipe)
    batch = batch or config.dataset.batch_size
    target = Target(device.device_kind, device.platform, 0, [device])
    try:
        step, shapes = StepPlanner(config, target, _facts(config)).step_with_inputs(batch)
        start = time.perf_counter()
        compiled = step.lower(*shapes).compile()
        compile_seconds = time.perf_counter() - start
        analysis = compiled.memory_analysis()
        found = {
            "batch": batch,
            "compile_seconds": round(compile_seconds, 1),
            "compiled_bytes": max(
                analysis.peak_memory_in_bytes,
                analysis.argument_size_in_bytes + analysis.temp_size_in_bytes,
            ),
        }
        if repetitions:
            step = _step_after_step(compiled, _drawn(shapes))
            found["seconds"] = timing.medians_in_turns({recipe: step}, repetitions)[recipe]
            # None on a CPU.
            if memory := device.memory_stats():
                found["measured_bytes"] = memory["peak_bytes_in_use"]
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {first_line(error)[:200]}"}
    return found


def _recipes() -> list[str]:
    """The recipes, one of each step."""
    files = sorted((Path(__file__).parents[1] / "configs").glob("[!_]*.py"))
    modules = {path.stem: importlib.import_module(f"configs.{path.stem}") for path in files}
    return [name for name, module in modules.items() if hasattr(module, "get_config")]


def _configuration(recipe: str) -> Config:
    """The configuration of a recipe, with what the command line has to give."""
    name, _, choice = recipe.partition(":")
    config = importlib.import_module(f"configs.{name}").get_config(*filter(None, [choice]))
    if "path" in config.dataset:
        # Nothing is read from there.
        config.dataset.path = "data"
    return parse(config.to_dict())


def _facts(config: Config) -> Facts | None:
    """What the step needs to know of a user's own data; None if the recipe knows it."""
    spec = dataset_spec(config.dataset)
    if spec.num_classes is not None and spec.image_shape is not None:
        return None
    pixels = getattr(config.dataset, "image_size", None) or _PIXELS
    shape = (pixels, pixels, 3) if spec.has_images else (_FEATURES,)
    names, numbers = tuple(map(str, range(_CLASSES))), (0.5,) * shape[-1]
    return Facts(Classes(names, (100,) * _CLASSES), shape, mean=numbers, std=numbers)


def _step_after_step(compiled: Any, inputs: Any) -> timing.Contestant:
    """A step from the state after the one before, whose memory a step takes."""
    state, hyperparameters, batch = inputs

    def run() -> None:
        nonlocal state
        state, metrics = compiled(state, hyperparameters, batch)
        jax.block_until_ready((state, metrics))

    return run


def _drawn(shapes: Any) -> Any:
    """Arrays of these shapes on the device: small positive floats, and 0 or 1."""
    rng = np.random.default_rng(0)

    def drawn(shape: jax.ShapeDtypeStruct) -> jax.Array:
        if np.issubdtype(shape.dtype, np.floating):
            made = rng.random(shape.shape, np.float32) * 0.05
        else:
            made = rng.integers(0, 2, shape.shape)
        return jax.device_put(made.astype(shape.dtype), shape.sharding)

    return jax.tree.map(drawn, shapes)


def tables(results: dict[str, Any]) -> str:
    """The steps as Markdown."""
    steps = results["steps"].items()
    lines = [
        [
            f"`{name.partition(',')[0]}`",
            f"{found['batch']:,}",
            *_times(found),
            *map(_megabytes, (found.get("measured_bytes"), found["compiled_bytes"])),
            f"{found['compile_seconds']:.0f}",
        ]
        for name, found in steps
        if "failed" not in found
    ]
    columns = ["recipe", "batch", "step, ms", "examples/s", "MB at once, measured"]
    columns += ["as compiled", "compiled in, s"]
    return "\n\n".join(
        [
            f"{markdown.machine(results['machine'])}; medians of {results['repetitions']} steps.",
            markdown.table(columns, lines),
            *(f"`{name}`: {found['failed']}" for name, found in steps if "failed" in found),
        ]
    )


def _times(found: dict[str, Any]) -> list[str]:
    """Milliseconds and examples per second; dashes if only the memory was measured."""
    if "seconds" not in found:
        return ["–", "–"]
    seconds = found["seconds"]
    return [f"{1e3 * seconds:.2f}", f"{found['batch'] / seconds:,.0f}"]


def _megabytes(size: int | None) -> str:
    return "–" if size is None else f"{size / 1e6:,.1f}"


if __name__ == "__main__":
    main()
