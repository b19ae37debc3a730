"""The sections of docs/results.md, each "not run yet" until its results are there."""

from collections.abc import Callable

import choices
import maps as similarity_maps
import regions
import shipped as shipped_models
import tables
from ablations import ablation_sections
from claims import OWN, claims_of
from defaults import defaults_section
from gather import Everything, Result, look
from homographies import TRAINED_AGAIN, homographies_section
from image_pairs import PAIRS, pair_tables
from jobs import BEST, PACKAGE
from larger_regions import ON_VALIDATION, PAIRS_ON_TEST, larger_on_test, larger_regions_section
from shipped import STEPS
from verdicts import Claim

HPATCHES = """## The HPatches experiment

Trained on group A, scored on the test sequences. All are trained alike; `fc` has HardNet's dropout of 0.3 besides.
`sum-m` is `sum` with a learned M and BatchNorm behind it, `sum-m-plain` has M alone. Of the
[baselines](evaluation.md#baselines), `mkd` has its whitening learned on group A, `mkd-liberty` a published one; `tfeat`
was trained on PhotoTourism's liberty, on what `hardtfeat` was is not known."""

KINDS = """### By kind of change

Matching, mean of the sequences of a kind (their number in brackets), and by how far the frames are moved before patches
are cut: easy, hard, tough. On easy frames `fc` is level with the best; encoding positions pays where frames are moved
far."""

STRIPS = """### A real HPatches sequence

Matching on 400 patches of one sequence of the HPatches release, too few to rank by."""

BASELINES = """### Baselines on the same patches

The hard pairs count against `sift` and `rootsift`: they were chosen by RootSIFT."""

SIZES = """## Other patch sizes without training again

Matching on the validation sequences, patches of 65 pixels resized to the size used (96 shows nothing new). `fc` has a
matrix for each position of its own size and cannot be used at another. The convolutions see as many pixels at every
size, so at a larger one they see a smaller part of the patch than they were trained on. A model trained at several
sizes (24, 32 and 48; none at 64 or 96) has BatchNorm statistics of each
([what they give](../experiments/2026-11-15-mixed-sizes/README.md)). Compare along a row, and the last two rows with
each other, which differ in their sizes alone. The recipes had other data and lengths than the rest
([recipes](#recipes))."""

TOLERANCE = """## Tolerance to shift, rotation and scale

Matching patches of images 1 and 2 of the validation sequences, one of each pair changed by a known amount. *Similarity
kept* is the mean similarity over all amounts as a share of that without a change; *first*, the share whose match is the
most similar of all patches, mean over the amounts."""

MAPS = """## Similarity maps

S_p(q) is how similar position p of a patch is to position q of its match, as the descriptor adds them up; matching
patches of images 1 and 2 of the validation sequences, unchanged, BatchNorm folded. Counted over all p: the share of
maps whose maximum lies within one cell of p (sideways, up, down or diagonally), and the mean of S, scaled to [0, 1] map
by map, by the distance of q from p in cells. A map that knew nothing of p would have the mean *anywhere* at every
distance. `sum`, which has no positions, shows what features alone give."""

RECIPES = """### Recipes

Trained on the scenes of the shipped models. One change at a time from `base`, `dual` with s = 1 and 1,024 pairs a
batch (what the words stand for: [every knob](training.md#every-knob)). `hynet-loss` is HyNet's hybrid similarity and
margin with negatives from all four distance matrices, without its norm penalty. `best-2048` takes the larger batch,
this loss and twice the rate, with the paper's s = 2; `geometry` gained in matching too but lost on the validation
scenes, so a part of it is tried on top. Not tried: the contrastive and softmax losses, HyNet's norm penalty, filter
response norm and Adam, losses of average precision, dynamic margins (SDGMNet and others), tracks alone for the whole
data, more data, and combinations other than these."""

ON_TOP = """### What adds to the best

One change at a time from `best-2048`. `in-4096` and `in-8192` see as many pairs in all, more of them at a time;
`cartesian`, `polar` and `combined` (s = 1) are the candidates for the light model of the package.

Gains are of one seed each and smaller than what a default is changed for [above](#defaults-and-why), so they are hints;
of the losses only those of `in-4096` and `in-8192` are larger. The recipe of the shipped `dual` takes the two that
gained in matching without losing mAP on the scenes: four times the paper's rate, and the norm before M. The stronger
geometry and s = 1 gained as much in matching and lost on the scenes. The three light candidates are level: `cartesian`,
the best in matching and the last on the scenes, was taken; it and `polar` have the fewest parameters. `dual` and
`light` have 6,000 steps of 4,096 pairs, a fifth more pairs in all than the paper's training: at equal steps 4,096 pairs
were better than 2,048 (`pairs-4096` of the [ablations](#ablations)), at half the steps they were not (`in-4096`). At
the full length 2,048 pairs for twice the steps are no better: `dual-in-2048` [below](#what-each-ingredient-gave)."""

