"""The program that trains and evaluates set-valued classifiers with topk_jax."""

import sys

from topk_jax import _console

# `python -m train.COMMAND` imports this before the command, with "-m" in the place of its name.
if sys.argv[:1] == ["-m"]:
    _console.find_program()
