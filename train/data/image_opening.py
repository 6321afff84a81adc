"""Opens image files with Pillow: more of them than Pillow itself opens, and no previews."""

import functools
import io
from typing import BinaryIO

from PIL import ExifTags, Image, ImageFile, JpegImagePlugin, TiffImagePlugin

from train.data import image_metadata
from train.foundation import packages

# What an HEIC file has at its bytes 4 to 12, after "ftyp"; the last two may be of AVIF images, too.
_HEIC = frozenset(
    {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"}
)
# In the tag NewSubfileType of a TIFF file.
_REDUCED = 1
_CANON_RAW = b"CR"
# Where Pillow keeps XMP data.
XMP = ("xmp", "XML:com.adobe.xmp")
_END_OF_JPEG = b"\xff\xd9"


def opened(file: BinaryIO) -> ImageFile.ImageFile:
    """An image whose header is read, and whose pixels are not.

    Args:
        file: the file, at its start.

    Raises:
        ImportError: it is an HEIC image, and pillow-heif is not installed.
        Exception: Pillow's many readers can raise anything for a damaged file.
    """
    head = file.read(12)
    file.seek(0)
    may_be_heic = head[4:8] == b"ftyp" and head[8:] in _HEIC
    reads_heic = may_be_heic and _register_heic()
    try:
        image = Image.open(file)
    except Exception as error:
        if may_be_heic and not reads_heic:
            what = "HEIC (the extra heic)"
            raise ImportError(packages.missing(what, "pillow-heif", "heic")) from error
        # Damaged or very large metadata must not cost the pixels.
        file.seek(0)
        encoded = file.read()
        needed = image_metadata.without_metadata(encoded)
        if needed == encoded:
            raise
        image = Image.open(io.BytesIO(needed))
    if image.format == "EPS":
        # Pillow has Ghostscript run it when its pixels are read.
        raise ValueError("it is a program for printers (EPS), which is not run; convert it to PNG")
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        if _is_preview(image, head):
            raise ValueError(
                "it has a preview in place of the picture, as the raw photographs of cameras have; "
                "convert it to JPEG or PNG"
            )
        # Pillow turns the pixels of a TIFF file when it reads them; see `images.turned_upright`.
        image.info.pop(XMP[0], None)
    return image


def loaded(
    encoded: bytes, *, read_truncated: bool, header: ImageFile.ImageFile | None = None
) -> ImageFile.ImageFile:
    """An image with its pixels.

    Args:
        encoded: a file's bytes.
        header: what `opened` gave for these bytes, which gets the pixels; None to open them.
        read_truncated: whether a file that lacks its end is read as far as it goes. The rest is
            then grey in a JPEG file, or has less detail if the file is progressive; in other files
            it is black.

    Raises:
        ImportError: see `opened`.
        Exception: as `opened`, also for a file that is truncated.
    """
    try:
        return _loaded(encoded, header, read_truncated=read_truncated)
    except Exception:
        # Texts may also follow the pixels.
        needed = image_metadata.without_metadata(encoded)
        if needed == encoded:
            raise
    return _loaded(needed, None, read_truncated=read_truncated)


def says_truncated(error: Exception) -> bool:
    """Whether an error of Pillow means that a file lacks its end."""
    # The second is for a PNG file that ends inside the name of a chunk.
    return str(error).startswith(("image file is truncated", "broken PNG file (chunk"))


def _loaded(
    encoded: bytes, header: ImageFile.ImageFile | None, *, read_truncated: bool
) -> ImageFile.ImageFile:
    image = opened(io.BytesIO(encoded)) if header is None else header
    try:
        # Decodes all of it now: otherwise a truncated file is only noticed later.
        image.load()
    except (OSError, SyntaxError) as error:
        # Pillow has a switch for this, which all threads share, as it has for other libraries.
        if not (read_truncated and says_truncated(error)):
            raise
        if isinstance(image, JpegImagePlugin.JpegImageFile):
            # With this end libjpeg gives all that it has, also of a progressive file.
            return _loaded(encoded + _END_OF_JPEG, None, read_truncated=False)
        # Nothing is left to be decoded: the image is what was decoded before the error.
        image.tile = []
    return image


def _is_preview(image: TiffImagePlugin.TiffImageFile, head: bytes) -> bool:
    """Whether the first picture of a TIFF file is a small one that stands for another."""
    kind = image.tag_v2.get(ExifTags.Base.NewSubfileType)
    return (isinstance(kind, int) and bool(kind & _REDUCED)) or head[8:10] == _CANON_RAW


@functools.cache
def _register_heic() -> bool:
    """Has Pillow read HEIC images if it can. Each process imports the package at its first one."""
    try:
        import pillow_heif  # noqa: PLC0415

        # None of what else such a file may have is used, and so it cannot be damaged.
        pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)
    except ImportError:
        return False
    return True
