"""Weight files: safetensors whose metadata hold the configuration and a digest. Saving, loading, named weights."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from matchkernel.errors import ArgumentError, ArgumentTypeError, MatchKernelError, WeightsError
from matchkernel.model.config import VARIANTS, DescriptorConfig
from matchkernel.model.descriptors import Descriptor, why_size_is_fixed
from matchkernel.storage.tensors import digest, first_not_finite, readable, write_tensors

SHIPPED = Path(__file__).parent / "trained"  # <name>.safetensors each
NORMALIZATION = "per patch: (x - mean) / (std + 1e-7)"
AT_SIZE = "statistics."  # names of BatchNorm statistics by patch size: statistics.48.<name>
OWN_KEYS = ("format", "config", "normalization", "sha256")
FLOATS = ("F16", "BF16", "F32", "F64")  # as safetensors calls them


def save(model: Descriptor, path: str | Path, card: Mapping[str, str] | None = None) -> None:
    """Write a model's weights with its configuration, atomically.

    Args:
        model: the descriptor; not a folded copy, from which the learned tensors cannot be had back. Statistics of
            several patch sizes are written too, unless the model was trained on since they were measured.
        path: file to write, .safetensors.
        card: further words to keep in the file, such as `licence` and `trained_on` (default: those of the file the
            model was loaded from; give {} or words of your own for weights that were changed since).
    """
    if not isinstance(model, Descriptor):
        raise ArgumentTypeError(f"a matchkernel Descriptor can be saved, got {type(model).__name__}")
    if model.is_folded:
        raise ArgumentError("a folded model cannot be saved: save the model it was folded from")
    card = model.card if card is None else card
    if not all(isinstance(word, str) for entry in card.items() for word in entry):
        raise ArgumentTypeError("the card may hold words only: strings to strings")
    taken = [key for key in card if key in OWN_KEYS]
    if taken:
        raise ArgumentError(f"the card may not hold {', '.join(taken)}: save writes that itself")
    named = dict(model.state_dict())
    for size, statistics in model.current_size_statistics().items():
        named |= {f"{AT_SIZE}{size}.{name}": tensor.clone() for name, tensor in statistics.items()}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in named.items()}
    bad = _bad_numbers(tensors)
    if bad:
        raise ArgumentError(f"the model holds {bad}: not saved")
    config = json.dumps(model.config.to_dict(), sort_keys=True)
    metadata = {"format": "pt", "config": config, "normalization": NORMALIZATION, **card}
    write_tensors(path, tensors, metadata)


def load(name_or_path: str | Path, *, patch_size: int | None = None) -> Descriptor:
    """Read a descriptor, ready for inference (eval mode, on the CPU). Nothing is downloaded and no code is run.

    Args:
        name_or_path: a name of `available()`, or a .safetensors file.
        patch_size: another size to stand ready for than the one trained at; not for `fc` and `concat`. Where the model
            was trained at this size too, BatchNorm takes its statistics of this size.
    """
    path = _find(name_or_path)
    with readable(path):
        metadata, tensors, config = _read(path)
    if metadata.get("sha256") != digest(metadata, tensors):
        raise WeightsError(f"{path}: damaged, its contents do not match the sha256 it carries; fetch or save it again")
    bad = _bad_numbers(tensors)
    if bad:
        raise WeightsError(f"{path}: holds {bad}")
    if patch_size is not None and patch_size != config.patch_size:
        config = _at_size(config, patch_size, path)
    model = _empty(config).to_empty(device="cpu").to(next(iter(tensors.values())).dtype)
    model.load_state_dict({name: tensor for name, tensor in tensors.items() if not name.startswith(AT_SIZE)})
    model.size_statistics = _size_statistics(tensors)
    if patch_size is not None:
        model.use_statistics(patch_size)
    model.name, model.card = path.stem, {key: word for key, word in metadata.items() if key not in OWN_KEYS}
    return model.eval()


def read_card(name_or_path: str | Path) -> dict[str, str]:
    """The metadata of a weight file without its tensors: config, licence, what it was trained on."""
    path = _find(name_or_path)
    with readable(path), safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def available() -> list[str]:
    """Names of the trained weights that came with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.safetensors"))


