"""The program's command line: `python -m train.main --config=digits`."""

from pathlib import Path

from absl import flags

from train.foundation import command_line, fields, flag_rules, flag_types
from train.foundation.flag_rules import Flag, Together

_CONFIG = flag_types.define_configuration(
    "Needed. The configuration: a recipe, for example digits, or the path of a Python file with "
    "get_config(). A loss of the recipe follows a colon, as in digits:ldam. Any field can be "
    "changed, as in --config.num_epochs=5; docs/configuration.md lists them."
)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "The folder for checkpoints, metrics and results; an unfinished run in it continues. By "
    "default a folder under runs/ named after the configuration.",
)
_EXTEND = flags.DEFINE_bool(
    "extend",
    False,
    "Trains the run in --workdir for more epochs, up to a larger config.num_epochs.",
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator",
    None,
    "To train on several processes: HOST:PORT of the first of them, the same for all.",
)
_NUM_PROCESSES = flag_types.define_integer(
    "num_processes", "How many processes there are; with --coordinator.", lower_bound=1
)
_PROCESS_INDEX = flag_types.define_integer(
    "process_index", "Which one this is, from 0; with --coordinator.", lower_bound=0
)
_CLUSTER = flags.DEFINE_bool(
    "cluster",
    None,
    "To train on all processes that the environment of Slurm, Open MPI, Kubernetes or a TPU pod "
    "names. If it names several, give this or --nocluster, which trains only on this one.",
)
_GIVEN = ("coordinator", "num_processes", "process_index")
_ROWS = flag_rules.declare(
    Flag("cluster", excludes=_GIVEN, because="the cluster names the processes"),
    Together(_GIVEN),
    Flag("workdir", fields.text("a folder")),
)


def main() -> None:
    """Runs the experiment of the configuration."""
    flag_rules.check(_ROWS)
    from train import experiment
    from train.devices import compilation_cache
    from train.workdir.runs import run_name

    _join_processes()
    config = _CONFIG()
    if config.get("compilation_cache", True):
        compilation_cache.use()
    workdir = Path(_WORKDIR.value or f"runs/{run_name(config)}").absolute()
    experiment.run(config, workdir, extend=_EXTEND.value)


def _join_processes() -> None:
    from train.devices import processes, tasks

    number, index = _NUM_PROCESSES.value, _PROCESS_INDEX.value
    if _CLUSTER.value:
        processes.join_cluster()
    elif _COORDINATOR.value is not None and number is not None and index is not None:
        processes.join_given(_COORDINATOR.value, number, index)
    elif _CLUSTER.value is None:
        tasks.refuse_several(
            "--cluster trains one classifier on all of them, and --nocluster one on each, with a "
            "--workdir of its own"
        )


if __name__ == "__main__":
    command_line.run(main)
