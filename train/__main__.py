"""The commands: `python -m train` lists them, and `topk-jax COMMAND` runs one."""

import difflib
import importlib
import importlib.metadata
import sys
from collections.abc import Mapping

_USER_ERROR = 2

COMMANDS = {
    "prepare": "prepares a data set that was downloaded",
    "main": "trains a classifier and tests it",
    "evaluate": "evaluates the sets of a classifier, or of scores from elsewhere",
    "predict": "makes the sets for images or features",
    "embed": "computes the features of a network for images, to train heads on",
    "audit": "finds labels that are probably wrong, by cross-fitting on features",
    "monitor": "tests whether sets keep their promise after deployment, as labels are found",
    "export": "exports a classifier and its rule to a file, for use without this program",
    "serve": "answers requests with the sets of an exported classifier, over HTTP",
    "plan": "compiles a run for a TPU or GPU that need not be here, and lists its memory",
    "compare": "makes the runs of a study or of a table of the papers; tables and figures of runs",
}


def listed(start: str, words: Mapping[str, str]) -> str:
    """The text that lists commands, each after what starts it."""
    lines = [f"  {name:<10}{what}\n" for name, what in words.items()]
    return f"The commands; {start}COMMAND --help lists the flags of each:\n\n{''.join(lines)}"


def main() -> None:
    """Runs the command that the first argument of `topk-jax` names."""
    modules = {{"main": "train"}.get(module, module): module for module in COMMANDS}
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h"):
        words = {name: COMMANDS[module] for name, module in modules.items()}
        sys.stdout.write(listed("topk-jax ", words))
    elif name == "--version":
        sys.stdout.write(f"topk_jax {importlib.metadata.version('topk_jax')}\n")
    elif name not in modules:
        near = "".join(
            f"; did you mean {one}?" for one in difflib.get_close_matches(name, modules, 1)
        )
        _fail(f"there is no command {name!r}{near}; there are {', '.join(sorted(modules))}")
    else:
        sys.argv = [f"topk-jax {name}", *arguments]
        _run(f"train.{modules[name]}")


def _run(name: str) -> None:
    try:
        module = importlib.import_module(name)
        command = importlib.import_module("train.foundation.command")
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing in ("configs", "topk_jax", "train"):
            raise
        _fail(f'the program needs the package {missing}: pip install "topk_jax[train]"')
    command.run(module.main)


def _fail(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(_USER_ERROR)


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--help"], ["-h"]):
        _fail(f"a command is written python -m train.NAME; got python -m train {sys.argv[1]}")
    sys.stdout.write(listed("python -m train.", COMMANDS))
