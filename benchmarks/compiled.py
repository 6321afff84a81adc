"""What the compilers of TPUs and GPUs make of every public function, without such a machine.

    python -m benchmarks.compiled --device=v5e [--output=FILE.json] [--against=FILE.json] [NAME...]

Needs the dependencies of the program and of the tests, and the compiler of the device: `.[tpu]` for
v5e, `.[cuda13]` for h100, each in an environment of its own. Nothing runs.
Each function of `tests.cases` is compiled for a batch and several numbers of classes and
ranks K, with its gradient if it has one. The gradient of a head is also by its weights. The sorts,
loops, kernels and memory of the programs are counted. With --against it fails if a program has more
of them than in the file. If the output file exists, only what it lacks is compiled.
"""

import argparse
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import accounts, command, markdown
from benchmarks.accounts import Accounts
from tests.cases import CASES_WITH_HEADS
from tests.cases.case import Case, draw
from tests.cases.losses import LOGITS, Loss
from train.planning import targets
from train.planning.accounts import compile_on_one

BATCH = 256
CLASSES = (100, 1_000, 10_000)
RANKS = (1, 5, 20)
# The number of features of a head.
WIDTH = 512
# The shape at which the papers' losses are compared with cross-entropy.
SHOWN_CLASSES, SHOWN_RANK = 1_000, 5
# Up to this K nothing that selects K classes may have a sort.
_LARGEST_RANK_WITHOUT_SORT = 16
_SELECTED = (
    "the selected classes of the batch, for the gradient of their weights, by a compiler of TPUs"
)
_SCORES, _VALUES = "the scores of the calibration examples", "the values of all examples"
# Its k counts neighbours, not classes.
_WITH_ANOTHER_K = ("sets.neighbor_scores",)
# What the functions that sort have to order, by the beginnings of their names.
ORDERED = {
    "heads.calibrated_top_k_hinge": _SELECTED,
    "heads.convex_top_k_hinge": _SELECTED,
    "heads.noised_top_k_hinge": _SELECTED,
    "heads.top_k_hinge": _SELECTED,
    "losses.conformal_training": "the scores of the batch, for a quantile",
    "losses.p_value_uniformity": "the p-values of the batch",
    "losses.relaxed_top_k_cross_entropy-neural_sort": "all classes",
    "losses.efficiency_gap": "the scores of the batch",
    "metrics.auroc": _VALUES,
    "metrics.oscr": _VALUES,
    "metrics.mean_average_precision": "the examples, by their scores of each class",
    "operators.relaxed_ranks-neural_sort": "all classes",
    "operators.scale_gaps": "all classes: every gap between neighbours has a weight",
    "sets.class_conditional_quantiles": _SCORES,
    "sets.clustered_quantiles": f"{_SCORES}, for classes, for clusters and for all",
    "sets.conformal_quantile": _SCORES,
    "sets.conformal_scores": "all classes: each has a score of those before it",
    "sets.conformal_threshold": _SCORES,
    "sets.hierarchical_quantile": _SCORES,
    "sets.interpolated_quantiles": f"{_SCORES}, by class and together",
    "sets.label_shift_quantiles": _SCORES,
    "sets.rank_calibrated_quantiles": f"{_SCORES}, and their ranks",
    "sets.selective_threshold": "the confidences of the calibration examples",
    "sets.utility_set": "all classes, where a set of any size may be the best",
    "sets.vote_quantile": f"{_SCORES}, with their votes",
}


