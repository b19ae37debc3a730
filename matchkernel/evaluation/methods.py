"""Methods to score: models and baselines that describe patches, and what their results record about them."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.data.patch_set import PatchSet, known_names, open_patch_set, patches_sha256
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.baselines.baseline import RESIZED
from matchkernel.evaluation.baselines.by_name import TRAINED_ON, baseline
from matchkernel.evaluation.distances import DISTANCES
from matchkernel.model.describe import describe
from matchkernel.model.engines.choose import open_engine
from matchkernel.model.weights import load
from matchkernel.photos.nearest import Distance
from matchkernel.runtime.card import available, listed_names
from matchkernel.runtime.config import DescriptorConfig
from matchkernel.runtime.engine import TORCH
from matchkernel.storage.progress import Progress

Planned = Callable[[Sequence[dict[str, Any]]], object]  # called with the settings of each result before the work starts
UNKNOWN = "the training set of these weights is not known; it may include this test set"


@dataclass(frozen=True)
class Method:
    """A descriptor to be scored."""

    name: str
    distance: Distance  # the distance it was made for
    facts: dict[str, Any]  # what its results contain in addition to the scores: parameters, settings, ...
    compute: Callable[[np.ndarray, Progress | None], np.ndarray] = field(repr=False)
    trained_on: frozenset[str] = frozenset()  # names of sets it must not be tested on
    trained_sha256: frozenset[str] = frozenset()  # sha256 of the patches of these sets, to recognise renamed copies
    warnings: tuple[str, ...] = ()  # to be repeated in every result

    def describe(self, patches: np.ndarray, progress: Progress | None = None) -> np.ndarray:
        """Describe patches; a patch that cannot be described gets a row of zeros.

        Args:
            patches: (K, N, N) uint8, of any size.
            progress: called with the number of patches done and their total.

        Returns:
            (K, D) float32, or (K, D / 8) uint8 for a binary descriptor.
        """
        return self.compute(patches, progress)

    def was_trained_on(self, name: str, patches: PatchSet) -> bool:
        """Whether a test set is or contains one of its training sets, by name, scene or sha256 of the patches."""
        names = {name, *known_names(patches)}
        return not (self.trained_on.isdisjoint(names) and self.trained_sha256.isdisjoint(patches_sha256(patches)))


def chosen_distance(name: str, own: Distance, wanted: Distance | None) -> Distance:
    """The requested distance, or the descriptor's own; refuses Hamming for numbers and other distances for bits."""
    if wanted is not None and wanted not in DISTANCES:
        raise ArgumentError(f"distance must be one of {', '.join(DISTANCES)}, got {wanted!r}")
    if wanted is not None and (wanted == "hamming") != (own == "hamming"):
        kind = "bits, which need" if own == "hamming" else "numbers, which have no"
        raise ArgumentError(f"{name} gives {kind} Hamming distance, got {wanted}")
    return wanted or own


def choose_methods(
    models: Sequence[tuple[str | None, str | Path]] = (),
    baseline_name: str | None = None,
    baseline_weights: tuple[str | None, str | Path] | None = None,
    training_set: Path | None = None,
    *,
    name: str | None = None,
    device: str | None = None,
    engine: str = TORCH,
) -> list[Method]:
    """Methods to score: models or one baseline.

    Args:
        models: see model_methods.
        baseline_name: see baseline_method.
        baseline_weights: training set of its weight file, if known, and the file.
        training_set: patch set for it to learn from.
        name: its name in tables (default: its own).
        device: where models run, as in `describe`.
        engine: what computes them, as in `describe`.
    """
    if bool(models) == bool(baseline_name):
        raise ArgumentError("give either a model (--model) or a baseline (--baseline) to score")
    if baseline_name:
        told, file = baseline_weights or (None, None)
        weights = None if file is None else Path(file)
        return [baseline_method(baseline_name, weights=weights, trained_on=told, training_set=training_set, name=name)]
    if baseline_weights or training_set:
        raise ArgumentError("--baseline-weights and --training-set need --baseline; a model has its own weights")
    return model_methods(models, name=name, device=device, engine=engine)


