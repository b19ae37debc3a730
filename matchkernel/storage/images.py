"""Decode photos (gray, colour, masks), encode them as JPEG, and write pictures atomically."""

import io
import re
import warnings
from contextlib import contextmanager, nullcontext
from math import ceil, gcd
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from matchkernel.errors import FileError, MatchKernelError, MissingExtraError, short_message
from matchkernel.storage.extras import CORE, need
from matchkernel.storage.files import check_regular, replacing
from matchkernel.storage.upright import ORIENTATION, TURNS, to_stored, turn_of, turned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from PIL import Image

HEIC_SUFFIXES = (".heic", ".heif")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".webp", *HEIC_SUFFIXES)  # photos
FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "PPM", "GIF", "WEBP")  # others, such as EPS, would start another program
HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")  # after "ftyp" at byte 4
EXIF_PARTS = (0x8769, 0x8825)  # of a header: the camera's, with the focal length, and GPS
EXIF_START = b"Exif\0\0"  # of a header in a JPEG
COLOURED = ("RGB", "RGBA", "P", "CMYK", "YCbCr")  # modes of Pillow
MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])", re.DOTALL)  # of JPEG; the others occur inside a scan
SCAN, END = 0xDA, 0xD9
MAX_SCANS = 100  # of a JPEG; progressive ones have about ten, and each takes as long as the whole of another photo
MAX_PIXELS = 100_000_000  # of a photo that is decoded; a header that claims more is refused before memory is allocated


def read_gray(path: str | Path) -> np.ndarray:
    """Decode a photo to (H, W) uint8 gray, whatever its mode; from an animation, the first frame.

    The orientation in the EXIF header is ignored, as in COLMAP and hloc: pixels are in the order of the file. Only a
    HEIC photo is upright, because its decoder turns it.
    16 bit gray loses its lower byte; transparency is dropped.
    """
    with open_image(Path(path)) as image:
        return to_gray(image, path)


def read_mask(path: str | Path) -> np.ndarray:
    """Decode a mask of any mode: (H, W) uint8, 0 where it is 0 and 255 elsewhere."""
    with open_image(Path(path)) as image:
        values = np.asarray(image) if image.mode.startswith("I") else to_gray(image, path)
        return np.where(values == 0, 0, 255).astype(np.uint8)


def read_colour(path: str | Path) -> np.ndarray:
    """Decode a photo as (H, W, 3) uint8 RGB for display.

    It is (H, W) gray if it has no colour or more than MAX_PIXELS // 4 pixels.
    """
    with open_image(Path(path)) as image:
        return to_colour(image, path)


def check_image_file(path: Path) -> None:
    """Refuse what is no file, or a device or pipe, which may never end."""
    check_regular(path)
    if not path.is_file():
        raise FileError(f"{path}: {'is a folder, expected an image' if path.is_dir() else 'no such file'}")


@contextmanager
def open_image(path: Path, formats: tuple[str, ...] = FORMATS) -> "Iterator[Image.Image]":
    """A photo opened by Pillow, of at most MAX_PIXELS; any problem becomes a one-line FileError.

    Problems inside the block, where the pixels are decoded, are reported in the same way.
    """
    check_image_file(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error})") from None
    with file, decode(file, path, formats) as image:
        yield image


