"""Fill the tables of the PAGES from the stored results, and check the numbers of their prose.

python experiments/paper/tables.py            # write the tables and the charts
python experiments/paper/tables.py --check    # only say what does not agree; 1 where something does not

A table lies between `<!-- table: NAME -->` and `<!-- end -->`; NAME is a function of TABLES. Numbers in the text
around them are typed: prose.py makes the sentences they belong to from the results.
"""

import argparse
import re
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from statistics import fmean

sys.path.append(str(Path(__file__).parents[1] / "photos"))

import jobs
import own_jobs
import photo_charts
import photo_tables
import sources
from charts import CHARTS
from claims import paper_claims, tests, trained_on
from data import GROUPS, SEQUENCES
from results import (
    FULL,
    NOISES,
    SHORT,
    TASKS,
    has,
    kind_mean,
    look,
    parameters,
    percent,
    photo_means,
    read,
    runs,
    score,
    signed,
)
from targets import own_targets
from verdicts import Claim, gaps

from matchkernel.cli.console import run_script
from matchkernel.evaluation.spread import Spread
from matchkernel.plots.canvas import save_png
from matchkernel.report.blocks import Grid, ReportedMethod
from matchkernel.report.tables import NOTHING, grid_markdown, markdown_table
from matchkernel.runtime.card import SHIPPED
from matchkernel.runtime.config import DescriptorConfig
from matchkernel.storage.files import replacing

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "experiments" / "reports").glob("*.md")), ROOT / "docs" / "models.md"]
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
HARD = ("fpr95", "hard")


def claims_table(claims: list[Claim]) -> str:
    """A row for each claim."""
    head = ["claim", "here", "numbers (ours)", "tested"]
    rows = [[c.text, f"**{c.verdict}**", c.figures, c.rule] for c in claims]
    if claims[0].number:
        head, rows = ["", *head], [[f"{c.number}{'+' * c.is_ours}", *row] for c, row in zip(claims, rows, strict=True)]
    return markdown_table(head, rows, text_columns=head)


def tests_table() -> str:
    """How each statement is tested."""
    head = ["", "test", "cannot see", "earlier test, given up; what did not hold"]
    rows = [[str(test.number), test.what, test.unseen, test.first or NOTHING] for test in tests()]
    return markdown_table(head, rows, text_columns=head)


