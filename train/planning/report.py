"""A plan in words."""

from collections.abc import Iterator

from train.foundation.host_memory import in_words
from train.planning.plans import Largest, Plan
from train.planning.targets import Target

_WORDS = {
    "params": "parameters",
    "batch_stats": "statistics of the network",
    "opt_state": "state of the optimizer",
    "averages": "moving averages",
    "label_logits": "estimated labels",
    "batch": "batch",
}


def describe(plan: Plan, target: Target) -> Iterator[str]:
    """The lines of a plan: memory by part, messages, and whether it fits."""
    chips = len(target.devices)
    yield f"{target.name}: {_counted(chips)}, each with {in_words(target.memory)}"
    yield f"A batch of {plan.batch_size:,}, of which a chip needs"
    for part, words in _WORDS.items():
        if part in plan.parts:
            yield _row(words, plan.parts[part])
    account = plan.account
    if account is None:
        yield "and more for the activations than it has: the batch does not fit"
        return
    yield _row("activations, gradients and what else is temporary", account.temporary)
    yield _row("batches of the next steps", plan.waiting)
    yield _row("at once", plan.needed)
    if chips > 1:
        sent = ", ".join(
            f"{in_words(size)} by {kind}" for kind, size in account.collectives.items()
        )
        yield f"A step has {account.messages} messages between chips: {sent or 'none'}"
    yield f"It was compiled in {account.seconds:.0f} s" + (
        "" if plan.fits(target) else ", and does not fit"
    )


def describe_largest(largest: Largest | None, target: Target) -> str:
    """The line of the largest batch."""
    if largest is None:
        return (
            "No batch of eight examples a chip fits: take a smaller one, more chips, a smaller "
            "image or half_precision"
        )
    plan = largest.plan
    each = plan.batch_size // len(target.devices)
    return (
        f"The largest batch that fits is about {plan.batch_size:,}, {each:,} for each chip, "
        f"which needs {in_words(plan.needed)}; {largest.too_large:,} do not fit"
    )


def _counted(chips: int) -> str:
    return "1 chip" if chips == 1 else f"{chips} chips"


def _row(words: str, num_bytes: int) -> str:
    return f"  {in_words(num_bytes):>10}  {words}"
