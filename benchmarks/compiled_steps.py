"""What the compilers of TPUs and GPUs make of the training step of every recipe.

    python -m benchmarks.compiled_steps --device=v5e [--output=FILE.json] [NAME...]

Needs the program's dependencies and the compiler of the device: `.[tpu]` for v5e and v5p,
`.[cuda13]` for h100, each in an environment of its own. Nothing runs. The
step is compiled for one chip and, but for v5p, for several, with the batch of the recipe, or with
the next batch that the chips can share. Recipes of a user's own data get 1,000 classes of images of
224 by 224 pixels, or of rows of 2,048 features. With --against it fails if a step has more sorts,
loops, messages or memory than in the file. If the output file exists, only what it lacks is
compiled.
"""

import argparse
import functools
import importlib
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import accounts, command, markdown
from train.configuration.groups import Config
from train.configuration.parsing import parse
from train.data import dataset_spec
from train.data.classes import Classes
from train.planning.plans import Plan, StepPlanner
from train.planning.targets import Target, find_target
from train.workdir.facts import Facts

PRECISIONS = {"float32": False, "bfloat16": True}
CHIPS = {"v5e": ("v5e", "v5e:2x2", "v5e:4x4"), "v5p": ("v5p",), "h100": ("h100", "h100:8")}
# What the steps that sort have to order, by recipe.
ORDERED = {
    "plantnet300k_average_k": "the candidates of a chip, of which the other chips get the scores",
}
# What stands for a user's own data.
_CLASSES, _PIXELS, _FEATURES = 1_000, 224, 2_048


def main() -> None:
    """Accounts for every step and prints or writes the results as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="recipes, such as imagenet:cross_entropy"
    )
    parser.add_argument("--device", required=True, choices=CHIPS)
    parser.add_argument("--output", type=command.output_file, help="a JSON file for the results")
    parser.add_argument("--against", type=Path, help="a JSON file of results that may not grow")
    arguments = parser.parse_args()
    accounts.find_compiler(parser, arguments.device)
    accounts.report(
        [
            f"{recipe}, {chips}"
            for recipe in arguments.names or recipes()
            for chips in CHIPS[arguments.device]
        ],
        _account,
        device=arguments.device,
        output=arguments.output,
        against=arguments.against,
    )


def recipes() -> list[str]:
    """The recipes, one of each step."""
    files = sorted((Path(__file__).parents[1] / "configs").glob("[!_]*.py"))
    return [
        path.stem
        for path in files
        if hasattr(importlib.import_module(f"configs.{path.stem}"), "get_config")
    ]


def configuration(recipe: str, changes: dict[str, Any] | None = None) -> Config:
    """The configuration of a recipe, with what the command line has to give."""
    name, _, choice = recipe.partition(":")
    get_config = importlib.import_module(f"configs.{name}").get_config
    config = get_config(choice) if choice else get_config()
    if "path" in config.dataset:
        # Nothing is read from there.
        config.dataset.path = "data"
    config.update_from_flattened_dict(changes or {})
    return parse(config.to_dict())


def facts(config: Config) -> Facts | None:
    """What the step needs to know of a user's own data; None if the recipe knows it."""
    spec = dataset_spec(config.dataset)
    if spec.num_classes is not None and spec.image_shape is not None:
        return None
    pixels = getattr(config.dataset, "image_size", None) or _PIXELS
    shape = (pixels, pixels, 3) if spec.has_images else (_FEATURES,)
    counts = (100,) * _CLASSES
    names = tuple(map(str, range(_CLASSES)))
    numbers = (0.5,) * shape[-1]
    return Facts(Classes(names, counts), shape, mean=numbers, std=numbers)


def plan(config: Config, target: Target) -> dict[str, Any]:
    """The account of the step of a configuration."""
    return described(StepPlanner(config, target, facts(config)).plan(config.dataset.batch_size))


def described(found: Plan) -> dict[str, Any]:
    """The account of a plan."""
    if found.account is None:
        return {"failed": "does not fit"}
    return {
        "batch": found.batch_size,
        "needed": found.needed,
        "parts": found.parts,
        **asdict(found.account),
    }


def _account(name: str) -> dict[str, Any]:
    recipe, chips = name.split(", ")
    target = find_target(chips)
    config = configuration(recipe)
    # If images are mixed in pairs, each chip needs two.
    unit = (2 if config.dataset.mixup else 1) * config.optimizer.accumulation_steps
    unit *= len(target.devices)
    batch = math.ceil(config.dataset.batch_size / unit) * unit
    return plan(configuration(recipe, {"dataset.batch_size": batch}), target)


def tables(results: dict[str, Any]) -> str:
    """The steps as Markdown."""
    programs: accounts.Accounts = results["programs"]
    number = functools.partial(_megabytes, decimals=1)
    lines = []
    for name, account in programs.items():
        recipe, chips = name.split(", ")
        if "failed" in account:
            continue
        lines.append(
            [
                f"`{recipe}`",
                chips,
                str(account["batch"]),
                *(str(account[what]) for what in ("sorts", "loops", "kernels", "messages")),
                number(sum(account["collectives"].values())),
                number(account["temporary"]),
                number(account["needed"]),
                f"{account['seconds']:.0f}",
            ]
        )
    return "\n\n".join(
        [
            f"{markdown.machine(results['machine'])}; computed, not measured. "
            f"{accounts.tested(programs.values())} Of one chip:",
            markdown.table(
                [
                    *("recipe", "chips", "batch", "sorts", "loops", "kernels", "messages"),
                    *("MB of messages", "temporary MB", "MB at once"),
                    "compiled in, s",
                ],
                lines,
            ),
            "The steps with a sort, and what it orders:",
            markdown.table(["recipe", "chips", "sorts", "of"], _ordered(programs)),
            *accounts.failures(programs),
            *_missing(results),
        ]
    )


def _ordered(programs: accounts.Accounts) -> Iterator[list[str]]:
    """How often each step sorts, and what it orders."""
    for name, account in programs.items():
        recipe, chips = name.split(", ")
        if account.get("sorts"):
            reasons = [ORDERED[recipe]] if recipe in ORDERED else []
            yield [f"`{recipe}`", chips, str(account["sorts"]), *reasons]


def _missing(results: dict[str, Any]) -> Iterator[str]:
    """The steps that nobody has compiled, in words."""
    steps = [f"{recipe}, {chips}" for recipe in recipes() for chips in CHIPS[results["device"]]]
    missing = [f"`{step}`" for step in steps if step not in results["programs"]]
    if missing:
        yield f"Not compiled so far: {'; '.join(missing)}."


def _megabytes(size: int, decimals: int) -> str:
    return f"{size / 1e6:,.{decimals}f}"


if __name__ == "__main__":
    main()
