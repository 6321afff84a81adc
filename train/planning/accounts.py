"""What a compiled program has in it: operations that take time, messages, memory."""

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.errors
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from train.planning.targets import Target

_COLLECTIVES = (
    *("all-gather", "all-reduce", "all-to-all", "collective-permute", "ragged-all-to-all"),
    *("reduce-scatter", "collective-broadcast"),
)
_COLLECTIVE = re.compile(rf"= (\(.*?\)|\S+) ({'|'.join(_COLLECTIVES)})(-start)?\(")
_CALL = re.compile(r'custom_call_target="([^"]+)"')
_SHAPE = re.compile(r"\b(pred|[a-z]+(\d+)[a-z\d]*)\[([\d,]*)\]")
# Custom calls of the compilers that do no work.
_OF_NO_ACCOUNT = frozenset({"AllocateBuffer", "AssumeGatherIndicesInBound", "Sharding"})


@dataclass(frozen=True)
class Message:
    """A collective of a program.

    Attributes:
        kind: as XLA calls it.
        numbers: how many numbers a chip gets.
        bytes: the bytes of these.
        in_loop: whether it is sent in each pass of a loop.
    """

    kind: str
    numbers: int
    bytes: int
    in_loop: bool


@dataclass(frozen=True)
class Account:
    """What is in the program of one chip.

    Attributes:
        sorts: sorts of arrays.
        loops: loops, which start kernels in each pass.
        kernels: fusions that the program starts, without those in loops.
        calls: kernels that are not XLA's own, by name.
        collectives: bytes that a chip gets in each kind of message.
        messages: the number of collectives; one in a loop counts once.
        arguments: bytes of what the program is given.
        temporary: bytes that it needs beside its arguments and results.
        peak: bytes at once, of all of these.
        moved: bytes that its operations read and write, as XLA estimates it; a loop counts once.
            None if the compiler has no estimate.
        seconds: of compilation. They are those of the processor, or those that passed if these are
            fewer. Other work of the machine hardly changes them.
    """

    sorts: int
    loops: int
    kernels: int
    calls: dict[str, int]
    collectives: dict[str, int]
    messages: int
    arguments: int
    temporary: int
    peak: int
    moved: int | None
    seconds: float


def compile_on_one(function: Callable[..., Any], target: Target, *shapes: Any) -> Account:
    """The account of a function of arrays of these shapes, on one chip."""
    mesh = Mesh(target.devices[:1], ("chip",))
    on_one = NamedSharding(mesh, PartitionSpec())
    compiled_for_one = jax.jit(function, in_shardings=on_one, out_shardings=on_one)
    return compile_for(compiled_for_one, target, *shapes)


def compile_for(jitted: Any, target: Target, *shapes: Any) -> Account:
    """The account of a jitted function whose arrays are on chips of the target."""
    lowered = jitted.trace(*shapes).lower(lowering_platforms=(target.platform,))
    began = _clocks()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "output tile sizes" not in str(error):
            raise
        # With a GPU, XLA measures which tiles a product has. Without one, it finds none for some
        # products (JAX 0.10.2). NVIDIA's library computes these.
        compiled = lowered.compile(compiler_options={"xla_gpu_enable_triton_gemm": False})
    seconds = min(now - then for now, then in zip(_clocks(), began, strict=True))
    # None of a compiler of GPUs without a GPU.
    costs: Any = compiled.cost_analysis()
    moved = int(costs["bytes accessed"]) if costs else None
    return account(compiled.as_text() or "", compiled.memory_analysis(), moved, seconds)


def _clocks() -> tuple[float, float]:
    """The seconds that have passed, and those of the processor."""
    return time.perf_counter(), time.process_time()


def account(text: str, memory: Any, moved: int | None, seconds: float) -> Account:
    """The account of a program's text, and of XLA's analysis of its memory and its reads."""
    entry = text[text.index("\nENTRY") :]
    collectives: Counter[str] = Counter()
    sent = list(messages(text))
    for message in sent:
        collectives[message.kind] += message.bytes
    return Account(
        sorts=len(re.findall(r"= \S.* sort\(", text)),
        loops=len(re.findall(r" while\(", text)),
        kernels=len(re.findall(r" fusion\(", entry)),
        calls=dict(sorted(Counter(_kernels(_CALL.findall(text))).items())),
        collectives=dict(sorted(collectives.items())),
        messages=len(sent),
        arguments=memory.argument_size_in_bytes,
        temporary=memory.temp_size_in_bytes,
        peak=memory.peak_memory_in_bytes,
        moved=moved,
        seconds=round(seconds, 2),
    )


def messages(text: str) -> Iterator[Message]:
    """The collectives in the text of a compiled program; one in a loop is there once."""
    for line in text.splitlines():
        if found := _COLLECTIVE.search(line):
            shapes, kind, start = found.groups()
            arrays = _received(_SHAPE.findall(shapes), kind, is_start=bool(start))
            sizes = [
                math.prod(int(size) for size in dimensions.split(",") if size)
                for _, _, dimensions in arrays
            ]
            bits = [int(bits or 8) for _, bits, _ in arrays]
            yield Message(
                kind,
                sum(sizes),
                sum(size * width // 8 for size, width in zip(sizes, bits, strict=True)),
                "/while/" in line,
            )


def _kernels(names: list[str]) -> list[str]:
    """The custom calls that are kernels."""
    return [name for name in names if name not in _OF_NO_ACCOUNT]


def _received(
    arrays: list[tuple[str, str, str]], kind: str, *, is_start: bool
) -> list[tuple[str, str, str]]:
    """The types of a collective's results; the start of a collective also lists its operands."""
    # The start of an all-reduce lists only results.
    if not is_start or kind == "all-reduce":
        return arrays
    # Others have operands, results, and perhaps numbers of their own.
    own = ("u32", "32", "")
    both = [array for array in arrays if array != own]
    return both[len(both) // 2 :]
