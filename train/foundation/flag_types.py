"""Flags for integers and for the configuration, with plain error messages."""

import json
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags
from ml_collections.config_flags import tuple_parser

from train.foundation import fields, interruption, refused_flags
from train.foundation.errors import UserError
from train.foundation.files import why_no_file

# Beside the program, both in a checkout and in an installation.
_RECIPES = Path(__file__).parents[2] / "configs"

# --help then lists the flags under the command.
flags.disclaim_key_flags()


class ConfigurationFileError(flags.Error):
    """The file that --config names does not give a configuration.

    It is not a `UserError`, because absl rewrites the message of a ValueError in a flag's parser.
    """


def define_configuration(help_text: str) -> Callable[[], dict[str, Any]]:
    """Defines --config, a recipe or a Python file with get_config(), and --config.FIELD=VALUE.

    Returns:
        A function that returns the nested configuration after the flags are parsed. It raises
        `UserError` if --config is not given.
    """
    holder = config_flags.DEFINE_config_file(
        "config", help_string=help_text, sys_argv=refused_flags.without_flag_files(sys.argv)
    )
    flags.FLAGS["config"].parser = _ConfigurationFile()

    def configuration() -> dict[str, Any]:
        if holder.value is None:
            raise UserError("--config is needed, for example --config=digits")
        try:
            plain: dict[str, Any] = json.loads(holder.value.to_json())
        except BaseException as error:  # A configuration can have functions of its file.
            if interruption.raised():
                raise
            raise UserError(
                f"the values of the configuration must be values of JSON: {_described(error)}"
            ) from error
        return plain

    return configuration


def read_configuration(argument: str) -> ConfigDict:
    """The configuration of FILE, or of FILE:WORD, as --config takes it.

    Raises:
        ConfigurationFileError: the file does not give a configuration.
    """
    return _ConfigurationFile().parse(argument)


def define_integer(
    name: str, help_text: str, *, lower_bound: int | None = None
) -> flags.FlagHolder[int | None]:
    """Defines a flag for an integer, which is None by default."""
    return flags.DEFINE(_WholeNumber(lower_bound=lower_bound), name, None, help_text)


def path_of(flag: flags.FlagHolder[str | None]) -> Path | None:
    """The path that a flag gives; None if it is not given."""
    return None if flag.value is None else Path(flag.value)


class _WholeNumber(flags.IntegerParser):
    """Like absl's parser, whose error message is the message of Python's `int()`."""

    def convert(self, argument: Any) -> int:
        try:
            return super().convert(argument)
        except ValueError:
            raise ValueError("must be an integer") from None


class _OrNone(flags.ArgumentParser):
    """Another parser, and None, which a field may hold for a default of its own."""

    def __init__(self, parser: flags.ArgumentParser) -> None:
        self._parser = parser

    def parse(self, argument: Any) -> Any:
        return None if argument == "None" else self._parser.parse(argument)

    def flag_type(self) -> str:
        return self._parser.flag_type()


class _Tuple(tuple_parser.TupleParser):
    """Like ml_collections' parser, which Python's own parser can fail in by other errors."""

    def parse(self, argument: Any) -> Any:
        try:
            return super().parse(argument)
        except (MemoryError, RecursionError):
            raise ValueError("must be a tuple, such as (1,5)") from None


# For --config.FIELD, by the type of the field.
config_flags.register_flag_parser_for_type(int, _OrNone(_WholeNumber()))
config_flags.register_flag_parser_for_type(float, _OrNone(flags.FloatParser()))
config_flags.register_flag_parser_for_type(str, _OrNone(flags.ArgumentParser()))
config_flags.register_flag_parser_for_type(tuple, _Tuple())


class _ConfigurationFile(flags.ArgumentParser):
    """Reads the file. ml_collections' own parser turns the errors of the file into text.

    Attributes:
        read: the configuration that was read last.
    """

    read = ConfigDict()

    def parse(self, argument: str) -> ConfigDict:
        """The configuration of a recipe or a file, or of FILE:WORD; get_config() gets the word."""
        name, *words = argument.split(":", 1)
        file = _recipe(name) if name.isidentifier() else Path(name)
        if not file.is_file():
            what = f"{file} {why_no_file(file)}" if file.exists() else f"there is no {file}"
            raise ConfigurationFileError(f"--config must name a recipe or a file; {what}")
        try:
            module = _load(file)
            if not hasattr(module, "get_config"):
                raise ConfigurationFileError(
                    "the file that --config names has no function get_config()"
                )
            config = module.get_config(*words)
            if not isinstance(config, ConfigDict):
                raise ConfigurationFileError(
                    f"get_config() in {file} must return a ConfigDict; it returned a "
                    f"{type(config).__name__}"
                )
            # Locked, so that an unknown field is an error.
            self.read = config.lock()
        except ConfigurationFileError:
            raise
        except BaseException as error:  # A configuration file is a program: it can raise anything.
            if interruption.raised():
                raise
            raise ConfigurationFileError(_why_no_configuration(error)) from error
        return self.read

    def flag_type(self) -> str:
        """The name of the type in --help."""
        return "config object"


def _why_no_configuration(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{error.filename}, line {error.lineno}: {error.msg}"
    if type(error) is ValueError:
        return f"--config: {error}"
    return f"the file that --config names cannot be run: {_described(error)}"


def _described(error: BaseException) -> str:
    """The class and the message of an error, which may be a class of the configuration file."""
    name = type(error).__name__
    try:
        return f"{name}: {error}" if str(error) else name
    except Exception:
        return name


def _recipe(name: str) -> Path:
    """The file of a recipe of the program."""
    recipes = {
        file.stem: file
        for file in _RECIPES.glob("*.py")
        # Files without this function have what the recipes share.
        if "def get_config(" in file.read_text(encoding="utf-8")
    }
    if wrong := fields.one_of(recipes)(name):
        raise ConfigurationFileError(
            f"--config must be a file, as ./{name}, or the name of a recipe, {wrong}; got {name!r}"
        )
    return recipes[name]


def _load(file: Path) -> ModuleType:
    """Runs a Python file as a module; the file may have any suffix."""
    module = ModuleType("config_file")
    module.__file__ = str(file)
    # Dataclasses, for example, look up their module by its name.
    sys.modules[module.__name__] = module
    SourceFileLoader(module.__name__, str(file)).exec_module(module)
    return module
