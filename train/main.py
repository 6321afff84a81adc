"""The program's command line: `python -m train.main --config=digits`."""

from pathlib import Path

from absl import flags

from train.foundation import command, kinds
from train.foundation.errors import UserError
from train.foundation.flags import Flag, check, declare, define_configuration

_CONFIG = define_configuration(
    "Needed. The configuration: a recipe, for example digits, or the path of a Python file with "
    "get_config(). A loss of the recipe follows a colon, as in digits:ldam. Any field can be "
    "changed, as in --config.num_epochs=5; docs/api/configuration.md lists them."
)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "The folder for checkpoints, metrics and results; an unfinished run in it continues. By "
    "default a folder under runs/ named after the configuration.",
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator",
    None,
    "To train on several processes: HOST:PORT of the first of them, the same for all.",
)
_NUM_PROCESSES = flags.DEFINE_integer(
    "num_processes", None, "how many processes there are.", lower_bound=1
)
_PROCESS_INDEX = flags.DEFINE_integer(
    "process_index", None, "which one this is, from 0.", lower_bound=0
)
_CLUSTER = flags.DEFINE_bool(
    "cluster",
    None,
    "To train on all processes that the environment of Slurm, Open MPI, Kubernetes or a TPU pod "
    "names. If it names several, give this or --nocluster, which trains only on this one.",
)
_ROWS = declare(
    Flag("cluster", excludes=("coordinator",), because="the cluster names the processes"),
    *(Flag(name, needs=("coordinator",)) for name in ("num_processes", "process_index")),
    Flag("workdir", kinds.TEXT),
)


def main() -> None:
    """Runs the experiment of the configuration."""
    check(_ROWS)
    config = _CONFIG()
    from train.configuration.parsing import parse
    from train.run import runs

    parsed = parse(config)
    workdir = Path(_WORKDIR.value or f"runs/{runs.run_name(config)}").absolute()
    # Mistakes do not wait for what takes a second to import.
    runs.check_continues(parsed, workdir)
    from train.devices import processes
    from train.run import experiment

    _join_processes()
    if parsed.compilation_cache:
        processes.use_compilation_cache()
    experiment.run(config, workdir)


def _join_processes() -> None:
    from train.devices import processes

    number, index = _NUM_PROCESSES.value, _PROCESS_INDEX.value
    if _CLUSTER.value:
        processes.join_cluster()
    elif _COORDINATOR.value is not None:
        if number is None or index is None:
            raise UserError("--coordinator needs --num_processes and --process_index")
        processes.join(_COORDINATOR.value, number, index)
    elif _CLUSTER.value is None:
        processes.refuse_tasks(
            "--cluster trains one classifier on all of them, and --nocluster one on each, with a "
            "--workdir of its own"
        )


if __name__ == "__main__":
    command.run(main)
