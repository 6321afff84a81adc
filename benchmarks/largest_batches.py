"""The largest batch of every recipe on one TPU or GPU, from programs compiled for it.

    python -m benchmarks.largest_batches --device=h100 [--output=FILE.json] [NAME...]

Needs the program's dependencies and the compiler of the device: `.[tpu]` for v5e and v5p,
`.[cuda13]` for h100. Nothing runs. `train.plan` looks for the batch: the step is compiled for
batches of several sizes, until one that fits and one that does not are an eighth apart. Recipes of
images are compiled in bfloat16, too. A recipe of a user's own data gets what
`benchmarks.compiled_steps` gives it, and the search starts at the batch that its committed results
suggest. Several devices may have one output file. If it exists, only what it lacks is compiled.
"""

import argparse
from typing import Any

from benchmarks import accounts, command, compiled_steps, markdown
from benchmarks.compiled_steps import CHIPS, PRECISIONS
from train.data import dataset_spec
from train.planning.plans import StepPlanner
from train.planning.targets import Target, find_target

_UNIT = 16
# A search compiles several programs.
_SECONDS = 4 * accounts.SECONDS_OF_A_PROGRAM
# The part taken of a batch that comes from the account of another kind of chip, whose programs need
# other memory.
_CAREFUL = 0.75
# How many examples in bfloat16 have the memory of one in float32, at least.
_OF_HALF = 1.75


def main() -> None:
    """Looks for every batch and prints or writes the results as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="recipes, such as imagenet")
    parser.add_argument("--device", required=True, choices=CHIPS)
    parser.add_argument(
        "--precisions", nargs="+", choices=PRECISIONS, default=[*PRECISIONS], help="of the features"
    )
    parser.add_argument("--output", type=command.output_file, help="a JSON file for the results")
    arguments = parser.parse_args()
    accounts.find_compiler(parser, arguments.device)
    accounts.report(
        [
            f"{recipe}, {arguments.device}, {precision}"
            for precision in arguments.precisions
            for recipe in arguments.names or compiled_steps.recipes()
            if precision in _precisions(recipe)
        ],
        _account,
        device=", ".join(CHIPS),
        output=arguments.output,
        seconds=_SECONDS,
    )


def _precisions(recipe: str) -> list[str]:
    """In which precisions the recipe is compiled."""
    has_images = dataset_spec(compiled_steps.configuration(recipe).dataset).has_images
    return [name for name, is_half in PRECISIONS.items() if has_images or not is_half]


def _account(name: str) -> dict[str, Any]:
    recipe, device, precision = name.split(", ")
    return _largest(recipe, find_target(device), is_half=PRECISIONS[precision])


def _largest(recipe: str, target: Target, *, is_half: bool) -> dict[str, Any]:
    config = compiled_steps.configuration(recipe, {"model.half_precision": is_half})
    planner = StepPlanner(config, target, compiled_steps.facts(config))
    first = _first_batch(recipe, target, is_half=is_half) or config.dataset.batch_size
    largest = planner.find_largest(planner.plan(first))
    if largest is None:
        return {"failed": "no batch fits"}
    return {"too_large": largest.too_large, **compiled_steps.described(largest.plan)}


def _first_batch(recipe: str, target: Target, *, is_half: bool) -> int | None:
    """The batch that the search starts with, from the largest batch in float32 if it is known.

    Else it comes from the memory of the step with the batch of the recipe.
    """
    in_full = accounts.committed("largest_batches", "chips").get(
        f"{recipe}, {target.name}, float32"
    )
    if is_half and in_full and "batch" in in_full:
        return int(_OF_HALF * in_full["batch"]) // _UNIT * _UNIT
    for chip, part in ((target.name, 1), ("h100", _CAREFUL)):
        account = accounts.committed("compiled_steps", chip).get(f"{recipe}, {chip}", {})
        if parts := account.get("parts"):
            kept = sum(parts.values()) - parts["batch"]
            of_one = (account["needed"] - kept) / account["batch"]
            return max(int(part * (target.memory - kept) / of_one) // _UNIT, 1) * _UNIT
    return None


def tables(results: dict[str, Any]) -> str:
    """The batches as Markdown: a row for each recipe."""
    programs: accounts.Accounts = results["programs"]
    columns = [(device, precision) for device in CHIPS for precision in PRECISIONS]
    lines = [
        [
            f"`{recipe}`",
            f"{compiled_steps.configuration(recipe).dataset.batch_size:,}",
            *(
                accounts.cell(programs.get(f"{recipe}, {device}, {precision}"), _batch)
                if precision in _precisions(recipe)
                else ""
                for device, precision in columns
            ),
        ]
        for recipe in compiled_steps.recipes()
    ]
    return "\n\n".join(
        [
            f"{markdown.machine(results['machine'])}; computed, not measured. The largest batch of "
            "one chip:",
            markdown.table(["recipe", "its batch", *map(", ".join, columns)], lines),
        ]
    )


def _batch(account: dict[str, Any]) -> str:
    return f"{account['batch']:,}"


if __name__ == "__main__":
    main()
