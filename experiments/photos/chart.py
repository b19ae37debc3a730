"""Draw camera poses against seconds per photo, from the table `photo-test` of the report of photos.

python experiments/photos/chart.py docs/images/photos_poses.png
"""

import argparse
from pathlib import Path

from matchkernel.plots.canvas import BLUE, GRAY, ORANGE, new_figure, save_png

REPORT = Path(__file__).parents[1] / "reports" / "2026-11-16-photos.md"
LEFT_OUT = ("filter", "strongest keypoints", "the default before")  # other settings of methods that are shown
KINDS = {  # starts of names, in the order in which they are looked up
    ("aliked", "disk", "xfeat"): ("networks with keypoints of their own", ORANGE),
    ("sift", "rootsift"): ("SIFT", GRAY),
    ("",): ("networks at the keypoints of SIFT", BLUE),
}
BESIDE, LEFT, ABOVE, BELOW = (7, 4), (-7, 4), (-7, 10), (7, -11)  # places of a name, in points
PLACES = {"tiny": LEFT, "light": LEFT, "rootsift": LEFT, "light-wide, AffNet": LEFT, "dual": BELOW, "desdis-8": BELOW}
PLACES["light-wide, the default"] = ABOVE


def methods() -> dict[str, tuple[float, float, float]]:
    """Seconds per photo, mAA(10°) and its deviation of every method that was timed."""
    table = REPORT.read_text(encoding="utf-8").partition("<!-- table: photo-test -->")[2].partition("<!-- end -->")[0]
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.strip().splitlines()]
    found = {}
    for row in rows:
        name = row[0].translate(str.maketrans("", "", "`*")).replace("the new default", "the default")
        seconds = row[head.index("s/photo")]
        if seconds != "–" and not any(part in name for part in LEFT_OUT):
            score, _, deviation = row[head.index("mean")].split()
            found[name] = float(seconds), float(score), float(deviation)
    return found


def main() -> None:
    """Draw the chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    figure = new_figure(9.0, 5.6)
    axes = figure.subplots()
    for name, (seconds, score, deviation) in methods().items():
        kind, colour = next(look for starts, look in KINDS.items() if name.startswith(starts))
        axes.errorbar(seconds, score, deviation, color=colour, label=kind, fmt="o", capsize=2, markersize=5)
        offset = PLACES.get(name, BESIDE)
        side = "left" if offset[0] > 0 else "right"
        axes.annotate(name, (seconds, score), offset, textcoords="offset points", ha=side, fontsize=8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(x=0.2)
    axes.set_xlabel("seconds per photo: detection and description without matching, processor time of one thread")
    axes.set_ylabel("mAA(10°), %")
    axes.set_title("Relative poses, test scenes, 2,000 keypoints", fontsize=11, loc="left")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(dict(zip(labels, handles, strict=True)).values(), dict.fromkeys(labels), loc="lower right", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=GRAY, alpha=0.25, linewidth=0.6)
    save_png(figure, out)


if __name__ == "__main__":
    main()
