"""Zip files that are larger than they look: members that share bytes with one another."""

import io
import struct
import zipfile
import zlib

# The first bytes of a local header of a zip file, and its fields.
_LOCAL, _LOCAL_FIELDS = b"PK\x03\x04", "<4s5H3L2H"
_STORED_BLOCK = "<BHH"


def same_bytes(archive: bytes, name: str, times: int = 2) -> bytes:
    """A zip file in whose list a member of another one is several times."""
    file = io.BytesIO(archive)
    with zipfile.ZipFile(file, "a") as changed:
        changed.filelist += [changed.getinfo(name)] * (times - 1)
        # Writes the list again.
        changed.comment = b"changed"
    return file.getvalue()


def quoted(members: int, content: bytes, suffix: str = ".npy") -> bytes:
    """A zip file whose members each contain the next one, packed: their bytes are written once.

    The data of each is a block that is not compressed, with the header of the next one in it, and
    then the data of the next one (Fifield, 2019, "A better zip bomb").
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data, unpacked = packer.compress(content) + packer.flush(), content
    written, entries = b"", []
    for number in reversed(range(members)):
        name = f"{number}{suffix}".encode()
        described = (zlib.crc32(unpacked), len(data), len(unpacked), len(name))
        header = struct.pack(_LOCAL_FIELDS, _LOCAL, 20, 0, 8, 0, 33, *described, 0) + name
        entries.append((name, described, len(header) + len(data)))
        written = header + data
        length = len(header)
        data = struct.pack(_STORED_BLOCK, 0, length, length ^ 0xFFFF) + written
        unpacked = header + unpacked
    directory = b"".join(
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 8, 0, 33, *described, *[0] * 5,
                    len(written) - size) + name
        for name, described, size in reversed(entries)
    )  # fmt: skip
    end = (b"PK\x05\x06", 0, 0, members, members, len(directory), len(written), 0)
    return written + directory + struct.pack("<4s4H2LH", *end)
