"""What an adaptation gave."""

from dataclasses import dataclass, field
from pathlib import Path

from matchkernel.adapt.judge import Gain
from matchkernel.adapt.learn import Learned
from matchkernel.data.split import Counts


@dataclass(frozen=True)
class Adapted:
    """The result.

    Attributes:
        folder: of everything.
        counts: photos, points and patches by part.
        learned: how the training ended.
        gains: before and after on the test part, retrieval first; empty if validation never improved.
        elsewhere: the same on other data: what was forgotten.
        weights: the adapted weights; None if the base is kept.
    """

    folder: Path
    counts: dict[str, Counts]
    learned: Learned
    gains: list[Gain] = field(default_factory=list)
    elsewhere: list[Gain] = field(default_factory=list)
    weights: Path | None = None

    @property
    def is_better(self) -> bool:
        """True if retrieval on the test part gains and nothing measured there got worse."""
        verdicts = [gain.verdict for gain in self.gains]
        return verdicts[:1] == ["better"] and "worse" not in verdicts

    @property
    def verdict(self) -> str:
        """One line."""
        if not self.gains:
            return "no update made validation better: keep the base"
        if self.is_better:
            return "better on the test part"
        worse = next((gain.measure for gain in self.gains if gain.verdict == "worse"), None)
        reason = f"{worse} got worse" if worse else "the gain is within noise"
        return f"{reason} on the test part: keep the base"
