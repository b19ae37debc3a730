"""Scripts of the experiments are imported by their names."""

import sys
from pathlib import Path

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
sys.path[:0] = [str(EXPERIMENTS / "paper"), str(EXPERIMENTS / "photos"), str(EXPERIMENTS / "engines"), str(EXPERIMENTS)]
