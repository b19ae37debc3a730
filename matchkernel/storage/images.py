"""Decode photos (gray, colour, masks), encode them as JPEG or PNG, and write pictures atomically."""

import io
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from matchkernel.errors import (
    ArgumentError,
    ArgumentTypeError,
    FileError,
    MatchKernelError,
    MissingExtraError,
    short_message,
)
from matchkernel.storage.extras import CORE, need
from matchkernel.storage.files import check_regular, replacing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from PIL import Image

HEIC_SUFFIXES = (".heic", ".heif")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".webp", *HEIC_SUFFIXES)  # photos
FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "PPM", "GIF", "WEBP")  # others, such as EPS, would start another program
HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")  # after "ftyp" at byte 4
COLOURED = ("RGB", "RGBA", "P", "CMYK", "YCbCr")  # modes of Pillow
MAX_PIXELS = 100_000_000  # of a photo that is decoded; a header that claims more is refused before memory is allocated


def read_gray(path: str | Path) -> np.ndarray:
    """Decode a photo to (H, W) uint8 gray, whatever its mode; from an animation, the first frame.

    The orientation in the EXIF header is ignored, as in COLMAP and hloc: pixels are in the order of the file. Only a
    HEIC photo is upright, because its decoder turns it.
    16 bit gray loses its lower byte; transparency is dropped.
    """
    with open_image(Path(path)) as image:
        return _gray(image, path)


def read_mask(path: str | Path) -> np.ndarray:
    """Decode a mask of any mode: (H, W) uint8, 0 where it is 0 and 255 elsewhere."""
    with open_image(Path(path)) as image:
        values = np.asarray(image) if image.mode.startswith("I") else _gray(image, path)
        return np.where(values == 0, 0, 255).astype(np.uint8)


def read_colour(path: str | Path) -> np.ndarray:
    """Decode a photo as (H, W, 3) uint8 RGB for display.

    It is (H, W) gray if it has no colour or more than MAX_PIXELS // 4 pixels.
    """
    with open_image(Path(path)) as image:
        is_small = image.width * image.height <= MAX_PIXELS // 4
        return np.array(image.convert("RGB")) if is_small and image.mode in COLOURED else _gray(image, path)


@contextmanager
def open_image(path: Path, formats: tuple[str, ...] = FORMATS) -> "Iterator[Image.Image]":
    """A photo opened by Pillow, of at most MAX_PIXELS; any problem becomes a one-line FileError.

    Problems inside the block, where the pixels are decoded, are reported in the same way.
    """
    check_regular(path)
    if not path.is_file():
        raise FileError(f"{path}: {'is a folder, expected an image' if path.is_dir() else 'no such file'}")
    try:
        file = path.open("rb")
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error})") from None
    with file, _decoding(path, file, formats, MAX_PIXELS) as image:
        yield image


def decode_photo(data: bytes, name: str, *, max_pixels: int, preview_side: int) -> tuple[np.ndarray, bytes]:
    """Decode a photo that is in memory: (H, W) uint8 gray as read_gray's, and a JPEG of it to look at.

    Args:
        data: contents of the file.
        name: name used in messages.
        max_pixels: a header that claims more is refused before anything is decoded.
        preview_side: maximum side of the JPEG; pixels are in the order of the file, as in the gray array.
    """
    with _decoding(name, io.BytesIO(data), FORMATS, min(max_pixels, MAX_PIXELS)) as image:
        gray, shown = _gray(image, name), _shown(image, name)
        shown.thumbnail((preview_side, preview_side))
    return gray, _encoded(shown, format="JPEG", quality=85)


def as_jpeg(path: str | Path) -> bytes:
    """A photo of any format as the contents of a JPEG file, with its EXIF header, which contains the focal length."""
    with open_image(Path(path)) as image:
        exif = image.info.get("exif") or b""
        return _encoded(_shown(image, path), format="JPEG", quality=95, exif=exif)


def encode_png(pixels: np.ndarray) -> bytes:
    """(H, W) gray or (H, W, 3) colour uint8 as the contents of a PNG file."""
    return _encoded(_pillow().fromarray(pixels), format="PNG", compress_level=1)


def _shown(image: "Image.Image", path: str | Path) -> "Image.Image":
    """An image as RGB if it has colours, and gray otherwise."""
    found: Image.Image = image.convert("RGB") if image.mode in COLOURED else _pillow().fromarray(_gray(image, path))
    return found


