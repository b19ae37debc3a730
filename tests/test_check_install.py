"""The check of what strangers can install, on wheels of a folder: no network."""

import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def check_install(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    module = pytest.importorskip("check_install")
    if module.find_uv() is None:
        pytest.skip("uv is not installed")
    monkeypatch.setattr(module, "SYSTEMS", {"Linux x86_64": "x86_64-manylinux_2_28", "Windows x86_64": "windows"})
    monkeypatch.setattr(module, "PYTHONS", ("3.14",))
    return module


def write_wheel(folder, name, version, *needs, tag="py3-none-any"):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as file:
        file.writestr(f"{name}-{version}.dist-info/METADATA", "\n".join(lines) + "\n")
        file.writestr(f"{name}-{version}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        file.writestr(f"{name}-{version}.dist-info/RECORD", "")


@pytest.fixture
def arguments(tmp_path):
    """A project with three extras: one is fine, one needs the other's package in a version of its own."""
    write_wheel(tmp_path, "tensors", "1.0", "kernels==1.0")
    write_wheel(tmp_path, "tensors", "2.0", "kernels==2.0")
    for version in ("1.0", "2.0"):
        write_wheel(tmp_path, "kernels", version)
    write_wheel(tmp_path, "posix", "1.0", tag="cp311-abi3-manylinux_2_28_x86_64")
    (tmp_path / "pins.txt").write_text("tensors==2.0\nkernels==2.0\n")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "small"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = []\n'
        '[project.optional-dependencies]\nfine = ["kernels"]\ntensors = ["tensors>=1"]\n'
    )
    names = {"--wheels": "", "--project": "pyproject.toml", "--constraints": "pins.txt"}
    return [part for option, name in names.items() for part in (option, str(tmp_path / name))]


@pytest.mark.parametrize("each", [[], ["--each"]])
def test_pins_that_agree_pass(check_install, arguments, each, capsys):
    assert check_install.main(arguments + each) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split() for line in said[1:-1]] == [
        ["(core)", "ok", "ok"],
        ["fine", "ok", "ok"],
        ["tensors", "ok", "ok"],
    ]
    assert said[-1].endswith(": 0 cannot be installed")


@pytest.mark.parametrize(
    ("extras", "pins", "fault", "failed"),
    [
        ({}, "tensors==2.0\nkernels==1.0\n", "matchkernel[tensors], Linux x86_64, Python 3.14, pins: ", "tensors"),
        ({'"kernels"': '"posix"'}, "", "matchkernel[fine], Windows x86_64, Python 3.14, ", "fine"),
        (
            {'"kernels"': '"kernels<2"', "tensors>=1": "tensors>=2"},
            "",
            "matchkernel[fine,tensors], Linux x86_64, Python 3.14, lowest: ",
            "(all at once)",
        ),
    ],
    ids=["a conflict of pins", "no wheel for a system", "extras that exclude each other"],
)
def test_what_cannot_be_installed_is_named(extras, pins, fault, failed, check_install, arguments, tmp_path, capsys):
    project = tmp_path / "pyproject.toml"
    for old, new in extras.items():
        project.write_text(project.read_text().replace(old, new))
    (tmp_path / "pins.txt").write_text(pins)
    assert check_install.main(arguments) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(fault) for line in lines)
    assert [line for line in lines if "FAILS" in line] == [line for line in lines if line.startswith(failed)]


def test_what_cannot_be_checked_does_not_pass(check_install, arguments, tmp_path, monkeypatch, capsys):
    (tmp_path / "pins.txt").write_text("no requirement at all !\n")
    assert check_install.main(arguments) == 2
    monkeypatch.setattr(check_install, "find_uv", lambda: None)
    assert check_install.main(arguments) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("could not be checked: ")
    assert second == "could not be checked: uv is not installed: pip install uv"


def test_settings_of_the_user_are_left_out(check_install, monkeypatch):
    private = {"PIP_FIND_LINKS": "w", "PIP_EXTRA_INDEX_URL": "u", "UV_DEFAULT_INDEX": "u", "UV_CONSTRAINT": "c"}
    for name, value in {**private, "PIP_CERT": "c", "SSL_CERT_FILE": "c"}.items():
        monkeypatch.setenv(name, value)
    environment = sys.modules["public_index"].public_environment()
    assert not private.keys() & environment.keys()
    assert environment["PIP_CERT"] == environment["SSL_CERT_FILE"] == "c"