def decode_photo(data: bytes, name: str, *, max_pixels: int, preview_side: int) -> tuple[np.ndarray, bytes, np.ndarray]:
    """Decode a photo that is in memory, for a page: upright, by its EXIF header, and not larger than the page can take.

    Args:
        data: contents of the file.
        name: name used in messages.
        max_pixels: a photo of more is shrunk by 2, 3, ...; one of more than MAX_PIXELS is refused.
        preview_side: maximum side of the JPEG.

    Returns:
        (H, W) uint8 gray, a JPEG to look at, and (3, 3), from pixels of the gray array to those of read_gray.
    """
    with decode(io.BytesIO(data), name) as image:
        factor = ceil((image.width * image.height / max_pixels) ** 0.5)
        by_decoder = _shrunk_by_decoder(image, factor)
        shown = _shown(image, name)
        turn = turn_of(image)
        if factor > 1:
            shown = shown.reduce(factor // by_decoder)
            gray = np.asarray(shown.convert("L"))
        else:
            gray = to_gray(image, name)
        gray = np.ascontiguousarray(turned(gray, turn))
        shown.thumbnail((preview_side, preview_side))
        shown = _pillow().fromarray(np.ascontiguousarray(turned(np.asarray(shown), turn)))
    enlarged = np.diag([factor, factor, 1.0])
    enlarged[:2, 2] = (factor - 1) / 2
    return gray, _encoded(shown, format="JPEG", quality=85), enlarged @ to_stored(turn, *gray.shape[::-1])


def _shrunk_by_decoder(image: "Image.Image", factor: int) -> int:
    """Let the decoder of a JPEG shrink it by 2, 4 or 8 if that divides the factor; returns by how much."""
    width, part = image.width, gcd(factor, 8)
    image.draft(None, (image.width // part, image.height // part))
    return part if image.width < width else 1


def as_jpeg(path: str | Path) -> bytes:
    """A photo of any format as the contents of a JPEG file, with its EXIF header, which contains the focal length."""
    with open_image(Path(path)) as image:
        exif = image.info.get("exif") or b""
        if exif and not exif.startswith(EXIF_START):  # of a WebP
            exif = EXIF_START + exif
        return _encoded(_shown(image, path), format="JPEG", quality=95, exif=exif)


def _shown(image: "Image.Image", path: str | Path) -> "Image.Image":
    """An image as RGB if it has colours, and gray otherwise."""
    found: Image.Image = image.convert("RGB") if image.mode in COLOURED else _pillow().fromarray(to_gray(image, path))
    return found


def _encoded(image: "Image.Image", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()


@contextmanager
def decode(
    source: "IO[bytes] | Image.Image",
    path: str | Path,
    formats: tuple[str, ...] = FORMATS,
) -> "Iterator[Image.Image]":
    """An image of Pillow's, opened from a file or given; like open_image, with `path` only as a name for messages."""
    pillow, pixels = _pillow(), "it"
    # Pillow warns about odd metadata. The filter stays: filters are global, and other threads may be decoding too.
    warnings.filterwarnings("ignore", module=r"PIL\b")
    try:
        with _opened(source, path, formats) as image:
            pixels = f"{image.width} x {image.height} pixels"
            if image.width * image.height > MAX_PIXELS:
                raise FileError(f"{path}: {pixels} are more than {MAX_PIXELS:,}")
            yield image if isinstance(source, pillow.Image) else _as_stored(image)
    except MatchKernelError:
        raise
    except pillow.UnidentifiedImageError:
        raise FileError(
            f"{path}: truncated or corrupt image, or not one of the formats {', '.join(formats)}, HEIC"
        ) from None
    except pillow.DecompressionBombError:
        raise FileError(f"{path}: claims far more than {MAX_PIXELS:,} pixels") from None
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, ValueError, struct and zlib errors
        reason = short_message(error)
        if isinstance(error, MemoryError) or "out of memory" in reason:
            raise FileError(f"{path}: not enough memory to decode {pixels}") from None
        raise FileError(f"{path}: truncated or corrupt image ({reason})") from None


def _opened(source: Any, path: str | Path, formats: tuple[str, ...]) -> Any:
    if isinstance(source, _pillow().Image):
        return nullcontext(source)  # which stays open
    if not (start := source.read(12)):
        raise FileError(f"{path}: truncated or corrupt image (the file is empty)")
    source.seek(0)
    if start.startswith(b"\xff\xd8"):
        if _has_more_scans(source.read(), MAX_SCANS):
            raise FileError(f"{path}: a JPEG of more than {MAX_SCANS} scans, which would take too long to decode")
        source.seek(0)
    return _pillow().open(source, formats=_with_heic(path, start, formats))


def _as_stored(image: "Image.Image") -> "Image.Image":
    """A photo with its pixels in the order of the file: Pillow turns a TIFF by its header, and nothing else."""
    orientation = image.getexif().get(ORIENTATION, 1) if image.format == "TIFF" else 1
    if orientation not in TURNS:
        return image
    parts = {tag: dict(image.getexif().get_ifd(tag)) for tag in EXIF_PARTS}
    image.load()
    image.getexif()[ORIENTATION] = {6: 8, 8: 6}.get(orientation, orientation)  # back
    stored: Image.Image = need("PIL.ImageOps", CORE, "reading and writing images").exif_transpose(image)
    stored.getexif()[ORIENTATION] = orientation
    for tag, entries in parts.items():  # which a copy of the image has not
        stored.getexif().get_ifd(tag).update(entries)
    return stored


def _has_more_scans(jpeg: bytes, most: int) -> bool:
    """True if a JPEG has more scans than this before its end; nothing is decoded."""
    at, scans = 2, 0
    while scans <= most and (marker := MARKER.search(jpeg, at)) and marker[1][0] != END:
        scans += marker[1][0] == SCAN
        at = marker.end() + int.from_bytes(jpeg[marker.end() : marker.end() + 2], "big")
    return scans > most


def _with_heic(path: str | Path, start: bytes, formats: tuple[str, ...]) -> tuple[str, ...]:
    """The formats, and HEIF for a file that begins like one; another package registers its decoder with Pillow."""
    if start[4:8] != b"ftyp" or start[8:12] not in HEIC_BRANDS:
        return formats
    try:
        need("pillow_heif", "heic", "reading HEIC photos").register_heif_opener()
    except MissingExtraError as error:  # one photo of many: to be skipped, with the reason
        raise FileError(f"{path}: {error}") from None
    return (*formats, "HEIF")


def write_png(path: str | Path, pixels: np.ndarray) -> None:
    """Write (H, W) gray or (H, W, 3) colour uint8 as PNG, atomically; the same pixels give the same bytes."""
    with replacing(path) as part:
        _pillow().fromarray(pixels).save(part, format="PNG")


def write_picture(path: str | Path, pixels: np.ndarray) -> None:
    """Write (H, W) gray or (H, W, 3) colour uint8 as JPEG or PNG, as the name says, atomically."""
    if Path(path).suffix.lower() not in (".jpg", ".jpeg"):
        return write_png(path, pixels)
    with replacing(path) as part:
        _pillow().fromarray(pixels).save(part, format="JPEG", quality=92)
    return None


def line_of_text(text: str, width: int, height: int) -> np.ndarray:
    """(height, width, 3) uint8: a line in black on white, from the left, in the middle of the height."""
    strip = _pillow().new("RGB", (width, height), "white")
    font = need("PIL.ImageFont", CORE, "drawing text").load_default(round(height * 0.5))
    draw = need("PIL.ImageDraw", CORE, "drawing text").Draw(strip)
    draw.text((0, height / 2), text, fill="#1a1a1a", font=font, anchor="lm")
    return np.asarray(strip)


def to_colour(image: "Image.Image", path: str | Path) -> np.ndarray:
    """Decode an opened photo as read_colour says."""
    is_small = image.width * image.height <= MAX_PIXELS // 4
    return np.array(image.convert("RGB")) if is_small and image.mode in COLOURED else to_gray(image, path)


def to_gray(image: "Image.Image", path: str | Path) -> np.ndarray:
    """Decode an opened photo as read_gray says."""
    image.load()
    if image.mode.startswith("I"):
        values = np.asarray(image.convert("I"))
        if values.size and (values.min() < 0 or values.max() > 65535):
            raise FileError(f"{path}: gray values beyond 16 bits")
        return (values >> 8).astype(np.uint8)
    if image.mode == "F":
        raise FileError(f"{path}: floating point gray values are not read; save 8 or 16 bits")
    if image.mode == "LAB":  # Pillow cannot convert it
        raise FileError(f"{path}: the colour mode {image.mode} is not read; save the photo as RGB or gray")
    return np.array(image.convert("L"))


def _pillow() -> "ModuleType":
    return need("PIL.Image", CORE, "reading and writing images")
