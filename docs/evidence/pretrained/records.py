"""The runs that have finished: one line of JSON each, in a file for each setting."""

import base64
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Key:
    """What a run is of.

    Attributes:
        setting: the name of its setting.
        loss: the name of its loss.
        head: linear or cosine.
        search: the name of its search.
        candidate: the index of its candidate.
        seed: its seed.
    """

    setting: str
    loss: str
    head: str
    search: str
    candidate: int
    seed: int


@dataclass(frozen=True)
class Record:
    """A finished run.

    Attributes:
        key: what it is of.
        parameters: those of its candidate.
        validation: by rule, the accuracy at each checkpoint that selects, a share.
        test: by rule, the checkpoint that it selected, and by metric which test examples have
            their label in the set; empty for a run that only selects.
        num_test: the number of test examples.
        used: seconds and floating-point operations, shared equally by what was trained at once.
        design: the SHA-256 of the design.
    """

    key: Key
    parameters: dict[str, float]
    validation: dict[str, list[float]]
    test: dict[str, dict[str, Any]]
    num_test: int
    used: dict[str, float]
    design: str

    def hits(self, rule: str, metric: str) -> np.ndarray:
        """Which test examples have their label in the set, bool [n]."""
        packed = np.frombuffer(base64.b64decode(self.test[rule][metric]), np.uint8)
        return np.unpackbits(packed, count=self.num_test).astype(bool)


def packed(hits: np.ndarray) -> str:
    """Booleans as text."""
    return base64.b64encode(np.packbits(hits).tobytes()).decode()


class Records:
    """The records of a folder.

    A process that is killed may leave a line without its end, which is left out, and overwritten.
    """

    def __init__(self, folder: Path, design: str) -> None:
        """Of a folder, which is made; records of another design are refused.

        Raises:
            ValueError: a record is of another design.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._design = design
        self.found: dict[Key, Record] = {}
        for path in sorted(folder.glob("*.jsonl")):
            self.read(path.stem)

    def read(self, setting: str) -> None:
        """Reads what is there of a setting, as another process may have added to it."""
        path = self._path(setting)
        if not path.exists():
            return
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            plain = json.loads(line)
            record = Record(**{**plain, "key": Key(**plain["key"])})
            if record.design != self._design:
                raise ValueError(
                    f"{path} has runs of another design, {record.design}; this one is "
                    f"{self._design}"
                )
            self.found[record.key] = record

    def add(self, records: list[Record]) -> None:
        """Appends records of one setting, which are on the disk afterwards."""
        path = self._path(records[0].key.setting)
        with path.open("ab+") as file:
            file.seek(0)
            whole = file.read()
            file.truncate(whole.rfind(b"\n") + 1)
            for record in records:
                file.write(json.dumps(asdict(record)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.found |= {record.key: record for record in records}

    def _path(self, setting: str) -> Path:
        return self._folder / f"{setting}.jsonl"
