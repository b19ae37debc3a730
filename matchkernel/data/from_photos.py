"""Patch sets from a folder of photos: COLMAP reconstructs the scene, from_colmap cuts the patches."""

import json
from pathlib import Path

from matchkernel.colmap.installed import find_colmap
from matchkernel.colmap.program import Colmap
from matchkernel.data.from_colmap import CutSettings, build_from_colmap
from matchkernel.data.patch_set import PatchSet
from matchkernel.errors import FileError
from matchkernel.storage.files import file_hash, write_json
from matchkernel.storage.folders import check_new_build, resumable_build
from matchkernel.storage.images import SUFFIXES, read_gray
from matchkernel.storage.photo_folders import first_names, photos_in
from matchkernel.storage.work import Progress, Say

PHOTOS = "photos.json"  # the photos from which a reconstruction was made
EXHAUSTIVE_UP_TO = 120  # photos; with more, matching all pairs would take hours on a CPU


def build_from_photos(
    photos: str | Path,
    target: str | Path,
    settings: CutSettings | None = None,
    *,
    sequential: bool | None = None,
    say: Say = lambda stage: None,
    progress: Progress | None = None,
) -> PatchSet:
    """Reconstruct photos with COLMAP into `<target>-colmap`, then cut patches into `target`.

    The reconstruction is kept: a second run reuses it, and `from-colmap` can cut patches from it with other settings.

    Args:
        photos: folder of photos of one scene.
        target: folder to create.
        settings: how patches are chosen and cut.
        sequential: match neighbours in name order instead of all pairs (default: for more than 120 photos).
        say: called with the name of each stage, and of each photo that cannot be read.
        progress: called with (done, total) of each stage of COLMAP, then of build_from_colmap.
    """
    photos, target = Path(photos), Path(target)
    check_new_build(target, photos)
    workspace = target.with_name(target.name + "-colmap")
    if not workspace.exists():
        reconstruct_with_sift(photos, workspace, sequential=sequential, say=say, progress=progress)
    elif not (record := workspace / PHOTOS).is_file() or json.loads(record.read_text()) != photo_hashes(photos):
        raise FileError(
            f"{workspace}: is a reconstruction of other photos, not of {photos}; remove it or choose another place"
        )
    say("cutting patches")
    return build_from_colmap(
        photos,
        workspace / "sparse",
        workspace / "database.db",
        target,
        settings,
        taken=tuple(photos_in(photos).paths),
        progress=progress,
    )


def reconstruct_with_sift(
    photos: Path,
    workspace: Path,
    *,
    sequential: bool | None = None,
    say: Say = lambda stage: None,
    progress: Progress | None = None,
) -> None:
    """Run COLMAP's feature extraction, matching and mapping on the CPU; keeps the model with the most photos."""
    program = find_colmap()
    found = photo_hashes(photos)
    if len(found) < 2:
        count = f"{len(found)} photo{'s' * (len(found) != 1)}"
        raise FileError(f"{photos}: contains {count} ({', '.join(SUFFIXES)}), at least two are needed")
    _check_readable(photos, list(found), say)
    by_name = len(found) > EXHAUSTIVE_UP_TO if sequential is None else sequential
    matcher = "sequential_matcher" if by_name else "exhaustive_matcher"
    with resumable_build(workspace, {"photos": found, "matcher": matcher}) as build:
        colmap = Colmap(build, progress, program)
        for stage in ("feature_extractor", matcher, "mapper"):
            if stage in build.done:
                continue
            how = ", neighbours by name; --no-sequential matches all pairs" if stage == "sequential_matcher" else ""
            say(f"colmap {stage} ({len(found)} photos{how})")
            if stage == "mapper":
                colmap.map(photos)
            else:
                colmap.run(stage, {"image_path": photos} if stage == "feature_extractor" else {})
            build.mark(stage)
        write_json(build.folder / PHOTOS, found)


def photo_hashes(folder: Path) -> dict[str, str]:
    """The sha256 of every photo of a folder, by name."""
    return {name: file_hash(path) for name, path in photos_in(folder).paths.items()}


def _check_readable(photos: Path, names: list[str], say: Say) -> None:
    """Report the photos that cannot be read, which COLMAP skips; refuse a folder with fewer than two readable ones."""
    bad = {}
    for name in names:
        try:
            read_gray(photos / name)
        except FileError as error:
            bad[name] = str(error)
    left = len(names) - len(bad)
    if left < 2:
        unreadable = first_names(list(bad))
        raise FileError(f"{photos}: {left} of {len(names)} photos can be read (not {unreadable}), two are needed")
    for reason in bad.values():
        say(f"skipped {reason}")
