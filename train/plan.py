"""What a run needs of a machine that need not be here: `python -m train.plan --device=v5e:4x4`.

The step of training of --config is compiled for the chips of --device. Memory by part, messages
between the chips, and the largest batch that fits are printed. Nothing runs. A data set that the
recipe knows is opened only for what is above its classes, if the loss needs that.
"""

from absl import flags

from train.foundation import command_line, fields, flag_rules, flag_types
from train.foundation.console import show_line
from train.foundation.flag_rules import Flag, Needed

_CONFIG = flag_types.define_configuration("Needed. The configuration, as for train.main.")
_DEVICE = flags.DEFINE_string(
    "device",
    None,
    "Needed. The chips: v5e, v5p, v6e or h100, with their topology: v5e:4x4, v5p:2x2x1, h100:8. "
    "One chip without a topology.",
)
_LARGEST = flags.DEFINE_bool(
    "largest",
    True,
    "whether to search for the largest batch that fits, which compiles some more programs.",
)
_ROWS = flag_rules.declare(
    Needed(("device",), "the chips, for example v5e:4x4"), Flag("device", fields.text("chips"))
)


def main() -> None:
    """Compiles the step of training and prints what it needs."""
    flag_rules.check(_ROWS)
    from train.configuration.parsing import parse
    from train.planning import report
    from train.planning.plans import StepPlanner
    from train.planning.targets import find_target

    target = find_target(_DEVICE.value or "")

    config = parse(_CONFIG())
    planner = StepPlanner(config, target)
    plan = planner.plan(config.dataset.batch_size)
    for line in report.describe(plan, target):
        show_line(line)
    if _LARGEST.value:
        show_line(report.describe_largest(planner.find_largest(plan), target))


if __name__ == "__main__":
    command_line.run(main)
