"""The program that trains and evaluates set-valued classifiers with topk_jax."""

import os
import sys

# `python -m train.COMMAND` imports this before the command, with "-m" in the place of its name.
if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].removeprefix("-m").startswith("train."):
    try:
        from train.foundation import interruption, process_limits

        interruption.begin()
        process_limits.check()
    except KeyboardInterrupt:
        os.write(2, b"stopped by SIGINT\n")
        os._exit(130)
