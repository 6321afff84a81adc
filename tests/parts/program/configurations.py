"""Configurations of runs, changed by the dotted names of their fields."""

import copy
import functools
import operator


def changed(config, changes):
    """A copy of a nested configuration with other values of some fields."""
    config = copy.deepcopy(config)
    for name, value in changes.items():
        *groups, field = name.split(".")
        functools.reduce(operator.getitem, groups, config)[field] = value
    return config
