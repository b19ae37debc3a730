"""Draw the paper's Figures 3 and 4 from the stored results, as the paper does: bars, sorted by parameters.

python experiments/paper/figures.py    # docs/images/figure_3.png, figure_4.png
"""

import argparse
import json
from pathlib import Path
from typing import Any

from matchkernel.cli.console import run_script
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.plots.canvas import save_png
from matchkernel.plots.scores import Bar, ReportedMethod, draw_scores
from matchkernel.runtime.config import DescriptorConfig

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
TASKS = ("verification", "matching", "retrieval")
ENCODED = tuple(f"full/{name}-s{s}-n32" for name in ("cartesian", "polar", "combined", "dual") for s in (1, 2))
FIGURE_3 = ("full/sum-n32", "full/concat-n32", *ENCODED, "full/fc-n32")
AXES = ((80, 91), (30, 50), (40, 60))  # of Figure 3, percent: from 0 all bars look alike
FIGURE_4 = ("full/fc-n32", "full_64/fc-n64", "full/dual-s2-n32", "full_64/dual-s2-n64")  # beside the baselines


def read(name: str) -> dict[str, Any]:
    """A file of results."""
    return dict(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))


def bar_of(source: str) -> Bar:
    """A model of ours by FILE/JOB: mean and deviation over its trainings."""
    file, job = source.split("/")
    found = [content for name, content in sorted(read(file).items()) if name.rpartition("-seed")[0] == job]
    config = DescriptorConfig.from_dict(found[0]["configuration"])
    name = config.variant + (f", s = {config.s}" if config.s else "") + ", 64 px" * (config.patch_size == 64)
    method = ReportedMethod(name, config.parameters, is_ours=True, configuration=job)
    scores = [Spread(tuple(100 * one["scores"]["test"][task] for one in found)) for task in TASKS]
    return Bar(method, scores)


def baselines() -> list[Bar]:
    """The other methods, by the values that ties cannot raise."""
    bars = []
    for name, content in read("baselines").items():
        test = content["scores"]["test"]
        safe, is_raised = test["tie_safe"], any(test[task] - test["tie_safe"][task] > 5e-5 for task in TASKS)
        method = ReportedMethod(name, content["parameters"], bool(content["hand_crafted"]))
        bars.append(Bar(method, [Spread((100 * safe[task],)) for task in TASKS], is_tie_safe=is_raised))
    return bars


def main() -> None:
    """Write both figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    out = parser.parse_args().out
    figure = draw_scores([bar_of(source) for source in FIGURE_3], TASKS)
    for axes, limits in zip(figure.axes, AXES, strict=True):
        axes.set_xlim(limits)
        axes.set_xlabel(f"mAP (%; from {limits[0]})", fontsize=9)
    save_png(figure, out / "figure_3.png")
    both = [*baselines(), *(bar_of(source) for source in FIGURE_4)]
    save_png(draw_scores(both, TASKS), out / "figure_4.png")


if __name__ == "__main__":
    run_script(main)
