"""Methods to score: models of this package, and baselines by name."""

import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

from matchkernel.data.patch_set import PatchSet, open_patch_set, training_entries
from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.evaluation.baselines.kornia import MKD_SETS, hard_tfeat, mkd, mkd_published, network
from matchkernel.evaluation.baselines.opencv import OPENCV, opencv
from matchkernel.evaluation.method import RESIZED, Method
from matchkernel.model.describe import describe
from matchkernel.model.engines.choose import open_engine
from matchkernel.model.weights import load
from matchkernel.runtime.config import TORCH, DescriptorConfig
from matchkernel.runtime.weights import Card, available, listed_names
from matchkernel.storage.work import Progress

UNKNOWN = "the training set of these weights is not known; it may include what is scored here"
UNKNOWN_FROM = "they learned from {}, whose training set is not known; it may include what is scored here"
WITH_FILE: dict[str, Callable[[Path], Method]] = {
    **{f"mkd-{name}": partial(mkd_published, name) for name in MKD_SETS},
    "tfeat": partial(network, "tfeat", "TFeat"),
    "hardtfeat": hard_tfeat,
}
BASELINES = (*OPENCV, "mkd", *WITH_FILE)
# Training sets of learned numbers that are the same in every copy of a method.
TRAINED_ON = {
    **{f"mkd-{name}": name for name in MKD_SETS},
    "vgg": "liberty, notredame", "beblid": "liberty", "teblid": "liberty",
}  # fmt: skip
# Baselines that are no longer part of the package, and where they are now.
MOVED = {
    "deepdesc": "experiments.baselines.deepdesc:deepdesc",
    "binboost": "experiments.baselines.binboost:binboost",
    **{f"desdis-{width}": f"experiments.baselines.desdis:desdis_{width}" for width in (8, 16, 24, 32)},
}
KORNIA = "kornia:"


def baseline(
    name: str,
    *,
    weights: str | Path | None = None,
    trained_on: str | None = None,
    training_set: PatchSet | None = None,
) -> Method:
    """Open a third-party descriptor. Nothing is downloaded, and no code in a weight file is executed.

    Args:
        name: one of BASELINES; `kornia:` followed by a patch network of kornia.feature, such as `kornia:HardNet`; or
            `package.module:function`, a function that takes the weight file, if one is given, and returns a Method.
            The module may lie in the current folder.
        weights: its weight file: `tfeat-liberty.params` for tfeat, `HardTFeat.pth` for hardtfeat, `mkd-concat-64.pth`
            (the published whitening) for mkd-liberty, -notredame and -yosemite, a checkpoint for kornia:...
        trained_on: the training sets of these weights, separated by commas; None if unknown.
        training_set: for mkd only, the patches to learn its whitening on.
    """
    found = _open_baseline(name, weights, training_set)
    own = TRAINED_ON.get(name) if training_set is None else training_set.folder.resolve().name
    train_set = _agreed(trained_on, own, f"{weights}: {name}")
    facts = {**found.facts, **({"train_set": train_set} if train_set else {})}
    found = replace(found, facts=facts, warnings=(UNKNOWN,) if weights is not None and not train_set else ())
    return found.that_learned_from(training_entries(training_set) if training_set else (), listed_names(train_set))


def _open_baseline(name: str, weights: str | Path | None, training_set: PatchSet | None) -> Method:
    """The method without its training set; refuses unknown names and files that do not go with the name."""
    if name in MOVED:
        raise ArgumentError(f"{name} is no longer part of the package: in a checkout of its source, give {MOVED[name]}")
    open_file = partial(network, name, name.removeprefix(KORNIA)) if name.startswith(KORNIA) else WITH_FILE.get(name)
    if name == "mkd":
        if training_set is not None and weights is None:
            return mkd(training_set.patches)
        raise ArgumentError("mkd needs patches to learn its whitening on, and nothing else (--training-set)")
    if training_set is not None:
        raise ArgumentError(f"{name} learns nothing from patches: drop --training-set")
    if open_file is not None:
        if weights is None:
            raise ArgumentError(f"{name} needs a weight file (--baseline-weights)")
        return open_file(Path(weights))
    if ":" in name:
        return _call(name, () if weights is None else (Path(weights),))
    if name not in OPENCV or weights is not None:
        listed = ", ".join([*BASELINES, f"{KORNIA}<class>"])
        wrong = f"no baseline {name!r}" if weights is None else f"no baseline {name!r} that has a weight file"
        raise ArgumentError(f"{wrong}; there are {listed} and <package.module>:<function>")
    return opencv(name)


