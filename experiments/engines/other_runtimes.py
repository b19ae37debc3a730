"""How fast other runtimes compute the int8 networks of the package on one thread of a CPU, and how far their rows are.

python experiments/engines/other_runtimes.py [MODEL ...]

Needs onnxruntime, and openvino or ncnn or both (pip install openvino ncnn). OpenVINO computes our own ONNX files;
ncnn, which has its own form, only the convolutions, with random weights, and one patch at a time. Patches are those of
a photo. Runtimes take turns; the shortest turn counts. Writes results/other_runtimes.json.
"""

import importlib
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from timing import processor

from matchkernel.data.sample_pair import FOLDER
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import extract_patches
from matchkernel.runtime import graph
from matchkernel.runtime.graph import INPUT, OUTPUT, Ranges, descriptor_file
from matchkernel.runtime.onnx import open_session, prepare_patches, ranges_file
from matchkernel.runtime.weights import Weights, fold, read_weights
from matchkernel.storage.files import write_json
from matchkernel.storage.pixels import as_gray

TARGET = Path(__file__).parents[1] / "results" / "other_runtimes.json"
SIDE, BATCHES, TURNS = 32, (8, 32, 64, 256), 25
INT8_WEIGHTS = 0x000D4B38  # ncnn's mark of weights in bytes
Run = Callable[[np.ndarray], np.ndarray]


def forms(weights: Weights) -> dict[str, bytes]:
    """The int8 graph as the package writes it, with a plain first convolution, and as it is for ARM."""
    folded, limits = fold(weights, SIDE), Ranges.read(ranges_file(weights.name)).limits
    made, widest = {"as shipped": descriptor_file(folded, {}, limits)}, graph.WIDEST
    graph.WIDEST = 0
    made["plain"] = descriptor_file(folded, {}, limits)
    graph.WIDEST = widest
    return made | {"for ARM": descriptor_file(folded, {}, limits, arm=True)}


def in_onnxruntime(content: bytes, batch: int) -> Run:
    """Of any number of patches."""
    del batch
    session = open_session(content, "the graph")
    return lambda values: np.asarray(session.run([OUTPUT], {INPUT: values})[0])


def in_openvino(content: bytes, batch: int) -> Run:
    """Compiled for one thread and this number of patches; what is not int8 stays in float32."""
    openvino: Any = importlib.import_module("openvino")
    core = openvino.Core()
    model = core.read_model(content, b"")
    model.reshape({0: [batch, 1, SIDE, SIDE]})
    limits = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(model, "CPU", limits).create_infer_request()

    def run(values: np.ndarray) -> np.ndarray:
        request.infer({0: values}, share_inputs=True)
        return np.asarray(request.get_output_tensor(0).data)

    return run


def in_ncnn(weights: Weights, folder: Path) -> Run:
    """Only the convolutions, in int8 with random weights."""
    ncnn: Any = importlib.import_module("ncnn")
    layers = weights.config.convolutions
    lines, random = [f"Input in 0 1 map0 0={SIDE} 1={SIDE} 2=1"], np.random.default_rng(0)
    with (folder / "net.bin").open("wb") as file:
        for number, (inputs, outputs, stride) in enumerate(layers):
            last = number == len(layers) - 1
            sizes = f"0={outputs} 1=3 3={stride} 4=1 5=1 6={9 * inputs * outputs} 8={2 if last else 102} 9=1"
            lines.append(f"Convolution conv{number} 1 1 map{number} map{number + 1} {sizes}")
            file.write(
                struct.pack("<I", INT8_WEIGHTS) + random.integers(-63, 64, 9 * inputs * outputs, np.int8).tobytes()
            )
            scales = [*[0.0] * outputs, *[100.0] * outputs, *[30.0] * (1 if last else 2)]  # and the bias before them
            file.write(np.array(scales, np.float32).tobytes())
    (folder / "net.param").write_text(
        f"7767517\n{len(lines)} {len(lines)}\n" + "\n".join(lines) + "\n", encoding="ascii"
    )
    net = ncnn.Net()
    net.opt.num_threads = 1
    if net.load_param(str(folder / "net.param")) or net.load_model(str(folder / "net.bin")):
        raise RuntimeError("ncnn does not read the network")

    def run(values: np.ndarray) -> np.ndarray:
        for patch in values:
            extractor = net.create_extractor()
            extractor.input("map0", ncnn.Mat(patch))
            found = extractor.extract(f"map{len(layers)}")[1]
        return np.array(found)

    return run


def main() -> None:
    """Measure, print, write."""
    gray = as_gray(FOLDER / "left.png")
    cut = extract_patches(gray, Detector(keypoints=max(BATCHES)).detect(gray).frames)
    patches = prepare_patches(cut[:, None], SIDE, "float32")[0]
    found: dict[str, Any] = {}
    for name in sys.argv[1:] or ["tiny", "light-wide"]:
        weights = read_weights(name)
        jobs: dict[str, tuple[Run, np.ndarray]] = {}
        with tempfile.TemporaryDirectory() as folder:
            for batch in BATCHES:
                for form, content in forms(weights).items():
                    for runtime, opened in (("onnxruntime", in_onnxruntime), ("openvino", in_openvino)):
                        jobs[f"{runtime}, {form}, {batch}"] = opened(content, batch), patches[:batch]
            jobs["ncnn, convolutions, 1"] = in_ncnn(weights, Path(folder)), patches[:64]
            seconds: dict[str, list[float]] = {job: [] for job in jobs}
            for _ in range(TURNS):
                for job, (run, values) in jobs.items():
                    start = time.perf_counter()
                    run(values)
                    seconds[job].append((time.perf_counter() - start) / len(values))
        rows = jobs["onnxruntime, as shipped, 256"][0](patches)
        for job, (run, values) in jobs.items():
            row = {"us": round(1e6 * min(seconds[job]), 1)}
            if not job.startswith("ncnn"):
                row["lowest_cosine"] = float((run(values) * rows[: len(values)]).sum(1).min())
            found.setdefault(name, {})[job] = row
            print(f"{name:12} {job:34} " + ", ".join(f"{key} {value:.5g}" for key, value in row.items()), flush=True)
    packages = {module: importlib.import_module(module).__version__ for module in ("onnxruntime", "openvino", "ncnn")}
    write_json(TARGET, {"machine": processor(), "packages": packages, "models": found})


if __name__ == "__main__":
    main()
