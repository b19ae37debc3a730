"""What the explorer serves and the limits it keeps."""

from dataclasses import dataclass

from matchkernel.runtime.config import PHOTO_MODEL
from matchkernel.storage.settings import Checked, setting

MAX_KEYPOINTS = 8000
MIB = 2**20


@dataclass(frozen=True)
class ExploreSettings(Checked):
    """How the page is served, and how much memory and time its requests may take.

    Attributes:
        upload_bytes: maximum size of a photo's file.
        upload_pixels: a photo of more pixels is shrunk, one of more than 100 million refused.
        kept_photos: photos in memory besides those of the command line; the least recently used are dropped first.
        kept_results: features, matches, maps and curves in memory, of each kind.
        workers: jobs computed at the same time, of each of two kinds, long and short.
        waiting: maximum number of unfinished jobs of each kind, waiting or running; further ones are answered "busy".
        upload_seconds: a photo that takes longer to arrive is refused.
    """

    host: str = setting("127.0.0.1", about="name or address to serve at")
    port: int = setting(8765, low=0, high=65535, about="port to serve at; 0 for any free one")
    model: str = setting(PHOTO_MODEL, about="name of trained weights, a .safetensors file, sift or rootsift")
    keypoints: int = setting(
        2000, low=10, high=MAX_KEYPOINTS, about="maximum number of keypoints per photo at the start"
    )
    upload_bytes: int = setting(32 * MIB, low=1)
    upload_pixels: int = setting(24_000_000, low=1)
    kept_photos: int = setting(8, low=2)
    kept_results: int = setting(16, low=1)
    workers: int = setting(2, low=1)
    waiting: int = setting(32, low=1)
    upload_seconds: float = setting(60.0, above=0)
