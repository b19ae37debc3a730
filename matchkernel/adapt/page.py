"""The report of an adaptation: counts, gains, curves, contact sheets, matches before and after."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from matchkernel.adapt.judge import Adapted, Gain
from matchkernel.adapt.settings import AdaptSettings
from matchkernel.errors import MatchKernelError
from matchkernel.evaluation.photos.scenes import EvaluationScene
from matchkernel.photos.features import LEARNED_RATIO
from matchkernel.photos.match import Filter
from matchkernel.photos.pipeline import match_images
from matchkernel.plots.contact_sheet import write_contact_sheet
from matchkernel.plots.matches import save_picture
from matchkernel.plots.training import training_picture
from matchkernel.report.blocks import Picture, Report, Section, TextTable
from matchkernel.report.write import write_report
from matchkernel.runtime.weights import read_card

KEYPOINTS = 1000


def write_page(
    result: Adapted, photos: Path, scene: EvaluationScene, settings: AdaptSettings, device: str
) -> list[Path]:
    """Write report.html, report.md and report.json into the folder of the result."""
    learned = result.learned
    counts = TextTable(
        "What the photos gave",
        ("part", "photos", "points", "patches"),
        tuple((name, f"{c.photos:,}", f"{c.points:,}", f"{c.patches:,}") for name, c in result.counts.items()),
        note="No photo and no 3-D point is in two parts, and points near another part are left out.",
    )
    training = (
        f"{learned.step:,} of {learned.steps:,} updates in {learned.seconds:.0f} s, ended because {learned.why};"
        f" best validation mAP {100 * learned.best_map:.2f} after update {learned.best_step:,},"
        f" {100 * learned.first_map:.2f} before."
    )
    gains = [
        _table(title, part)
        for title, part in (("On the test part", result.gains), ("Elsewhere", result.elsewhere))
        if part
    ]
    curves = _drawn("Loss and validation", partial(training_picture, result.folder / "training" / "run"))
    sections = [
        Section("Gain", tuple(gains), summary=result.verdict),
        Section("Data", (counts, *_sheets(result))),
        Section("Training", tuple(curves), training),
        Section("Matches of test photos", tuple(_matches(result, scene, settings, device))),
    ]
    name = _scene_name(photos)
    weights = result.weights.name if result.weights else "the same: the others are not kept"
    facts = (("weights before", settings.model), ("photos", name), ("weights after", weights))
    page = Report(f"Adapted to {name}", tuple(s for s in sections if s.blocks or s.note or s.summary), facts)
    return write_report(page, result.folder)


def _scene_name(photos: Path) -> str:
    """Of a folder of photos; one called images says nothing."""
    folder = photos.resolve()
    return folder.parent.name if folder.name == "images" else folder.name


def _table(title: str, gains: list[Gain]) -> TextTable:
    rows = tuple(
        (
            f"{gain.measure}, {gain.place}",
            f"{100 * gain.before:.2f}",
            f"{100 * gain.after:.2f}",
            f"{100 * (gain.after - gain.before):+.2f}",
            f"{100 * gain.low:+.2f} to {100 * gain.high:+.2f}",
            gain.verdict,
        )
        for gain in gains
    )
    head = ("measure", "before", "after", "change", "95 % interval", "")
    note = "Intervals by bootstrap over points or pairs. FPR@95: lower is better."
    return TextTable(title, head, rows, note=note)


def _drawn(title: str, draw: Callable[[Path], object], note: str = "") -> Iterator[Picture]:
    """A picture; one that cannot be drawn is left out, because all results are in the tables."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        try:
            draw(path)
        except MatchKernelError:
            return
        yield Picture(title, path.read_bytes(), note=note)


def _sheets(result: Adapted) -> Iterator[Picture]:
    for name in result.counts:
        draw = partial(write_contact_sheet, result.folder / "sets" / name, points=6)
        yield from _drawn(f"Patches: {name}", draw)


def _matches(result: Adapted, scene: EvaluationScene, settings: AdaptSettings, device: str) -> Iterator[Picture]:
    candidate = result.folder / "training" / "candidate.safetensors"
    if not scene.pairs or not candidate.exists():
        return
    pair = scene.pairs[len(scene.pairs) // 2]
    a, b = (scene.images[name] for name in pair)
    limit = Filter("ratio", ratio=read_card(candidate).match_ratio or LEARNED_RATIO)  # the same for both
    for title, weights in (("before", settings.model), ("after", str(candidate))):

        def draw(path: Path, weights: str = weights, title: str = title) -> None:
            found = match_images(a, b, weights, device=device, engine="torch", keypoints=KEYPOINTS, filter=limit)
            save_picture(found, a, b, path, title)

        note = f"Mutual nearest neighbours with a ratio below {limit.ratio:g}."
        yield from _drawn(f"{pair[0]} and {pair[1]}, {title}", draw, note)
