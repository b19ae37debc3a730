"""Scripts of the experiments are imported by their names."""

import sys
from pathlib import Path

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FOLDERS = ("paper", "photos", "engines", "collections", "adapt")
sys.path[:0] = [*(str(EXPERIMENTS / folder) for folder in FOLDERS), str(EXPERIMENTS), str(EXPERIMENTS.parent)]
