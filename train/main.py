"""The program's command line: `python -m train.main --config=digits`."""

from pathlib import Path

from absl import flags

from train.foundation import command_line, flag_types
from train.foundation.errors import UserError

_CONFIG = flag_types.define_configuration(
    "Needed. The configuration: a recipe, for example digits, or the path of a Python file with "
    "get_config(). A loss of the recipe follows a colon, as in digits:ldam. Any field, of which "
    "docs/configuration.md has the list, can be changed: --config.num_epochs=5."
)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Where the run leaves its checkpoints, metrics and results, and goes on from what is there; "
    "by default a folder under runs/ named after the configuration.",
)
_EXTEND = flags.DEFINE_bool(
    "extend",
    False,
    "To train the run in --workdir for more epochs: config.num_epochs may be larger than its own.",
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator",
    None,
    "To train on several processes: HOST:PORT of the first of them, the same for all.",
)
_NUM_PROCESSES = flag_types.define_whole_number(
    "num_processes", "How many processes there are; with --coordinator.", lower_bound=1
)
_PROCESS_INDEX = flag_types.define_whole_number(
    "process_index", "Which one this is, from 0; with --coordinator.", lower_bound=0
)
_CLUSTER = flags.DEFINE_bool(
    "cluster",
    False,
    "To train on the processes that the cluster's environment names: Slurm, Open MPI, Kubernetes "
    "or a TPU pod.",
)


def main() -> None:
    """Runs the experiment of the configuration."""
    from train import experiment
    from train.devices import compilation_cache
    from train.workdir.runs import run_name

    _join_processes()
    config = _CONFIG()
    if _WORKDIR.value == "":
        raise UserError("--workdir must name a folder; got an empty text")
    if config.get("compilation_cache", True):
        compilation_cache.use()
    workdir = Path(_WORKDIR.value or f"runs/{run_name(config)}").absolute()
    experiment.run(config, workdir, extend=_EXTEND.value)


def _join_processes() -> None:
    from train.devices import processes

    given = (_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_INDEX.value)
    if _CLUSTER.value:
        if given != (None, None, None):
            raise UserError("--cluster finds the processes; leave out --coordinator and its flags")
        processes.join_cluster()
    elif given != (None, None, None):
        coordinator, num_processes, process_index = given
        if coordinator is None or num_processes is None or process_index is None:
            raise UserError("--coordinator, --num_processes and --process_index go together")
        processes.join_given(coordinator, num_processes, process_index)


if __name__ == "__main__":
    command_line.run(main)
