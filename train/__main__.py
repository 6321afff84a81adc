"""Lists the commands: `python -m train`."""

import sys
from collections.abc import Mapping

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


if __name__ == "__main__":
    sys.stdout.write(listed("python -m train.", COMMANDS))
