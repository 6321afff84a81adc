"""The console command `topk-jax`, which runs the program from any folder.

The packages of the program are called `train` and `configs`. Many users have files with these
names, and packages at the top of an environment would clash with them. The wheel therefore has them
in the folder `topk_jax/_program`, which is not a package, and this command finds them there in its
own process. Import paths in the sources, in the configurations of runs and in data for other
processes are then the same as in a checkout, and imports of other programs do not change.
"""

import importlib
import importlib.metadata
import os
import sys
from pathlib import Path

from topk_jax import _console_imports

_HERE = Path(__file__).resolve().parent
_INSTALLED = _HERE / "_program"
# In a checkout, which may be installed as editable, the packages are beside the library.
_PROGRAM = _INSTALLED if _INSTALLED.is_dir() else _HERE.parent
_USER_ERROR = 2


def main() -> None:
    """Runs the command of the program that the first argument names."""
    _console_imports.begin(str(_PROGRAM))
    importlib.import_module("train.foundation.interruption").begin()
    importlib.import_module("train.foundation.process_limits").check()
    # Without it, processes of the program would first look in the current folder or beside this
    # file.
    os.environ["PYTHONSAFEPATH"] = "1"
    invocation = importlib.import_module("train.foundation.invocation")
    commands = {
        invocation.command_of(module): words
        for module, words in importlib.import_module("train.__main__").COMMANDS.items()
    }
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h"):
        _list(commands, invocation.CONSOLE)
    elif name == "--version":
        _show(f"topk_jax {importlib.metadata.version('topk_jax')}\n")
    else:
        one_of = importlib.import_module("train.foundation.fields").one_of
        if wrong := one_of(commands)(name):
            _fail(f"the command must be {wrong}; got {name!r}")
        # train/foundation/invocation.py reads it.
        sys.argv = [f"{invocation.CONSOLE} {name}", *arguments]
        _run(f"train.{invocation.module_of(name)}")


def _list(commands: dict[str, str], console: str) -> None:
    lines = [f"  {name:<10}{words}\n" for name, words in commands.items()]
    head = f"The commands; {console} COMMAND --help lists the flags of each:\n\n"
    _show(head + "".join(lines))


def _show(text: str) -> None:
    importlib.import_module("train.foundation.standard_output").show(text)


def _run(name: str) -> None:
    try:
        module = importlib.import_module(name)
        command_line = importlib.import_module("train.foundation.command_line")
        command_line.run(module.main)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing in ("configs", "topk_jax", "train"):
            raise
        packages = importlib.import_module("train.foundation.packages")
        _fail(packages.missing("the program", missing, "train"))


def _fail(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(_USER_ERROR)


if __name__ == "__main__":
    main()
elif _console_imports.is_process_of_the_program():
    # Python imports this file in the processes that decode, before it reads what they decode.
    _console_imports.begin(str(_PROGRAM))
