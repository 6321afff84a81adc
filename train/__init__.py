"""The program that trains and evaluates set-valued classifiers with topk_jax."""

import os
import sys

from topk_jax import _console_imports

# `python -m train.COMMAND` imports this before the command, with "-m" in the place of its name.
_IS_COMMAND = sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].removeprefix(
    "-m"
).startswith("train.")

if _IS_COMMAND or _console_imports.is_process_of_the_program():
    try:
        _console_imports.begin(f"{__path__[0]}/..")
        if _IS_COMMAND:
            from train.foundation import interruption, process_limits

            interruption.begin()
            process_limits.check()
    except KeyboardInterrupt:
        os.write(2, b"stopped by SIGINT\n")
        os._exit(130)