def _call(text: str, arguments: tuple[Path, ...]) -> Method:
    """The method that a function returns, given as `package.module:function`."""
    module, _, name = text.partition(":")
    before = sys.path.copy()
    try:
        sys.path.append(os.getcwd())  # noqa: PTH109 - a string is wanted; a console script does not search here
        function = getattr(import_module(module), name)
        inspect.signature(function).bind(*arguments)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(f"{text}: cannot be imported ({error})") from None
    except TypeError as error:
        raise ArgumentError(f"{text}: must be a function of its weight file, --baseline-weights ({error})") from None
    finally:
        sys.path[:] = before
    method = function(*arguments)
    if not isinstance(method, Method):
        raise ArgumentTypeError(f"{text}: must return a Method, got {type(method).__name__}")
    return method


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
    """Methods to score: models (see model_methods), or one baseline (see baseline).

    `baseline_weights` are the training set of its weight file, if known, and the file; `training_set` is the folder of
    a patch set for it to learn from; `name` is its name in tables.
    """
    if bool(models) == bool(baseline_name):
        raise ArgumentError("give either a model (--model) or a baseline (--baseline) to score")
    if baseline_name:
        sets, weights = baseline_weights or (None, None)
        patches = None if training_set is None else open_patch_set(training_set)
        found = baseline(baseline_name, weights=weights, trained_on=sets, training_set=patches)
        return [replace(found, name=name or found.name)]
    if baseline_weights or training_set:
        raise ArgumentError("--baseline-weights and --training-set need --baseline; a model has its own weights")
    return model_methods(models, name=name, device=device, engine=engine)


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
        method = _model_method(train_set, weights, name, device, engine)
        configuration, sets = method.facts["configuration"], method.facts.get("train_set")
        method.facts.setdefault("seed", places[configuration, sets])
        places[configuration, sets] += 1
        same = ("train_set", "seed", "configuration")
        rivals = [other for other in methods if other.name == method.name]
        if any(all(other.facts.get(key) == method.facts.get(key) for key in same) for other in rivals):
            where = f"{configuration}, trained on {sets or '(not recorded)'}"
            raise ArgumentError(f"{weights}: a second one of {where}, seed {method.facts['seed']}")
        if name and methods and methods[0].facts["configuration"] != configuration:
            both = f"{methods[0].facts['configuration']} and {configuration}"
            raise ArgumentError(f"{name!r} (--name) would stand for two configurations, {both}")
        methods.append(method)
    return methods


def _model_method(
    train_set: str | None, weights: str | Path, name: str | None, device: str | None, engine: str
) -> Method:
    """A model; its facts have a seed if the weight file records it."""
    model = load(weights)
    runner = open_engine(model, engine, device=device or "cpu")
    card = model.card
    train_set = _agreed(train_set, card.trained_on or ", ".join(dict(card.training_sets)), f"{weights}: its card")
    configuration = configuration_name(model.config)
    facts = {
        "configuration": configuration,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "hand_crafted": False,
        "weights": Path(weights).name,
        "settings": {"patch": f"{model.config.patch_size} px, {RESIZED}", "sha256": card.sha256, **runner.settings},
        **({"train_set": train_set} if train_set else {}),
        **({} if card.training_seed is None else {"seed": card.training_seed}),
        **({"recipe": card.recipe} if card.recipe else {}),
    }

    def compute(patches: np.ndarray, progress: Progress | None) -> np.ndarray:
        return describe(patches, model, resize=True, engine=runner, progress=progress)

    own = str(weights) if str(weights) in available() else configuration
    method = Method(name or own, "l2", facts, compute, warnings=unknown_sets(card, train_set))
    return method.that_learned_from(card.seen_sets, listed_names(train_set))


def unknown_sets(card: Card, train_set: str | None = None) -> tuple[str, ...]:
    """Warnings that weights may have learned from what they are scored on; `train_set` is what is known beside it."""
    unknown = [UNKNOWN] * (not card.set_names and not train_set)
    return (*unknown, *[UNKNOWN_FROM.format(card.unknown_from)] * bool(card.unknown_from))


def _agreed(given: str | None, recorded: str | None, source: str) -> str | None:
    """The training sets as given or as recorded in the file; refuses two answers that differ."""
    if given and recorded and set(listed_names(given)) != set(listed_names(recorded)):
        raise ArgumentError(f"{source} says it was trained on {recorded}, not on {given}: drop the prefix {given}=")
    return ", ".join(listed_names(recorded or given)) or None


def configuration_name(config: DescriptorConfig) -> str:
    """The name of a configuration in tables: variant, s if it has one, patch size, and settings that are not default.

    Settings that are the variant's own defaults are left out, so that two configurations never share a name.
    """
    plain = DescriptorConfig(config.variant, s=config.s, patch_size=config.patch_size, d=config.d).to_dict()
    others = [f"{key}={value}" for key, value in config.to_dict().items() if plain.get(key) != value]
    others += [] if config.d == DescriptorConfig().d else [f"d={config.d}"]
    s = [] if config.s is None else [f"s{config.s}"]
    return "-".join([config.variant, *s, f"n{config.patch_size}", *others])
