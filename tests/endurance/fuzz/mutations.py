"""Bytes, and files, damaged at random."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

# As text: what a number of a JSON file may become.
_NUMBERS = (b"-1", b"0", b"1e308", b"1e999", b"NaN", b"-Infinity", b"9" * 400, b"true", b'"1"')
_NESTED = (b"[" * 2000 + b"]" * 2000, b'{"a":' * 1200 + b"1" + b"}" * 1200, b"[" * 50_000)
_MOST_OPERATIONS = 3
# Bytes of a file that is as large as no file of ours. It is sparse, and takes no space. To read it
# takes more memory than the trials have; to make its checksum takes seconds.
_HUGE = 3 * 2**29


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Other bytes, after one to three operations."""
    before = content
    for _ in range(draw.randint(1, _MOST_OPERATIONS)):
        content = draw.choice(_OPERATIONS)(content, draw)
    return content if content != before else content + b"\0"


def _flip(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 8)) if content else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _overwrite(content: bytes, draw: random.Random) -> bytes:
    start, end = _slice(content, draw)
    with_what = draw.choice((b"\0", b"\xff", draw.randbytes(1)))
    return content[:start] + with_what * (end - start) + content[end:]


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def _remove(content: bytes, draw: random.Random) -> bytes:
    start, end = _slice(content, draw)
    return content[:start] + content[end:]


def _insert(content: bytes, draw: random.Random) -> bytes:
    start, end = _slice(content, draw)
    at = draw.randrange(len(content) + 1)
    what = draw.choice((draw.randbytes(end - start), content[start:end], bytes(end - start)))
    return content[:at] + what + content[at:]


def _swap(content: bytes, draw: random.Random) -> bytes:
    first, second, third = sorted(draw.randrange(len(content) + 1) for _ in range(3))
    return content[:first] + content[second:third] + content[first:second] + content[third:]


def _integer(content: bytes, draw: random.Random) -> bytes:
    """Writes a number that programs get wrong over some bytes."""
    size = draw.choice((1, 2, 4, 8))
    number = draw.choice((0, 1, 2**7, 2**15, 2**31 - 1, 2**31, 2**63 - 1, 2**64 - 1))
    encoded = (number % 2 ** (8 * size)).to_bytes(size, draw.choice(("little", "big")))
    at = draw.randrange(len(content) + 1)
    return content[:at] + encoded + content[at + size :]


def _number(content: bytes, draw: random.Random) -> bytes:
    """Puts another value in the place of a run of digits."""
    digits = [at for at, byte in enumerate(content) if 48 <= byte <= 57]
    if not digits:
        return _flip(content, draw)
    start = end = draw.choice(digits)
    while start > 0 and content[start - 1] in b"0123456789.-":
        start -= 1
    while end < len(content) and content[end] in b"0123456789.eE-":
        end += 1
    other = draw.choice((*_NUMBERS, str(draw.randrange(10**4)).encode()))
    return content[:start] + other + content[end:]


def _slice(content: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randrange(len(content) + 1)
    return start, min(len(content), start + draw.choice((1, 2, 4, 16, 64, 1024)))


_OPERATIONS = (_flip, _flip, _overwrite, _cut, _remove, _insert, _swap, _integer, _number, _number)


def damage(path: Path, draw: random.Random) -> str:
    """Damages a file as a disk, another program or a person may; what was done, in words."""
    name = draw.choice(_KINDS)
    _DAMAGES[name](path, draw)
    return f"{name} {path}"


def _mutate(path: Path, draw: random.Random) -> None:
    path.write_bytes(mutated(path.read_bytes(), draw))


def _digit(path: Path, draw: random.Random) -> None:
    """Changes a digit: what remains is as good a file, with another number."""
    content = bytearray(path.read_bytes())
    digits = [at for at, byte in enumerate(content) if 48 <= byte <= 57]
    if digits:
        at = draw.choice(digits)
        content[at] = 48 + (content[at] - 48 + draw.randint(1, 9)) % 10
        path.write_bytes(bytes(content))


def _nest(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.choice(_NESTED))


def _empty(path: Path, _draw: random.Random) -> None:
    path.write_bytes(b"")


def _garbage(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.randbytes(draw.randrange(1, 4000)))


def _delete(path: Path, _draw: random.Random) -> None:
    path.unlink()


def _folder(path: Path, _draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path, _draw: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.symlink_to(draw.choice(("/dev/zero", "/dev/null", path.name, "nowhere", "..")))


def _huge(path: Path, _draw: random.Random) -> None:
    os.truncate(path, _HUGE)


def _other(path: Path, draw: random.Random) -> None:
    """Puts another file of the folder in its place."""
    others = sorted(one for one in path.parent.rglob("*") if one.is_file() and one != path)
    # In a file of records each record is checked, but not whether it belongs to this file.
    if others and ".array_record-" not in path.name:
        shutil.copyfile(draw.choice(others), path)
    else:
        path.unlink()


_DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "mutated": _mutate,
    "another digit": _digit,
    "nested": _nest,
    "empty": _empty,
    "garbage": _garbage,
    "deleted": _delete,
    "a folder": _folder,
    "a pipe": _pipe,
    "a link": _link,
    "huge": _huge,
    "another file": _other,
}
# Half of the time bytes are damaged anywhere, or a digit.
_KINDS = [*_DAMAGES, *["mutated"] * 7, *["another digit"] * 7]
