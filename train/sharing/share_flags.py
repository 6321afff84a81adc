"""The flags --shard, --merge and --cluster of commands whose work can be shared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from absl import flags

from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.flag_rules import Flag
from train.sharing import tasks
from train.sharing.shard import Shard
from train.sharing.sharing import Merges, WritesPart
from train.sharing.work import ALONE, Share

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()

ROWS = (
    Flag("shard", excludes=("cluster=True",), because="the cluster chooses the part"),
    Flag("merge", excludes=("shard", "cluster=True"), because="one process merges the parts"),
)


@dataclass(frozen=True)
class ChosenShare:
    """How the flags, or the environment, have this process take part in the work.

    Attributes:
        shard: the part that it writes; None for a process that merges, or computes everything.
        merges: whether it merges the parts.
        tasks: what the environment has of other tasks, if that decides; None if flags do.
    """

    shard: Shard | None
    merges: bool
    tasks: tasks.Tasks | None

    @property
    def is_shared(self) -> bool:
        """Whether there are parts."""
        return self.merges or self.shard is not None

    @property
    def is_asked_for(self) -> bool:
        """Whether flags share the work, and not only the environment."""
        return self.is_shared and self.tasks is None

    def refuse(self, why: str) -> None:
        """Raises `UserError` if flags ask to share what cannot be shared."""
        if self.is_asked_for:
            flag = "--merge" if self.merges else "--shard"
            raise UserError(f"{flag} cannot be given with {why}")

    def check(self, out: object) -> None:
        """Raises `UserError` if there are parts, and no output beside which they could be."""
        if self.is_shared and out is None:
            why = "the parts are written beside it"
            if self.tasks is not None:
                why += f": this is {self.tasks.in_words}; --nocluster does all of the work here"
            raise UserError(f"--out is needed: {why}")

    def share(self, out: Path | None, kind: Callable[[], Mapping[str, str]]) -> Share:
        """What takes part in the work.

        Args:
            out: the output of the command; not None if the work is shared, see `check`.
            kind: what all parts have in common; see `kinds`.
        """
        if not self.is_shared:
            return ALONE
        assert out is not None
        if self.shard is None:
            return Merges(out, kind())
        if self.tasks is not None:
            show_line(
                f"this is {self.tasks.in_words}: it does the share {self.shard} of the work; "
                "--nocluster does all of it here"
            )
        return WritesPart(out, self.shard, kind())


def define() -> Callable[[], ChosenShare]:
    """Defines the flags; returns a function that returns what they choose."""
    shard = flags.DEFINE_string(
        "shard",
        None,
        "i/n, as 0/4: this process does the share i, from 0, of n shares of the work and writes it "
        "beside --out, for --merge. In a job array, and in several tasks of srun or of Open MPI's "
        "mpirun, that is so without the flag.",
    )
    merge = flags.DEFINE_bool(
        "merge",
        False,
        "puts the parts of all shares together: the same command with --merge in place of "
        "--shard. The result is the same as from one process.",
    )
    cluster = flags.DEFINE_bool(
        "cluster",
        None,
        "shares the work among the tasks that the cluster's environment names, and fails without "
        "any; --nocluster does all of the work here.",
    )

    def chosen() -> ChosenShare:
        if merge.value:
            return ChosenShare(None, merges=True, tasks=None)
        if shard.value is not None:
            return ChosenShare(Shard.parse(shard.value), merges=False, tasks=None)
        if cluster.value:
            return ChosenShare(tasks.of_cluster().shard, merges=False, tasks=None)
        found = None if cluster.value is False else tasks.every()
        return ChosenShare(None if found is None else found.shard, merges=False, tasks=found)

    return chosen
