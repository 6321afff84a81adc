"""Pictures in Parquet files, for tests of data sets of Hugging Face."""

import io

from tests.parts.program.data import pictures

CLASSES = ("ash", "birch", "cedar")


def encoded(name, **options):
    """The bytes of a picture that is a function of its name."""
    file = io.BytesIO()
    pictures.picture(name, **options).save(file, "PNG")
    return file.getvalue()


def split(name, labels, *, image="image", label="label", kind="class", more=None):
    """A split of pictures, as `datasets` has it.

    Args:
        name: of the split.
        labels: of the pictures.
        image: the name of the column with the pictures.
        label: the name of the column with the labels.
        kind: the type of the labels; see `_feature`.
        more: further columns without values: their types by their names.
    """
    # Imported here because it takes seconds, and tests are collected by several processes.
    import datasets  # noqa: PLC0415

    images = [{"bytes": encoded(f"{name}/{index}"), "path": None} for index in range(len(labels))]
    columns = {image: images, label: labels} | {one: [None] * len(labels) for one in more or {}}
    kinds = {image: "image", label: kind, **(more or {})}
    features = datasets.Features({column: _feature(kind) for column, kind in kinds.items()})
    return datasets.Dataset.from_dict(columns, features=features)


def write(folder, splits, **options):
    """Writes a Parquet file for each split, with the labels that are given."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, labels in splits.items():
        split(name, labels, **options).to_parquet(folder / f"{name}.parquet")
    return folder


def _feature(kind):
    """The type of a column: "image", "class", or the type of plain values."""
    import datasets  # noqa: PLC0415

    if kind == "image":
        return datasets.Image()
    return datasets.ClassLabel(names=list(CLASSES)) if kind == "class" else datasets.Value(kind)
