"""Environment variables that libraries read, and that have a value which they fail on or obey.

They are mended once, before the libraries are imported: an unusable variable is removed. The
processes that a command starts inherit them.
"""

import os
import shutil
import tempfile
from pathlib import Path

from absl import logging

_CACHE = "JAX_COMPILATION_CACHE_DIR"
# The widths of a terminal, in columns. absl fails if its indents do not fit, and rich prints
# nothing in 0 columns.
_NARROWEST, _WIDEST = 20, 10_000
# A complete block: a full disk may still have room for an empty file.
_PROBE = bytes(4096)


def mend() -> None:
    """Mends the variables of the libraries that a command imports later."""
    # Figures are drawn to files, whatever screen there is.
    os.environ["MPLBACKEND"] = "agg"
    # tensorflow-datasets takes an empty text for the current folder.
    if not os.environ.get("TFDS_DATA_DIR"):
        os.environ.pop("TFDS_DATA_DIR", None)
    # The specification of these folders has relative ones ignored.
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        if not Path(os.environ.get(name, "")).is_absolute():
            os.environ.pop(name, None)
    _mend_home()
    width = shutil.get_terminal_size().columns
    if "COLUMNS" in os.environ or width < _NARROWEST:
        os.environ["COLUMNS"] = str(min(max(width, _NARROWEST), _WIDEST))


def _mend_home() -> None:
    """Has libraries find a home folder: without a usable HOME, the one in the list of users."""
    if not Path(os.environ.get("HOME", "")).is_absolute():
        os.environ.pop("HOME", None)
    if not os.path.isabs(os.path.expanduser("~")):  # noqa: PTH111, PTH117 (the others raise)
        # The name that systems use for the home of users without one.
        os.environ["HOME"] = "/nonexistent"


def check_cache() -> None:
    """Turns JAX's cache of compiled programs off if the user's folder for it is unusable."""
    folder = os.environ.get(_CACHE)
    # JAX takes places in clouds too.
    if folder and "://" not in folder and not has_cache(Path(folder)):
        os.environ[_CACHE] = ""


def has_cache(folder: Path) -> bool:
    """Whether compiled programs can be read from a folder, which is made if it does not exist.

    A folder that cannot be written to only costs time; a warning reports it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(_PROBE)
    except OSError as error:
        logging.warning(
            "%s cannot be written to (%s): compiled programs are not kept, and the next start "
            "takes longer; set %s to another folder",
            *(folder, error.strerror, _CACHE),
        )
        return folder.is_dir()
    return True
