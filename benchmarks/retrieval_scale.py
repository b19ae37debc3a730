"""Pairs of very many photos: recall of FAISS candidates against exact search, and their cost by size.

    python benchmarks/retrieval_scale.py SCENE ... --work WORK [--images 100000] [--sizes 1000 10000 100000 1000000]

A scene is a folder with images/. The collection is all photos of the scenes and distractors (retrieval_photos.py says
how they are made). Recall: of the 20 images that exact search finds most similar, the share that the candidates give.
The curve times the index by size, in processor seconds: up to the size of the collection on its codes; above on made
ones, mixtures of two of them. WORK keeps what is done; the vectors need 64 kB per image there. --only curve measures
further sizes on the codes that are there, and adds them to the stored result.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from retrieval_photos import MODEL, crop_vectors, describe_all
from timing import ROOT, read_result, run_command, versions, write_result

from matchkernel.collection.candidates import Candidates, build_index
from matchkernel.collection.vectors import SHIPPED, global_vector, read_vocabularies, similarities

PARTNERS, DISTRACTORS_ASKED, ASKED = 20, 50, 500


def main() -> None:
    """Describe, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--photos-asked", type=int, default=10_000, help="ask for partners of so many photos only")
    parser.add_argument("--only", choices=("exact", "candidates", "curve"), help="one of the parts")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--one-size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_size:
        print(json.dumps(cost(np.load(options.work / "codes.npy", mmap_mode="r"), options.one_size)))
        return
    if options.only == "curve":
        stored = read_result("retrieval_scale")
        known = [row for row in stored["curve"] if row["images"] not in options.sizes]
        rows = sorted([*known, *measured_curve(options)], key=lambda row: row["images"])
        write_result("retrieval_scale", {**stored, "curve": rows})
        return
    files = describe_all(options.scenes, options.work / "described")
    vectors, photos = collection(files, options.images, options.work)
    own, others = asked_rows(photos, options.photos_asked, len(vectors))
    stages = {"exact": exact_search, "candidates": candidate_search}
    kept = {name: options.work / f"{name}-{len(own)}-of-{len(vectors)}.npz" for name in stages}
    for name, search in stages.items():
        if options.only in (None, name) and not kept[name].exists():
            search(vectors, np.concatenate([own, others]), kept[name])
    if options.only:
        return
    found = recall(len(own), kept["exact"], kept["candidates"])
    print(found, flush=True)
    curve = measured_curve(options)
    facts = {"model": MODEL, "described": len(files), "photos": photos, "images": len(vectors)}
    write_result("retrieval_scale", {**facts, "recall": found, "curve": curve, "versions": versions()})


def measured_curve(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time and memory of each size, in processes of their own."""
    curve = []
    for size in options.sizes:
        result = run_command([Path(__file__), "--work", options.work, "--one-size", size], ROOT)
        curve.append({"images": size, "megabytes": round(result["megabytes"]), **json.loads(result["output"])})
        print(curve[-1], flush=True)
    return curve


def collection(files: list[Path], count: int, work: Path) -> tuple[np.ndarray, int]:
    """(n, K, D) vectors in a file, the photos first, and the number of photos."""
    centres = read_vocabularies(SHIPPED)[0][MODEL]
    originals = [file for file in files if file.name.endswith(".0.npz")]
    path, shape = work / f"vectors-{count}.f16", (count, *centres.shape)
    if not path.exists():
        part = path.with_suffix(".part")
        with part.open("wb") as out:
            for file in originals:
                with np.load(file) as content:
                    out.write(global_vector(content["rows"].astype(np.float32), centres).astype(np.float16).tobytes())
            for number, file in enumerate(files):
                share = (count - len(originals) + number) // len(files)  # they add up
                for vector in crop_vectors(file, centres, share, number):
                    out.write(vector.astype(np.float16).tobytes())
        part.rename(path)
    return np.memmap(path, np.float16, "r", shape=shape), len(originals)


def asked_rows(photos: int, asked: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The photos and the distractors whose partners are asked for."""
    random = np.random.default_rng(0)
    own = np.sort(random.permutation(photos)[:asked])
    return own, np.sort(photos + random.permutation(count - photos)[:DISTRACTORS_ASKED])


def exact_search(vectors: np.ndarray, rows: np.ndarray, file: Path) -> None:
    """Keep the exact partners, and the processor seconds per image asked."""
    start = time.process_time()
    found = exact_partners(vectors, rows)
    np.savez(file, rows=rows, partners=found, exact=(time.process_time() - start) / len(rows))


def candidate_search(vectors: np.ndarray, rows: np.ndarray, file: Path) -> None:
    """Keep the codes, the partners among candidates, and the processor seconds per image."""
    start = time.process_time()
    candidates = Candidates(vectors, PARTNERS)
    built = (time.process_time() - start) / len(vectors)
    np.save(file.parent / "codes.npy", candidates.codes)
    start = time.process_time()
    near = [candidates.most_similar(row, row + 1, PARTNERS, similarities)[0] for row in rows.tolist()]
    seconds = (time.process_time() - start) / len(rows)
    np.savez(file, rows=rows, partners=near, codes_and_index=built, search_and_rescoring=seconds)


def recall(own: int, exact: Path, near: Path) -> dict[str, Any]:
    """Share of the exact partners of photos and of distractors, and the processor seconds of both ways per image."""
    with np.load(exact) as one, np.load(near) as two:
        if not np.array_equal(one["rows"], two["rows"]):
            sys.exit(f"{exact} and {near} are of other images: remove them")
        pairs = zip(one["partners"].tolist(), two["partners"].tolist(), strict=True)
        shares = np.array([len({*a} & {*b}) / PARTNERS for a, b in pairs])
        names = {"exact": one, "codes_and_index": two, "search_and_rescoring": two}
        seconds = {name: float(file[name]) for name, file in names.items()}
    parts = {"photos": shares[:own], "distractors": shares[own:]}
    found = {name: {"mean": part.mean(), "error": part.std() / len(part) ** 0.5} for name, part in parts.items()}
    return {"asked": {name: len(part) for name, part in parts.items()}, **found, "processor_seconds": seconds}


def exact_partners(vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(n, PARTNERS) most similar to each of these images, by comparing it with all."""
    asked = np.asarray(vectors[rows])
    parts = [similarities(asked, vectors[first : first + 2048]) for first in range(0, len(vectors), 2048)]
    similar = np.concatenate(parts, 1)
    similar[np.arange(len(rows)), rows] = -np.inf
    return np.argsort(-similar, axis=1, kind="stable")[:, :PARTNERS]


def cost(codes: np.ndarray, size: int) -> dict[str, float]:
    """Processor seconds per image to build an index of a size, and to search it; recall of the search itself."""
    random = np.random.default_rng(1)
    rows = np.asarray(codes[random.permutation(len(codes))[:size]])
    while len(rows) < size:
        more = min(size - len(rows), 100_000)
        one, two = (codes[np.sort(random.integers(len(codes), size=more))] for _ in range(2))
        mixed = one[random.permutation(more)].astype(np.float32) + two[random.permutation(more)]
        rows = np.concatenate([rows, (mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float16)])
    start = time.process_time()
    index = build_index(rows)
    built = time.process_time() - start
    asked = rows[random.permutation(size)[:ASKED]].astype(np.float32)
    start = time.process_time()
    index.search(asked, 201)
    searched = time.process_time() - start
    return {
        "build": built / size,
        "search": searched / len(asked),
        "codes_megabytes": rows.nbytes / 2**20,
        "of": len(codes),
    }


if __name__ == "__main__":
    sys.exit(main())
