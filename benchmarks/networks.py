"""Images per second of every network, forward and with the gradients, beside PyTorch's.

    python -m benchmarks.networks [--networks=resnet50,vgg11] [--image_size=224] [--batch_size=32]
        [--compile_limit=0] [--repetitions=5] [--output=FILE.json]

Needs flax and safetensors, PyTorch, torchvision and timm, and no data set. It measures in float32,
on the GPU if JAX finds one, and else on the CPU. Forward is an evaluation. The gradients are those
of the mean cross-entropy by all parameters, in training: batch norm uses and updates statistics of
the batch. Dropout is off on both sides, and no optimizer runs. PyTorch's contestants are the
network of torchvision or timm as it is, with `channels_last`, and compiled by `torch.compile` if
that takes at most `--compile_limit` seconds for one of the two functions.

Each network has a process of its own, in which the contestants take turns on the same number of
threads. The memory is the peak of that process in a call, beyond what it had before: parameters and
images do not count, nor does the memory of a GPU. A network that fails is listed with the reason.

The results are written after every network. Results in the file that were measured in the same way
are kept, so that a run that was interrupted can be continued. `--networks` measures again.
"""

import argparse
import contextlib
import ctypes
import functools
import gc
import importlib.metadata
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import jax
import numpy as np

from benchmarks import command, timing
from topk_jax import losses
from train.models import MODELS, build_model
from train.training.state import num_parameters

NUM_CLASSES = 1000
# The functions that are timed.
FORWARD, GRADIENTS = "forward", "gradients"
# The contestants.
HERE, EAGER, CHANNELS_LAST, COMPILED = "here", "PyTorch", "channels_last", "torch.compile"
_PACKAGES = ("flax", "torchvision", "timm")


def main() -> None:
    """Measures the networks that the results lack, and prints or writes all results as JSON."""
    parser = command.parser(__doc__, repetitions=5)
    parser.add_argument("--networks", type=_networks, help="names, with commas between them")
    parser.add_argument("--image_size", type=command.integer(1), default=224)
    parser.add_argument("--batch_size", type=command.integer(1), default=32)
    parser.add_argument(
        "--compile_limit",
        type=command.integer(0),
        default=0,
        help="seconds for each torch.compile; 0 for none",
    )
    arguments = parser.parse_args()
    settings = {
        name: getattr(arguments, name)
        for name in ("image_size", "batch_size", "compile_limit", "repetitions")
    }
    measured: dict[str, Any] = {}
    if arguments.output is not None and arguments.output.exists():
        before = json.loads(arguments.output.read_text())
        if before["settings"] != settings:
            parser.error(f"{arguments.output} was measured with {before['settings']}")
        measured = before["networks"]
    wanted = arguments.networks or [
        name
        for name, spec in MODELS.items()
        if spec.names is not None and "failure" in measured.get(name, {"failure": "not yet"})
    ]
    machine = timing.machine()
    machine["versions"] |= {name: importlib.metadata.version(name) for name in _PACKAGES}

    results: dict[str, Any] = {"machine": machine, "settings": settings, "networks": measured}
    with command.keeping(results, arguments.output) as keep:
        for name in wanted:
            started = time.perf_counter()
            measured[name] = _in_process(name, settings)
            seconds = time.perf_counter() - started
            outcome = measured[name].get("failure", "measured")
            print(f"{name}: {outcome} ({seconds:.0f} s)", file=sys.stderr)  # noqa: T201
            results["networks"] = {name: measured[name] for name in MODELS if name in measured}
            keep()


def measure(name: str, settings: dict[str, int]) -> dict[str, Any]:
    """The median seconds, the memory and the time of compilation of one network's contestants."""
    unit = MODELS[name].multiple_of
    size = settings["image_size"]
    if size % unit or size < MODELS[name].smallest:
        return {"failure": f"takes no images of {size} by {size} pixels"}
    rng = np.random.default_rng(0)
    images = rng.normal(size=(settings["batch_size"], size, size, 3)).astype(np.float32)
    labels = rng.integers(0, NUM_CLASSES, len(images)).astype(np.int32)
    ours, compile_seconds, parameters = _ours(name, images, labels)
    theirs, failures, theirs_compile = _theirs(name, images, labels, settings["compile_limit"])
    contestants = {HERE: ours, **theirs}
    found: dict[str, dict[str, Any]] = {
        contestant: {"compile_seconds": {HERE: compile_seconds, **theirs_compile}.get(contestant)}
        for contestant in contestants
    }
    for contestant, functions in contestants.items():
        functions[GRADIENTS]()
        found[contestant]["memory"] = _memory(functions[GRADIENTS])
    for which in (FORWARD, GRADIENTS):
        seconds = timing.medians_in_turns(
            {contestant: functions[which] for contestant, functions in contestants.items()},
            settings["repetitions"],
        )
        for contestant, one in seconds.items():
            found[contestant][which] = one
    return {"parameters": parameters, "contestants": found, "failures": failures}


