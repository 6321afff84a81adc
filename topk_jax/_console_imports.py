"""Imports from the current folder only the modules that the user names.

The current folder may have untrusted files of any name. Python would run `orbax.py` or `torch.py`
in it when a library asks for a package that is a namespace or is not installed. The current folder
is therefore not an entry of `sys.path`, and two finders replace it. One has the packages of the
program. The other has the modules of the current folder, for an import path that the user has
given, for a recipe, and for the modules that it has found for these.
"""

import contextlib
import os
import site
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

# The module of a recipe, which the user has given as a file.
RECIPE = "config_file"
# Has the modules of the current folder that the program has used, in the processes that decode.
_VARIABLE = "TOPK_JAX_OWN_MODULES"
_PACKAGES = ("configs", "topk_jax", "train")


class _Packages:
    """Finds the packages of the program before all others of these names."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Implements the protocol of finders; `path` is None for a top-level module."""
        found = name in _PACKAGES and path is None
        return PathFinder.find_spec(name, [self._folder], target) if found else None


class _OwnModules:
    """Finds the user's own modules, after all that is installed.

    Attributes:
        named: those that the user has named.
        found: those that are in the current folder.
    """

    def __init__(self, folder: str, found: Sequence[str]) -> None:
        self._folder = folder
        self.found = set(found)
        self.named = {RECIPE, *found}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Implements the protocol of finders."""
        if path is not None or not (name in self.named or _importer() in {RECIPE, *self.found}):
            return None
        spec = PathFinder.find_spec(name, [self._folder], target)
        if spec is not None:
            self.found.add(name)
        return spec


class _State:
    """The state that `begin` changes.

    Attributes:
        path: `sys.path` before `begin`; None if it was not called.
        own: finds the user's modules.
    """

    path: list[str] | None = None
    own: _OwnModules | None = None


def begin(folder: str) -> None:
    """Makes this process find its modules in this way from now on.

    Args:
        folder: where the packages of the program are.
    """
    if _State.path is not None:
        return
    _State.path = list(sys.path)
    sys.meta_path.insert(0, _Packages(folder))
    # A current folder that was deleted has no modules.
    with contextlib.suppress(FileNotFoundError):
        current = os.path.realpath("")
        found = os.environ.get(_VARIABLE, "").split()
        _State.own = _OwnModules(current, found)
        sys.meta_path.append(_State.own)
        if not _is_installed(current):
            sys.path[:] = [one for one in sys.path if os.path.realpath(one) != current]


def is_process_of_the_program() -> bool:
    """Whether this process decodes images for a process in which `begin` was called."""
    return _VARIABLE in os.environ


def name(module: str) -> None:
    """Allows the import of a module of the current folder that the user has named."""
    if _State.own is not None:
        _State.own.named.add(module.partition(".")[0])


@contextlib.contextmanager
def starting_processes() -> Iterator[None]:
    """Within this context, processes that decode can be started, which import as this one does.

    Python gives them `sys.path`, and imports the file that this process was started with. That file
    calls `begin`, and has to be found before.
    """
    if _State.path is None:
        yield
        return
    path, variables = list(sys.path), dict(os.environ)
    sys.path[:] = [*_State.path, *(one for one in path if one not in _State.path)]
    # Otherwise they look for Python's own modules in the current folder first.
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ[_VARIABLE] = " ".join(sorted(_State.own.found)) if _State.own else ""
    try:
        yield
    finally:
        sys.path[:] = path
        for variable in ("PYTHONSAFEPATH", _VARIABLE):
            if variable in variables:
                os.environ[variable] = variables[variable]
            else:
                del os.environ[variable]


def _is_installed(folder: str) -> bool:
    """Whether it is one of the folders of Python's own modules, or of installed ones."""
    # Without pathlib, which is not yet imported and could be a file of the current folder.
    standard = os.path.dirname(os.__file__)  # noqa: PTH120
    folders = [standard, *site.getsitepackages(), site.getusersitepackages()]
    return folder in map(os.path.realpath, folders)


def _importer() -> str:
    """The package of the code that asks for a module."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("importlib"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
