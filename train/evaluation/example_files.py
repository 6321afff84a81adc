"""The files of an example table."""

from pathlib import Path


def paths(path: Path) -> tuple[Path, Path, Path]:
    """The files of the examples, of the classes and of the confusions, for one of them or a page.

    Examples:
        >>> [file.name for file in paths(Path("errors.html"))]
        ['errors.csv', 'errors.classes.csv', 'errors.confusions.csv']
    """
    stem = path.name.removesuffix(path.suffix)
    first, second, third = (
        path.with_name(f"{stem}{what}.csv") for what in ("", ".classes", ".confusions")
    )
    return first, second, third
