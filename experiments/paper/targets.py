"""Our own targets, judged on the stored results."""

from collections.abc import Iterator

from claims import ABOUT
from data import SEQUENCES
from jobs import TRANSFERRED
from own_jobs import AGAIN, PACKAGE
from results import SHORT, TASKS, kind_mean, look, parameters, photo_means, read, signed, three_tasks, transfer
from verdicts import Claim, better, yes_or_no

TARGET = 5.0  # mAP points by which the default should be above `fc` in matching on test
RIVALS = ("sift", "rootsift", "fc")  # of the default on photos


def transferred(pairs: str) -> Iterator[Claim]:
    """Trained on one group, tested on SIFT's tracks in the others, 10,000 updates."""
    found = {name: transfer(name, "fpr95", pairs) for name in TRANSFERRED}
    fc, one, two = (found[name] for name in ("fc", "dual-s1", "dual-s2"))
    text = f"`dual` s=2 has a lower FPR@95 than `fc`, {pairs} pairs of tracks"
    yield Claim(
        None, text, yes_or_no(better(two, fc, low=True)), f"{two.text()} against {fc.text()}", "beyond the spread"
    )
    fewer = parameters({"variant": "dual", "s": 1}) < parameters({"variant": "fc"})
    text = f"`dual` s=1 about equals `fc` with fewer parameters, {pairs} pairs of tracks"
    rule = "at most a tenth above `fc`, fewer parameters"
    yield Claim(None, text, yes_or_no(one.mean <= (1 + ABOUT) * fc.mean and fewer), one.text(), rule)


def own_targets() -> Iterator[Claim]:
    """The targets for our own models."""
    yield from transferred("hard")
    gain = {}
    for name in ("rootsift", "mkd", "tfeat"):
        theirs = [100 * look(read("baselines")[name], "test", task) for task in TASKS]
        gain[name] = min(a.mean - b for a, b in zip(three_tasks(SHORT, "dual-s2-n32"), theirs, strict=True))
    text = "at least " + ", ".join(f"{signed(value)} (`{name}`)" for name, value in gain.items())
    holds = min(gain.values()) > 2
    yield Claim(
        None, "`dual` s=2 is above RootSIFT, MKD and TFeat", yes_or_no(holds), text, "by more than 2 in all three tasks"
    )
    ship = read("ship")
    first, again = (
        100 * (look(ship[PACKAGE["dual"] + end], "test", "matching") - look(ship[f"fc{end}"], "test", "matching"))
        for end in ("", AGAIN)
    )
    text = f"{signed(first)}; trained again {signed(again)}"
    rule = f"by {TARGET:g} or more"
    yield Claim(None, "Shipped `dual` is above shipped `fc` in matching", yes_or_no(first >= TARGET), text, rule)
    kinds = {}
    for kind in SEQUENCES["test"]:
        ours, theirs = (kind_mean([ship[PACKAGE[name]]], kind).mean for name in ("dual", "fc"))
        kinds[kind] = ours - theirs
    text = ", ".join(f"{kind} {signed(value)}" for kind, value in kinds.items())
    yield Claim(None, "… in each kind of change", yes_or_no(min(kinds.values()) > 0), text, "matching above `fc`")
    means = photo_means("matching_test")
    for words, column, form in (("more right matches", "right", "{:.1f}"), ("better homographies", "H 3 px", "{:.2%}")):
        holds = all(means["dual"][column] > means[rival][column] for rival in RIVALS)
        text = ", ".join(f"`{m}` {form.format(means[m][column])}" for m in ("dual", *RIVALS))
        rule = "on photos, than SIFT, RootSIFT and `fc`" + ("; within 3 px" if "H" in column else "")
        yield Claim(None, f"Shipped `dual` has {words}", yes_or_no(holds), text, rule)