def _ours(
    name: str, images: np.ndarray, labels: np.ndarray
) -> tuple[dict[str, timing.Contestant], float, int]:
    """The two functions, the seconds that their compilation took, and the parameters."""
    model = build_model(
        name,
        num_classes=NUM_CLASSES,
        head="linear",
        axis_name=None,
        half_precision=False,
        options={
            option: 0.0
            for option in ("dropout", "stochastic_depth")
            if option in MODELS[name].options
        },
    )
    shapes = jax.eval_shape(
        functools.partial(model.init, train=False), jax.random.key(0), images[:1]
    )
    rng = np.random.default_rng(1)
    # Drawn here, because the initialisation would take as long to compile as many steps take to
    # run.
    variables = jax.tree_util.tree_map_with_path(functools.partial(_drawn, rng), shapes)
    params, state = variables["params"], {k: v for k, v in variables.items() if k != "params"}

    def loss(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> tuple[Any, Any]:
        logits, updates = model.apply(
            {"params": params, **state}, images, train=True, mutable=["batch_stats"]
        )
        return losses.cross_entropy(logits, labels).mean(), updates

    def forward(params: Any, state: Any, images: jax.Array, _labels: jax.Array) -> Any:
        return model.apply({"params": params, **state}, images, train=False)

    operands = jax.device_put((params, state, images, labels))
    started = time.perf_counter()
    compiled = {
        which: jax.jit(function).lower(*operands).compile()
        for which, function in (
            (FORWARD, forward),
            (GRADIENTS, jax.value_and_grad(loss, has_aux=True)),
        )
    }
    seconds = time.perf_counter() - started
    functions: dict[str, timing.Contestant] = {
        which: timing.blocking(function, *operands) for which, function in compiled.items()
    }
    return functions, seconds, num_parameters(params)


def _drawn(rng: np.random.Generator, path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> Any:
    """Normals that keep the size of activations, or the numbers that a norm starts with."""
    if leaf.ndim > 1:
        fan_in = np.prod(leaf.shape[:-1])
        return rng.normal(scale=fan_in**-0.5, size=leaf.shape).astype(leaf.dtype)
    ones = path[-1].key in ("scale", "var")
    return np.full(leaf.shape, float(ones), leaf.dtype)


def _theirs(
    name: str, images: np.ndarray, labels: np.ndarray, compile_limit: int
) -> tuple[dict[str, dict[str, timing.Contestant]], dict[str, str], dict[str, float]]:
    """The functions by contestant, why some are missing, and the seconds of compilations."""
    import torch  # noqa: PLC0415

    from benchmarks import published_networks  # noqa: PLC0415

    # The number of threads that XLA uses.
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    # PyTorch's layout, in the order of memory of either contestant.
    device = "cuda" if jax.default_backend() == "gpu" else "cpu"
    batch = torch.tensor(images, device=device).permute(0, 3, 1, 2)
    classes = torch.tensor(labels, dtype=torch.long, device=device)

    def finish() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def functions(network: Any, batch: Any) -> dict[str, timing.Contestant]:
        def forward() -> None:
            network.eval()
            with torch.no_grad():
                network(batch)
            finish()

        def gradients() -> None:
            network.train()
            network.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(network(batch), classes).backward()
            finish()

        return {FORWARD: forward, GRADIENTS: gradients}

    def make() -> Any:
        return published_networks.make(name, NUM_CLASSES).to(device)

    contiguous = batch.contiguous()
    made = {
        EAGER: functions(make(), contiguous),
        CHANNELS_LAST: functions(
            make().to(memory_format=torch.channels_last),
            batch.contiguous(memory_format=torch.channels_last),
        ),
    }
    failures: dict[str, str] = {}
    seconds: dict[str, float] = {}
    if compile_limit:
        compiled = functions(torch.compile(make()), contiguous)
        started = time.perf_counter()
        try:
            for function in compiled.values():
                with _limited(compile_limit):
                    function()
            made[COMPILED] = compiled
            seconds[COMPILED] = time.perf_counter() - started
        except Exception as error:
            failures[COMPILED] = _reason(error)
    return made, failures, seconds


@contextlib.contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Raises a TimeoutError in the block when the time is over."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"not compiled within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _memory(function: timing.Contestant) -> int | None:
    """The peak of the process in a call, in bytes, beyond what it had before."""
    gc.collect()
    # Freed memory is given back first, so that it counts when it is taken again.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return timing.extra_memory(function)


def _in_process(name: str, settings: dict[str, int]) -> dict[str, Any]:
    """What `measure` returns, or the reason why it failed."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, name, settings))
    process.start()
    sender.close()
    try:
        found: dict[str, Any] = receiver.recv()
    except EOFError:
        process.join()
        return {"failure": f"the process ended with exit code {process.exitcode}"}
    process.join()
    return found


def _send(sender: Connection, name: str, settings: dict[str, int]) -> None:
    try:
        sender.send(measure(name, settings))
    except Exception as error:
        sender.send({"failure": _reason(error)})


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]


def _networks(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in MODELS or MODELS[name].names is None:
            known = ", ".join(name for name, spec in MODELS.items() if spec.names is not None)
            raise argparse.ArgumentTypeError(f"must be some of {known}; got {name!r}")
    return names


if __name__ == "__main__":
    main()
