"""Flags for whole numbers and for the configuration, whose mistakes are told plainly."""

import json
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from train.foundation.errors import UserError

# So that --help shows the flags as those of the command.
flags.disclaim_key_flags()


class ConfigurationFileError(flags.Error):
    """The file that --config names gives no configuration; told in one line.

    No `UserError`: of a flag's parser, absl would take that for a value of the wrong type.
    """


def define_configuration(help_text: str) -> Callable[[], dict[str, Any]]:
    """Defines --config, a Python file with get_config(), and --config.FIELD=VALUE.

    Returns:
        A function that returns the configuration, nested, once the flags are parsed. It raises
        `UserError` where --config is not given.
    """
    holder = config_flags.DEFINE_config_file("config", help_string=help_text)
    flags.FLAGS["config"].parser = _ConfigurationFile()
    # Of the fields in the file that are whole numbers.
    config_flags.register_flag_parser_for_type(int, _WholeNumber())

    def configuration() -> dict[str, Any]:
        if holder.value is None:
            raise UserError("--config is needed, for example --config=configs/digits.py")
        plain: dict[str, Any] = json.loads(holder.value.to_json())
        return plain

    return configuration


def define_whole_number(
    name: str, help_text: str, *, lower_bound: int | None = None
) -> flags.FlagHolder[int | None]:
    """Defines a flag for a whole number, which is None by default."""
    return flags.DEFINE(_WholeNumber(lower_bound=lower_bound), name, None, help_text)


class _WholeNumber(flags.IntegerParser):
    """absl's message has the words of Python's `int()`."""

    def convert(self, argument: Any) -> int:
        try:
            return super().convert(argument)
        except ValueError:
            raise ValueError("must be a whole number") from None


class _ConfigurationFile(flags.ArgumentParser):
    """Reads the file; ml_collections' own parser keeps what the file raises as a text alone."""

    def parse(self, argument: str) -> ConfigDict:
        """The configuration of FILE, or of FILE:WORD, where get_config() is given the word."""
        name, *words = argument.split(":", 1)
        file = Path(name)
        if not file.is_file():
            raise ConfigurationFileError(f"--config must name a file; there is no {file}")
        try:
            module = _load(file)
            if not hasattr(module, "get_config"):
                raise ConfigurationFileError(
                    "the file that --config names has no function get_config()"
                )
            config = module.get_config(*words)
        except ConfigurationFileError:
            raise
        except SyntaxError as error:
            raise ConfigurationFileError(
                f"{error.filename}, line {error.lineno}: {error.msg}"
            ) from error
        except ValueError as error:
            raise ConfigurationFileError(f"--config: {error}") from error
        except Exception as error:  # A configuration file is a program: it can raise anything.
            raise ConfigurationFileError(
                f"the file that --config names cannot be run: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(config, ConfigDict):
            raise ConfigurationFileError(
                f"get_config() in {file} must return a ConfigDict; it returned a "
                f"{type(config).__name__}"
            )
        # A field that the file does not have is an error then, not a new field.
        return config.lock()

    def flag_type(self) -> str:
        """What --help calls it."""
        return "config object"


def _load(file: Path) -> ModuleType:
    """Runs a Python file, whatever its ending, as a module."""
    module = ModuleType("config_file")
    module.__file__ = str(file)
    # Python's dataclasses, for one, look up the module that they are in.
    sys.modules[module.__name__] = module
    SourceFileLoader(module.__name__, str(file)).exec_module(module)
    return module
