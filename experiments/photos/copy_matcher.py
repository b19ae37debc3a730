"""Give the rows of a student the package's matcher of its teacher, whose rows they copy.

python experiments/photos/copy_matcher.py light-wide small-wide DATA/scenes/sceaux DATA/scenes/british_museum

The weights stay; the card says whose rows they were trained on, and the validation in it is measured with the student,
on these scenes. Writes matchkernel/runtime/matchers/<student>.safetensors.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from matchkernel.cli.console import run_script
from matchkernel.evaluation.photos.scenes import read_scenes
from matchkernel.model.context import ContextNetwork
from matchkernel.photos.context import row_identity
from matchkernel.photos.extract import open_describer
from matchkernel.runtime.context import SHIPPED
from matchkernel.training.matcher.validation import PoseValidation


def main() -> None:
    """Measure and write the copy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher")
    parser.add_argument("student")
    parser.add_argument("scenes", nargs="+", type=Path, help="validation scenes, with images/ and sparse/")
    options = parser.parse_args()
    network, student = ContextNetwork.load(SHIPPED / f"{options.teacher}.safetensors"), open_describer(options.student)
    validation = PoseValidation(read_scenes(options.scenes), student, torch.device("cpu"))
    network.card = {
        **network.card,
        "rows_trained_on": {name: getattr(network.config, name) for name in ("descriptor", "descriptor_sha256")},
        "validation": validation.measure(network),
    }
    rows = row_identity(student.name, student.settings)
    network.config = replace(network.config, descriptor=student.name, descriptor_sha256=rows)
    network.save(SHIPPED / f"{options.student}.safetensors")
    print(f"{options.student}: {network.card['validation']}, ratio test {validation.ratio_test()}")


if __name__ == "__main__":
    run_script(main)
