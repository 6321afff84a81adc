"""What a run needs of a machine that need not be here: `python -m train.plan --device=v5e:4x4`.

The step of training of --config is compiled for the chips of --device. Memory by part and the
largest batch that fits are printed. Nothing runs.
"""

from absl import flags

from train.foundation import command, kinds
from train.foundation.console import show_line
from train.foundation.flags import Flag, Needed, check, declare, define_configuration

_CONFIG = define_configuration("Needed. The configuration, as for train.main.")
_DEVICE = flags.DEFINE_string(
    "device",
    None,
    "Needed. v5e, v5p, v6e or h100: one chip, or several, as in v5e:4x4, v5p:2x2x1 and h100:8.",
)
_LARGEST = flags.DEFINE_bool(
    "largest", True, "whether to find the largest batch that fits, with some more compilations."
)
_ROWS = declare(Needed(("device",), "the chips, for example v5e:4x4"), Flag("device", kinds.TEXT))


def main() -> None:
    """Compiles the step of training and prints what it needs."""
    check(_ROWS)
    from train.configuration.parsing import parse
    from train.run import plan

    target = plan.find_target(_DEVICE.value or "")
    config = parse(_CONFIG())
    planner = plan.StepPlanner(config, target)
    found = planner.plan(config.dataset.batch_size)
    for line in plan.describe(found, target):
        show_line(line)
    if _LARGEST.value:
        show_line(plan.describe_largest(*planner.find_largest(found), target))


if __name__ == "__main__":
    command.run(main)
