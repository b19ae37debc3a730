"""Images with known contents, good and bad."""

import io
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
from PIL import Image


def texture(seed: int = 0, height: int = 160, width: int = 200, blur: float = 2) -> np.ndarray:
    """(height, width) uint8 smooth noise with a few hundred keypoints; `blur` is the sigma in pixels."""
    noise = np.random.default_rng(seed).uniform(0, 255, (height, width)).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), blur)
    return np.clip((smooth - smooth.mean()) / smooth.std() * 45 + 127, 0, 255).astype(np.uint8)


def blob(x: float, y: float, sigma: float = 3.0, height: int = 120, width: int = 160) -> np.ndarray:
    """A Gaussian blob; the centre of the top-left pixel is (0, 0)."""
    rows, columns = np.mgrid[:height, :width]
    return np.round(40 + 180 * np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * sigma**2))).astype(np.uint8)


def turned(image: np.ndarray, degrees: float, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """The image turned about its centre (from +x towards +y), and the homography to the turned one."""
    height, width = image.shape
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -degrees, scale)
    copy = cv2.warpAffine(image, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
    return copy, np.vstack([matrix, [0, 0, 1]])


def save(pixels: np.ndarray, path: Path) -> Path:
    Image.fromarray(pixels).save(path)
    return path


def png_claiming(width: int, height: int) -> bytes:
    """A PNG whose header claims this size, with hardly any data behind it."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def jpeg_of_scans(count: int, side: int = 16) -> bytes:
    """A progressive JPEG whose last scan, which changes nothing, comes again and again."""
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (side, side), np.uint8)
    Image.fromarray(pixels).save(file, format="JPEG", progressive=True, quality=30)
    data = file.getvalue()
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * count + data[-2:]


def write_bad_images(folder: Path) -> dict[str, str]:
    """Images that cannot be read, and what is said of each."""
    whole = save(texture(), folder / "whole.png").read_bytes()
    (folder / "whole.png").unlink()
    (folder / "empty.png").touch()
    (folder / "words.jpg").write_text("not an image")
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "bomb.png").write_bytes(png_claiming(30_000, 30_000))
    return {
        "missing.png": "no such file",
        "empty.png": "truncated or corrupt image",
        "words.jpg": "truncated or corrupt image",
        "cut.png": "truncated or corrupt image",
        "bomb.png": "more than",
    }


def write_odd_images(folder: Path) -> dict[str, int]:
    """Images that can be read though they are unusual, and the least number of keypoints in them."""
    pixels = texture()
    save(np.full((50, 60), 128, np.uint8), folder / "one_colour.png")
    save(np.zeros((1, 1), np.uint8), folder / "one_pixel.png")
    save(pixels.astype(np.uint16) * 256, folder / "sixteen_bits.png")
    Image.fromarray(np.stack([255 - pixels] * 3 + [np.zeros_like(pixels)], -1), "CMYK").save(folder / "cmyk.tif")
    save(np.stack([pixels] * 3 + [np.full_like(pixels, 90)], -1), folder / "alpha.png")
    return {"one_colour.png": 0, "one_pixel.png": 0, "sixteen_bits.png": 50, "cmyk.tif": 50, "alpha.png": 50}
