"""Pictures in Parquet files, for tests of data sets of Hugging Face."""

import io

from tests.parts.program.data import pictures

CLASSES = ("ash", "birch", "cedar")


def encoded(name):
    """The bytes of a picture that is a function of its name."""
    file = io.BytesIO()
    pictures.picture(name).save(file, "PNG")
    return file.getvalue()


def split(name, labels, *, label="label", kind="class", more=None):
    """A split of pictures, as `datasets` has it.

    Args:
        name: of the split.
        labels: of the pictures.
        label: the name of the column with the labels.
        kind: the type of the labels: "class", or one of plain values.
        more: further columns without values: their types by their names.
    """
    # Imported here because it takes seconds, and tests are collected by several processes.
    import datasets  # noqa: PLC0415

    images = [{"bytes": encoded(f"{name}/{index}"), "path": None} for index in range(len(labels))]
    columns = {"image": images, label: labels} | {one: [None] * len(labels) for one in more or {}}
    types = {"image": datasets.Image(), "class": datasets.ClassLabel(names=list(CLASSES))}
    kinds = {"image": "image", label: kind, **(more or {})}
    features = {one: types.get(kind) or datasets.Value(kind) for one, kind in kinds.items()}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def write(folder, splits):
    """Writes a Parquet file for each split, with the labels that are given."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, labels in splits.items():
        split(name, labels).to_parquet(folder / f"{name}.parquet")
    return folder
