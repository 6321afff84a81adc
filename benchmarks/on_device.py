"""The seconds of every public function, with its gradient, on a GPU or TPU.

    python -m benchmarks.on_device [--device=cpu] [--repetitions=21] [--output=FILE.json]
        [NAME...]

Needs the dependencies of the program and of the tests. Each function of `tests.cases` runs
many times in one program, one run after another. So the time is the device's, without the calls
from Python, which a training step does not have either. `benchmarks.compiled` has what is in the
programs.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jax

from benchmarks import accounts, command, compiled, markdown, timing
from benchmarks.many_runs import RUNS, THREADS, in_a_loop
from tests.cases.case import Case

# The device whose committed accounts are shown beside the times, and what is shown of them.
_COMPILED_FOR = "h100"
_COUNTED = ("kernels", "loops", "sorts")


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
        for name, case in compiled.cases(has_kernel=arguments.device.platform == "tpu").items()
        if not arguments.names or case.public in arguments.names
    }
    with ThreadPoolExecutor(THREADS) as pool:
        programs = dict(zip(cases, pool.map(_tried, cases.values()), strict=True))
    ready = {name: program for name, program in programs.items() if not isinstance(program, str)}
    medians = timing.medians_in_turns(ready, arguments.repetitions)
    results = {
        "machine": timing.machine(),
        "repetitions": arguments.repetitions,
        "batch": compiled.BATCH,
        "classes": compiled.SHOWN_CLASSES,
        "K": compiled.SHOWN_RANK,
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
    if compiled.has_rank(case):
        case = replace(case, parameters={**case.parameters, "k": compiled.SHOWN_RANK})
    function, *arrays = compiled.function_with_arrays(case, compiled.SHOWN_CLASSES)
    return timing.blocking(jax.jit(in_a_loop(function)), *arrays)


def tables(results: dict[str, Any]) -> str:
    """The microseconds of each function, beside what is in the program compiled without a GPU."""
    programs = accounts.committed("compiled", _COMPILED_FOR)
    seconds = results["seconds"]
    ordered = sorted(seconds.items(), key=lambda item: item[1])
    losses = [item for item in ordered if item[0].startswith("losses.")]
    others = [item for item in ordered if not item[0].startswith("losses.")]
    columns = ["µs", "times cross-entropy", *(f"{what}, compiled" for what in _COUNTED)]

    def line(name: str, value: float) -> list[str]:
        shape = f"{name}, {results['classes']}"
        account = programs.get(f"{shape}, K {results['K']}", programs.get(shape, {}))
        return [
            f"`{name.removeprefix('losses.')}`",
            f"{1e6 * value:,.0f}",
            f"{value / seconds['losses.cross_entropy']:.2f}",
            *(str(account.get(what, "–")) for what in _COUNTED),
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
