"""The page as one file: its scripts and styles inside, and its data as bytes. It needs no server and no network."""

import base64
import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.explore.bundle import pack
from matchkernel.explore.inside import Inside
from matchkernel.explore.matching import Comparison, Matcher
from matchkernel.explore.page_files import SCRIPTS, page_file
from matchkernel.explore.photos import Photo
from matchkernel.explore.settings import ExploreSettings
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.sampling import extract_patches
from matchkernel.photos.describers import CUT
from matchkernel.storage.files import replacing
from matchkernel.storage.settings import short_repr

MOST_MATCHES = 2000
LEVELS = 127  # of a saved map, from its least to its most
PAIRS_AT_A_TIME = 32
SIDES = ("a", "b")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src blob: data:; frame-src 'self'"
)


def save_page(
    path: str | Path,
    pair: tuple[Photo, Photo],
    settings: ExploreSettings,
    compare: str | None = None,
    matches: int = 300,
    report: str | None = None,
) -> int:
    """Match two photos and write the page for them, atomically.

    Args:
        path: .html file.
        pair: the photos.
        settings: model and number of keypoints.
        compare: another model, shown side by side.
        matches: maximum number of matches in the file, of all models together; if more pass the filter, an even choice
            of them by distance.
        report: HTML of the page of results.

    Returns:
        The size of the file in bytes.
    """
    if not 1 <= matches <= MOST_MATCHES:
        raise ArgumentError(f"matches must be from 1 to {MOST_MATCHES:,}, got {short_repr(matches)}")
    matcher, inside = Matcher(settings, compare), Inside(1)
    models = [matcher.default, *([matcher.compared] if matcher.compared else [])]
    found = [matcher.compare(*pair, model, settings.keypoints, "ratio") for model in models]
    chosen = [_chosen(one, matches // len(models)) for one in found]
    kept = [_only(one, rows) for one, rows in zip(found, chosen, strict=True)]
    data = _data(pair, kept, matcher, inside, settings)
    facts = {
        "page": _page_facts(pair, found, chosen, models, inside, report),
        "matches": [{**one.facts, "number": number} for number, one in enumerate(kept)],
        "report": report,
    }
    packed = gzip.compress(pack(facts, data), 9, mtime=0)
    page = self_contained(base64.b64encode(packed).decode())
    with replacing(path) as part:
        part.write_text(page, encoding="utf-8", newline="\n")
    return len(page.encode())


def self_contained(data: str) -> str:
    """The page with its scripts joined into one, its styles and its data (base64) inside."""
    script = "\n".join(_joined(page_file(name)) for name in SCRIPTS)
    page = page_file("index.html")
    for old, new in {
        '<link rel="stylesheet" href="/page/style.css">': f"<style>\n{page_file('style.css')}</style>",
        '<script type="module" src="/page/main.js"></script>': f'<script type="text/plain" id="saved">{data}</script>\n'
        f'<script type="module">\n{script}</script>',
        '<meta charset="utf-8">': '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
    }.items():
        assert page.count(old) == 1, old
        page = page.replace(old, new)
    return page


def _joined(script: str) -> str:
    """A module without its imports and exports, for a script that holds all modules."""
    lines = re.sub(r'^import \{[^}]*\} from "\./[a-z]+\.js";\n', "", script, flags=re.MULTILINE)
    return re.sub(r"^export ", "", lines, flags=re.MULTILINE)


def _chosen(found: Comparison, most: int) -> np.ndarray:
    """Indices of the matches to save: those that pass the filter, or an even choice of them by distance."""
    kept = np.flatnonzero(found.arrays["kept"])
    if len(kept) <= most:
        return kept
    by_distance = kept[np.argsort(found.arrays["distances"][kept], kind="stable")]
    return np.sort(by_distance[np.linspace(0, len(kept) - 1, max(most, 1)).round().astype(int)])


def _only(found: Comparison, rows: np.ndarray) -> Comparison:
    """These matches with one rival each way."""
    rivals = {name: found.arrays[name][rows, :1] for name in found.arrays if name.startswith("rivals")}
    frames = {name: found.arrays[name] for name in ("frames_a", "frames_b")}
    rest = {name: array[rows] for name, array in found.arrays.items() if name not in (*rivals, *frames)}
    return Comparison(found.facts, {**frames, **rest, **rivals})


def _data(
    pair: tuple[Photo, Photo], found: list[Comparison], matcher: Matcher, inside: Inside, settings: ExploreSettings
) -> dict[str, np.ndarray]:
    """All arrays; keypoints that no saved match and no rival names are left out, and the others numbered anew."""
    data: dict[str, np.ndarray] = {}
    for number, one in enumerate(found):
        for view, maps in enumerate(_maps(pair, one, inside)):
            data[f"maps{number}.{view}"] = maps
    arrays = [dict(one.arrays) for one in found]
    for side, (letter, photo) in enumerate(zip(SIDES, pair, strict=True)):
        named = [np.concatenate([own["pairs"][:, side], own[f"rivals_{letter}"].ravel()]) for own in arrays]
        used = np.unique(np.concatenate(named)).astype(np.int64)
        anew = np.zeros(int(used.max(initial=0)) + 1, np.uint32)
        anew[used] = np.arange(len(used))
        for own in arrays:
            own["pairs"] = own["pairs"].copy()
            own["pairs"][:, side] = anew[own["pairs"][:, side]]
            own[f"rivals_{letter}"] = anew[own[f"rivals_{letter}"]]
            own[f"frames_{letter}"] = own[f"frames_{letter}"][used]
        data[f"patches.{letter}"] = matcher.patches(photo, settings.keypoints)[used]
        data[f"jpeg.{letter}"] = np.frombuffer(photo.jpeg, np.uint8)
    for number, own in enumerate(arrays):
        data |= {f"match{number}.{name}": array for name, array in own.items()}
    return data


def _maps(pair: tuple[Photo, Photo], found: Comparison, inside: Inside) -> list[np.ndarray]:
    """For each view (M, n^2, n^2) bytes: row p is S_p(q), from its least (0) to its most (127).

    Smaller than what the positions contribute (2 n^2 D numbers), which has no few axes that would do for all matches.
    """
    pairs = found.arrays["pairs"]
    views = inside.views
    if not views:
        return []
    pieces: list[list[np.ndarray]] = [[] for _ in views]
    for start in range(0, len(pairs), PAIRS_AT_A_TIME):
        part = pairs[start : start + PAIRS_AT_A_TIME]
        cut = [
            extract_patches(photo.gray, _frames(found.arrays[f"frames_{letter}"][part[:, side]]), CUT)
            for side, (letter, photo) in enumerate(zip(SIDES, pair, strict=True))
        ]
        first, second = (inside.of_patches(patches) for patches in cut)
        for view, piece in zip(views, pieces, strict=True):
            a, b = (np.sum([rows[name].numpy() for name in view["parts"]], axis=0) for rows in (first, second))
            maps = a @ b.transpose(0, 2, 1)
            least, most = maps.min(2, keepdims=True), maps.max(2, keepdims=True)
            piece.append(np.round(LEVELS * (maps - least) / np.maximum(most - least, 1e-30)).astype(np.uint8))
    return [np.concatenate(piece) if piece else np.zeros((0, 64, 64), np.uint8) for piece in pieces]


def _frames(rows: np.ndarray) -> Frames:
    return Frames(rows[:, :2], rows[:, 2:].reshape(-1, 2, 2))


def _page_facts(
    pair: tuple[Photo, Photo],
    found: list[Comparison],
    chosen: list[np.ndarray],
    models: list[str],
    inside: Inside,
    report: str | None,
) -> dict[str, Any]:
    counts = "; ".join(
        f"{model}: {len(rows):,} of {int(one.arrays['kept'].sum()):,} matches that pass the filter"
        for model, one, rows in zip(models, found, chosen, strict=True)
    )
    return {
        "models": models,
        "model": models[0],
        "starts": models,
        "ranges": {},
        "views": inside.views,
        "receptive_field": inside.receptive_side,
        "pair": [{**photo.facts, "side": letter} for photo, letter in zip(pair, SIDES, strict=True)],
        "report": report is not None,
        "note": f"Saved by matchkernel explore. {counts}. Needs no network.",
    }
