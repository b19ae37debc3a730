"""Folders in the layout of model hubs: config.json beside model.safetensors; and such folders from a hub itself."""

import json
from pathlib import Path
from typing import Any

from matchkernel.errors import MatchKernelError, WeightsError, short_message
from matchkernel.runtime.config import DescriptorConfig
from matchkernel.storage.extras import need
from matchkernel.storage.files import read_small_text

ADDRESS = "hf://"  # owner/name, and perhaps @revision, behind it
CONFIG, MODEL, README = "config.json", "model.safetensors", "README.md"
LIBRARY = "matchkernel"
CONFIG_BYTES = 2**20


def fetch(address: str) -> Path:
    """The file of weights of an hf:// address, downloaded by huggingface_hub unless its cache has it."""
    repository, at, revision = address.removeprefix(ADDRESS).partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")) or (at and not revision):
        raise WeightsError(f"{address}: a model of a hub is written hf://owner/name or hf://owner/name@revision")
    hub = need("huggingface_hub", "hub", f"reading {address}")
    try:
        found = [hub.hf_hub_download(repository, name, revision=revision or None) for name in (CONFIG, MODEL)]
    except Exception as error:  # of the network, of the server, of the library itself
        raise WeightsError(f"{address}: cannot be fetched ({short_message(error)})") from None
    return Path(found[-1])


def write_config(name: str, config: DescriptorConfig) -> str:
    """The contents of config.json."""
    return json.dumps({"library_name": LIBRARY, "name": name, "config": config.to_dict()}, indent=2, sort_keys=True)


def read_name(folder: Path, config: DescriptorConfig) -> str:
    """The name of the model in a folder; its config.json must agree with the weights' own configuration."""
    path = folder / CONFIG
    text = read_small_text(path, CONFIG_BYTES, what="the configuration of a model")
    try:
        values: Any = json.loads(text)
        name, stored = values["name"], DescriptorConfig.from_dict(values["config"])
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, MatchKernelError) as error:
        raise WeightsError(f"{path}: not the configuration of a model of {LIBRARY} ({short_message(error)})") from None
    if stored != config or not isinstance(name, str) or not name.isprintable() or len(name) > 200:
        raise WeightsError(f"{path}: does not belong to {MODEL} beside it; fetch or save both again")
    return name
