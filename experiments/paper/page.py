"""Write docs/results.md and its charts from the committed results: `make results`.

python experiments/paper/page.py [--results FOLDER] [--docs FOLDER]
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

import jobs
import tables
from charts import write_charts
from claims import claims_of
from data import GROUPS, NON_COMMERCIAL, SEQUENCES
from gather import Everything, look, read_results, without_seed
from sections import SECTIONS
from verdicts import FAILS, HOLDS, OPEN

from matchkernel.cli.console import run_script
from matchkernel.storage.files import replacing

ROOT = Path(__file__).parents[2]
HEAD = """# Results

Written by `make results` from the JSON in `experiments/paper/results/`, `experiments/results/` and
`benchmarks/results/`; no number of a table is typed in by hand.

**These are our numbers on our data, not the paper's benchmarks.** PhotoTourism and HPatches are no longer served in
full, so patches are cut from other photos, and nothing here can be compared with a published number. Where a figure of
the paper itself is shown, the text says so.
"""

MEASURES = """All scores are in percent, mean ± sample standard deviation over seeds (no ± where there is one seed).

- **Verification, matching, retrieval**: the three HPatches tasks as mean average precision (trapezoid, all distractors,
  see [evaluation.md](evaluation.md)), on sequences of six images with known homographies.
- **FPR@95**: the share of non-matching pairs accepted where 95 % of the matching ones are; less is better. The
  non-matches of *hard* pairs are those that RootSIFT finds most alike.
- **mAP**: retrieval within a set of patches.