def _find(name_or_path: str | Path) -> Path:
    shipped = SHIPPED / f"{name_or_path}.safetensors"
    if str(name_or_path) in available():
        return shipped
    path = Path(name_or_path)
    with suppress(OSError):  # a name too long for the file system is no file
        if path.is_file():
            return path
    names = ", ".join(available()) or "none yet"
    hint = (
        f"; matchkernel.build({str(name_or_path)!r}) makes an untrained one, --untrained where a command has it"
        if str(name_or_path) in VARIANTS
        else "; `matchkernel info` lists the descriptors and the weights there are"
    )
    raise WeightsError(
        f"{name_or_path}: no such file and no weights of that name in the package (there: {names}){hint}"
    )


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor], DescriptorConfig]:
    """Metadata, tensors and configuration. The tensors are read only after names and shapes were found to fit."""
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata() or {})
        if "config" not in metadata or "sha256" not in metadata:
            raise WeightsError(f"{path}: a safetensors file, but not one of matchkernel's (no configuration in it)")
        try:
            settings = json.loads(metadata["config"])
            config = DescriptorConfig.from_dict(settings)
            model = _empty(config)
        except (ValueError, TypeError, AttributeError, RecursionError, MatchKernelError) as error:
            raise WeightsError(f"{path}: its configuration cannot be used ({error})") from None
        wanted = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
        found = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (not a dict)
        if VARIANTS[config.variant].any_size:
            for size in _sizes(found):
                wanted |= {f"{AT_SIZE}{size}.{name}": list(tensor.shape) for name, tensor in model.statistics().items()}
        difference = _difference(wanted, found)
        if difference:
            raise WeightsError(f"{path}: does not hold the weights of {config.variant!r}, as it says: {difference}")
        for name in wanted:
            kind = file.get_slice(name).get_dtype()
            fitting = ("I64",) if name.endswith(".num_batches_tracked") else FLOATS
            if kind not in fitting:
                raise WeightsError(f"{path}: tensor {name} is of kind {kind}, wanted {' or '.join(fitting)}")
        return metadata, {name: file.get_tensor(name) for name in wanted}, config


def _bad_numbers(tensors: Mapping[str, Tensor]) -> str:
    """What a model of these tensors, all in the precision of the first, could not describe with."""
    dtype = next(iter(tensors.values())).dtype
    bad = first_not_finite({name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()})
    if bad:
        return f"NaN or infinite numbers in {bad}, as {dtype}"
    bad = next((name for name, t in tensors.items() if name.endswith(".running_var") and bool((t < 0).any())), None)
    return f"negative variances in {bad}" if bad else ""


def _sizes(names: Iterable[str]) -> list[int]:
    """The patch sizes of which a file has statistics; a name that tells none is left to be one too many."""
    found = {match[1] for name in names if (match := re.match(rf"{re.escape(AT_SIZE)}([1-9]\d{{0,3}})\.", name))}
    return sorted(map(int, found))


def _size_statistics(tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Patch size -> name in the state dict -> statistics."""
    prefixes = {size: f"{AT_SIZE}{size}." for size in _sizes(tensors)}
    return {
        size: {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        for size, prefix in prefixes.items()
    }


def _empty(config: DescriptorConfig) -> Descriptor:
    with torch.device("meta"):
        return Descriptor(config)


def _difference(wanted: dict[str, list[int]], found: dict[str, list[int]]) -> str:
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            return f"tensor {name} is missing"
        if name not in wanted:
            return f"tensor {name[:80]!r} is one too many"
        if wanted[name] != found[name]:
            return f"tensor {name} has shape {found[name]}, wanted {wanted[name]}"
    return ""


def _at_size(config: DescriptorConfig, patch_size: int, path: Path) -> DescriptorConfig:
    if not VARIANTS[config.variant].any_size:
        raise WeightsError(f"{path}: {why_size_is_fixed(config)}, asked for {patch_size} px")
    return dataclasses.replace(config, patch_size=patch_size)


def state_digest(model: Descriptor) -> str:
    """sha256 of what a model computes: its configuration and tensors, whatever its card says."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    return digest({"config": str(model.config.to_dict())}, tensors)