def _encoded(image: "Image.Image", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()


@contextmanager
def _decoding(path: str | Path, file: IO[bytes], formats: tuple[str, ...], max_pixels: int) -> "Iterator[Image.Image]":
    pillow, pixels = _pillow(), "it"
    # Pillow warns about odd metadata. The filter stays: filters are global, and other threads may be decoding too.
    warnings.filterwarnings("ignore", module=r"PIL\b")
    try:
        if not (start := file.read(12)):
            raise FileError(f"{path}: truncated or corrupt image (the file is empty)")
        file.seek(0)
        with pillow.open(file, formats=_with_heic(path, start, formats)) as image:
            pixels = f"{image.width} x {image.height} pixels"
            if image.width * image.height > max_pixels:
                raise FileError(f"{path}: {pixels} are more than {max_pixels:,}")
            yield image
    except MatchKernelError:
        raise
    except pillow.UnidentifiedImageError:
        raise FileError(
            f"{path}: truncated or corrupt image, or not one of the formats {', '.join(formats)}, HEIC"
        ) from None
    except pillow.DecompressionBombError:
        raise FileError(f"{path}: claims far more than {max_pixels:,} pixels") from None
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, ValueError, struct and zlib errors
        reason = short_message(error)
        if isinstance(error, MemoryError) or "out of memory" in reason:
            raise FileError(f"{path}: not enough memory to decode {pixels}") from None
        raise FileError(f"{path}: truncated or corrupt image ({reason})") from None


def _with_heic(path: str | Path, start: bytes, formats: tuple[str, ...]) -> tuple[str, ...]:
    """The formats, and HEIF for a file that begins like one; another package registers its decoder with Pillow."""
    if start[4:8] != b"ftyp" or start[8:12] not in HEIC_BRANDS:
        return formats
    try:
        need("pillow_heif", "heic", "reading HEIC photos").register_heif_opener()
    except MissingExtraError as error:  # one photo of many: to be skipped, with the reason
        raise FileError(f"{path}: {error}") from None
    return (*formats, "HEIF")


def as_gray(image: np.ndarray | str | Path) -> np.ndarray:
    """(H, W) uint8 gray of a file or of pixels; colours are weighted as Pillow does, 16 bits lose their lower byte."""
    if isinstance(image, str | Path):
        return read_gray(image)
    if not isinstance(image, np.ndarray):
        raise ArgumentTypeError(
            f"an image must be a file or a numpy array, got {type(image).__name__}; numpy.asarray(image) makes one"
        )
    if image.dtype not in (np.uint8, np.uint16):
        raise ArgumentTypeError(f"pixels must be uint8 or uint16, got {image.dtype}; scale them to 0..255 first")
    if not image.size or (image.ndim != 2 and (image.ndim != 3 or image.shape[2] not in (3, 4))):
        raise ArgumentError(f"an image must be (H, W) gray or (H, W, 3 or 4) RGB(A) and not empty, got {image.shape}")
    pixels = (image >> 8).astype(np.uint8) if image.dtype == np.uint16 else image
    if pixels.ndim == 3:
        weights = np.array([19595, 38470, 7471], np.uint32)  # of 2^16: ITU-R 601-2
        pixels = ((pixels[..., :3] @ weights + 2**15) >> 16).astype(np.uint8)
    return np.ascontiguousarray(pixels)


def write_png(path: str | Path, pixels: np.ndarray) -> None:
    """Write (H, W) gray or (H, W, 3) colour uint8 as PNG, atomically; the same pixels give the same bytes."""
    with replacing(path) as part:
        _pillow().fromarray(pixels).save(part, format="PNG")


def line_of_text(text: str, width: int, height: int) -> np.ndarray:
    """(height, width, 3) uint8: a line in black on white, from the left, in the middle of the height."""
    strip = _pillow().new("RGB", (width, height), "white")
    font = need("PIL.ImageFont", CORE, "drawing text").load_default(round(height * 0.5))
    draw = need("PIL.ImageDraw", CORE, "drawing text").Draw(strip)
    draw.text((0, height / 2), text, fill="#1a1a1a", font=font, anchor="lm")
    return np.asarray(strip)


def _gray(image: "Image.Image", path: str | Path) -> np.ndarray:
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
