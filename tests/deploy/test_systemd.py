"""deploy/systemd and the image: what systemd and hadolint say, and where things listen."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flows.cluster_settings import parse, write

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
SERVERS = {"raise-prefect.service", "raise-mlflow.service"}


def _value(unit, key):
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


def test_there_is_a_unit_for_each_part():
    assert {unit.name for unit in UNITS} == SERVERS | {
        "raise-ray-head.service", "raise-ray-node.service", "raise-worker.service",
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_to_complain_about(tmp_path):
    for unit in UNITS:
        # Programs that are not installed here would be all that it reports.
        text = re.sub(r"/opt/raise/bin/\w+", "/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(text)
    found = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / unit.name) for unit in UNITS)],
        capture_output=True, text=True,
    )  # fmt: skip
    complaints = [line for line in found.stderr.splitlines() if str(tmp_path) in line]
    assert not complaints
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_settings_come_from_files_and_nobody_is_root(unit):
    assert _value(unit, "User") == ["raise"]
    files = _value(unit, "EnvironmentFile")
    assert files[0] == "/etc/raise/cluster.env"
    assert ("/etc/raise/servers.env" in files) == (unit.name in SERVERS)
    (command,) = _value(unit, "ExecStart")
    assert not re.search(r"PASSWORD|TOKEN|AUTH|postgresql", command)


def test_servers_listen_on_loopback_unless_told_otherwise(tmp_path):
    for unit in UNITS:
        if unit.name in SERVERS:
            assert _value(unit, "Environment")[0].split()[0] == "RAISE_LISTEN=127.0.0.1"
            assert "--host ${RAISE_LISTEN}" in _value(unit, "ExecStart")[0]
    _, servers = write(tmp_path, "services.lab", "head.lab")
    assert parse(servers.read_text(), servers)["RAISE_LISTEN"] == "127.0.0.1"


def test_rays_sockets_have_short_paths():
    (head,) = (unit for unit in UNITS if unit.name == "raise-ray-head.service")
    (folder,) = re.findall(r"--temp-dir=(\S+)", head.read_text())
    session = "/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
    assert len(folder + session) <= 107


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_finds_nothing_in_the_dockerfile():
    found = subprocess.run(
        ["hadolint", "--no-color", str(ROOT / "Dockerfile")], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout
