"""Write a model as the folder that model hubs expect: config.json, model.safetensors, README.md."""

import json
from collections.abc import Mapping
from pathlib import Path

from matchkernel.model.descriptors import Descriptor
from matchkernel.model.weights import load, save
from matchkernel.runtime.hub import CONFIG, LIBRARY, MODEL, README, write_config
from matchkernel.runtime.weights import Card, read_weights
from matchkernel.storage.files import check_folder, replacing

LICENCES = ("apache-2.0", "bsd-2-clause", "bsd-3-clause", "cc-by-4.0", "cc-by-nc-4.0", "cc-by-sa-4.0", "cc0-1.0", "mit")
USE = """```python
import matchkernel

found = matchkernel.match_images("a.jpg", "b.jpg", "hf://OWNER/NAME")
model = matchkernel.from_pretrained("hf://OWNER/NAME")
```"""


def save_pretrained(model: Descriptor, folder: str | Path, card: Card | Mapping[str, str] | None = None) -> None:
    """Write a model as a folder to be uploaded to a model hub: config.json, model.safetensors, README.md.

    Args:
        model: the descriptor.
        folder: where to; made if it does not exist. Other files in it stay.
        card: as for `save`; the README is made from it, and its head says the licence to the hub.

    Example:
        >>> import matchkernel, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> matchkernel.save_pretrained(matchkernel.load("tiny"), folder.name)
        >>> matchkernel.from_pretrained(folder.name).name
        'tiny'
        >>> folder.cleanup()
    """
    folder = Path(folder)
    check_folder(folder)
    save(model, folder / MODEL, card)
    stored = read_weights(folder / MODEL)
    texts = {CONFIG: write_config(model.name, model.config), README: _readme(model.name, stored.card)}
    for name, text in texts.items():
        with replacing(folder / name) as part:
            part.write_text(f"{text}\n", encoding="utf-8")


def from_pretrained(
    name_or_folder: str | Path, *, patch_size: int | None = None, revision: str | None = None
) -> Descriptor:
    """The model of such a folder, or of hf://owner/name on a hub; another name of `load`.

    Example: see save_pretrained.
    """
    return load(name_or_folder, patch_size=patch_size, revision=revision)


def _readme(name: str, card: Card) -> str:
    """The card in words, under the head that hubs read."""
    known = (card.licence or "").replace(",", " ").lower().split()
    licence = known[0] if known and known[0] in LICENCES else "other"
    head = {"library_name": LIBRARY, "license": licence, "pipeline_tag": "image-feature-extraction"}
    lines = ["---", *(f"{key}: {value}" for key, value in head.items())]
    lines += ["tags:", "- image-matching", "- local-descriptors", "---", "", f"# {name}", ""]
    lines += [
        "A local descriptor of image patches, of matchkernel (`pip install matchkernel`).",
        "",
        USE,
        "",
    ]
    assert card.config is not None  # read from a file
    facts = {
        "Configuration": json.dumps(card.config.to_dict(), sort_keys=True),
        "Licence": card.licence,
        "Trained on": card.trained_on,
        "Updates": card.step,
        "Seed": card.training_seed,
        "Largest distance of a match": card.match_threshold,
        "Largest ratio of a match": card.match_ratio,
        "Trained by": card.command,
        **card.metrics,
    }
    return "\n".join(lines + [f"- {key}: {value}" for key, value in facts.items() if value is not None])
