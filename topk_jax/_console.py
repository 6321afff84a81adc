"""The console command `topk-jax`, which runs the program from any folder.

The packages of the program are called `train` and `configs`. Many users have files with these
names, and packages at the top of an environment would clash with them. The wheel therefore has them
in the folder `topk_jax/_program`, which is not a package, and this command finds them there in its
own process. Import paths in the sources, in the configurations of runs and in data for other
processes are then the same as in a checkout, and imports of other programs do not change.
"""

import contextlib
import difflib
import importlib
import importlib.metadata
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_INSTALLED = _HERE / "_program"
# In a checkout, which may be installed as editable, the packages are beside the library.
_PROGRAM = str(_INSTALLED if _INSTALLED.is_dir() else _HERE.parent)
_USER_ERROR = 2


def find_program() -> None:
    """Has imports look into the program first, then into what is installed.

    The current folder is left out: it may have untrusted files with the names of modules. It is
    looked into only for what the user names; see `train.foundation.import_paths`. The processes
    that this one starts do the same.
    """
    left_out = {_PROGRAM}
    # A current folder that was deleted has no modules.
    with contextlib.suppress(FileNotFoundError):
        left_out.add(os.path.realpath(""))
    rest = [one for one in sys.path if os.path.realpath(one) not in left_out]
    sys.path[:] = [_PROGRAM, *rest]
    os.environ["PYTHONSAFEPATH"] = "1"
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([_PROGRAM, *filter(None, given)])


def main() -> None:
    """Runs the command of the program that the first argument names."""
    find_program()
    program = importlib.import_module("train.__main__")
    modules = {{"main": "train"}.get(module, module): module for module in program.COMMANDS}
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h"):
        words = {name: program.COMMANDS[module] for name, module in modules.items()}
        sys.stdout.write(program.listed("topk-jax ", words))
    elif name == "--version":
        sys.stdout.write(f"topk_jax {importlib.metadata.version('topk_jax')}\n")
    elif name not in modules:
        near = "".join(
            f"; did you mean {one}?" for one in difflib.get_close_matches(name, modules, 1)
        )
        _fail(f"the command must be one of {', '.join(sorted(modules))}; got {name!r}{near}")
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
    main()