SHIPPED = """## Shipped models

Trained on A, B and C without the scenes under non-commercial terms. On validation (with several seeds, the first is
shipped):"""

INGREDIENTS = """### What each ingredient gave

From the paper's baseline to our default, and the baseline by our recipe; matching on the validation sequences;
with ± where a model was trained twice. The step to `dual-x6` changes two things at once; singly, in short runs, they
are in [what adds to the best](#what-adds-to-the-best). `dual-x6` is the shipped `dual`; larger regions cost here,
where patches are cut at 6 σ, and gain [on photos](#larger-regions)."""

TESTED = """### On the test sequences

Bold: the best of the four files of the package."""

PHOTOS = """### Pairs of photos

The test sequences and three single pairs ([match.md](match.md#choices) says how they are scored), the same 2,000
keypoints for all, calibrated distances of validation. Mean of sequences, a single pair counting as one; the shipped
training, seed 0, a second one below. The descriptors of the HPatches experiment on the same pairs are in
[match.md](match.md#every-descriptor-of-the-paper)."""

CLAIMS = """## The paper's claims

The rule of each decides, on the numbers above: those of group 2 on the other groups of scenes, of 3 and 7 on the test
sequences (three numbers are verification / matching / retrieval), of 4 and 5 on the validation sequences; 1 and 6 are
counted. Several rows are parts of one statement of the paper.
*Beyond the spread*: the means differ by more than the larger standard deviation over seeds, of two seeds or more.
(Defaults ask for more, three of them, because many single runs are compared there and the best is looked for.)"""


def picture(name: str, words: str) -> str:
    """A chart with its description."""
    return f"![{words}](images/results_{name}.png)"


def joined(*parts: str | None) -> str:
    """Paragraphs, those that are there."""
    return "\n\n".join(part for part in parts if part)


def runs_of(rows: dict[str, list[Result]]) -> list[Result]:
    """All models of some rows."""
    return [result for results in rows.values() for result in results]


def hpatches(everything: Everything) -> str:
    """The HPatches experiment."""
    title = HPATCHES
    rows = tables.hpatches_rows(everything)
    runs = runs_of(rows)
    parts = [tables.NOT_RUN]
    if rows:
        origin = tables.origin(runs)
        parts = [
            tables.hpatches_table(everything),
            origin,
            regions.words(regions.REGIONS),
            tables.ties(everything),
            tables.caution(runs, "test"),
            picture("hpatches", "Bars of verification, matching and retrieval of every descriptor and baseline"),
            KINDS,
            tables.kinds_table(everything),
            origin,
        ]
    return joined(title, *parts, strips(everything))


def strips(everything: Everything) -> str:
    """The strips of a real HPatches sequence."""
    title = STRIPS
    rows = tables.hpatches_rows(everything, "strips")
    if not rows:
        return joined(title, tables.NOT_RUN)
    return joined(title, tables.strips_table(everything), tables.origin(runs_of(rows)))


def transfer(everything: Everything) -> str:
    """Table 2's protocol."""
    title = "## Trained on one group, tested on the others\n\nThe protocol of the paper's Table 2 on groups A, B and C."
    runs = tables.transfer_runs(everything)
    if not runs:
        return joined(title, tables.NOT_RUN)
    every = runs_of(runs)
    parts = [f"**{metric}**\n\n{tables.transfer_table(everything, metric)}" for metric in tables.METRICS]
    cautions = sorted({tables.caution(every, "groups", group) for group in tables.GROUPS})
    note = (
        "The best of a row is bold. On ordinary pairs, 50,000 non-matches a group or fewer, 0.002 is one accepted "
        "non-match: what little they show is decided by a handful. "
        "castle and fountain of B overlap, and their common points count as different ones."
    )
    return joined(title, *parts, note, tables.origin(every), *cautions)