def main() -> None:
    """Accounts for every function and prints or writes the results as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="functions, such as losses.average_k"
    )
    parser.add_argument("--device", required=True, choices=("v5e", "v5p", "v6e", "h100"))
    parser.add_argument("--output", type=command.output_file, help="a JSON file for the results")
    parser.add_argument(
        "--classes", type=_numbers, default=CLASSES, help="numbers of classes, with commas"
    )
    parser.add_argument("--ranks", type=_numbers, default=RANKS, help="values of K, with commas")
    parser.add_argument(
        "--processes", type=command.integer(1), default=2, help="compilers side by side"
    )
    parser.add_argument("--against", type=Path, help="a JSON file of results that may not grow")
    arguments = parser.parse_args()
    accounts.find_compiler(parser, arguments.device)
    wanted = _wanted(arguments.device, arguments.names, arguments.classes, arguments.ranks)
    accounts.report(
        list(wanted),
        functools.partial(_account, arguments.device, wanted),
        device=arguments.device,
        output=arguments.output,
        against=arguments.against,
        processes=arguments.processes,
    )


@functools.cache
def cases(*, has_kernel: bool) -> dict[str, Case]:
    """The cases of the tests by name, with more samples, and on TPU with the kernel."""
    arrays = {**LOGITS, "key": "key"}

    def noised(variant: str, **parameters: Any) -> Loss:
        return Loss(
            public="losses.noised_top_k_hinge",
            arrays=arrays,
            slopes=1,
            parameters={"k": 5, "epsilon": 1.0, **parameters},
            variant=variant,
        )

    others = [noised("10 samples", num_samples=10)]
    if has_kernel:
        others += [
            noised("by a kernel", num_samples=3, implementation="pallas"),
            noised("10 samples by a kernel", num_samples=10, implementation="pallas"),
        ]
    made = [*CASES_WITH_HEADS, *others]
    return {case.name: case for case in made if not case.many_classes}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(command.integer(1), text.split(",")))


def _cases_of(device: str) -> dict[str, Case]:
    return cases(has_kernel=not device.startswith("h"))


@dataclass(frozen=True)
class _Wanted:
    """A program: its case, its number of classes, and its K if the function has one."""

    case: str
    num_classes: int
    rank: int | None


def _wanted(
    device: str, publics: Sequence[str], classes: Sequence[int], ranks: Sequence[int]
) -> dict[str, _Wanted]:
    """The programs by name, of these public functions or of all."""
    found: dict[str, _Wanted] = {}
    for num_classes, (name, case) in itertools.product(classes, _cases_of(device).items()):
        if publics and case.public not in publics:
            continue
        for rank in ranks if has_rank(case) else (None,):
            program = f"{name}, {num_classes}" + (f", K {rank}" if rank else "")
            found[program] = _Wanted(name, num_classes, rank)
    return found


def _account(device: str, wanted: Mapping[str, _Wanted], name: str) -> dict[str, Any]:
    one = wanted[name]
    case = _cases_of(device)[one.case]
    if one.rank is not None:
        case = replace(case, parameters={**case.parameters, "k": one.rank})
    target = targets.find_target(device)
    return asdict(compile_on_one(*_program(case, one.num_classes, target)))


def has_rank(case: Case) -> bool:
    """Whether the function has a K, which is a number of classes."""
    return "k" in case.parameters and case.public not in _WITH_ANOTHER_K


def function_with_arrays(case: Case, num_classes: int) -> tuple[Any, ...]:
    """The function with its gradient, and the arrays that it takes."""
    is_of_heads = case.public.startswith("heads.")
    drawn = draw((BATCH,), WIDTH if is_of_heads else num_classes)
    arrays = {name: drawn[name] for name in case.arrays.values()}
    parameters = case.resolved(num_classes if not is_of_heads else 2)
    if not is_of_heads:
        return (lambda arrays: case.results(arrays, **parameters)), arrays
    if "margins" in parameters:
        parameters["margins"] = case.resolved(num_classes)["margins"]
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(scale=WIDTH**-0.5, size=(WIDTH, num_classes)).astype(np.float32)
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


def _program(case: Case, num_classes: int, target: Any) -> tuple[Any, ...]:
    """The function with its gradient, the target, and the shapes of the arrays."""
    function, *arrays = function_with_arrays(case, num_classes)
    shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), arrays)
    return function, target, *shapes


def tables(results: dict[str, Any]) -> str:
    """The account as Markdown: losses at one shape, and how many programs have sorts or loops."""
    programs: Accounts = results["programs"]
    shown = (f", {SHOWN_CLASSES}", f", {SHOWN_CLASSES}, K {SHOWN_RANK}")
    lines = [
        _line(name.split(",")[0], account)
        for name, account in programs.items()
        if name.startswith("losses.") and name.endswith(shown) and "failed" not in account
    ]
    rooms = sorted({name.split(".")[0] for name in programs})
    low = {
        name: account
        for name, account in programs.items()
        if "failed" not in account and not name.endswith(f"K {RANKS[-1]}")
    }
    return "\n\n".join(
        [
            f"{results['device']}, {markdown.machine(results['machine'])}; computed, not measured. "
            f"{accounts.tested(programs[name] for name in programs if name.endswith(shown))}",
            f"Losses with their gradients, {BATCH} × {SHOWN_CLASSES:,}, K = {SHOWN_RANK}:",
            markdown.table(
                [
                    *("loss", "sorts", "loops", "kernels", "temporary memory, kB", "moved, MB"),
                    "compiled in, s",
                ],
                lines,
            ),
            "All programs for K up to 5, and for functions without K:",
            markdown.table(
                ["room", "programs", "with a sort", "with a loop"],
                (
                    _counts(room, [low[name] for name in low if name.startswith(room)])
                    for room in rooms
                ),
            ),
            "All functions with a sort among these, and what it orders:",
            markdown.table(["function", "sorts", "of"], _ordered(programs)),
            *accounts.failures(programs),
            *_missing(results),
        ]
    )


def _ordered(programs: Accounts) -> Iterator[list[str]]:
    """How often each function sorts, for a small K or without K, and what it orders."""
    found: dict[str, int] = {}
    for program, account in programs.items():
        name, _, rank = (*program.split(", "), "")[:3]
        small = int(rank.removeprefix("K ") or 0) <= _LARGEST_RANK_WITHOUT_SORT
        if small and account.get("sorts"):
            found[name] = max(found.get(name, 0), account["sorts"])
    for name, sorts in found.items():
        reasons = [ORDERED[public] for public in ORDERED if name.startswith(public)]
        yield [f"`{name}`", str(sorts), *reasons]


def _missing(results: dict[str, Any]) -> Iterator[str]:
    """How many programs of each function nobody has compiled, in words."""
    wanted = _wanted(results["device"], [], CLASSES, RANKS)
    missing = Counter(
        _cases_of(results["device"])[one.case].public
        for name, one in wanted.items()
        if name not in results["programs"]
    )
    if missing:
        counted = "; ".join(f"{count} of `{name}`" for name, count in sorted(missing.items()))
        yield f"Of {len(wanted)} programs, these are not compiled so far: {counted}."


def _counts(room: str, found: Sequence[dict[str, Any]]) -> list[str]:
    """How many programs a room has, how many of them with a sort, and how many with a loop."""
    having = (sum(account[what] > 0 for account in found) for what in ("sorts", "loops"))
    return [room, str(len(found)), *map(str, having)]


def _line(name: str, account: dict[str, Any]) -> list[str]:
    return [
        f"`{name.removeprefix('losses.')}`",
        *(str(account[what]) for what in ("sorts", "loops")),
        str(account["kernels"] + sum(account["calls"].values())),
        f"{account['temporary'] / 1e3:,.1f}",
        f"{account['moved'] / 1e6:,.1f}" if account.get("moved") else "–",
        f"{account['seconds']:.1f}",
    ]


if __name__ == "__main__":
    main()