def baseline_method(
    baseline_name: str,
    *,
    weights: Path | None = None,
    trained_on: str | None = None,
    training_set: Path | None = None,
    name: str | None = None,
) -> Method:
    """A third-party descriptor.

    Args:
        baseline_name: see `baseline`.
        weights: its weight file, if it has one.
        trained_on: the training sets of these weights, separated by commas; None if unknown.
        training_set: for mkd, the patch set to learn its whitening on.
        name: its name in tables (default: its own).
    """
    patches = None if training_set is None else open_patch_set(training_set)
    found = baseline(baseline_name, weights=weights, training_patches=None if patches is None else patches.patches)
    own = TRAINED_ON.get(baseline_name) if patches is None else patches.folder.resolve().name
    train_set = _agreed(trained_on, own, f"{weights}: {baseline_name}")
    facts = {"parameters": found.parameters, "hand_crafted": found.hand_crafted, "settings": dict(found.settings)}
    if train_set:
        facts["train_set"] = train_set
    return Method(
        name or found.name,
        found.distance,
        facts,
        lambda patches, progress: found.describe(patches, progress),
        frozenset(listed_names(train_set)),
        frozenset() if patches is None else patches_sha256(patches),
        (UNKNOWN,) if weights is not None and not train_set else (),
    )


def model_methods(
    models: Sequence[tuple[str | None, str | Path]],
    *,
    name: str | None = None,
    device: str | None = None,
    engine: str = TORCH,
) -> list[Method]:
    """Models of this package.

    Args:
        models: training set and weights (a name, or a .safetensors file) of each. If the training set is None, the one
            recorded in the weight file is used, if any. The seed is the recorded one, else the position among the
            weights of the same configuration and training set.
        name: their name in tables (default: the name of the shipped weights, else the configuration).
        device: where to run, as in `describe`.
        engine: what computes them, as in `describe`.
    """
    methods: list[Method] = []
    places: Counter[tuple[str, str | None]] = Counter()
    for train_set, weights in models:
        method = _model_method(train_set, weights, name, (device, engine), places)
        key = ("train_set", "seed", "configuration")
        twin = next((m for m in methods if all(m.facts.get(k) == method.facts.get(k) for k in key)), None)
        if twin is not None:
            where = f"{method.facts['configuration']}, trained on {method.facts.get('train_set', '(not recorded)')}"
            raise ArgumentError(f"{weights}: a second one of {where}, seed {method.facts['seed']}")
        if name and methods and methods[0].facts["configuration"] != method.facts["configuration"]:
            both = f"{methods[0].facts['configuration']} and {method.facts['configuration']}"
            raise ArgumentError(f"{name!r} (--name) would stand for two configurations, {both}")
        methods.append(method)
    return methods


def _model_method(
    train_set: str | None,
    weights: str | Path,
    name: str | None,
    where: tuple[str | None, str],
    places: Counter[tuple[str, str | None]],
) -> Method:
    model, (device, engine) = load(weights), where
    runner = open_engine(model, engine, device=device or "cpu")
    card = model.card
    train_set = _agreed(train_set, card.trained_on or ", ".join(dict(card.training_sets)), f"{weights}: its card")
    configuration = configuration_name(model.config)
    place = places[configuration, train_set]
    places[configuration, train_set] += 1
    facts = {
        "configuration": configuration,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "hand_crafted": False,
        "seed": place if (seed := card.training_seed) is None else seed,
        "weights": Path(weights).name,
        "settings": {"patch": f"{model.config.patch_size} px, {RESIZED}", "sha256": card.sha256, **runner.settings},
        **({"train_set": train_set} if train_set else {}),
    }

    def compute(patches: np.ndarray, progress: Progress | None) -> np.ndarray:
        return describe(patches, model, resize=True, engine=runner, progress=progress)

    names = card.set_names | frozenset(listed_names(train_set))
    hashes = frozenset(sha for _, sha in card.training_sets if sha)
    warnings = () if names else (UNKNOWN,)
    own = str(weights) if str(weights) in available() else configuration
    return Method(name or own, "l2", facts, compute, names, hashes, warnings)


def _agreed(told: str | None, own: str | None, who: str) -> str | None:
    """The training sets as given or as recorded in the file; refuses two answers that differ."""
    if told and own and set(listed_names(told)) != set(listed_names(own)):
        raise ArgumentError(f"{who} says it was trained on {own}, not on {told}: drop the prefix {told}=")
    return ", ".join(listed_names(own or told)) or None


def configuration_name(config: DescriptorConfig) -> str:
    """The name of a configuration in tables: variant, s if it has one, patch size, and settings that are not default.

    Settings that are the variant's own defaults are left out, so that two configurations never share a name.
    """
    plain = DescriptorConfig(config.variant, s=config.s, patch_size=config.patch_size, d=config.d).to_dict()
    others = [f"{key}={value}" for key, value in config.to_dict().items() if plain.get(key) != value]
    others += [] if config.d == DescriptorConfig().d else [f"d={config.d}"]
    s = [] if config.s is None else [f"s{config.s}"]
    return "-".join([config.variant, *s, f"n{config.patch_size}", *others])
