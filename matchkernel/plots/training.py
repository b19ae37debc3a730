"""Picture of a training run: loss and validation over the steps."""

from typing import TYPE_CHECKING

import numpy as np

from matchkernel.plots.canvas import BLACK, BLUE, GRAY, GREEN, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_training(losses: np.ndarray, validations: np.ndarray) -> "Figure":
    """Loss, FPR@95 and retrieval mAP, a panel each.

    Args:
        losses: (L, 2) step and mean loss.
        validations: (V, 3) step, FPR@95 and mAP, V may be 0.
    """
    figure = new_figure(11, 3.2)
    panels = figure.subplots(1, 3)
    panels[0].plot(losses[:, 0], losses[:, 1], color=BLACK, linewidth=1.5)
    panels[0].set(title="loss", xlabel="step")
    for axes, column, title, colour in ((panels[1], 1, "FPR@95 (%)", BLUE), (panels[2], 2, "retrieval mAP (%)", GREEN)):
        axes.set(title=f"validation: {title}", xlabel="step")
        if len(validations):
            axes.plot(validations[:, 0], 100 * validations[:, column], color=colour, marker="o", markersize=4)
            axes.annotate(
                f"{100 * validations[-1, column]:.1f}",
                (validations[-1, 0], 100 * validations[-1, column]),
                xytext=(0, 7 if validations[-1, column] >= validations[0, column] else -14),
                textcoords="offset points",
                ha="right",
            )
        else:
            axes.text(0.5, 0.5, "no validation set", transform=axes.transAxes, ha="center", color=GRAY)
    for axes in panels:
        axes.set_xlim(left=0)
        axes.margins(y=0.15)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=GRAY, alpha=0.25, linewidth=0.6)
    return figure
