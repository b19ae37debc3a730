"""Adapt weights to a folder of photos: reconstruct, cut, split, train, calibrate, judge, and keep what is better.

A folder holds everything: reconstruction/, sets/, training/, adapt.json (settings and finished stages),
adapted.safetensors, the report. Every stage is written whole; running the same command again goes on where it stopped.
"""

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from matchkernel.adapt.judge import (
    Adapted,
    Gain,
    describe_set,
    hard_gain,
    matching_gain,
    no_poses,
    pose_gain,
    retrieval_gain,
    unfair,
)
from matchkernel.adapt.learn import learn, paired_points
from matchkernel.adapt.limits import calibrate_limits
from matchkernel.adapt.page import write_page
from matchkernel.adapt.settings import ADAPTED, AdaptSettings, Record
from matchkernel.collection.reconstruct import reconstruct
from matchkernel.colmap.model import read_reconstruction
from matchkernel.data.from_colmap import CutSettings, build_parts, scene_name
from matchkernel.data.from_photos import photo_hashes
from matchkernel.data.patch_set import PatchSet, open_patch_set
from matchkernel.data.split import PARTS, Counts, check_enough
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.evaluation.photos.scenes import EvaluationScene, colmap_scene
from matchkernel.model.weights import load, save, state_digest
from matchkernel.runtime.weights import SOME, read_card
from matchkernel.storage.extras import need, need_opencv
from matchkernel.storage.files import check_folder, file_hash
from matchkernel.storage.folders import LOCK, exclusive
from matchkernel.storage.photo_folders import check_photo_folder
from matchkernel.storage.settings import first_difference
from matchkernel.storage.work import Progress, Say
from matchkernel.training.distributed import chosen_device

RECONSTRUCTION, SETS, TRAINING = "reconstruction", "sets", "training"
PAIRS, MAX_PHOTO_PAIRS = 5000, 40
ELSEWHERE = SyntheticSettings(points=300, patches=4, seed=7)  # rendered patches: something that no photo shows


@dataclass(frozen=True)
class Source:
    """Photos with their reconstruction."""

    photos: Path
    sparse: Path
    database: Path


@dataclass(frozen=True)
class Run:
    """What every stage needs: see adapt."""

    out: Path
    settings: AdaptSettings
    device: str
    say: Say
    progress: Progress


