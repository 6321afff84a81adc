"""The memory of a training step of every network, from programs compiled for TPUs and GPUs.

    python -m benchmarks.network_memory --device=h100 [--output=FILE.json] [NAME...]

Needs the program's dependencies and the compiler of the device: `.[tpu]` for v5e and v5p,
`.[cuda13]` for h100. Nothing runs. The step is the one of `configs/images.py` on one chip, with
1,000 classes, cross-entropy, SGD with momentum, and images of the size of the network. If the
output file exists, only what it lacks is compiled.
"""

import argparse
import functools
from typing import Any

from benchmarks import accounts, command, compiled_steps, markdown
from benchmarks.compiled_steps import CHIPS, PRECISIONS
from train.models import FAMILIES, MODELS
from train.planning.targets import find_target

BATCHES = (32,)
# The image size of networks without published weights.
_PIXELS = {"densenet_40_40": 32}


def main() -> None:
    """Accounts for every network and prints or writes the results as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks, such as resnet50")
    parser.add_argument("--device", required=True, choices=CHIPS)
    parser.add_argument(
        "--batches", nargs="+", type=command.integer(1), default=BATCHES, help="batch sizes"
    )
    parser.add_argument("--output", type=command.output_file, help="a JSON file for the results")
    arguments = parser.parse_args()
    accounts.find_compiler(parser, arguments.device)
    accounts.report(
        [
            f"{name}, {precision}, {batch}"
            for batch in arguments.batches
            for name in arguments.names or networks()
            for precision in PRECISIONS
        ],
        functools.partial(_account, arguments.device),
        device=arguments.device,
        output=arguments.output,
    )


def networks() -> list[str]:
    """The networks of images that are published with weights, and the paper's DenseNet."""
    return [name for family in FAMILIES for name in family.NETWORKS]


def _account(device: str, program: str) -> dict[str, Any]:
    name, precision, batch = program.split(", ")
    changes = {
        "model.name": name,
        "model.half_precision": PRECISIONS[precision],
        "dataset.image_size": _PIXELS.get(name, MODELS[name].image_size),
        "dataset.batch_size": int(batch),
    }
    config = compiled_steps.configuration("images", changes)
    return compiled_steps.plan(config, find_target(device))


def tables(results: dict[str, Any]) -> str:
    """The memory as Markdown: a row for each network, with what a chip needs at once."""
    programs: accounts.Accounts = results["programs"]
    named = {tuple(name.split(", ")): account for name, account in programs.items()}
    batches = sorted({batch for *_, batch in named}, key=int)
    columns = [(precision, batch) for precision in PRECISIONS for batch in batches]
    lines = [
        [
            f"`{name}`",
            str(_PIXELS.get(name, MODELS[name].image_size)),
            *(accounts.cell(named.get((name, *column)), _gigabytes) for column in columns),
        ]
        for name in networks()
    ]
    return "\n\n".join(
        [
            f"{results['device']}, {markdown.machine(results['machine'])}; computed, not measured. "
            "GB of a chip at once, by precision and batch:",
            markdown.table(
                ["network", "pixels", *(f"{one}, {batch}" for one, batch in columns)], lines
            ),
        ]
    )


def _gigabytes(account: dict[str, Any]) -> str:
    return f"{account['needed'] / 1e9:.2f}"


if __name__ == "__main__":
    main()
