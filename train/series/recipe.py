"""A configuration without its seed, as commands name it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# Dotted fields of a configuration and their values.
Overrides = tuple[tuple[str, Any], ...]
_SUFFIX = ".py"


@dataclass(frozen=True)
class Recipe:
    """A configuration without its seed: a file, what follows its colon, and changed fields.

    Attributes:
        config: the name of a recipe in `configs/`, or the path of a file.
        choice: what follows the colon after the file, in most recipes a loss; empty for nothing.
        overrides: the changed fields.
    """

    config: str
    choice: str
    overrides: Overrides = ()

    @classmethod
    def parse(cls, argument: str) -> "Recipe":
        """The recipe that `--config` names in this way."""
        config, _, choice = argument.partition(":")
        return cls(config, choice)

    def changed(self, overrides: Mapping[str, Any] | Overrides) -> "Recipe":
        """The recipe with these values of some fields."""
        return replace(self, overrides=tuple({**dict(self.overrides), **dict(overrides)}.items()))

    @property
    def argument(self) -> str:
        """The recipe and its choice, as `--config` takes them."""
        return f"{self.config}:{self.choice}" if self.choice else self.config

    @property
    def file(self) -> str:
        """The configuration file with the choice, as it is shown to users."""
        is_name = self.config.isidentifier()
        path = f"configs/{self.config}{_SUFFIX}" if is_name else self.config
        return f"{path}:{self.choice}" if self.choice else path

    @property
    def name(self) -> str:
        """The name of the file and the choice, for folders of runs."""
        stem = Path(self.config.removesuffix(_SUFFIX)).name
        return f"{stem}-{self.choice}" if self.choice else stem
