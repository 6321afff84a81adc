"""Which packages an optional part of the program needs, and the command that installs them.

The command names the packages themselves, not an extra of topk_jax: topk_jax is not on a package
index, and not installed on machines that run an exported program.
"""

import shlex
from collections.abc import Mapping

# The extras of pyproject.toml that messages name, without the lower bounds.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "cuda13": ("jax[cuda13]",),
    "heic": ("pillow-heif",),
    "huggingface": ("datasets", "huggingface_hub", "pyarrow"),
    "mlflow": ("mlflow-skinny",),
    "onnx": ("onnx", "onnxruntime"),
    "prepare": ("tensorflow-cpu",),
    "server": ("httptools", "prometheus-client", "python-multipart", "starlette", "uvicorn"),
    "tpu": ("jax[tpu]",),
    "train": (
        "absl-py",
        "array-record",
        "etils[epath]",
        "flatbuffers",
        "flax",
        "grain",
        "importlib_resources",
        "jinja2",
        "matplotlib",
        "ml_collections",
        "orbax-checkpoint",
        "pillow",
        "rich",
        "safetensors",
        "scikit-learn",
        "scipy",
        "tensorboardX",
        "tensorflow-datasets",
    ),
    "wandb": ("wandb",),
}


def command(*names: str) -> str:
    """The command that installs packages, as a shell takes it."""
    return f"pip install {shlex.join(names)}"


def install(extra: str) -> str:
    """The command that installs the packages of an extra."""
    return command(*EXTRAS[extra])


def missing(what: str, package: str, extra: str) -> str:
    """The message that a package is not installed.

    Args:
        what: the field, flag or part of the program that needs it.
        package: the name of the package.
        extra: the extra that has it.
    """
    return f"{what} needs the package {package}, which is not installed: {install(extra)}"
