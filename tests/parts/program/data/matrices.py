"""Files of features for the tests."""

import numpy as np

CLASSES = ("ash", "birch", "cedar")


def arrays(each=20, *, width=4, classes=CLASSES, dtype=np.float16):
    """Features and labels of a few classes that lie apart, in turns."""
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(len(classes)), each)
    centres = 3 * rng.normal(size=(len(classes), width))
    features = centres[labels] + rng.normal(size=(len(labels), width)) + 5
    return {"features": features.astype(dtype), "labels": np.array(classes)[labels]}


def write(path, **content):
    """Writes an .npz file, or a folder of .npy files where the path has no suffix."""
    if path.suffix:
        np.savez(path, **content)
        return path
    path.mkdir()
    for name, array in content.items():
        np.save(path / f"{name}.npy", array)
    return path
