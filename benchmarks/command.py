"""Command-line flags of the benchmarks, and their output files."""

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax


def parser(
    doc: str | None, *, repetitions: int | None, what: str = "timed calls of each", least: int = 1
) -> argparse.ArgumentParser:
    """A parser with `--repetitions` and `--output`.

    Args:
        doc: the benchmark's docstring.
        repetitions: the default number of measurements; None if it is determined later.
        what: what is repeated.
        least: the fewest useful repetitions.
    """
    made = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    made.add_argument("--repetitions", type=integer(least), default=repetitions, help=what)
    made.add_argument("--output", type=output_file, help="a JSON file for the results")
    return made


def add_device(made: argparse.ArgumentParser) -> None:
    """Adds `--device`, which is parsed to the first jax.Device of that kind."""
    made.add_argument(
        "--device", type=_device, default=jax.default_backend(), help="cpu, gpu or tpu"
    )


def write(results: Mapping[str, Any], output: Path | None) -> None:
    """Prints or writes the results as JSON."""
    text = json.dumps(results, indent=2) + "\n"
    if output is None:
        print(text)  # noqa: T201
    else:
        output.write_text(text)


@contextlib.contextmanager
def keeping(results: Mapping[str, Any], output: Path | None) -> Iterator[Callable[[], None]]:
    """Gives a function that writes the results so far: a benchmark that is stopped keeps them.

    Without an output file all are printed at the end.
    """
    yield lambda: None if output is None else write(results, output)
    if output is None:
        write(results, None)


def integer(least: int) -> Callable[[str], int]:
    """The argument type of integers with a minimum."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"must be an integer of at least {least}; got {text!r}"
            )
        return int(text)

    return parse


def output_file(text: str) -> Path:
    """The argument type of output files."""
    # Check before the measurements, not after them.
    path = Path(text)
    if not path.parent.is_dir() or path.is_dir():
        raise argparse.ArgumentTypeError(f"must be a file in a folder that exists; got {text!r}")
    return path


def _device(name: str) -> jax.Device:
    try:
        return jax.devices(name)[0]
    except RuntimeError as error:
        there = " or ".join(sorted({"cpu", jax.default_backend()}))
        raise argparse.ArgumentTypeError(
            f"must be {there} on this machine; got {name!r}"
        ) from error