def recipes(everything: Everything) -> list[str]:
    """The recipes on validation, with a chart."""
    results = everything.get("recipe", {})
    if not results:
        return [RECIPES, tables.NOT_RUN]
    every = list(results.values())
    chart = picture("recipe", "What each change of the recipe gives in matching")
    on_top = {name: result for name, result in results.items() if name.startswith(BEST)}
    single = {name: result for name, result in results.items() if name not in on_top or name == BEST}
    parts = [RECIPES]
    if single:
        parts += [choices.choices_table(single), tables.origin(single.values())]
    parts += [tables.caution(every, "validation")]
    if len(on_top) > 1:
        parts += [ON_TOP, choices.choices_table(on_top, BEST), tables.origin(on_top.values())]
    return [*parts, chart if choices.differences(results) else ""]


def ablations(everything: Everything) -> str:
    """Ablations, recipes, and baselines on the same patches."""
    words = "One row a choice; validation sequences (three tasks) and validation scenes (FPR@95 of hard pairs, mAP)."
    baselines = {n: r for n, r in everything.get("baselines", {}).items() if look(r, "validation")}
    every = [r for name in ("ablation", "recipe", "baselines") for r in everything.get(name, {}).values()]
    comparable = [r for r in every if not r.get("score_cut")]  # the others stand in a table of their own
    return joined(
        f"## Choices made on validation\n\n{words}",
        *ablation_sections(everything),
        *defaults_section(everything),
        *recipes(everything),
        BASELINES,
        choices.baselines_table(baselines) if baselines else tables.NOT_RUN,
        tables.origin(baselines.values()) if baselines else "",
        tables.caution(comparable, "validation", rows="of the tables of ablations, recipes and baselines"),
    )


def sizes(everything: Everything) -> str:
    """Resolution independence."""
    title = SIZES
    runs = choices.sized_runs(everything)
    if not runs:
        return joined(title, tables.NOT_RUN)
    chart = picture("sizes", "The three tasks over the patch size a model is used at")
    return joined(title, choices.sizes_table(everything), tables.origin(runs_of(runs)), chart)


def tolerance(everything: Everything) -> str:
    """Similarity of matching patches under known changes."""
    title = TOLERANCE
    runs = choices.tolerance_runs(everything)
    if not runs:
        return joined(title, tables.NOT_RUN)
    chart = picture("tolerance", "Similarity of matches, and share found first, over shift, rotation and scale")
    return joined(title, choices.tolerance_table(everything), tables.origin(runs_of(runs)), chart)


def maps(everything: Everything) -> str:
    """Where the similarity maps are high."""
    runs = similarity_maps.map_runs(everything)
    if not runs:
        return joined(MAPS, tables.NOT_RUN)
    chart = picture("maps", "Mean of the similarity maps over the distance from p")
    return joined(MAPS, similarity_maps.maps_table(everything), tables.origin(runs_of(runs)), chart)


def shipped(everything: Everything) -> str:
    """The models of the package."""
    results = everything.get("ship", {})
    if not results:
        return joined(SHIPPED, tables.NOT_RUN)
    every = results.values()
    ingredients, tested = shipped_models.ingredients_table(results), shipped_models.tables_on_test(results)
    return joined(
        SHIPPED,
        shipped_models.ship_table(results),
        tables.origin(shipped_models.runs_of(results, PACKAGE.values())),
        tables.caution(every, "validation"),
        *([INGREDIENTS, ingredients, tables.origin(shipped_models.runs_of(results, STEPS))] if ingredients else []),
        *larger_regions_section(everything, ON_VALIDATION),
        TESTED,
        *([*tested, tables.origin(r for r in every if "test" in r["scores"])] if tested else [tables.NOT_RUN]),
        PHOTOS,
        *(pair_tables(PAIRS) if PAIRS.exists() else [tables.NOT_RUN]),
        *homographies_section(PAIRS, TRAINED_AGAIN),
        *larger_on_test(PAIRS_ON_TEST, PAIRS, TRAINED_AGAIN),
    )


def claims(everything: Everything) -> str:
    """The paper's claims with verdicts, then our own targets."""
    return joined(
        CLAIMS,
        claims_table(claims_of(everything)),
        "## Beyond the paper's claims",
        claims_table(claims_of(everything, OWN)),
    )


def claims_table(found: list[Claim]) -> str:
    """One row a claim."""
    rows = [[c.number, c.text, f"**{c.verdict}**", c.figures or "–", c.rule] for c in found]
    return tables.markdown(["", "claim", "here", "figures (ours)", "rule"], rows)


SECTIONS: tuple[Callable[[Everything], str], ...] = (
    hpatches,
    transfer,
    ablations,
    sizes,
    tolerance,
    maps,
    shipped,
    claims,
)