def groups() -> str:
    """What the groups of scenes and the splits of sequences are."""
    rows = [[name, ", ".join(f"{s} ({sources.SCENES[s]})" for s in scenes)] for name, scenes in GROUPS.items()]
    for split, kinds in SEQUENCES.items():
        rows.append([f"{split} sequences", "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())])
    return markdown_table(["group", "photos"], rows, text_columns=["photos"])


def hpatches() -> str:
    """Every descriptor and baseline on the test sequences, ours trained at the paper's length."""
    rows, safe = {}, {}
    names = [f"{n}-n32" for n in jobs.FIGURE_3] + [f"{n}-n64" for n in jobs.AT_64]
    names += jobs.best_of_grid(read("dual_grid")).values()
    for name in names:
        experiment = next(e for e in (FULL, "full_64", "confirmed") if has(e, name, "test"))
        label = f"`{name.removesuffix('-n32').removesuffix('-n64')}`" + ", 64 px" * name.endswith("-n64")
        method = ReportedMethod(label, parameters(runs(experiment, name)[0]["configuration"]), is_ours=True)
        rows[method] = {task: score(experiment, name, "test", task) for task in TASKS}
    scored = {name: result for name, result in read("baselines").items() if "test" in result["scores"]}
    for name, result in scored.items():
        method = ReportedMethod(f"`{name}`", result["parameters"], result["hand_crafted"])
        rows[method] = {task: percent([look(result, "test", task)]) for task in TASKS}
        safe[method] = {task: percent([look(result, "test", "tie_safe", task)]) for task in TASKS}
    return grid_markdown(Grid("HPatches tasks", TASKS, rows, safe=safe))


def combinations() -> str:
    """FPR@95 of every group to train on and to test on and their means, as the paper's Table 2, ordinary / hard."""
    pairs, rows = list(permutations("ABC", 2)), []
    for name in jobs.TRANSFERRED:
        shares = [
            [score(*trained_on(name, train), "geometry", test, kind, "fpr95").mean for kind in ("ordinary", "hard")]
            for train, test in pairs
        ]
        shares.append([fmean(column) for column in zip(*shares, strict=True)])
        rows.append([f"`{name}`", *(" / ".join(f"{share:.2f}" for share in both) for both in shares)])
    return markdown_table(["", *(" → ".join(pair) for pair in pairs), "mean"], rows)


# Switch, default, the ablation that has it, others tried, and what was decided.
MKD = "kept: MKD's for this s"
SWITCHES: tuple[tuple[str, str, str, dict[str, str], str], ...] = (
    ("κ, s = 1", "1", "kappa-s1-1", {str(k): f"kappa-s1-{k}" for k in (2, 4, 8, 16)}, "kept: a wide kernel"),
    ("κ, s = 2", "8", "base", {str(k): f"kappa-s2-{k}" for k in (1, 2, 4, 16)}, MKD),
    ("κ, s = 3", "8", "kappa-s3-8", {str(k): f"kappa-s3-{k}" for k in (1, 2, 4, 16)}, MKD),
    ("s of `dual`", "2", "base", {"1": "kappa-s1-1", "3": "kappa-s3-8"}, "kept: the paper's best"),
    ("norm before M, s = 1", "none", "kappa-s1-1", {"L2": "encoding-norm-s1"}, "kept: as the paper"),
    ("norm before M, s = 2", "none", "base", {"L2": "encoding-norm-s2"}, "kept: as the paper; our recipe has it"),
    ("BatchNorm after M", "yes", "base", {"none": "output-norm-none"}, "kept: HardNet has it"),
    ("dropout", "0", "base", {"0.1": "dropout-0.1", "0.3": "dropout-0.3"}, "kept: simpler"),
    ("BatchNorm statistics", "separate", "base", {"joint": "statistics-joint"}, "kept: HardNet's way"),
    ("geometric changes", "preset", "base", {k: f"geometry-{k}" for k in ("none", "half", "double")}, "kept"),
    ("photometric", "none", "base", {k: f"photometric-{k}" for k in ("half", "whole", "double")}, "kept: as the paper"),
    ("pairs per batch", "512", "base", {k: f"pairs-{k}" for k in ("1024", "2048", "4096")}, "our recipe takes 4,096"),
    ("positives", "geometric too", "positives-geometric", {"tracks only": "positives-tracks"}, "kept: more patches"),
)


def matching(experiment: str, name: str) -> Spread:
    """Matching on the validation sequences."""
    return score(experiment, name, "validation", "matching")


def defaults() -> str:
    """What was tried beside each default, as differences of matching on validation."""
    rows = []
    for switch, default, base, others, decided in SWITCHES:
        start = matching("ablation", base).mean
        tried = [f"{label} {signed(matching('ablation', job).mean - start)}" for label, job in others.items()]
        rows.append([switch, default, "; ".join(tried), decided])
    head = ["switch", "default", "tried: matching, difference", "decided"]
    return markdown_table(head, rows, text_columns=head)


# Model -> the one it is compared with, what is changed; from the paper's baseline to our default.
INGREDIENTS = {
    "fc": ("", "the paper's baseline and recipe"),
    "dual-paper": ("fc", "`dual`, s = 2"),
    "dual-paper-in-4096": ("dual-paper", "4,096 pairs per batch, 6,000 steps"),
    "dual-hynet-in-4096": ("dual-paper-in-4096", "HyNet's loss"),
    "dual-x6": ("dual-hynet-in-4096", "norm before M, rate 40: the shipped `dual`"),
    "dual-x6-to-x8": ("dual-x6", "regions of 6 to 8 σ"),
    "dual-in-2048": ("dual-x6", "2,048 pairs per batch, 12,000 steps"),
    "fc-by-our-recipe": ("fc", "recipe of the shipped `dual`"),
}


def ingredients() -> str:
    """What each step gave in matching on validation."""
    rows = []
    for name, (before, change) in INGREDIENTS.items():
        now = matching("ship", name)
        gain = f"{signed(now.mean - matching('ship', before).mean)} to `{before}`" if before else "–"
        rows.append([f"`{name}`", change, now.text(), gain])
    return markdown_table(["model", "change", "matching", "difference"], rows, text_columns=["change", "difference"])


BESIDE = {  # models by their names in the tables -> jobs of `ship`
    **{f"`{name}`": job for name, job in own_jobs.PACKAGE.items()},
    "`dual-x6-to-x8`": "dual-x6-to-x8",
    "`light-x6-to-x8`": "light-cartesian-x6-to-x8",
    "`fc` by the recipe of `dual`": "fc-by-our-recipe",
}


def shipped() -> str:
    """The models of the package and those beside them on the test sequences, both trainings."""
    keys = [*(("test", task) for task in TASKS), ("strips", "all")]
    rows = []
    for name, job in BESIDE.items():
        cells = [" / ".join(f"{value:.2f}" for value in score("ship", job, *key).values) for key in keys]
        rows.append([name, *cells])
    return markdown_table(["model, seed 0 / seed 1", *TASKS, "matching, HPatches strips"], rows)


def kinds() -> str:
    """Matching of the models of the package by kind of change and by noise, seed 0."""
    rows = {}
    for name, job in own_jobs.PACKAGE.items():
        run = read("ship")[job]
        rows[name] = [kind_mean([run], kind).mean for kind in SEQUENCES["test"]]
        rows[name] += [100 * look(run, "test", "by_noise", "matching", noise) for noise in NOISES]
    shown = [[f"`{name}`", *(f"{value:.2f}" for value in values)] for name, values in rows.items()]
    gains = [signed(a - b) for a, b in zip(rows["dual"], rows["fc"], strict=True)]
    heads = [f"{kind} ({len(names)})" for kind, names in SEQUENCES["test"].items()]
    return markdown_table(["model", *heads, *NOISES.values()], [*shown, ["`dual` − `fc`", *gains]])


def photos() -> str:
    """Pairs of photos of test; a slash between both trainings."""
    means = photo_means("matching_test") | photo_means("matching_test_again") | photo_means("matching_test_larger")
    columns = {"right": 1, "H 1 px": 100, "H 3 px": 100, "H 5 px": 100}
    rows = []
    for name in ("sift", "rootsift", *own_jobs.PACKAGE, "dual-x6-to-x8", "light-x6-to-x8"):
        both = [means[n] for n in (name, f"{name}{own_jobs.AGAIN}") if n in means]
        cells = []
        for column, times in columns.items():
            cells.append(" / ".join(f"{times * mean[column]:.1f}" for mean in both))
        rows.append([f"`{name}`", *cells])
    heads = ("right matches", "homography within 1 px, %", "3 px", "5 px")
    return markdown_table(["descriptor", *heads], rows)


def sizes() -> str:
    """Matching on the validation sequences at other patch sizes than trained at."""
    models = [("descriptors", "dual-s2-n32"), ("descriptors", "cartesian-s1-n32")]
    models += [("recipe", name) for name in own_jobs.SIZED[1:]]
    rows = []
    for experiment, name in models:
        run = runs(experiment, name)[0]
        mixed = run["settings"]["sampling"].get("patch_sizes") or [run["configuration"]["patch_size"]]
        cells = [score(experiment, name, "sizes", size, "matching").text() for size in look(run, "sizes")]
        rows.append([f"`{name}`", ", ".join(map(str, mixed)), *cells])
    used = look(runs(*models[0])[0], "sizes")
    return markdown_table(["model", "trained at", *(f"used at {size}" for size in used)], rows)


def models() -> str:
    """The weight files of the package, on validation, seed 0."""
    symbols = {"dual": "⋆ψ^c", "cartesian": "ψ^xy", "fc": "ψ, HardNet+"}
    rows = []
    shipped = {"ship": own_jobs.PACKAGE, "poses": own_jobs.FROM_POSES, "students": own_jobs.FROM_STUDENTS}
    for experiment, name, job in ((e, *pair) for e, part in shipped.items() for pair in part.items()):
        run = read(experiment)[job]
        model, sampling = run["configuration"], run["settings"]["sampling"]
        what = symbols[model["variant"]] + (f", s = {model['s']}" if "s" in model else "")
        what += ", norm before M" if model.get("encoding_norm") else ""
        recipe = "our recipe" if sampling["pairs"] == 4096 else "the paper's recipe"
        recipe += ", regions of 6 to 12 σ" if experiment == "poses" else ""
        recipe = "the rows of `dual` and `light`" if experiment == "students" else recipe
        scores = [100 * look(run, "validation", task) for task in TASKS]
        scores += [100 * sum(look(run, "scenes", s, *k) for s in look(run, "scenes")) / 2 for k in (HARD, ("map",))]
        size = f"{(SHIPPED / f'{name}.safetensors').stat().st_size / 1e6:.1f} MB"
        facts = [f"`{name}`", what, f"{parameters(model):,}"]
        length = f"{recipe}: {sampling['steps']:,} steps of {sampling['pairs']:,} pairs"
        tested = score("ship", job, "test", "matching").values if experiment == "ship" else ()
        test = " / ".join(f"{value:.2f}" for value in tested) or NOTHING
        rows.append([*facts, length, *(f"{value:.2f}" for value in scores), test, size])
    head = ["name", "descriptor", "parameters", "trained with", *TASKS, "hard FPR@95", "scene mAP", "matching, test"]
    head.append("file")
    return markdown_table(head, rows, text_columns=("descriptor", "trained with"))


def int8() -> str:
    """What int8 loses: the HPatches tasks on validation, and matches of two photos."""
    rows = []
    for name, found in read("int8").items():
        scores = [f"{100 * found['torch'][task]:.2f} → {100 * found['onnx-int8'][task]:.2f}" for task in TASKS]
        both = [f"{100 * found['agreement'][kept]:.1f}" for kept in ("none", "ratio")]
        rows.append([f"`{name}`", f"{found['cosine']:.4f}", *scores, *both])
    head = ["weights", "cosine", *TASKS, "same mutual matches, %", "after the ratio test, %"]
    return markdown_table(head, rows)


def tiny() -> str:
    """`tiny` beside HardNet+: two training runs each, on validation and on test."""
    runs_of = {"tiny": [read("students")[f"tiny-seed{seed}"] for seed in (0, 1)]}
    runs_of["fc"] = [read("ship")[name] for name in ("fc", f"fc{own_jobs.AGAIN}")]
    columns = [(split, task) for split in ("validation", "test") for task in ("matching", "retrieval")]
    rows = []
    for name, both in runs_of.items():
        cells = [" / ".join(f"{100 * look(run, *column):.2f}" for run in both) for column in columns]
        rows.append([f"`{name}`", *cells])
    return markdown_table(["weights", *(f"{task}, {split}" for split, task in columns)], rows)


def short_rows() -> str:
    """Matching on validation of shorter rows, as floats and as bytes."""
    rows = []
    for name, found in read("short_rows").items():
        scores = {kind: 100 * part["matching"] for kind, part in found["scores"].items()}
        rows.append([f"`{name}`", *(f"{value:.2f}" for value in scores.values())])
    kinds = list(next(iter(read("short_rows").values()))["scores"])
    return markdown_table(["weights", *kinds], rows)


def students() -> str:
    """Small networks, what they copied, and their scores on validation."""
    rows = []
    for job in (job for job in jobs.EXPERIMENTS["students"] if job.name in read("students")):
        found = read("students")[job.name]
        settings = found["settings"].get("teacher", {})
        copied = [f"{settings[part]:g} × {part}" for part in ("rows", "similarities", "pairs") if settings.get(part)]
        config = DescriptorConfig.from_dict(found["configuration"])
        widths = " ".join(str(outputs) for _, outputs, _ in config.convolutions)
        scores = [percent([look(found, "validation", task)]) for task in TASKS]
        variant = f"{config.variant}, s = {config.s}"
        rows.append([f"`{job.name}`", variant, widths, f"{config.parameters:,}", ", ".join(copied) or "pairs", *scores])
    head = ["job", "descriptor", "channels", "parameters", "loss", *TASKS]
    return markdown_table(head, rows, text_columns=("descriptor", "channels", "loss"))


def untried() -> str:
    """Settings that had never been tried, as gains on validation over what they change."""
    rows = []
    for name in jobs.UNTRIED:
        base = "fc-n32" if name.startswith("fc") else "dual-s2-n32"
        sides = [(score("untried", name, "validation", t), score(SHORT, base, "validation", t)) for t in TASKS]
        rows.append([f"`{name}`", f"`{base.removesuffix('-n32')}`", *(gaps([new], [old]) for new, old in sides)])
    return markdown_table(["setting", "compared with", *TASKS], rows, text_columns=["compared with"])


TABLES: dict[str, Callable[[], str]] = {
    "claims": lambda: claims_table(paper_claims()),
    "tests": tests_table,
    "targets": lambda: claims_table(list(own_targets())),
    "groups": groups,
    "combinations": combinations,
    "hpatches": hpatches,
    "defaults": defaults,
    "ingredients": ingredients,
    "shipped": shipped,
    "kinds": kinds,
    "photos": photos,
    "sizes": sizes,
    "models": models,
    "int8": int8,
    "students": students,
    "untried": untried,
    "short_rows": short_rows,
    "tiny": tiny,
    **photo_tables.TABLES,
}


def filled(text: str) -> str:
    """A page with its tables written anew."""
    return BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def wrong(page: Path, text: str) -> list[str]:
    """What of a page does not agree with the results."""
    return [f"{page}: the tables are not those of the results; run tables.py"] if filled(text) != text else []


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a number is wrong")
    check = parser.parse_args().check
    pages = {page: page.read_text(encoding="utf-8") for page in PAGES}
    if not check:
        pages = {page: filled(text) for page, text in pages.items()}
        for page, text in pages.items():
            with replacing(page) as part:
                part.write_text(text, encoding="utf-8")
        for name, draw in (CHARTS | photo_charts.charts()).items():
            save_png(draw(), ROOT / "docs" / "images" / name, dpi=130)
    found = [line for page, text in pages.items() for line in wrong(page, text)]
    print("\n".join(found) or "every number agrees with the results")
    sys.exit(bool(found))


if __name__ == "__main__":
    run_script(main)
