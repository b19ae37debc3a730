"""The sentences of the documents that hold measured numbers, made from the stored results; tables.py looks for them."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np
from candidates import CONTRAST, CONTRASTS, RATIO, RATIOS  # of experiments/photos
from claims import BENCHMARKS, paper_claims, trained_on
from data import sequences_of
from jobs import EXPERIMENTS, FIGURE_3, LARGE_REGIONS, TRANSFERRED
from own_jobs import AGAIN, BEST, FROM_STUDENTS, PACKAGE, REGIONS
from results import (
    FULL,
    FULL_LARGE,
    FULL_TURNED,
    TaskScore,
    found_by_sequence,
    kind_mean,
    look,
    photo_means,
    read,
    runs,
    scene_mean,
    score,
    signed,
    three_tasks,
)
from targets import RIVALS, TARGET
from verdicts import FAILS, HOLDS, LEVEL, MIXED, NOTHING, PART

from matchkernel.evaluation.photos.work import Protocol
from matchkernel.evaluation.spread import Spread

OURS = {"dual": "dual", "light": "light-cartesian"}  # models by our recipe -> their jobs, without the regions


def limit() -> float:
    """A default is changed for more than this: three standard deviations of the base of the ablations."""
    return 3 * (score("ablation", "base", "validation", "matching").std or 0)


def overview() -> list[str]:
    """Verdicts, models, machines."""
    claims = paper_claims()
    verdicts = Counter(counted_as(claim.verdict) for claim in claims)
    every = [result for experiment in EXPERIMENTS for result in read(experiment).values()]
    minutes = sum(result.get("seconds", 0) for result in every) / 60
    (machine,) = {f"{r['hardware']}, torch {r['torch']}" for r in every if "hardware" in r}
    return [
        f"Of {len(claims)} rows: " + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()) + ".",
        f"{len(every)} models were trained on one GPU ({machine}), several at a time, {minutes:.0f} minutes added up",
    ]


def counted_as(verdict: str) -> str:
    """A verdict among those that are counted: limits are told of what holds only."""
    plain = next(v for v in (PART, HOLDS, FAILS, MIXED, LEVEL, NOTHING) if verdict.startswith(v))
    return "hold with a limit" if plain == HOLDS != verdict else f"*{plain}*"


def groups_trained_on() -> list[str]:
    """How often models were trained on the groups."""
    times = {g: {len(runs(*trained_on(name, g))) for name in TRANSFERRED} for g in "ABC"}
    said = [f"{' or '.join(map(str, sorted(counts)))} on {group}" for group, counts in times.items()]
    return [f"seeds: {', '.join(said)}."]


def hpatches() -> list[str]:
    """By noise, and the dropout of `fc`."""
    names = ("fc", "dual-s1", "sum-batch")
    ends = {
        noise: [score(FULL, f"{name}-n32", "test", "by_noise", "matching", noise).mean for name in names]
        for noise in "et"
    }
    return [
        "ahead of `dual-s1` on easy frames ({:.2f} against {:.2f}) and far behind on tough ones ({:.2f} against"
        " {:.2f}; `sum-batch`, which has no position codes, has {:.2f})".format(*ends["e"][:2], *ends["t"]),
        "`fc` has HardNet's dropout of {}".format(read(FULL)["fc-n32-seed0"]["configuration"]["dropout"]),
    ]


def larger_patches() -> list[str]:
    """The sizes of regions; what 64 px give in matching on larger ones without the sequence on which they lose most."""
    found = read("regions")
    small, large = (100 * found["share below"][size] for size in ("32", "64"))
    gain, longer = {}, {}
    for name in ("fc", "dual-s2"):
        at_64, at_32 = (score_by_sequence(f"{name}-n{size}") for size in (64, 32))
        gain[name] = signed(fmean(at_64[s] - at_32[s] for s in at_64 if s != "oxford_trees"))
        for size in (32, 64):
            full, short = (three_tasks(e, f"{name}-n{size}") for e in (FULL_LARGE, LARGE_REGIONS))
            longer[name, size] = gains(full, short)
    return [
        f"{found['median side']:.0f} px across in the median, {small:.0f} % of them less than 32 px and"
        f" {large:.0f} % less than 64 px",
        f"`fc` gains {gain['fc']} and `dual-s2` {gain['dual-s2']}",
        f"`dual-s2` loses at either size ({longer['dual-s2', 32]} at 32 px, {longer['dual-s2', 64]} at 64)",
        f"`fc` does not ({longer['fc', 32]} and {longer['fc', 64]})",
        *large_regions(),
        "after 10,000 updates, one seed, `dual` is not behind ({} and {})".format(*ahead_on_large(LARGE_REGIONS)),
    ]


def large_regions() -> list[str]:
    """`dual` s = 2 and `cartesian` s = 1 against `fc` on regions of 64 px or more."""
    dual, cartesian, fc = (three_tasks(FULL_LARGE, name) for name in ("dual-s2-n64", "cartesian-s1-n32", "fc-n32"))
    small, large_fc = (three_tasks(FULL_LARGE, name) for name in ("dual-s2-n32", "fc-n64"))
    return [
        "`dual` s=2 is behind `fc` where both have 32 px ({}), not where both have 64 ({}), and with 64 behind `fc`"
        " with 32 in matching and retrieval ({})".format(*ahead_on_large(FULL_LARGE), gains(dual, fc)),
        f"`cartesian` s=1 with 32 is ahead of `fc` in all three ({gains(cartesian, fc)})",
        f"`fc` gains {sequence_gains(large_fc, fc)} from 64 px, and `dual` s=2 is ahead of `fc` with 32 by"
        f" {sequence_gains(small, fc)} with 32 and by {sequence_gains(dual, fc)} with 64",
    ]


def ahead_on_large(experiment: str) -> list[str]:
    """By how much `dual` s = 2 is ahead of `fc` at 32 and at 64 px."""
    return [gains(*(three_tasks(experiment, f"{name}-n{n}") for name in ("dual-s2", "fc"))) for n in (32, 64)]


def score_by_sequence(name: str) -> dict[str, float]:
    """Matching on each test sequence of a model trained on larger regions."""
    sequences = look(runs(FULL_LARGE, name)[0], "test", "by_sequence")
    return {s: score(FULL_LARGE, name, "test", "by_sequence", s, "matching").mean for s in sequences}


def gains(new: list[Spread], old: list[Spread]) -> str:
    """Differences in the three tasks."""
    return " / ".join(signed(a.mean - b.mean) for a, b in zip(new, old, strict=True))


def sequence_gains(new: list[TaskScore], old: list[TaskScore]) -> str:
    """Differences in the three tasks with the same weight for each sequence."""
    return " / ".join(signed(fmean(a.sequences) - fmean(b.sequences)) for a, b in zip(new, old, strict=True))


def sums() -> list[str]:
    """What sums without position codes give."""
    helped = ("sum-batch", "sum-m-plain", "sum-m")
    full = {name: three_tasks(FULL, f"{name}-n32") for name in (*helped, "sum", "fc", "dual-s2")}
    behind = [b.mean - a.mean for name in helped for a, b in zip(full[name], full["fc"], strict=True)]
    norm, plain, whole = (gains(full[name], full["sum"]) for name in helped)
    ahead = [a.mean - b.mean for a, b in zip(full["dual-s2"], full["fc"], strict=True)]
    return [
        f"at most {max(behind):.2f} points behind `fc` (`dual` s=2 is {min(ahead):.2f} to {max(ahead):.2f} ahead)",
        f"Over plain `sum`, BatchNorm alone ({norm}) and both ({whole}) gain about as much as M alone ({plain})",
    ]


def places() -> list[str]:
    """What features tell of their places."""
    told = {n: score(FULL, f"{n}-n32", "places", "decoded").mean for n in ("sum-batch", "sum", "fc")}
    chance = score(FULL, "fc-n32", "places", "decoded_chance").mean
    around = {n: score(FULL, f"{n}-n32", "places", "decoded_around").mean for n in ("sum-batch", "sum", "fc", "concat")}
    return [
        f"From {told['sum-batch']:.1f} % of the features φ^p of `sum-batch` a linear map, learned on other patches,"
        f" reads p to within one cell, from {told['sum']:.1f} % of those of plain `sum`, and from {told['fc']:.1f} % of"
        f" those of `fc` ({chance:.1f} by chance)",
        f"where convolutions see the opposite side of the patch instead, {around['sum-batch']:.1f} % are read (plain"
        f" `sum` {around['sum']:.1f}, `fc` {around['fc']:.1f}, `concat` {around['concat']:.1f})",
    ]


def turns() -> list[str]:
    """What is found after the largest turn."""
    models = [(FULL, f"{name}-n32") for name in ("polar-s2", "cartesian-s2", "fc", "sum-batch")]
    models += [(FULL_TURNED, "polar-s2-plain"), (FULL_TURNED, "cartesian-s2-plain")]
    shares = [100 * fmean(look(run, "separability", "rotation")["first"][-1] for run in runs(*m)) for m in models]
    return [
        "`polar` s=2 finds {:.1f} %, `cartesian` {:.1f}, `fc` {:.1f}, `sum-batch` {:.1f}".format(*shares),
        "Unaugmented, `polar` finds {:.1f}, `cartesian` {:.1f}".format(*shares[4:]),
        *order_by_auc(),
    ]


def order_by_auc() -> list[str]:
    """Which descriptors are the highest and the lowest by AUC, on all sequences and on those by day alone."""
    auc, first = ({n: found_by_sequence(n, what) for n in FIGURE_3} for what in ("auc", "first"))
    by_night = np.array([name.startswith("webcam") for name in sequences_of("validation")])
    found = max(shares[by_night].mean() for shares in first.values())
    (top, high), (last, low) = extremes(auc)
    (day_top, day_high), (day_last, day_low) = extremes(auc, ~by_night)
    leader, loser = (name for name, _ in extremes(first))
    return [
        f"By AUC over all changes `{top}` is highest ({high:.1f}) and `{last}` lowest ({low:.1f}), because of the"
        f" {by_night.sum()} sequences by day and night, where at most {found:.1f} % are found first. Without them"
        f" `{day_top}` is highest ({day_high:.1f}) and `{day_last}` lowest ({day_low:.1f}); by the share found first,"
        f" with them, `{leader}` and `{loser}`.",
    ]


def extremes(shares: Mapping[str, np.ndarray], kept: np.ndarray | slice = slice(None)) -> list[tuple[str, float]]:
    """Who has the largest mean over sequences, and who the smallest."""
    means = {name: float(values[kept].mean()) for name, values in shares.items()}
    return [pick(means.items(), key=lambda item: item[1]) for pick in (max, min)]


def recipe() -> list[str]:
    """What decided the recipe."""
    base = scene_mean("recipe", BEST, "map").mean
    gain = {
        name: signed(scene_mean("recipe", f"{BEST}-{name}", "map").mean - base)
        for name in ("rate-40", "encoding-norm", "geometry", "s1")
    }
    return [
        f"rate 40 ({gain['rate-40']} there) and the norm before M ({gain['encoding-norm']}); stronger geometry"
        f" ({gain['geometry']}) and s = 1 ({gain['s1']}) were left out",
    ]


def photos() -> list[str]:
    """Results for homographies."""
    share = {name: per_sequence(name, "H 3 px") for name in ("dual", *RIVALS)}
    mean = {name: 100 * fmean(values.values()) for name, values in share.items()}
    ends = {}
    for rival in RIVALS:
        differences = [share["dual"][name] - share[rival][name] for name in share["dual"]]
        draws = np.random.default_rng(0).choice(differences, (10_000, len(differences))).mean(1)
        ends[rival] = " and ".join(signed(100 * value) for value in np.quantile(draws, [0.025, 0.975]))
    return [
        f"`dual` is within 3 px in {mean['dual']:.1f} %, `sift` in {mean['sift']:.1f}, `rootsift` in"
        f" {mean['rootsift']:.1f} and `fc` in {mean['fc']:.1f}",
        f"lie between {ends['sift']} (`sift`), {ends['rootsift']} (`rootsift`), {ends['fc']} (`fc`)",
    ]


def per_sequence(name: str, column: str) -> dict[str, float]:
    """The mean of each sequence over its pairs and over the training runs."""
    cells: dict[str, list[float]] = defaultdict(list)
    for file in ("matching_test", "matching_test_again"):
        for pair in read(file)["pairs"]:
            if pair["model"].removesuffix(AGAIN) == name:
                cells[pair["sequence"]].append(pair[column])
    return {sequence: fmean(values) for sequence, values in cells.items()}


def larger_regions() -> list[str]:
    """Which models the retired rule selects, and their test scores."""
    said = [f"where the target is {TARGET:g}, which"]
    for name, job in OURS.items():
        old, new = (candidate(job, region) for region in ("x6", taken(job)))
        difference = signed(new["matching"] - old["matching"])
        said.append(
            f"`{name}-{taken(job)}` (matching {difference}, right matches {new['right']:.1f} against"
            f" {old['right']:.1f})"
        )
    ship = {name: 100 * look(run, "test", "matching") for name, run in read("ship").items() if "test" in run["scores"]}
    above = {
        (job, end): signed(ship[job + end] - ship["fc" + end])
        for job in ("dual-x6", "dual-x6-to-x8")
        for end in ("", AGAIN)
    }
    said.append(f"is {above['dual-x6-to-x8', '']} and {above['dual-x6-to-x8', AGAIN]} (seed 1) above `fc`")
    said.append(f"`dual` meets with {above['dual-x6', '']} and {above['dual-x6', AGAIN]}")
    return said


def candidate(job: str, region: str) -> dict[str, float]:
    """Matching on patches of validation, and the most right matches on photos at any size, means of the seeds."""
    means, sizes = photo_means("larger_regions"), read("larger_regions")["magnifications"]
    names = [f"{job}-{region}{end}" for end in ("", AGAIN)]
    right = max(fmean(means[f"{name}, x{size:g}"]["right"] for name in names) for size in sizes)
    return {"matching": score("ship", f"{job}-{region}", "validation", "matching").mean, "right": right}


def taken(job: str) -> str:
    """The regions that the rule selects."""
    found: dict[str, Any] = {region: candidate(job, region) for region in REGIONS}
    allowed = [r for r in found if found[r]["matching"] >= found["x6"]["matching"] - limit()]
    return max(allowed, key=lambda region: found[region]["right"])


def results_page() -> list[str]:
    """All sentences of docs/results.md."""
    return [
        *overview(),
        *hpatches(),
        *sums(),
        *turns(),
    ]


def models_page() -> list[str]:
    """All sentences of docs/models.md, and numbers that were not measured."""
    ship = read("ship")
    dual, light = (ship[PACKAGE[name]] for name in ("dual", "light"))
    said = [f"{ship[PACKAGE[name]]['seconds']:.0f} s, with" for name in PACKAGE]
    typed = read("light_again")["matching"]["mean"]["all"]["ap_trapezoid"]
    said.append(f"typed as it stands here, gave [{100 * typed:.2f}]")
    values = [100 * look(ship[job], "test", "matching") for job in (PACKAGE["dual"], "fc", "fc-by-our-recipe")]
    said.append(
        f"Of the {values[0] - values[1]:.1f} points above `fc` on test, {values[2] - values[1]:.1f} are the recipe"
    )
    said.append(
        f"Of the {signed(values[0] - values[1])} of `dual` over `fc`, {signed(values[2] - values[1])} come from the"
        " recipe alone"
    )
    both = [
        score("ship", job, split, "matching").values for job in PACKAGE.values() for split in ("validation", "test")
    ]
    moved = sorted(abs(a - b) for a, b in both)
    said.append(f"another seed moved matching by {moved[0]:.1f} to {moved[-1]:.1f}")
    kinds = {kind: [kind_mean([run], kind).mean for run in (dual, light)] for kind in ("light", "viewpoint, zoom")}
    tough = [100 * look(run, "test", "by_noise", "matching", "t") for run in (dual, light)]
    said.append("matching {:.1f} against {:.1f} on three test sequences".format(*kinds["light"]))
    said.append("{1:.1f} against {0:.1f} on four sequences".format(*kinds["viewpoint, zoom"]))
    said.append("{1:.1f} against {0:.1f} on tough frames".format(*tough))
    worst = [100 * look(dual, "test", "by_sequence", name, "matching") for name in ("oxford_trees", "webcam_frankfurt")]
    said.append("(oxford_trees, matching {:.0f} mAP), day against night (webcam_frankfurt, {:.0f})".format(*worst))
    speed = json.loads((BENCHMARKS / "describe_speed.json").read_text(encoding="utf-8"))["rows"]
    rates = [speed[f"{name}, torch"]["1"]["patches_per_second"] for name in ("light", "dual")]
    said.append("{:,} patches a second against {:,}".format(*(round(rate, -1) for rate in rates)))
    said.append(f"{read('students')[FROM_STUDENTS['tiny']]['seconds']:.0f} s, with three other runs")
    return [
        *said,
        *recipe(),
        *larger_regions(),
        *photos(),
        *groups_trained_on(),
        *places(),
        *larger_patches(),
        f"for a gain of more than {limit():.2f}, three standard deviations of the base",
        "COLMAP 3.8",
        "Apache-2.0",
        "CC BY-NC 4.0",
        "CC BY-NC-SA 3.0",
        "dropout of 0.3",
    ]


def photos_page() -> list[str]:
    """Numbers of the rules of docs/photos.md, which are no measurements."""
    contrasts = ", ".join(map(str, CONTRASTS))
    return [
        f"essential matrix by MAGSAC at {Protocol().pixels} px",
        f"with a ratio test at {RATIO}",
        f"| contrast of the detector | 0.04 (today), {CONTRAST}; with `largest`, `one` also {contrasts} |",
        f"| `ratio` | {', '.join(map(str, RATIOS))} |",
    ]


PROSE = {"results.md": results_page, "models.md": models_page, "photos.md": photos_page}
