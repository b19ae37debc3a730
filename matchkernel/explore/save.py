"""The page as one file: its scripts and styles inside, and its data as bytes. It needs no server and no network."""

import base64
import gzip
import re
from pathlib import Path

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.explore.inside import COMPARED, PatchInspector
from matchkernel.explore.matching import Comparison, PageMatcher
from matchkernel.explore.page_files import SCRIPTS, pack, page_file
from matchkernel.explore.photos import PagePhoto
from matchkernel.explore.settings import ExploreSettings
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.photos.extract import CUT
from matchkernel.storage.files import replacing
from matchkernel.storage.settings import short_repr

MAX_MATCHES = 2000
LEVELS = 127  # of a saved map, from its minimum to its maximum
PAIRS_AT_A_TIME = 32
SIDES = ("a", "b")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src blob: data:; frame-src 'self'"
)


def save_page(
    path: str | Path,
    pair: tuple[PagePhoto, PagePhoto],
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
    if not 1 <= matches <= MAX_MATCHES:
        raise ArgumentError(f"matches must be from 1 to {MAX_MATCHES:,}, got {short_repr(matches)}")
    matcher = PageMatcher(settings, compare)
    models = matcher.chosen
    inspector = PatchInspector(1, matcher.own)
    known = inspector.views if inspector.works() else {}
    views = {view: model for view, model in known.items() if model in {*models, *COMPARED}}
    found = [matcher.compare(*pair, model, settings.keypoints, "ratio") for model in models]
    kept = [_only(one, matches // len(models)) for one in found]
    facts = {
        "page": {
            "models": models,
            "model": models[0],
            "starts": models,
            "ranges": {},
            "views": views,
            "compared": COMPARED,
            "receptive_field": inspector.receptive_side,
            "pair": [{**photo.facts, "side": letter} for photo, letter in zip(pair, SIDES, strict=True)],
            "report": report is not None,
        },
        "matches": [
            {**one.facts, "number": number, "passed": _passed(every)}
            for number, (one, every) in enumerate(zip(kept, found, strict=True))
        ],
        "report": report,
    }
    packed = gzip.compress(pack(facts, _data(pair, kept, matcher, inspector, settings, list(views))), 9, mtime=0)
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


def _only(found: Comparison, limit: int) -> Comparison:
    """The matches to save, with one rival each way: those that pass the filter, or an even choice by distance."""
    rows = np.flatnonzero(found.arrays["kept"])
    if len(rows) > limit:
        by_distance = rows[np.argsort(found.arrays["distances"][rows], kind="stable")]
        rows = np.sort(by_distance[np.linspace(0, len(rows) - 1, max(limit, 1)).round().astype(int)])
    arrays = dict(found.arrays)
    for name, array in found.arrays.items():
        if not name.startswith("frames"):
            arrays[name] = array[rows, :1] if name.startswith("rivals") else array[rows]
    return Comparison(found.facts, arrays)


def _passed(found: Comparison) -> list[int]:
    """How many matches pass the filter, and how many of them agree: before the choice of those that are saved."""
    kept = found.arrays["kept"].astype(bool)
    return [int(kept.sum()), int(found.arrays["agrees"][kept].sum())]


def _data(
    pair: tuple[PagePhoto, PagePhoto],
    found: list[Comparison],
    matcher: PageMatcher,
    inspector: PatchInspector,
    settings: ExploreSettings,
    views: list[str],
) -> dict[str, np.ndarray]:
    """All arrays. Keypoints that no saved match and no rival names are left out, and `found` numbered accordingly."""
    data: dict[str, np.ndarray] = {}
    for number, one in enumerate(found):
        for view, maps in _maps(pair, one, inspector, views).items():
            data[f"maps{number}.{view}"] = maps
    for side, (letter, photo) in enumerate(zip(SIDES, pair, strict=True)):
        frames, rivals = f"frames_{letter}", f"rivals_{letter}"
        used = np.unique(np.concatenate([np.append(one.arrays["pairs"][:, side], one.arrays[rivals]) for one in found]))
        for one in found:
            one.arrays["pairs"][:, side] = np.searchsorted(used, one.arrays["pairs"][:, side])
            one.arrays[rivals] = np.searchsorted(used, one.arrays[rivals]).astype(np.uint32)
            one.arrays[frames] = one.arrays[frames][used]
        data[f"patches.{letter}"] = matcher.patches(photo, settings.keypoints)[used]
        data[f"jpeg.{letter}"] = np.frombuffer(photo.jpeg, np.uint8)
    for number, one in enumerate(found):
        data |= {f"match{number}.{name}": array for name, array in one.arrays.items()}
    return data


def _maps(
    pair: tuple[PagePhoto, PagePhoto], found: Comparison, inspector: PatchInspector, views: list[str]
) -> dict[str, np.ndarray]:
    """For each view (M, n^2, n^2) bytes: row p is S_p(q), from its minimum (0) to its maximum (127)."""
    pairs, pieces = found.arrays["pairs"], dict[str, list[np.ndarray]]((view, []) for view in views)
    models = dict.fromkeys(inspector.views[view] for view in views)
    for start in range(0, len(pairs), PAIRS_AT_A_TIME):
        cut = []
        for side, (letter, photo) in enumerate(zip(SIDES, pair, strict=True)):
            rows = found.arrays[f"frames_{letter}"][pairs[start : start + PAIRS_AT_A_TIME, side]]
            cut.append(extract_patches(photo.gray, Frames(rows[:, :2], rows[:, 2:].reshape(-1, 2, 2)), CUT))
        for view, maps in (item for model in models for item in inspector.maps(model, *cut).items()):
            low, high = maps.min(2, keepdims=True), maps.max(2, keepdims=True)
            pieces[view].append(np.round(LEVELS * (maps - low) / np.maximum(high - low, 1e-30)).astype(np.uint8))
    return {view: np.concatenate([np.zeros((0, 64, 64), np.uint8), *rows]) for view, rows in pieces.items()}
