"""The wheel holds what it must, and works outside the clone."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"raise_model", "artifacts", "tune_spaces", "flows"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # Without isolation: the build backend of the pinned set, and no download.
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    return path


def test_wheel_holds_the_four_packages_and_the_published_numbers(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert top == PACKAGES
    assert {"artifacts/published.csv", "flows/step_costs.csv"} <= set(names)
    assert not any(name.startswith("artifacts/reports") for name in names)


def test_import_contracts_hold():
    found = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout


def test_every_flow_package_file_follows_its_folder():
    """A model has the same file name in models/ and tune_spaces/ (where it has a space)."""
    models = {path.stem for path in (ROOT / "raise_model/models").iterdir()}
    spaces = {path.stem for path in (ROOT / "tune_spaces").glob("*.py")}
    machinery = {
        "__init__", "trainable", "trial_process", "evaluation", "sweep", "cluster", "home",
        "halving", "search_space", "spaces", "cluster_access", "waiting",
    }  # fmt: skip
    assert spaces - machinery <= models


@pytest.mark.slow
def test_doctor_works_from_the_wheel_in_an_empty_venv(wheel, tmp_path):
    """Dependencies come from this environment; the project itself only from the wheel."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False)
    site = next((folder / "lib").glob("python*/site-packages"))
    own = next(p for p in map(Path, sys.path) if p.name == "site-packages")
    (site / "dependencies.pth").write_text(f"{own}\n")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    found = subprocess.run(
        [folder / "bin/python", "-c", "from flows.cli import main; main()", "doctor", "--json"],
        cwd=tmp_path,
        env=environment | {"RAISE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.strip().splitlines()[-1].startswith("{")