def adapt(
    photos: str | Path,
    out: str | Path,
    settings: AdaptSettings | None = None,
    *,
    from_colmap: str | Path | None = None,
    database: str | Path | None = None,
    device: str = "auto",
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> Adapted | None:
    """Adapt weights to photos of one scene; see AdaptSettings and the module.

    Args:
        photos: folder of photos.
        out: folder of everything; running it again with the same settings goes on there.
        settings: what to adapt, and how.
        from_colmap: folder of a COLMAP model of the photos (default: they are reconstructed first).
        database: its database (default: database.db in the model's folder or beside it).
        device: cpu, cuda or auto.
        say: called with the name of each stage, with the numbers of photos, points and patches of each part, and with
            the state of the training.

    Returns:
        The result; None if the process was asked to end, in which case running it again goes on.
    """
    settings, photos, out = settings or AdaptSettings(), Path(photos), Path(out)
    need_opencv()
    need("matplotlib.figure", "plots", "drawing the report")
    device = chosen_device(device).type
    check_photo_folder(photos)
    given = _given_source(photos, from_colmap, database)
    check_folder(out, photos, *([given.sparse] if given else []))
    _check_inputs(settings)
    if given is not None:
        _say_missing(given, say)
    made_with = _made_with(settings, photos, given)
    run = Run(out, settings, device, say, progress)
    seen = _seen(run, photos)
    with exclusive(out, f"{out}: another process is adapting into this folder"):
        record = _open_record(out, made_with)
        try:
            source = given or _reconstructed(run, photos)
            say("cutting patches")
            sets = _cut(run, source, scene_name(photos))
        except MatchKernelError:
            if _contents(out) == {record.path.name}:  # photos that were refused leave nothing
                record.path.unlink()
            raise
        # Cameras that cannot be used are refused now, not after the training.
        scenes = {part: _scene(part, source, sets[part]) for part in ("validation", "test")}
        learned = learn(sets, out / TRAINING, settings, device, record, say)
        if learned is None:
            return None
        counts = {part: _count(patches) for part, patches in sets.items()}
        result = Adapted(out, counts, learned, model=settings.model, seen=seen)
        if learned.best_step:
            if "scores" not in record:
                record.finish("scores", _scores(run, sets["test"], scenes))
            gains = {name: [Gain(**gain) for gain in listed] for name, listed in record["scores"].items()}
            result = replace(result, gains=gains["test"], elsewhere=gains["elsewhere"])
        elif settings.keep:
            say("nothing for --keep to write: on validation no update was better than the base")
        if learned.best_step and (result.is_better or settings.keep):
            result = replace(result, weights=_write_weights(result, settings, scene_name(photos)))
        elif (out / ADAPTED).exists():
            (out / ADAPTED).unlink()
            say(f"removed {out / ADAPTED}, which --keep had written")
        write_page(result, photos, scenes["test"], settings, device)
    return result


def _seen(run: Run, photos: Path) -> str:
    """The name of the scene if the weights before were trained on it, which is said; otherwise empty."""
    name = scene_name(photos)
    if name not in read_card(run.settings.model).set_names:
        return ""
    run.say(f"warning: {unfair(run.settings.model, name)}")
    return name


def best_so_far(out: str | Path) -> Path | None:
    """The best weights on validation of a training that was stopped, if there are any."""
    path = Path(out) / TRAINING / "run" / "best.safetensors"
    return path if path.exists() else None


# Before anything is begun


def _given_source(photos: Path, from_colmap: str | Path | None, database: str | Path | None) -> Source | None:
    if from_colmap is None:
        if database is not None:
            raise ArgumentError("--database belongs to --from-colmap, which is not given")
        return None
    sparse = Path(from_colmap)
    if not sparse.is_dir():
        raise FileError(f"{from_colmap}: no such folder; --from-colmap takes a COLMAP model of the photos")
    beside = [place / "database.db" for place in (sparse, sparse.parent, sparse.parent.parent)]
    found = Path(database) if database is not None else next((path for path in beside if path.is_file()), None)
    if found is None:
        raise FileError(f"{sparse}: no database.db in it or beside it; name it with --database")
    return Source(photos, sparse, found)


def _say_missing(source: Source, say: Say) -> None:
    """Say how many photos of a model that was given are not in the folder."""
    names = [image.name for image in read_reconstruction(source.sparse).images.values()]
    missing = [name for name in names if not os.path.isfile(source.photos / name)]  # noqa: PTH113 - long names
    if missing:
        say(f"{len(missing)} of the model's {len(names)} photos are not in {source.photos}, such as {missing[0]!r}")


def _check_inputs(settings: AdaptSettings) -> None:
    if os.path.isdir(settings.model):  # noqa: PTH112 - False for a name too long
        raise ArgumentError(f"{settings.model}: is a folder; --model takes weights, --from-colmap a COLMAP model")
    side = CutSettings().size
    for place in (*settings.mix, *settings.check):
        found = open_patch_set(place)
        if found.patches.shape[-1] != side and place in settings.mix:
            size = found.patches.shape[-1]
            raise ArgumentError(f"{place}: has patches of {size} px, those to mix in must have {side}")
        if not paired_points(found):
            raise ArgumentError(f"{place}: no point has two patches")


def _made_with(settings: AdaptSettings, photos: Path, given: Source | None) -> dict[str, Any]:
    """What a folder is made with; a second run must agree, except for --keep and --minutes."""
    files = [] if given is None else [given.database, *sorted(given.sparse.glob("*.*"))]
    content = {
        **asdict(settings),
        "model_sha256": state_digest(load(settings.model)),
        "photos": photo_hashes(photos),
        "colmap": [file_hash(path) for path in files if path.is_file()],
    }
    del content["keep"], content["minutes"]  # other minutes: the patches stay, see learn
    return dict(json.loads(json.dumps(content)))  # tuples become lists, as in the file


def _open_record(out: Path, made_with: dict[str, Any]) -> Record:
    """The record of a folder; refuses a folder of other photos or settings, unless nothing is done in it yet."""
    record = Record(out)
    if others := _contents(out) - {record.path.name} if not record else set():
        raise FileError(
            f"{out}: contains other files ({min(others)}), or was begun by an earlier version; choose another --out"
        )
    found = first_difference(made_with, record.get("made with", made_with))
    if found is None or not any((out / name).exists() for name in (RECONSTRUCTION, SETS)):
        record.finish("made with", made_with)
        return record
    name, now, before = found
    reasons = {"photos": "other photos", "model_sha256": "other weights in the file of --model"}
    reasons["colmap"] = "another COLMAP model or database, or without one"
    what = reasons.get(name.partition(".")[0], f"{name} = {before!r}, not {now!r}")
    raise ArgumentError(f"{out}: was begun with {what}; use the same, or another --out")


def _contents(out: Path) -> set[str]:
    """Names of what a folder holds, apart from the lock and hidden files."""
    return {entry.name for entry in out.iterdir() if entry.name != LOCK and not entry.name.startswith(".")}


# The stages


def _reconstructed(run: Run, photos: Path) -> Source:
    place = run.out / RECONSTRUCTION
    if not place.exists():
        summary = reconstruct(photos, place, run.settings.model, say=run.say, progress=run.progress)
        for name, reason in summary.skipped.items():
            run.say(f"left out: {name} ({reason})")
        run.say(f"{summary.registered} of {summary.images} photos reconstructed, {summary.points:,} points")
    converted = place / "photos"  # such as HEIC
    return Source(converted if converted.is_dir() else photos, place / "sparse", place / "database.db")


def _cut(run: Run, source: Source, scene: str) -> dict[str, PatchSet]:
    def check(counts: dict[str, Counts]) -> None:
        for name, count in counts.items():
            run.say(f"{name}: {count}")
        check_enough(counts, str(source.photos))

    folder = run.out / SETS
    if all((folder / name).exists() for name in PARTS):
        sets = {name: open_patch_set(folder / name) for name in PARTS}
        check({name: _count(part) for name, part in sets.items()})
        return sets
    settings = CutSettings(pairs=PAIRS, mosaics=False, geometric=run.settings.geometric)
    places = source.photos, source.sparse, source.database
    return build_parts(*places, folder, settings, name=scene, counted=check, progress=run.progress)


def _count(part: PatchSet) -> Counts:
    return Counts(len(set(part.columns["photo"].tolist())), len(set(part.labels.tolist())), len(part))


def _scene(name: str, source: Source, part: PatchSet) -> EvaluationScene:
    """The photos of a part of the patches, with their cameras and pairs."""
    names = part.manifest["source"]["photos"]
    wanted = {names[number] for number in set(part.columns["photo"].tolist())}
    return colmap_scene(name, source.photos, source.sparse, wanted, most_pairs=MAX_PHOTO_PAIRS)


def _scores(run: Run, test: PatchSet, scenes: dict[str, EvaluationScene]) -> dict[str, list[dict[str, Any]]]:
    """Calibrate the best weights on validation, then score them beside the base on the test part and elsewhere."""
    run.say("calibrating distance and ratio on the validation photos")
    base, candidate = run.settings.model, run.out / TRAINING / "candidate.safetensors"
    model, card = load(run.out / TRAINING / "run" / "best.safetensors"), read_card(base)
    distance, ratio = calibrate_limits(model, scenes["validation"], run.device, run.progress)
    distance, ratio = distance or card.match_threshold, ratio or card.match_ratio  # where too few matches are correct
    save(model, candidate, replace(model.card, match_threshold=distance, match_ratio=ratio))
    run.say("scoring before and after on the test part")
    models = load(base), load(candidate)
    rows = [describe_set(model, test, run.device) for model in models]
    gains = [measure(rows, test, "test patches") for measure in (retrieval_gain, matching_gain, hard_gain)]
    gains.append(pose_gain((base, str(candidate)), scenes["test"], run.out / "photos", run.device, run.progress))
    if why := no_poses(scenes["test"]):
        run.say(why)
    rendered = run.out / "elsewhere"
    if not rendered.exists():
        build_synthetic(rendered, ELSEWHERE)
    elsewhere = []
    for place in (rendered, *map(Path, run.settings.check)):
        name = "rendered patches" if place == rendered else place.name
        part = open_patch_set(place)
        elsewhere.append(retrieval_gain([describe_set(model, part, run.device) for model in models], part, name))
    return {"test": [asdict(gain) for gain in gains if gain], "elsewhere": [asdict(gain) for gain in elsewhere]}


def _write_weights(result: Adapted, settings: AdaptSettings, scene: str) -> Path:
    """The adapted weights with a card: base, data, scores before and after."""
    target, model = result.folder / ADAPTED, load(result.folder / "training" / "candidate.safetensors")
    metrics = {gain.measure: {"before": gain.before, "after": gain.after} for gain in result.gains}
    base = read_card(settings.model)
    other = {**model.card.other, "adapted_from": f"{settings.model} {base.sha256[:16]}", "verdict": result.verdict}
    terms = f"{base.licence or 'none given'} (of the base; the photos it was adapted to may have terms of their own)"
    sets = tuple(dict.fromkeys([*model.card.training_sets, (scene, SOME)]))
    save(model, target, replace(model.card, licence=terms, metrics=metrics, other=other, training_sets=sets))
    return target
