"""A command in which a call of the system fails."""

import importlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tests.train.chaos import preloaded
from tests.train.chaos.preloaded import Fault

_COMMAND, _FOLDER, _FAULT, _COUNTS = "FAULTED", "FAULTED_FOLDER", "FAULT", "FAULT_COUNTS"
# The command defines its flags before `main`. A test that imports this names none.
command = importlib.import_module(os.environ[_COMMAND]) if _COMMAND in os.environ else None


def environment(module: str, folder: Path, fault: Fault, counts: Path) -> Mapping[str, str]:
    """The variables of the process: the command, which calls fail and how, and where it counts."""
    return {
        _COMMAND: module,
        _FOLDER: str(folder),
        _FAULT: json.dumps(asdict(fault)),
        _COUNTS: str(counts),
    }


def main() -> None:
    preloaded.arm(Path(os.environ[_FOLDER]), Fault(**json.loads(os.environ[_FAULT])))
    assert command is not None
    try:
        command.main()
    finally:
        Path(os.environ[_COUNTS]).write_text(json.dumps(preloaded.counts()))
