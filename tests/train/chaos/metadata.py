"""Changes of intact JSON files: as by another version, or by hand."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from train.foundation import checksums, files, json_files

# What another version may have in the place of a value.
_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**63,
    1e300,
    0.5,
    "",
    "0.0.0",
    "99.1.0",
    "ä\u202e",
    "a.b:c",
    [],
    [0],
    {},
    {"version": 2},
)


def written(folder: Path) -> list[Path]:
    """The files of a folder that have a JSON object or list, except the checksums."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if path.name != checksums.FILE and _holds_json(path)]


def change(path: Path, draw: random.Random) -> str:
    """Changes some entries of a file, and all checksums with them; what was done, in words."""
    content = json.loads(path.read_bytes())
    seal = content.pop(json_files.SEAL, None) if isinstance(content, dict) else None
    done = [_change_one(content, draw) for _ in range(draw.choice((1, 1, 2, 4)))]
    encoded = files.to_json(content) if seal is None else json_files.sealed(content, indent=2)
    path.write_bytes(encoded)
    for folder in path.parents:
        if (folder / checksums.FILE).exists():
            _renew(folder)
    return f"{path.name}: {'; '.join(done)}"


def _holds_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict | list)
    except ValueError:
        return False


def _change_one(content: Any, draw: random.Random) -> str:
    """Changes an entry of one of the objects or lists."""
    place = draw.choice(list(_containers(content)))
    if isinstance(place, list):
        if place and draw.random() < 0.5:
            return f"without {place.pop(draw.randrange(len(place)))!r:.40}"
        value = _drawn_value(draw)
        place.insert(draw.randint(0, len(place)), value)
        return f"with {value!r}"
    name = draw.choice([*place, "added"])
    match draw.choice(("another value", "without", "renamed", "added")):
        case "without" if name in place:
            del place[name]
            return f"without {name}"
        case "renamed" if name in place:
            place[f"{name}_2"] = place.pop(name)
            return f"{name} renamed"
        case "another value" if name in place:
            place[name] = _drawn_value(draw)
            return f"{name} = {place[name]!r}"
        case _:
            place[f"{name}_of_another_version"] = _drawn_value(draw)
            return f"another field beside {name}"


def _drawn_value(draw: random.Random) -> Any:
    """A value of its own: a list that is there twice could be put into itself."""
    return copy.deepcopy(draw.choice(_VALUES))


def _containers(content: Any) -> Iterator[Any]:
    """All objects and lists of a value, and it itself."""
    if isinstance(content, dict | list):
        yield content
        for part in content.values() if isinstance(content, dict) else content:
            yield from _containers(part)


def _renew(folder: Path) -> None:
    known = json.loads((folder / checksums.FILE).read_bytes())
    checksums.write(folder, [folder / name for name in known if (folder / name).is_file()])
