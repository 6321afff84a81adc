"""The seconds of every public function, with its gradient, on a GPU or TPU.

    python -m benchmarks.on_device [--device=cpu] [--repetitions=21] [--output=FILE.json]
        [NAME...]

Needs the dependencies of the program and of the tests. Each function of `tests.cases` runs
many times in one program, one run after another. So the time is the device's, without the calls
from Python, which a training step does not have either.
"""

import functools
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import command, markdown, timing
from benchmarks.many_runs import RUNS, THREADS, in_a_loop
from tests.cases import CASES_WITH_HEADS
from tests.cases.case import Case, draw
from tests.cases.losses import LOGITS, Loss

BATCH, CLASSES, RANK = 256, 1_000, 5
# The number of features of a head.
WIDTH = 512
# Its k counts neighbours, not classes.
_WITH_ANOTHER_K = ("sets.neighbor_scores",)


def main() -> None:
    """Measures every function and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=21)
    command.add_device(parser)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="functions, such as losses.average_k"
    )
    arguments = parser.parse_args()
    jax.config.update("jax_default_device", arguments.device)
    cases = {
        name: case
        for name, case in _cases(has_kernel=arguments.device.platform == "tpu").items()
        if not arguments.names or case.public in arguments.names
    }
    with ThreadPoolExecutor(THREADS) as pool:
        programs = dict(zip(cases, pool.map(_tried, cases.values()), strict=True))
    ready = {name: program for name, program in programs.items() if not isinstance(program, str)}
    medians = timing.medians_in_turns(ready, arguments.repetitions)
    results = {
        "machine": timing.machine(),
        "repetitions": arguments.repetitions,
        "batch": BATCH,
        "classes": CLASSES,
        "K": RANK,
        "seconds": {name: seconds / RUNS for name, seconds in medians.items()},
        "failed": {name: program for name, program in programs.items() if isinstance(program, str)},
    }
    command.write(results, arguments.output)


def _tried(case: Case) -> timing.Contestant | str:
    """The function in a loop, compiled and run once, or the reason why that failed."""
    try:
        run = _in_a_loop(case)
        run()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    print(case.name, file=sys.stderr)  # noqa: T201
    return run


def _in_a_loop(case: Case) -> timing.Contestant:
    if "k" in case.parameters and case.public not in _WITH_ANOTHER_K:
        case = replace(case, parameters={**case.parameters, "k": RANK})
    function, *arrays = _function_with_arrays(case)
    return timing.blocking(jax.jit(in_a_loop(function)), *arrays)


def _cases(*, has_kernel: bool) -> dict[str, Case]:
    """The cases of the tests by name, with more samples, and on TPU with the kernel."""

    def noised(variant: str, **parameters: Any) -> Loss:
        return Loss(
            public="losses.noised_top_k_hinge",
            arrays={**LOGITS, "key": "key"},
            slopes=1,
            parameters={"k": RANK, "epsilon": 1.0, **parameters},
            variant=variant,
        )

    others = [noised("10 samples", num_samples=10)]
    if has_kernel:
        by_kernel = functools.partial(noised, implementation="pallas")
        others.append(by_kernel("by a kernel", num_samples=3))
        others.append(by_kernel("10 samples by a kernel", num_samples=10))
    made = [*CASES_WITH_HEADS, *others]
    return {case.name: case for case in made if not case.many_classes}


def _function_with_arrays(case: Case) -> tuple[Any, ...]:
    """The function with its gradient, and the arrays that it takes."""
    is_of_heads = case.public.startswith("heads.")
    drawn = draw((BATCH,), WIDTH if is_of_heads else CLASSES)
    arrays = {name: drawn[name] for name in case.arrays.values()}
    parameters = case.resolved(CLASSES if not is_of_heads else 2)
    if not is_of_heads:
        return (lambda arrays: case.results(arrays, **parameters)), arrays
    if "margins" in parameters:
        parameters["margins"] = case.resolved(CLASSES)["margins"]
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(scale=WIDTH**-0.5, size=(WIDTH, CLASSES)).astype(np.float32)
        for name in parameters
        if name.endswith("head")
    }

    def results(arrays: Any, weights: Any) -> Any:
        given = {argument: arrays[name] for argument, name in case.arrays.items()}

        def values_of(features: Any, weights: Any) -> Any:
            made = {name: parameters[name]._replace(weights=weights[name]) for name in weights}
            return case.function(**given | {"features": features}, **parameters | made)

        def total(features: Any, weights: Any) -> tuple[jax.Array, jax.Array]:
            values = values_of(features, weights)
            return jnp.square(values).sum(), values

        if not case.slopes:
            return values_of(given["features"], weights)
        # A head learns, so its weights need a gradient, as its features do.
        slopes, values = jax.grad(total, (0, 1), has_aux=True)(given["features"], weights)
        return values, slopes

    return results, arrays, weights


def tables(results: dict[str, Any]) -> str:
    """The microseconds of each function, as Markdown."""
    seconds = results["seconds"]
    ordered = sorted(seconds.items(), key=lambda item: item[1])
    losses = [item for item in ordered if item[0].startswith("losses.")]
    others = [item for item in ordered if not item[0].startswith("losses.")]
    columns = ["µs", "times cross-entropy"]

    def line(name: str, value: float) -> list[str]:
        return [
            f"`{name.removeprefix('losses.')}`",
            f"{1e6 * value:,.0f}",
            f"{value / seconds['losses.cross_entropy']:.2f}",
        ]

    parts = [
        f"{markdown.machine(results['machine'])}; {results['batch']} × {results['classes']:,}, "
        f"K = {results['K']}; medians of {results['repetitions']} programs of {RUNS} runs.",
        markdown.table(["loss with its gradient", *columns], [line(*item) for item in losses]),
    ]
    if others:
        header = ["other function, with its gradient where it has one", *columns]
        parts.append(markdown.table(header, [line(*item) for item in others]))
    return "\n\n".join([*parts, *(f"`{name}`: {why}" for name, why in results["failed"].items())])


if __name__ == "__main__":
    main()
