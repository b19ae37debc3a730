"""The report of an adaptation: counts, gains, curves, contact sheets, matches before and after."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matchkernel.adapt.judge import HARD, MATCHING, POSES, RETRIEVAL, Adapted, Gain, no_poses
from matchkernel.adapt.settings import AdaptSettings
from matchkernel.data.from_colmap import scene_name
from matchkernel.errors import MatchKernelError
from matchkernel.evaluation.photos.scenes import EvaluationScene
from matchkernel.photos.features import LEARNED_RATIO
from matchkernel.photos.match import Filter
from matchkernel.photos.pipeline import match_images
from matchkernel.plots.canvas import new_figure
from matchkernel.plots.contact_sheet import write_contact_sheet
from matchkernel.plots.matches import TITLE, picture_of, title_of
from matchkernel.plots.training import Panel, draw_panel, read_panels
from matchkernel.report.blocks import WIDTH, Block, Chart, Picture, Report, Section, Series, TextTable
from matchkernel.report.write import write_report
from matchkernel.runtime.weights import read_card
from matchkernel.storage.images import write_png

CANDIDATE, RUN = "training/candidate.safetensors", "training/run"
KEYPOINTS = 1000
MEASURES = {
    RETRIEVAL: "how reliably the same spot is found again among all spots",
    MATCHING: "how often the most similar spot of another photo is the right one",
    HARD: "how often another spot that looks alike is taken for the same; lower is better",
    POSES: "how often the second camera of a pair is placed right, in the mean over limits of 1° to 10°",
}
NOISE = "95 % interval: of the change, had other points or pairs been drawn; within noise: it holds 0."
ELSEWHERE = "Other pictures, which show whether anything was forgotten."


@dataclass(frozen=True)
class OfTraining(Block):
    """A curve of a training, with the update whose weights are scored."""

    panel: Panel
    scored: int | None
    has_chart = True

    def chart(self, series: Series, width: float = WIDTH) -> Chart:
        """One curve over updates; the title is above the chart."""
        figure = new_figure(width, 2.8)
        axes = figure.subplots()
        draw_panel(axes, self.panel, self.scored)
        axes.set_title("")
        return figure, f"{self.title} by update."

    def numbers(self) -> dict[str, Any]:
        """Every point."""
        return {"kind": "training", "scored": self.scored, "curves": self.panel.curves}


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
        _table(title, part, note)
        for title, part, note in (
            ("On the test part", result.gains, no_poses(scene)),
            ("Elsewhere", result.elsewhere, ELSEWHERE),
        )
        if part
    ]
    spots = "In the pictures of patches, each row is one spot that several photos show."
    sections = [
        Section("Gain", tuple(gains), summary=result.verdict),
        Section("Data", (counts, *_sheets(result)), spots),
        Section("Training", tuple(_curves(result)), training),
        Section("Matches of test photos", tuple(_matches(result, scene, settings, device))),
    ]
    name = scene_name(photos)
    kept = f"none: use {settings.model}"
    kept += f"; the trained ones, not recommended, are in {CANDIDATE}" * (result.folder / CANDIDATE).exists()
    facts = (
        ("weights before", settings.model),
        ("photos", name),
        ("weights after", result.weights.name if result.weights else kept),
    )
    page = Report(f"Adapted to {name}", tuple(s for s in sections if s.blocks or s.note or s.summary), facts)
    return write_report(page, result.folder)


def _table(title: str, gains: list[Gain], note: str) -> TextTable:
    rows = tuple(
        (
            f"{gain.measure}, {gain.place}",
            gain.verdict,
            f"{100 * gain.before:.2f}",
            f"{100 * gain.after:.2f}",
            f"{100 * (gain.after - gain.before):+.2f}",
            f"{100 * gain.low:+.2f} to {100 * gain.high:+.2f}",
        )
        for gain in gains
    )
    head = ("measure", "verdict", "before, %", "after, %", "change", "95 % interval")
    said = [f"{measure}: {MEASURES[measure]}." for measure in dict.fromkeys(gain.measure for gain in gains)]
    return TextTable(title, head, rows, note=" ".join(filter(None, [*said, NOISE, note])))


def _curves(result: Adapted) -> Iterator[OfTraining]:
    """Loss and validation by update; left out if the log cannot be drawn, because the scores are in the tables."""
    notes = {"loss": "What training lowers.", "validation: FPR@95 (%)": "Half of its wrong pairs are easy."}
    with suppress(MatchKernelError):
        for panel in read_panels(result.folder / RUN):
            yield OfTraining(panel.title, panel, result.learned.best_step or None, note=notes.get(panel.title, ""))


def _sheets(result: Adapted) -> Iterator[Picture]:
    """Patches of each part."""
    for name in result.counts:
        draw = partial(write_contact_sheet, result.folder / "sets" / name, points=6, columns=5)
        yield Picture(f"Patches: {name}", _png(draw))


def _png(draw: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        draw(path)
        return path.read_bytes()


def _matches(result: Adapted, scene: EvaluationScene, settings: AdaptSettings, device: str) -> Iterator[Picture]:
    """The same pair before and after; left out if it cannot be matched, because all results are in the tables."""
    candidate = result.folder / CANDIDATE
    if not scene.pairs or not candidate.exists():
        return
    pair = scene.pairs[len(scene.pairs) // 2]
    a, b = (scene.images[name] for name in pair)
    limit = Filter("ratio", ratio=read_card(candidate).match_ratio or LEARNED_RATIO)  # the same for both
    for title, weights in (("before", settings.model), ("after", str(candidate))):
        with suppress(MatchKernelError):
            found = match_images(a, b, weights, device=device, engine="torch", keypoints=KEYPOINTS, filter=limit)
            picture = picture_of(found, a, b, title)[TITLE:]  # the caption says it, in letters that can be read
            note = f"{title_of(found.inliers, found.inliers, '')}, in one motion of the camera. Kept: points that are"
            note += f" each other's most similar, with a ratio below {limit.ratio:g} to the next ones."
            png = _png(partial(write_png, pixels=picture))
            yield Picture(f"{pair[0]} and {pair[1]}, {title}", png, note=note)