Every choice is made on validation, but one: that [larger regions](#larger-regions) do not replace those of the package
was decided on test. Where scores of several models are compared, the best of a column is bold (not
on photos).
"""

COMMANDS = """The photos are not part of this repository. With them in `DATA`, patches are cut into `SETS`, then models
are trained and scored; what is done is not done again (bash):

```text
python experiments/paper/data.py DATA SETS
python experiments/paper/data.py DATA SETS/tracks --no-geometric --scenes B --sequences
for m in 5 8 10; do    # the ablation of magnification
    python experiments/paper/data.py DATA SETS/x$m --magnification $m --scenes A validation --sequences validation
done
for m in 8 10 12; do    # larger regions for the shipped recipe
    python experiments/paper/data.py DATA SETS/x$m --magnification $m --scenes A B C --sequences
done
python experiments/paper/tolerance.py DATA SETS
python experiments/paper/regions.py SETS
python experiments/paper/run.py EXPERIMENT --sets SETS --keep WEIGHTS    # {experiments}
python experiments/paper/baselines.py --sets SETS --weights BASELINES
python experiments/homography_matching.py DATA/homography --models WEIGHTS/ablation/base-seed0.safetensors \\
    WEIGHTS/ablation/magnification-*.safetensors --magnifications 5 6 8 10 --bf16 \\
    --out experiments/results/training_magnification.json    # again with --thresholds THIS FILE
matchkernel evaluate hpatches SETS/homography_validation --task matching --name magnification-8 \\
    --model WEIGHTS/ablation/magnification-8-seed0.safetensors -o experiments/results/magnification_8_at_6.json  # 10
python benchmarks/aggregation_memory.py
```

Larger regions; the JSON is written by the second run, with the distances of the first:

```text
python experiments/homography_matching.py DATA/homography --magnifications 8 10 12 --bf16 \\
    --models WEIGHTS/ship/{{dual,light-cartesian}}-x*.safetensors \\
    --out experiments/results/larger_regions.json    # again with --thresholds THIS FILE
```

The shipped weights go into the package, their distances of matches are calibrated on validation, they go in again with
these, and are scored on test:

```text
python experiments/paper/ship.py WEIGHTS/ship
python experiments/homography_matching.py DATA/homography \\
    --models sift rootsift dual light dual-paper fc --out experiments/results/matching_validation.json
python experiments/paper/ship.py WEIGHTS/ship
python experiments/homography_matching.py DATA/homography --models dual --magnifications 5 6 7 8 10 12 --bf16 \\
    --out experiments/results/magnification.json
for job in {{{{dual,light-cartesian}}-x6{{,-to-x8}},dual-paper,fc}}{{,-seed1}} fc-by-our-recipe; do
    python experiments/paper/measure.py ship $job WEIGHTS/ship/$job.safetensors --sets SETS --scores test strips
done
python experiments/homography_matching.py DATA/homography --split test \\
    --models sift rootsift dual light dual-paper fc --out experiments/results/matching_test.json
cp WEIGHTS/ship/dual-x6-seed1.safetensors WEIGHTS/ship/dual-seed1.safetensors    # rows go by file names
cp WEIGHTS/ship/light-cartesian-x6-seed1.safetensors WEIGHTS/ship/light-seed1.safetensors
for seed in "" -seed1; do
    cp WEIGHTS/ship/light-cartesian-x6-to-x8$seed.safetensors WEIGHTS/ship/light-x6-to-x8$seed.safetensors
done
AGAIN=$(echo WEIGHTS/ship/{{dual,light,dual-paper,fc}}-seed1.safetensors)
python experiments/homography_matching.py DATA/homography --models $AGAIN \\
    --out experiments/results/matching_validation_again.json    # again with --thresholds THIS FILE
python experiments/homography_matching.py DATA/homography --split test --models $AGAIN \\
    --thresholds experiments/results/matching_validation_again.json \\
    --out experiments/results/matching_test_again.json
LARGER=$(echo WEIGHTS/ship/{{dual,light}}-x6-to-x8{{,-seed1}}.safetensors)
python experiments/homography_matching.py DATA/homography --models $LARGER \\
    --out experiments/results/matching_validation_larger.json
python experiments/homography_matching.py DATA/homography --split test --models $LARGER \\
    --thresholds experiments/results/matching_validation_larger.json \\
    --out experiments/results/matching_test_larger.json
matchkernel train configs/trained/light.toml -o runs/light    # the command of a card, as it stands there
matchkernel evaluate hpatches SETS/homography_validation --task matching --name light \\
    --model runs/light/final.safetensors -o experiments/results/light_again.json
make results
```
"""


def text_of(everything: Everything) -> str:
    """The whole page."""
    sections = [head(everything), status(everything)]
    sections += [part(everything) for part in SECTIONS]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def head(everything: Everything) -> str:
    """What this is, what the data are, and how to run it."""
    claims = claims_of(everything)
    counts = {word: sum(claim.verdict == word for claim in claims) for word in (HOLDS, FAILS, OPEN)}
    short = f"hold here: {counts[HOLDS]}, do not: {counts[FAILS]}, not measured yet: {counts[OPEN]}"
    groups = [f"| {name} | {', '.join(scenes)} |" for name, scenes in GROUPS.items()]
    sequences = [f"| {split} sequences | {_kinds(kinds)} |" for split, kinds in SEQUENCES.items()]
    left_out = (
        f"Shipped models are trained on A, B and C without {' and '.join(NON_COMMERCIAL)} (non-commercial terms)."
    )
    return "\n".join(
        [
            HEAD,
            f"In short, the paper's claims in {len(claims)} rows: {short} ([one by one](#the-papers-claims)).\n",
            "| group | photos |",
            "|---|---|",
            *groups,
            *sequences,
            "",
            left_out + "\n",
            MEASURES,
            COMMANDS.format(experiments=", ".join(jobs.EXPERIMENTS)),
            machines(everything),
        ]
    )


def _kinds(kinds: dict[str, tuple[str, ...]]) -> str:
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())


def machines(everything: Everything) -> str:
    """Where everything ran."""
    every = [result for results in everything.values() for result in results.values()]
    found = sorted({f"{r['hardware']}, torch {r['torch']}" for r in every if "hardware" in r})
    words = "Models were often trained side by side: their seconds are no measure of speed."
    return f"Ran on: {'; '.join(found)}. {words}" if found else ""


def status(everything: Everything) -> str:
    """What is done and what is left, from the list of jobs."""
    rows = []
    for name, wanted in jobs.EXPERIMENTS.items():
        done = everything.get(name, {})
        short = [job for job in wanted if job.name in done and any(not look(done[job.name], s) for s in job.scores)]
        left = [job.name for job in wanted if job.name not in done]
        words = [_in_short(left, len(wanted)), f"scores missing: {_names(j.name for j in short)}" if short else ""]
        seconds = sum(result.get("seconds", 0) for result in done.values())
        count = len(wanted) - len(left)
        rows.append(
            [
                f"`{name}`",
                f"{count} / {len(wanted)}",
                "; ".join(filter(None, words)),
                f"{seconds / 60:.0f} min" if done else None,
            ]
        )
    for name in everything:
        if name not in jobs.EXPERIMENTS:
            tested = sum(bool(look(result, "test")) for result in everything[name].values())
            rows.append([f"`{name}`", f"{len(everything[name])} ({tested} on test)", "", None])
    table = tables.markdown(["experiment", "jobs done / all", "left", "training, all models"], rows)
    return f"## What is done and what is left\n\n{table}"


def _in_short(left: list[str], count: int) -> str:
    return "nothing" if not left else "all" if len(left) == count else _names(left)


def _names(names: Iterable[str]) -> str:
    """Names without their seeds, each once, with how many where there are several."""
    short = [without_seed(name) for name in names]
    return ", ".join(f"`{n}`{f' ({short.count(n)})' if short.count(n) > 1 else ''}" for n in dict.fromkeys(short))


def main() -> None:
    """Write the page and its charts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    everything = read_results(options.results)
    write_charts(everything, options.docs / "images")
    with replacing(options.docs / "results.md") as part:
        part.write_text(text_of(everything), encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
