"""Adapt weights to a folder of photos: reconstruct, cut, split, train, calibrate, judge, and keep what is better.

A folder holds everything: reconstruction/, sets/, training/, scores.json, adapted.safetensors, the report. Every stage
is written whole; running the same command again goes on where it stopped.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from matchkernel.adapt.judge import (
    LEAST_PAIRS,
    POSES,
    Gain,
    describe_set,
    hard_gain,
    matching_gain,
    pose_gain,
    retrieval_gain,
)
from matchkernel.adapt.learn import Learned, Report, learn, paired_points
from matchkernel.adapt.limits import calibrate_limits
from matchkernel.adapt.page import write_page
from matchkernel.adapt.result import Adapted
from matchkernel.adapt.settings import AdaptSettings
from matchkernel.adapt.stored import read_json
from matchkernel.collection.reconstruct import reconstruct
from matchkernel.colmap.model import read_reconstruction
from matchkernel.data.from_colmap import CutSettings, build_parts
from matchkernel.data.from_photos import photo_hashes
from matchkernel.data.patch_set import PatchSet, open_patch_set
from matchkernel.data.split import PARTS, Counts, check_enough
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.evaluation.photos.scenes import EvaluationScene, colmap_scene
from matchkernel.model.weights import load, save, state_digest
from matchkernel.runtime.weights import read_card
from matchkernel.storage.extras import need, need_opencv
from matchkernel.storage.files import check_folder, file_hash, write_json
from matchkernel.storage.folders import LOCK, exclusive
from matchkernel.storage.photo_folders import check_photo_folder
from matchkernel.storage.settings import first_difference
from matchkernel.storage.work import Progress, Say
from matchkernel.training.distributed import chosen_device

SETTINGS, SCORES, ADAPTED = "settings.json", "scores.json", "adapted.safetensors"
RECONSTRUCTION, SETS = "reconstruction", "sets"
PAIRS, MOST_PHOTO_PAIRS = 5000, 40
ELSEWHERE = SyntheticSettings(points=300, patches=4, seed=7)  # rendered patches: something that no photo shows
FREE = ("keep",)  # settings that may change between runs into one folder


@dataclass(frozen=True)
class Source:
    """Photos with their reconstruction."""

    photos: Path
    sparse: Path
    database: Path


def adapt(
    photos: str | Path,
    out: str | Path,
    settings: AdaptSettings | None = None,
    *,
    model: str | Path | None = None,
    database: str | Path | None = None,
    device: str = "auto",
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
    report: Report = lambda line, left: None,
    counted: Callable[[dict[str, Counts]], object] = lambda counts: None,
) -> Adapted | None:
    """Adapt weights to photos of one scene; see AdaptSettings and the module.

    Args:
        photos: folder of photos.
        out: folder of everything; running it again with the same settings goes on there.
        settings: what to adapt, and how.
        model: folder of a COLMAP model of the photos (default: they are reconstructed first).
        database: its database (default: database.db in the model's folder or beside it).
        device: cpu, cuda or auto.
        say: called with the name of each stage.
        progress: called with the number done and the total of a stage.
        report: called at every line of the training's log, with the seconds that are left.
        counted: called with what each part of the photos has.

    Returns:
        The result; None if the process was asked to end, in which case running it again goes on.
    """
    settings, photos, out = settings or AdaptSettings(), Path(photos), Path(out)
    need_opencv()
    need("matplotlib.figure", "plots", "drawing the report")
    place = chosen_device(device).type
    check_photo_folder(photos)
    if model is not None and not Path(model).is_dir():
        raise FileError(
            f"{model}: no such folder; --model is a COLMAP model of the photos, weights are given by --base"
        )
    if model is None and database is not None:
        raise ArgumentError("--database belongs to --model, which is not given")
    given = None if model is None else Source(photos, Path(model), _database(Path(model), database))
    check_folder(out, photos, *([given.sparse] if given else []))
    _check_sets(settings)
    if given is not None:
        _say_missing(given, say)
    identity = _identity(settings, photos, given)
    with exclusive(out, f"{out}: another process is adapting into this folder"):
        _check_same(out, identity)
        try:
            source = given or _reconstructed(photos, out, settings, say, progress)
            sets, counts = _parts(source, out, settings.geometric, say, progress, counted)
        except MatchKernelError:
            if not _contents(out) - {SETTINGS}:  # photos that were refused leave nothing
                (out / SETTINGS).unlink()
            raise
        for part in ("validation", "test"):
            _scene(part, source, sets)  # cameras that cannot be used are refused now, not after the training
        say("training")
        learned = learn({name: [part] for name, part in sets.items()}, out / "training", settings, place, report)
        if learned is None:
            return None
        result = _judged(source, sets, counts, learned, out, settings, place, say, progress)
        if result.weights is None and (out / ADAPTED).exists():
            (out / ADAPTED).unlink()
            say(f"removed {out / ADAPTED}, which --keep had written")
    return result


def _say_missing(source: Source, say: Say) -> None:
    """Say how many photos of a model that was given are not in the folder."""
    names = [image.name for image in read_reconstruction(source.sparse).images.values()]
    missing = [name for name in names if not os.path.isfile(source.photos / name)]  # noqa: PTH113 - long names
    if missing:
        say(f"{len(missing)} of the model's {len(names)} photos are not in {source.photos}, such as {missing[0]!r}")


def _check_sets(settings: AdaptSettings) -> None:
    """Refuse sets that cannot be used before anything is begun with them."""
    side = CutSettings().size
    for place in (*settings.mix, *settings.check):
        found = open_patch_set(place)
        if found.patches.shape[-1] != side and place in settings.mix:
            size = found.patches.shape[-1]
            raise ArgumentError(f"{place}: has patches of {size} px, those to mix in must have {side}")
        if not paired_points(found):
            raise ArgumentError(f"{place}: no point has two patches")


def best_so_far(out: str | Path) -> Path | None:
    """The best weights on validation of a training that was stopped, if there are any."""
    path = Path(out) / "training" / "run" / "best.safetensors"
    return path if path.exists() else None


def _database(sparse: Path, database: str | Path | None) -> Path:
    if database is not None:
        return Path(database)
    beside = [sparse / "database.db", sparse.parent / "database.db", sparse.parent.parent / "database.db"]
    found = next((path for path in beside if path.is_file()), None)
    if found is None:
        raise FileError(f"{sparse}: no database.db in it or beside it; name it with --database")
    return found


def _identity(settings: AdaptSettings, photos: Path, given: Source | None) -> dict[str, Any]:
    """What a folder is made with; a second run must agree."""
    free = {field.name for field in fields(settings)} & set(FREE)
    chosen = {name: value for name, value in asdict(settings).items() if name not in free}
    files = [] if given is None else [given.database, *sorted(given.sparse.glob("*.*"))]
    return json.loads(
        json.dumps(
            {
                **chosen,
                "base_sha256": state_digest(load(settings.base)),
                "photos": photo_hashes(photos),
                "model": [file_hash(path) for path in files if path.is_file()],
            }
        )
    )


def _check_same(out: Path, identity: dict[str, Any]) -> None:
    """Refuse a folder of other photos or settings; write those of a new one, or of one in which nothing is done."""
    path, before = out / SETTINGS, None
    if path.exists():
        before = read_json(path)
    else:
        others = _contents(out)
        if others:
            raise FileError(f"{out}: contains other files ({min(others)}); choose a new folder")
    found = None if before is None else first_difference(identity, before)
    if found is None or not any((out / name).exists() for name in (RECONSTRUCTION, SETS)):
        write_json(path, identity)
        return
    again = f"; --model {out / RECONSTRUCTION / 'sparse'} spares reconstructing"
    hint = again if (out / RECONSTRUCTION).exists() and not found[0].startswith("photos.") else ""
    raise ArgumentError(f"{out}: was begun {_told(*found)}; use the same, or another --out{hint}")


def _told(name: str, now: Any, before: Any) -> str:
    """What a folder was begun with, in words where the settings have digests."""
    if name.startswith("photos."):
        return f"with other photos ({name.removeprefix('photos.')} is not the same)"
    if name == "base_sha256":
        return "with other weights in the file of --base"
    if name != "model":
        return f"with {name} = {before!r}, not {now!r}"
    if not before:
        return "without --model"
    return "with another COLMAP model or database" if now else "with a COLMAP model, but --model is not given now"


def _contents(out: Path) -> set[str]:
    """Names of what a folder holds, apart from the lock and hidden files."""
    return {entry.name for entry in out.iterdir() if entry.name != LOCK and not entry.name.startswith(".")}


def _reconstructed(photos: Path, out: Path, settings: AdaptSettings, say: Say, progress: Progress) -> Source:
    place = out / RECONSTRUCTION
    if not place.exists():
        summary = reconstruct(photos, place, settings.base, say=say, progress=progress)
        for name, reason in summary.skipped.items():
            say(f"left out: {name} ({reason})")
        say(f"{summary.registered} of {summary.images} photos reconstructed, {summary.points:,} points")
    return Source(photos, place / "sparse", place / "database.db")


def _parts(
    source: Source,
    out: Path,
    geometric: bool,
    say: Say,
    progress: Progress,
    counted: Callable[[dict[str, Counts]], object],
) -> tuple[dict[str, PatchSet], dict[str, Counts]]:
    say("cutting patches")
    home, kept = out / SETS, []

    def check(counts: dict[str, Counts]) -> None:
        counted(counts)
        check_enough(counts, str(source.photos))
        kept.append(counts)

    if all((home / name).exists() for name in PARTS):
        sets = {name: open_patch_set(home / name) for name in PARTS}
        counts = {name: _count(part) for name, part in sets.items()}
        check(counts)
        return sets, counts
    settings = CutSettings(pairs=PAIRS, mosaics=False, geometric=geometric)
    sets = build_parts(source.photos, source.sparse, source.database, home, settings, counted=check, progress=progress)
    return sets, kept[0]


def _count(part: PatchSet) -> Counts:
    return Counts(len(set(part.columns["photo"].tolist())), len(set(part.labels.tolist())), len(part))


def _judged(
    source: Source,
    sets: dict[str, PatchSet],
    counts: dict[str, Counts],
    learned: Learned,
    out: Path,
    settings: AdaptSettings,
    device: str,
    say: Say,
    progress: Progress,
) -> Adapted:
    """Calibrate the best weights, score them beside the base, and write weights and report."""
    best, done = out / "training" / "run" / "best.safetensors", out / SCORES
    result = Adapted(out, counts, learned, [], [], None)
    if learned.best_step and not done.exists():
        say("calibrating distance and ratio on the validation photos")
        model = load(best)
        limits = calibrate_limits(model, _scene("validation", source, sets), device, progress)
        candidate = out / "training" / "candidate.safetensors"
        base = read_card(settings.base)  # whose limits stay where too few matches are right
        threshold, ratio = limits[0] or base.match_threshold, limits[1] or base.match_ratio
        save(model, candidate, replace(model.card, match_threshold=threshold, match_ratio=ratio))
        say("scoring before and after on the test part")
        gains, elsewhere = _gains(source, sets, out, settings, candidate, device, progress)
        if all(gain.measure != POSES for gain in gains):
            say(f"poses are not scored: test photos have fewer than {LEAST_PAIRS} pairs that show the same")
        listed = {"test": [g.to_json() for g in gains], "elsewhere": [g.to_json() for g in elsewhere]}
        write_json(done, {"limits": limits, **listed})
    if learned.best_step:
        scores = read_json(done, ("test", "elsewhere")) or {}
        result = replace(result, gains=_read_gains(scores["test"]), elsewhere=_read_gains(scores["elsewhere"]))
        if result.is_better or settings.keep:
            result = replace(result, weights=_write_weights(result, settings))
    elif settings.keep:
        say("nothing for --keep to write: on validation no update was better than the base")
    write_page(result, source.photos, _scene("test", source, sets), settings, device)
    return result


def _scene(part: str, source: Source, sets: dict[str, PatchSet]) -> EvaluationScene:
    names = sets[part].manifest["source"]["photos"]
    wanted = {names[number] for number in set(sets[part].columns["photo"].tolist())}
    return colmap_scene(part, source.photos, source.sparse, wanted, most_pairs=MOST_PHOTO_PAIRS)


def _gains(
    source: Source,
    sets: dict[str, PatchSet],
    out: Path,
    settings: AdaptSettings,
    candidate: Path,
    device: str,
    progress: Progress,
) -> tuple[list[Gain], list[Gain]]:
    models = load(settings.base), load(candidate)
    rows = [describe_set(model, sets["test"], device) for model in models]
    gains = [gain(rows, sets["test"], "test patches") for gain in (retrieval_gain, matching_gain, hard_gain)]
    weights = (settings.base, str(candidate))
    gains.append(pose_gain(weights, _scene("test", source, sets), out / "photos", device, progress))
    rendered = out / "elsewhere"
    if not rendered.exists():
        build_synthetic(rendered, ELSEWHERE)
    others = [("rendered patches", rendered), *((Path(place).name, Path(place)) for place in settings.check)]
    elsewhere = []
    for name, place in others:
        part = open_patch_set(place)
        elsewhere.append(retrieval_gain([describe_set(model, part, device) for model in models], part, name))
    return [gain for gain in gains if gain is not None], elsewhere


def _read_gains(entries: list[dict[str, Any]]) -> list[Gain]:
    names = {field.name for field in fields(Gain)}
    return [Gain(**{name: value for name, value in entry.items() if name in names}) for entry in entries]


def _write_weights(result: Adapted, settings: AdaptSettings) -> Path:
    """The adapted weights with a card: base, data, scores before and after."""
    target, model = result.folder / ADAPTED, load(result.folder / "training" / "candidate.safetensors")
    metrics = {gain.measure: {"before": gain.before, "after": gain.after} for gain in result.gains}
    base = read_card(settings.base)
    other = {**model.card.other, "adapted_from": f"{settings.base} {base.sha256[:16]}", "verdict": result.verdict}
    terms = f"{base.licence or 'none given'} (of the base; the photos it was adapted to may have terms of their own)"
    save(model, target, replace(model.card, licence=terms, metrics=metrics, other=other))
    return target
