"""Tables of the shipped models: on validation, what each ingredient gave, and on the test sequences."""

from collections.abc import Iterable

from choices import HARD, changed, steps_and_pairs, validation_scores
from data import SEQUENCES
from gather import NOISES, TASKS, Result, Results, by_name, kind_score, look, parameters, score, signed, tasks_of
from jobs import AGAIN, OURS, PACKAGE
from tables import markdown

# model -> the one it is compared with, from the paper's baseline to our default
STEPS = {
    "fc": None,
    "dual-paper": "fc",
    "dual-paper-in-4096": "dual-paper",
    "dual-hynet-in-4096": "dual-paper-in-4096",
    "dual-x6": "dual-hynet-in-4096",
    "dual-x6-to-x8": "dual-x6",
    "dual-in-2048": "dual-x6",
    "fc-by-our-recipe": "fc",
}
MATCHING = ("validation", "matching")
# beside the models of the package on test: name in the tables -> job
BESIDE = {
    **{f"`{name}` trained again, seed 1": f"{job}{AGAIN}" for name, job in PACKAGE.items()},
    **{
        f"`{name}-x6-to-x8`{words}": f"{job}-x6-to-x8{ending}"
        for name, job in OURS.items()
        for words, ending in (("", ""), (", seed 1", AGAIN))
    },
    "`fc` by the recipe of `dual`": "fc-by-our-recipe",
}


def packaged(results: Results) -> Results:
    """The results of the models of the package, under their names there, without further seeds."""
    return {name: results[job] for name, job in PACKAGE.items() if job in results}


def runs_of(results: Results, jobs: Iterable[str]) -> list[Result]:
    """The models of some jobs, of all seeds."""
    groups = by_name(results)
    return [run for job in jobs for run in groups.get(job, [])]


def ship_table(results: Results) -> str:
    """The models of the package on validation; those trained more than once as mean and spread."""
    groups = by_name(results)
    rows = []
    for name, job in PACKAGE.items():
        if job in groups:
            runs = groups[job]
            facts = (parameters(runs[0]), steps_and_pairs(runs[0]), len(runs))
            rows.append([f"`{name}`", *facts, *validation_scores(runs)])
    return markdown(["model", "parameters", "steps × pairs", "seeds", *TASKS, HARD, "mAP"], rows, low=(HARD,))


def ingredients_table(results: Results) -> str | None:
    """From the paper's baseline to our default, one row a step, with what it gives in matching on validation."""
    groups = by_name(results)
    rows = []
    for name, before in STEPS.items():
        if name in groups:
            now, then = (score(groups.get(job or "", []), *MATCHING) for job in (name, before))
            gain = signed(now.mean - then.mean) if now is not None and then is not None else None
            words = changed(groups[name][0], groups[before][0]) if before in groups else "–"
            difference = f"{gain} to `{before}`" if gain else None
            rows.append([f"`{name}`", words, steps_and_pairs(groups[name][0]), now, difference])
    head = ["model", "differs in", "steps × pairs", "matching", "difference"]
    return markdown(head, rows) if len(rows) > 1 else None


def tables_on_test(results: Results) -> list[str]:
    """The models of the package on the test sequences: three tasks and real strips; and matching by kind of change."""
    named = {f"`{name}`": result for name, result in packaged(results).items()}
    named |= {name: results[job] for name, job in BESIDE.items() if job in results}
    tested = {name: result for name, result in named.items() if look(result, "test")}
    if not tested:
        return []
    tasks = [[name, *tasks_of([r], "test"), score([r], "strips", "all")] for name, r in tested.items()]
    kinds = SEQUENCES["test"]
    found = {
        name: [
            *(kind_score([r], "test", names) for names in kinds.values()),
            *(score([r], "test", "by_noise", "matching", noise) for noise in NOISES),
        ]
        for name, r in tested.items()
    }
    heads = [f"{kind} ({len(names)})" for kind, names in kinds.items()]
    rows: list[list] = [[name, *scores] for name, scores in found.items()]
    if {"`dual`", "`fc`"} <= set(found):
        pairs = zip(found["`dual`"], found["`fc`"], strict=True)
        rows.append(["`dual` − `fc`", *(signed(a.mean - b.mean) if a and b else None for a, b in pairs)])
    return [
        markdown(["model", *TASKS, "matching, HPatches strips"], tasks, beside=tuple(BESIDE)),
        "Matching by kind of change (number of sequences in brackets), and by how far frames are moved:",
        markdown(["model", *heads, *NOISES.values()], rows, beside=tuple(BESIDE)),
    ]
