"""Commands on data: totals, JSON last, exit status."""

import json
import shutil
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from flows.cli import Commands
from flows.cli_verify import COMMANDS

PUBLISHED = Path(__file__).parents[1] / "data" / "published"


@pytest.fixture
def run():
    group = Commands(
        "raise-rpm",
        commands={command.name: command for command in COMMANDS},
        params=[click.Option(["--debug"], is_flag=True)],
    )
    return lambda *arguments: CliRunner().invoke(group, [str(a) for a in arguments])


def last(found):
    return json.loads(found.stdout.splitlines()[-1])


def test_sound_files_pass(run):
    found = run("verify", PUBLISHED, "--workers", 1)
    assert found.exit_code == 0, found.output
    value = last(found)
    assert value["ok"]
    assert value["violations"] == value["differing_pixels"] == 0
    assert value["panels"] == 16 * value["problems"]
    assert len(value["sets"]) == 14
    lines = found.stdout.splitlines()
    assert len(lines) == 16
    problems = value["sets"][0]["totals"]["problems"]
    assert lines[0].startswith(f"iraven/center: {problems} problems, {16 * problems} panels, 0 ")
    assert lines[-2].startswith(f"all: {value['problems']} problems")


@pytest.fixture
def folder(tmp_path):
    """RAVEN's Center with one pixel changed at an edge, or by request elsewhere."""
    copied = tmp_path / "files" / "center_single"
    shutil.copytree(PUBLISHED / "raven" / "center_single", copied)
    return copied


def change_pixel(folder, *, at_edge):
    file = folder / "RAVEN_0_train.npz"
    with np.load(file) as read:
        arrays = dict(read)
    y, x = np.argwhere(arrays["image"][3] == 0)[0] if at_edge else (0, 0)
    arrays["image"][3, y, x] ^= 1
    np.savez_compressed(file, **arrays)


def test_a_changed_pixel_fails(run, folder):
    change_pixel(folder, at_edge=False)
    found = run("verify", folder, "--workers", 1)
    assert found.exit_code == 1
    value = last(found)
    assert (value["ok"], value["differing_pixels"], value["violations"]) == (False, 1, 1)
    (line,) = [line for line in found.stdout.splitlines() if line.startswith("violation: ")]
    assert line.endswith("RAVEN_0_train: panel 3: 1 pixels differ, some away from any edge")


def test_edges_fail_only_with_exact(run, folder):
    change_pixel(folder, at_edge=True)
    found = run("verify", folder, "--workers", 1)
    assert found.exit_code == 0
    assert last(found)["redrawn_panels"] == 1
    assert "RAVEN_0_train: panel 3: 1 pixels differ, all at edges" in found.stdout
    exact = run("verify", folder, "--workers", 1, "--exact")
    assert exact.exit_code == 1
    assert last(exact)["violations"] == 1


def test_unreadable_files_fail(run, folder):
    (folder / "RAVEN_0_train.xml").write_text("<Data>")
    found = run("verify", folder, "--workers", 1)
    assert found.exit_code == 1
    assert last(found)["unreadable"] == 1
    assert "RAVEN_0_train: XML" in found.stdout


def test_a_path_without_data_is_a_users_mistake(run, tmp_path):
    found = run("verify", tmp_path / "nowhere")
    assert found.exit_code == 2
    assert found.stderr.count("error: ") == 1
    assert "does not exist" in found.stderr


def test_export_then_verify(run, tmp_path):
    from raise_model.data.generate import generate
    from raise_model.store import Store

    store, files = tmp_path / "store", tmp_path / "files"
    generate(Store(str(store)), dataset="raven", configuration="grid_2x2", problems=10)
    arguments = ("export-published", files, "--configuration", "grid_2x2", "--store", store)
    found = run(*arguments)
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[0] == f"raven/grid_2x2/train: 6 problems in {files}"
    assert run(*arguments).exit_code == 0
    assert last(run("verify", files, "--workers", 1))["problems"] == 10
    assert last(run("verify", store, "--workers", 1))["problems"] == 10
