"""What users of an exported classifier need to know about it."""

from typing import Any

from train.classifiers.trained import TrainedClassifier
from train.data import preparation as preparing


def facts(classifier: TrainedClassifier) -> dict[str, Any]:
    """The classes in their order, and what the classifier was trained on and how."""
    spec = classifier.spec
    origin, name = classifier.origin
    return {
        "classes": list(classifier.classes.names),
        "data_set": spec.name,
        **({"attribution": spec.attribution} if spec.attribution else {}),
        origin: name,
        "network": classifier.network_name,
    }


def preparation(classifier: TrainedClassifier) -> str:
    """How an image becomes the uint8 pixels that the classifier takes, in words."""
    height, width, channels = classifier.shape
    colour = "greyscale" if channels == 1 else "RGB"
    reader = classifier.spec.image_reader
    upright = ", turned upright" if reader.upright else ""
    return (
        f"The picture{upright}, in {colour}, {reader.fit.in_words} (bilinear with "
        f"antialiasing, as Pillow does), the middle {height} x {width} pixels of it, values from 0 "
        "to 255."
    )


def steps(classifier: TrainedClassifier) -> dict[str, Any]:
    """The same as data, for programs: the steps to the pixels, and their normalization."""
    spec = classifier.spec
    numbers = {"divisor": 255, "mean": list(spec.mean), "std": list(spec.std)}
    return {"steps": preparing.to_plain(spec.image_reader), "normalization": numbers}
