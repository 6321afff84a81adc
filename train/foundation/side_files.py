"""Folders and files that systems and other programs keep beside the user's: previews, icons, trash.

Images in them are copies of others, or were thrown away.
"""

from collections import Counter
from pathlib import Path

from absl import logging

# In lower case. Names that a class could have, such as "thumbs", are not among them.
_SIDE_FOLDERS = frozenset(
    {
        # Stores of files in the network: Synology, QNAP, NetApp.
        *("@eadir", "@tmp", "@sharebin", "#recycle", "#snapshot"),
        *(".@__thumb", "@__thumb", ".@upload_cache", "@recycle", "@recently-snapshot"),
        *(".snapshot", "~snapshot"),
        # Windows.
        *("$recycle.bin", "system volume information"),
        # macOS.
        *("__macosx", ".appledouble", ".appledb", ".appledesktop", ".trashes", ".trash"),
        *(".spotlight-v100", ".fseventsd", ".documentrevisions-v100", ".temporaryitems"),
        *("network trash folder", "temporary items"),
        # Linux.
        *(".thumbnails", ".thumbs", ".sh_thumbnails", ".xvpics", "lost+found"),
        # Programs for photographs, for files in several places, and notebooks.
        *(".picasaoriginals", ".dtrash", ".stversions", ".dropbox.cache", ".ipynb_checkpoints"),
    }
)
# Windows and stores of files in clouds put these into any folder. In lower case.
_SYSTEM_FILES = frozenset({"desktop.ini", "thumbs.db", "icon\r"})
# The user's number follows: .Trash-1000.
_TRASH = ".trash-"
# Adobe Lightroom's previews have the name of the catalogue before these endings.
_ENDINGS = (".lrdata", ".lrcat-data")


def is_hidden(name: str) -> bool:
    """Whether a file or a folder is hidden from the user."""
    return name.startswith(".")


def is_side_folder(name: str) -> bool:
    """Whether a folder of this name is one that another program keeps for itself."""
    lower = name.lower()
    return lower in _SIDE_FOLDERS or lower.startswith(_TRASH) or lower.endswith(_ENDINGS)


def is_of_system(path: Path) -> bool:
    """Whether a file is hidden, is in a hidden folder or a side folder, or is a system's own.

    Args:
        path: the file, in the folder that is looked into.
    """
    is_beside = any(is_hidden(name) or is_side_folder(name) for name in path.parts)
    return is_beside or path.name.lower() in _SYSTEM_FILES


class PassedOver:
    """Counts the folders of other programs that a search for images does not look into."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()

    def is_passed(self, name: str) -> bool:
        """Whether a folder is hidden or another program's; the second is counted."""
        if is_side_folder(name):
            self._names[name] += 1
            return True
        return is_hidden(name)

    def tell(self, where: str | Path) -> None:
        """Logs how many were passed over, if any were."""
        if self._names:
            named = ", ".join(f"{name} ({count:,})" for name, count in sorted(self._names.items()))
            logging.warning(
                "%s has folders of other programs, with previews or deleted files, which are left "
                "out: %s",
                where,
                named,
            )
