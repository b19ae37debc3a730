"""Give photos, keypoints and matches to COLMAP's importers, and see what it takes in."""

import filecmp
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from matchkernel.collection.workspace import MATCHES, link_or_copy
from matchkernel.colmap.database import read_image_names, rename_images
from matchkernel.colmap.program import Colmap
from matchkernel.colmap.text_files import listed_name, write_match_list
from matchkernel.errors import ArgumentError, FileError, WorkError
from matchkernel.photos.files import Pair, read_matches_of
from matchkernel.storage.files import replacing
from matchkernel.storage.folders import Build
from matchkernel.storage.images import HEIC_SUFFIXES, as_jpeg, open_image
from matchkernel.storage.photo_folders import first_names
from matchkernel.storage.progress import Progress, Say


@dataclass(frozen=True)
class Cameras:
    """How COLMAP makes cameras of photos; the names are its own."""

    single_camera: bool
    camera_model: str
    camera_params: str | None

    def words(self) -> dict[str, object]:
        """Options of COLMAP's importer."""
        chosen = {"single_camera": int(self.single_camera), "camera_model": self.camera_model}
        known = {} if self.camera_params is None else {"camera_params": self.camera_params}
        return {f"ImageReader__{name}": value for name, value in {**chosen, **known}.items()}

    def check(self, photos: dict[str, Path]) -> None:
        """Refuse photos of several sizes for a single camera: COLMAP would leave out all but those like the first."""
        sizes = {}
        for name, path in photos.items() if self.single_camera else ():
            with suppress(FileError), open_image(path) as image:  # what cannot be read is skipped later
                sizes[name] = f"{image.width} x {image.height}"
        ((usual, count), *others) = Counter(sizes.values()).most_common() or [("", 0)]
        if others:
            odd = [name for name, size in sizes.items() if size != usual]
            raise ArgumentError(
                f"a single camera has photos of one size: {count} of {len(sizes)} have {usual} pixels, not"
                f" {first_names(odd)} ({sizes[odd[0]]}); leave out --single-camera, or these photos by --list"
            )


@dataclass(frozen=True)
class ColmapImport:
    """Photos of a folder on their way into a COLMAP database.

    Attributes:
        images: the folder that COLMAP reads photos from.
        build: the workspace, in which features and matches are.
        cameras: what is known of the cameras.
        say: called with a line for what COLMAP does and for each photo it does not take.
        progress: called while it works.
    """

    images: Path
    build: Build
    cameras: Cameras
    say: Say
    progress: Progress | None

    def run(self, names: Sequence[str], pairs: Sequence[Pair], step: str) -> tuple[Path, list[str]]:
        """Import into a new database, where COLMAP verifies the matches, unless the step is done.

        A photo that COLMAP does not read, such as HEIC or 16 bit colour, is given to it as JPEG.

        Returns:
            The folder from which COLMAP reads photos, and the names of those that it does not take in even so.
        """
        database = self.build.folder / "database.db"
        ours = self.readable(names, [name for name in names if name.lower().endswith(HEIC_SUFFIXES)])
        if step not in self.build.done:
            self.say("colmap feature_importer, matches_importer")
            ours.features(names)
            if unread := _missing(names, database):
                ours = self.readable(names, unread)
                ours.features(names)  # of all: each run of the importer would make a single camera of its own
            refused = _missing(names, database)
            for name in refused:
                self.say(f"skipped {name}: COLMAP's feature_importer did not take it in")
            self.matches(names, [pair for pair in pairs if not set(pair) & set(refused)])
            self.build.mark(step)
        return ours.images, _missing(names, database)

    def readable(self, names: Sequence[str], unreadable: Collection[str]) -> "ColmapImport":
        """The same with a folder of JPEGs for unreadable photos, under their names, and of links to the others."""
        folder = self.build.folder / "photos"
        if not unreadable and not folder.exists():
            return self
        for name in names:
            target, source = folder / name, (self.images / name).resolve()
            if name in unreadable and (not target.exists() or filecmp.cmp(target, source, shallow=False)):
                with replacing(target) as part:
                    part.write_bytes(as_jpeg(source))
            elif not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    target.symlink_to(source)
                except OSError:  # not every user of Windows may
                    link_or_copy(source, target)
        return replace(self, images=folder)

    def features(self, names: Sequence[str]) -> None:
        """Import the keypoints of these photos into a new database."""
        for path in self.build.folder.glob("database.db*"):  # of an interrupted run, or without some of the photos
            path.unlink()
        listed = self.build.folder / "images.txt"
        listed.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        keypoints = self.build.folder / "keypoints"
        self.colmap(
            "feature_importer",
            image_path=self.images,
            import_path=keypoints,
            image_list_path=listed,
            **self.cameras.words(),
        )

    def matches(self, names: Sequence[str], pairs: Sequence[Pair]) -> None:
        """Import the matches of these pairs."""
        folder = self.build.folder
        if not pairs:
            raise WorkError(f"{self.images}: COLMAP took in no two photos of a pair; see {folder}/feature_importer.log")
        matched = read_matches_of(folder / MATCHES, pairs)
        listed = ((listed_name(found.names[0]), listed_name(found.names[1]), found.indices) for found in matched)
        if not write_match_list(folder / "matches.txt", listed):
            raise WorkError(f"{self.images}: no two images have a match; they may not overlap")
        # A match list cannot hold spaces: the images have other names while COLMAP reads it.
        others = {name: listed_name(name) for name in names if listed_name(name) != name}
        rename_images(folder / "database.db", others)
        self.colmap("matches_importer", match_list_path=folder / "matches.txt", match_type="raw")
        rename_images(folder / "database.db", {new: old for old, new in others.items()})

    def colmap(self, stage: str, **options: object) -> None:
        """Run a stage of COLMAP on the database."""
        named = {name.replace("__", "."): value for name, value in options.items()}
        Colmap(self.build, self.progress).run(stage, named)


def _missing(names: Sequence[str], database: Path) -> list[str]:
    """Photos that are not in a database."""
    there = read_image_names(database)
    return [name for name in names if name not in there]
