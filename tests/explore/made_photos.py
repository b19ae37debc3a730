"""Photos and measurements for the explorer's tests."""

import asyncio
import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import load


def noise_png(width, height, seed=0, contrast=1):
    pixels = 128 + contrast * np.random.default_rng(seed).integers(-90, 90, (height, width))
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, format="PNG")
    return file.getvalue()


def resident_mib():
    """Memory of this process, in which the server runs too."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def unpack(data):
    """Facts and arrays of a bundle."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return json.loads(header["__metadata__"]["facts"]), load(data)


def in_own_loop(work):
    """The result of a coroutine; in a thread, because a browser of other tests may have a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
