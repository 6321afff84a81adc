"""The console command `topk-jax`, which finds the program and runs it from any folder.

The packages of the program are called `train` and `configs`. Many users have files with these
names, and packages at the top of an environment would clash with them. The wheel therefore has them
in the folder `topk_jax/_program`, which is not a package, and this command finds them there in its
own process. Import paths in the sources, in the configurations of runs and in data for other
processes are then the same as in a checkout, and imports of other programs do not change.
"""

import contextlib
import importlib
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_INSTALLED = _HERE / "_program"
# In a checkout, which may be installed as editable, the packages are beside the library.
_PROGRAM = str(_INSTALLED if _INSTALLED.is_dir() else _HERE.parent)


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
    importlib.import_module("train.__main__").main()


if __name__ == "__main__":
    main()
