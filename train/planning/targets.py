"""Machines that need not be here: what their compilers have to know, and their memory."""

import importlib.util
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from train.foundation import packages
from train.foundation.errors import UserError

_GIBIBYTE = 2**30


@dataclass(frozen=True)
class _Kind:
    """A kind of chip.

    Attributes:
        platform: as JAX calls it.
        memory: bytes of the memory of a chip, as published.
        package: the package of its compiler, which `extra` of this project installs.
        extra: the optional dependencies that have the compiler.
        dimensions: how many numbers its topology has.
        most: the chips of the largest machine that is sold.
    """

    platform: Literal["tpu", "cuda"]
    memory: int
    package: str
    extra: str
    dimensions: int
    most: int


_KINDS = {
    "v5e": _Kind("tpu", 16 * _GIBIBYTE, "libtpu", "tpu", 2, 256),
    "v5p": _Kind("tpu", 95 * _GIBIBYTE, "libtpu", "tpu", 3, 8960),
    "v6e": _Kind("tpu", 32 * _GIBIBYTE, "libtpu", "tpu", 2, 256),
    "h100": _Kind("cuda", 84_929_347_584, "jax_cuda13_plugin", "cuda13", 1, 256),
}
# An NVIDIA H100 SXM5, for XLA, by its programming guide and its data sheet.
_H100 = """
platform_name: "CUDA"
device_description_str: "NVIDIA H100 80GB HBM3"
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  l2_cache_size: 52428800
  memory_bandwidth: 3352320000000
  device_memory_size: 84929347584
}
dnn_version_info { major: 9 minor: 12 }
runtime_version { major: 13 }
"""


@dataclass(frozen=True)
class Target:
    """Chips that a program is compiled for.

    Attributes:
        name: the user's name of them.
        platform: as JAX calls it.
        memory: bytes of each chip.
        devices: the chips, as the compiler describes them.
    """

    name: str
    platform: str
    memory: int
    devices: Sequence[Any]


def find_target(name: str) -> Target:
    """The chips of a name, `v5e:4x4` or `h100:8`; one chip without a topology.

    JAX then computes only on the CPU.

    Raises:
        UserError: there is no such kind or topology, or its compiler is not installed.
    """
    matched = re.fullmatch(r"(\w+)(?::(\d{1,9}(?:x\d{1,9})*))?", name)
    if matched is None or matched[1] not in _KINDS:
        raise _refused(name)
    kind = _KINDS[matched[1]]
    sizes = [int(size) for size in matched[2].split("x")] if matched[2] else []
    # The compilers know machines of any number of chips.
    if len(sizes) not in (0, kind.dimensions) or not 0 < math.prod(sizes) <= kind.most:
        raise _refused(name)
    if importlib.util.find_spec(kind.package) is None:
        missing = packages.missing(f"--device={name}", kind.package, kind.extra)
        raise UserError(f"{missing}, in an environment of its own")
    # JAX takes a second to import.
    import jax  # noqa: PLC0415
    from jax.experimental import topologies  # noqa: PLC0415

    _look_for_no_machine()
    try:
        if kind.platform == "cuda":
            (count,) = sizes or [1]
            found = topologies.get_topology_desc(
                platform="cuda", target_config=_H100, topology=f"1x1x{count}"
            )
        else:
            # The smallest that a host has, for one of its chips.
            shape = "x".join(map(str, sizes)) or "2x2" + "x1" * (kind.dimensions - 2)
            found = topologies.get_topology_desc(f"{matched[1]}:{shape}", platform="tpu")
    except jax.errors.JaxRuntimeError as error:
        if "INVALID_ARGUMENT" in str(error):
            raise _refused(name) from error
        raise
    return Target(name, kind.platform, kind.memory, found.devices[: math.prod(sizes)])


def _look_for_no_machine() -> None:
    """Makes JAX compute on the CPU, and the compilers look for no chips of this machine."""
    import jax  # noqa: PLC0415

    jax.config.update("jax_platforms", "cpu")
    os.environ.update(
        TPU_SKIP_MDS_QUERY="1",
        # Without these, the compiler asks this machine for them, and prints that it has none.
        TPU_ACCELERATOR_TYPE="v5litepod-4",
        TPU_WORKER_HOSTNAMES="localhost",
        # Several compilers may run side by side; none of them has a chip.
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",
        CUDA_VISIBLE_DEVICES="-1",
    )


def _refused(name: str) -> UserError:
    return UserError(
        field="--device",
        must_be=(
            f"one of {', '.join(_KINDS)}, with a topology that there is, such as v5e:4x4, "
            "v5p:2x2x1 or h100:8"
        ),
        got=name,
    )
