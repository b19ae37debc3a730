"""Weight files for tests of experiments/baselines, in the layout of the published ones."""

import struct
from pathlib import Path

import numpy as np
import torch
from made_baselines import filled

DESDIS = {f"desdis-{width}": f"desdis-{width}.pth" for width in (8, 16, 24, 32)}
PAPER_FILES = {"deepdesc": "deepdesc-split4.t7", "binboost": "binboost-256.bin", **DESDIS}


def write_paper_weights(folder: Path) -> None:
    """Random numbers of a trained network's size."""
    generator = np.random.default_rng(0)
    for name, file in DESDIS.items():
        width = int(name.removeprefix("desdis-"))
        desdis = filled(generator, desc__1__weight=(128, 4 * width, 4, 4), desc__1__bias=(128,))
        for layer, norm, inputs, outputs in (
            ("layer1.1", "layer1.2", 1, width), ("layer2.0", "layer2.1", width, 2 * width),
            ("layer3.0", "layer3.1", 2 * width, 4 * width), ("layer3.3", "layer3.4", 4 * width, 4 * width),
            (None, "desc.2", None, 128),
        ):  # fmt: skip
            if layer:
                desdis |= filled(generator, **{f"{layer}.weight": (outputs, inputs, 3, 3)})
            desdis |= filled(generator, **{f"{norm}.running_mean": (outputs,)})
            desdis[f"{norm}.running_var"] = torch.from_numpy(generator.uniform(0.5, 2, outputs)).float()
            desdis[f"{norm}.num_batches_tracked"] = torch.tensor(1)
        torch.save(desdis, folder / file)
    (folder / PAPER_FILES["deepdesc"]).write_bytes(torch7_bytes(made_deepdesc(generator)))
    (folder / PAPER_FILES["binboost"]).write_bytes(made_binboost(generator).tobytes())


def made_deepdesc(generator):
    """What a file of DeepDesc contains, as far as it is read: dictionaries for tables, (class, fields) for objects."""

    def convolution(*shape):
        weights = filled(generator, weight=shape, bias=shape[:1])
        return "nn.SpatialConvolution", {**weights, "kW": float(shape[-1])}

    def centred(channels):
        weight = filled(generator, weight=(1, channels, 5, 5))["weight"].abs()
        mean = ("nn.SpatialConvolution", {"weight": weight / weight.sum(), "bias": torch.zeros(1)})
        estimator = ("nn.Sequential", {"modules": {1.0: ("nn.SpatialZeroPadding", {}), 2.0: mean}})
        return "nn.SpatialSubtractiveNormalization", {"meanestimator": estimator}

    tanh = ("nn.Tanh", {"output": torch.zeros(0)})
    layers = [
        convolution(32, 1, 7, 7), tanh, ("nn.SpatialLPPooling", {"kW": 2.0}), centred(32),
        convolution(64, 32, 6, 6), tanh, ("nn.SpatialLPPooling", {"kW": 3.0}), centred(64),
        convolution(128, 64, 5, 5), tanh, ("nn.SpatialLPPooling", {"kW": 4.0}), ("nn.Reshape", {"nelement": 128.0}),
    ]  # fmt: skip
    modules = {float(place): layer for place, layer in enumerate(layers, 1)}
    mean = torch.full((1, 64, 64), 120.0)
    return {"desc": ("nn.Sequential", {"modules": modules, "train": False}), "mean": mean, "std": mean / 2}


def torch7_bytes(content, references=None) -> bytes:
    """Torch 7's binary form of a made object; a tensor has a storage of its own."""
    references = [] if references is None else references

    def reference():
        references.append(None)
        return struct.pack("<i", len(references))

    def text(words):
        return struct.pack("<i", len(words.encode())) + words.encode()

    def of_class(name, fields):
        return struct.pack("<i", 4) + reference() + text("V 1") + text(name) + fields

    if content is None:
        return struct.pack("<i", 0)
    if isinstance(content, bool):
        return struct.pack("<ii", 5, content)
    if isinstance(content, float):
        return struct.pack("<id", 1, content)
    if isinstance(content, str):
        return struct.pack("<i", 2) + text(content)
    if isinstance(content, dict):
        head = struct.pack("<i", 3) + reference() + struct.pack("<i", len(content))
        return head + b"".join(torch7_bytes(part, references) for pair in content.items() for part in pair)
    if isinstance(content, tuple):
        return of_class(content[0], torch7_bytes(content[1], references))
    kind = {torch.float32: "Float", torch.float64: "Double", torch.int64: "Long"}[content.dtype]
    dimensions = content.ndim if content.numel() else 0
    own = reference()
    numbers = struct.pack("<q", content.numel()) + content.contiguous().numpy().tobytes()
    storage = of_class(f"torch.{kind}Storage", numbers) if dimensions else torch7_bytes(None)
    shape = [*content.shape, *content.contiguous().stride()] if dimensions else []
    fields = struct.pack(f"<i{len(shape)}qq", dimensions, *shape, 1) + storage
    return struct.pack("<i", 4) + own + text("V 1") + text(f"torch.{kind}Tensor") + fields


def made_binboost(generator, bits=256, each=32):
    """A file of BinBoost's tests as an array of bytes: random rectangles, directions and votes."""
    tests = np.zeros((bits, each, 8), "<f4")
    whole = tests.view("<i4")
    tests[..., 0] = generator.uniform(0.05, 0.2, (bits, each))
    whole[..., 1] = generator.integers(0, 8, (bits, each))
    for low, high in ((2, 3), (4, 5)):
        whole[..., low : high + 1] = np.sort(generator.integers(0, 32, (bits, each, 2)), axis=2)
    tests[..., 7] = generator.uniform(0, 1, (bits, each))
    head = np.array([bits, 8, 32, 2], "<i4").view(np.uint8)
    counts = np.full((bits, 1), each, "<i4").view(np.uint8)
    return np.concatenate([head, np.concatenate([counts, tests.reshape(bits, -1).view(np.uint8)], 1).ravel()])
