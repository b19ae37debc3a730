"""Patches and weight files for tests of baselines."""

import struct
from collections import OrderedDict
from pathlib import Path

import cv2
import numpy as np
import torch

DESDIS = {f"desdis-{width}": f"desdis-{width}.pth" for width in (8, 16, 24, 32)}
OTHERS = {"deepdesc": "deepdesc-split4.t7", "binboost": "binboost-256.bin"}  # not files of torch.save
FILES = {"tfeat": "tfeat-liberty.params", "hardtfeat": "HardTFeat.pth", **OTHERS, **DESDIS} | dict.fromkeys(
    ("mkd-liberty", "mkd-notredame", "mkd-yosemite"), "mkd-concat-64.pth"
)


def made_patches():
    """(200, 65, 65) random textures with some blur."""
    noise = np.random.default_rng(0).uniform(0, 255, (200, 65, 65)).astype(np.float32)
    smooth = np.stack([cv2.GaussianBlur(patch, (0, 0), 2.5) for patch in noise])
    return np.clip((smooth - 127) * 8 + 127, 0, 255).astype(np.uint8)


def write_weights(folder: Path) -> None:
    """Random numbers of a trained network's size in the layout of the published files (see test_reference_data.py)."""
    generator = np.random.default_rng(0)

    def filled(**shapes: tuple[int, ...]) -> OrderedDict[str, torch.Tensor]:
        """Weights by name, with __ for a dot; their spread follows from the number of inputs."""
        tensors = OrderedDict()
        for name, shape in shapes.items():
            spread = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1
            tensors[name.replace("__", ".")] = torch.from_numpy(generator.normal(0, spread, shape)).float()
        return tensors

    def whitening() -> dict[str, torch.Tensor]:
        vectors = np.linalg.qr(generator.normal(size=(238, 238)))[0]
        arrays = {"mean": generator.uniform(0, 0.05, 238), "eigvecs": vectors, "eigvals": np.geomspace(0.5, 5e-5, 238)}
        return {name: torch.from_numpy(array).float() for name, array in arrays.items()}

    tfeat = filled(
        features__1__weight=(32, 1, 7, 7), features__1__bias=(32,), features__4__weight=(64, 32, 6, 6),
        features__4__bias=(64,), descr__0__weight=(128, 4096), descr__0__bias=(128,),
    )  # fmt: skip
    hardtfeat = filled(
        features__0__weight=(32, 1, 7, 7), features__0__bias=(32,), features__3__weight=(64, 32, 6, 6),
        features__3__bias=(64,), classifier__1__weight=(128, 64, 8, 8), classifier__1__bias=(128,),
        SIFT__gx__0__weight=(1, 1, 1, 3), SIFT__gy__0__weight=(1, 1, 3, 1), SIFT__pk__0__weight=(1, 1, 11, 11),
    )  # fmt: skip
    affnet = OrderedDict()
    for layer, (inputs, outputs) in enumerate([(1, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64)]):
        affnet[f"features.{3 * layer}.weight"] = torch.zeros(outputs, inputs, 3, 3)
        affnet[f"features.{3 * layer + 1}.running_mean"] = torch.zeros(outputs)
        affnet[f"features.{3 * layer + 1}.running_var"] = torch.ones(outputs)
    affnet |= {"features.19.weight": torch.zeros(3, 64, 8, 8), "features.19.bias": torch.zeros(3)}
    for name, content in {
        "tfeat-liberty.params": tfeat,
        "HardTFeat.pth": {"epoch": 2, "state_dict": hardtfeat},
        "mkd-concat-64.pth": {
            scene: {kind: whitening() for kind in ("pca", "lw")} for scene in ("liberty", "notredame", "yosemite")
        },
        "AffNet.pth": {"epoch": 20, "state_dict": affnet},
    }.items():
        path = folder / name
        torch.save(content, path, _use_new_zipfile_serialization=False)
        if not name.startswith("mkd"):  # the published networks were saved on a GPU
            path.write_bytes(path.read_bytes().replace(b"X\3\0\0\0cpu", b"X\6\0\0\0cuda:0"))
    for name, file in DESDIS.items():
        width = int(name.removeprefix("desdis-"))
        desdis = filled(desc__1__weight=(128, 4 * width, 4, 4), desc__1__bias=(128,))
        for layer, norm, inputs, outputs in (
            ("layer1.1", "layer1.2", 1, width), ("layer2.0", "layer2.1", width, 2 * width),
            ("layer3.0", "layer3.1", 2 * width, 4 * width), ("layer3.3", "layer3.4", 4 * width, 4 * width),
            (None, "desc.2", None, 128),
        ):  # fmt: skip
            if layer:
                desdis |= filled(**{f"{layer}.weight": (outputs, inputs, 3, 3)})
            desdis |= filled(**{f"{norm}.running_mean": (outputs,)})
            desdis[f"{norm}.running_var"] = torch.from_numpy(generator.uniform(0.5, 2, outputs)).float()
            desdis[f"{norm}.num_batches_tracked"] = torch.tensor(1)
        torch.save(desdis, folder / file)
    (folder / OTHERS["deepdesc"]).write_bytes(torch7_bytes(made_deepdesc(filled)))
    (folder / OTHERS["binboost"]).write_bytes(made_binboost(generator).tobytes())


def made_deepdesc(filled):
    """What a file of DeepDesc contains, as far as it is read: dictionaries for tables, (class, fields) for objects."""

    def convolution(*shape):
        weights = filled(weight=shape, bias=shape[:1])
        return "nn.SpatialConvolution", {**weights, "kW": float(shape[-1])}

    def centred(channels):
        weight = filled(weight=(1, channels, 5, 5))["weight"].abs()
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


def hamming(a, b):
    """(K, K) counts of differing bits, by table."""
    ones = np.array([bin(byte).count("1") for byte in range(256)])
    return np.stack([ones[row ^ b].sum(1) for row in a])


def distances(method, a, b):
    if method.distance == "hamming":
        return hamming(a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T


def rank_1(method, strips, names):
    """The share of reference patches whose nearest one is their own, for each of these strips."""
    reference = method.describe(strips["ref"])
    found = [distances(method, reference, method.describe(strips[name])).argmin(1) for name in names]
    return [float((nearest == np.arange(len(reference))).mean()) for nearest in found]
