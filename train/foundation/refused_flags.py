"""absl's own flags that no command takes.

absl compares an unknown flag letter by letter with those that there are, in functions that call
themselves for each. It reads a --flagfile without a look at what it is, which may be a pipe or a
device without an end. ml_collections has it read while the flag for the configuration is defined.
The others are for the developers of a program: they start a debugger or a profiler, or end it
before it does anything.
"""

from collections.abc import Sequence

_FLAG_FILE = "flagfile"
# The longest name of a flag, in letters.
_LONGEST = 200
_REFUSED = (
    *(_FLAG_FILE, "helpxml", "only_check_args", "pdb", "pdb_post_mortem", "profile_file"),
    *("run_with_pdb", "run_with_profiling", "undefok", "use_cprofile_for_profiling"),
)


def mistake(arguments: Sequence[str]) -> str | None:
    """The message for the first argument that is such a flag, or too long; None without one."""
    for name in filter(None, map(_flag, arguments)):
        if len(name) > _LONGEST:
            return f"there is no flag with a name of {len(name):,} letters, --{name[:30]}..."
        if name == _FLAG_FILE:
            return f"there is no --{name}: write the flags on the command line"
        if name in _REFUSED:
            return f"there is no --{name}"
    return None


def without_flag_files(arguments: Sequence[str]) -> list[str]:
    """The arguments without those that name files of flags."""
    return [argument for argument in arguments if _flag(argument) != _FLAG_FILE]


def _flag(argument: str) -> str | None:
    """The name of the flag that an argument gives; None if it gives none."""
    return argument.lstrip("-").partition("=")[0] if argument.startswith("-") else None
