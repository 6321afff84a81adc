"""Whether a configuration may continue the run in a workdir."""

import stat
from pathlib import Path

from train.configuration import Config
from train.foundation.errors import NO_PATH, UserError
from train.foundation.nested import differences
from train.workdir import extensions, output_files, run_files, runs


def check_workdir(config: Config, workdir: Path, *, extend: bool) -> tuple[Config, int | None]:
    """The configuration with the extensions of the run in the workdir; see `extensions.add`.

    Refuses a workdir that is a file, or that holds a run of another configuration. Fields of the
    machine, and the place of its data, may change when the run resumes: the devices, the processes
    that decode, what is done about images that cannot be read. config.json has the last values.
    """
    try:
        if not stat.S_ISDIR(workdir.stat().st_mode):
            raise UserError(field="--workdir", must_be="a directory", but=f"{workdir} is a file")
    except FileNotFoundError as error:
        if workdir.is_symlink():
            but = f"{workdir} is a link to a folder that does not exist"
            raise UserError(field="--workdir", must_be="a directory", but=but) from error
    except OSError as error:
        if error.errno not in NO_PATH:
            raise
        raise UserError(
            f"--workdir must be a directory; {workdir} cannot be one: {error.strerror}"
        ) from error
    output_files.refuse_folders_of_the_system("workdir", workdir, is_folder=True)
    earlier = run_files.read_config(workdir)
    if earlier is None and run_files.has_checkpoints(workdir):
        raise UserError(
            f"--workdir {workdir} holds checkpoints but no config.json, so the run is unknown; "
            "give another --workdir, or delete it"
        )
    continued, shorter = extensions.add(config, earlier, workdir, extend=extend)
    if earlier is None:
        return continued, shorter
    # An extension changes these two, and nothing else.
    extended = () if shorter is None else ("num_epochs", "extensions")
    before, now = (runs.canonical(one) for one in (earlier, continued.to_plain()))
    may_change = {*runs.MAY_CHANGE, *extended}
    if run_files.read_digest(workdir) is None:
        # It is not known whether the data at another path are the same.
        may_change.discard(runs.DATASET_PATH)
    before |= {name: now[name] for name in may_change if name in now}
    differing = differences(before, now)
    if differing:
        epochs = earlier.get("num_epochs")
        is_shorter = isinstance(epochs, int) and epochs < config.num_epochs
        may_extend = is_shorter and len(differing) == 1 and not extend
        hint = " or --extend, which trains the run further" if may_extend else ""
        raise UserError(
            f"--workdir {workdir} holds a run of another configuration ({'; '.join(differing)}); "
            f"give another --workdir{hint}",
            usually="a field was changed after the run started",
        )
    return continued, shorter
