"""cluster.env: one file for every part, private, plain, and never sent to another server."""

import stat
import subprocess

import pytest
from click.testing import CliRunner

from flows import service_commands
from flows.cli_cluster import cluster_env
from flows.cluster_settings import FILE, load, parse, read, write
from flows.services import Services, ray_token_command
from raise_model.errors import UserError


@pytest.fixture
def files(tmp_path):
    write(tmp_path, "services.lab", "head.lab")
    return tmp_path


def _settings(folder, name=FILE):
    return parse((folder / name).read_text(), folder / name)


def test_both_files_are_private_and_fit_each_other(files):
    for name in (FILE, "servers.env"):
        assert stat.S_IMODE((files / name).stat().st_mode) == 0o600
    clients, servers = _settings(files), _settings(files, "servers.env")
    assert clients["PREFECT_API_URL"] == "http://services.lab:4200/api"
    assert clients["RAY_ADDRESS"] == "head.lab:6379"
    assert servers["PREFECT_SERVER_API_AUTH_STRING"] == clients["PREFECT_API_AUTH_STRING"]
    assert servers["MLFLOW_AUTH_ADMIN_PASSWORD"] == clients["MLFLOW_TRACKING_PASSWORD"]
    password = servers["POSTGRES_PASSWORD"]
    # Debian's PostgreSQL listens on 127.0.0.1 alone.
    assert f":{password}@127.0.0.1:5432/" in servers["MLFLOW_BACKEND_STORE_URI"]
    assert f":{password}@127.0.0.1:5432/" in servers["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    # What servers alone need is not handed to trials.
    assert password not in (files / FILE).read_text()


def test_every_cluster_has_passwords_of_its_own(files, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write(other, "services.lab", "head.lab")
    for name in ("RAY_AUTH_TOKEN", "PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_PASSWORD"):
        assert _settings(files)[name] != _settings(other)[name]


def test_a_shell_and_systemd_read_the_same_as_we_do(files):
    done = subprocess.run(
        ["sh", "-c", f"set -a; . {files / FILE}; env"], capture_output=True, text=True, env={}
    )
    shell = dict(line.split("=", 1) for line in done.stdout.splitlines())
    settings = _settings(files)
    assert {name: shell[name] for name in settings} == settings


def test_again_keeps_passwords_and_brings_the_servers_file_up_to_date(files):
    before, servers = _settings(files), _settings(files, "servers.env")
    assert write(files, "elsewhere", "elsewhere") == []
    text = (files / FILE).read_text()
    changed = text.replace(before["PREFECT_API_AUTH_STRING"], "raise:new")
    (files / FILE).write_text(changed)
    assert write(files, "elsewhere", "elsewhere") == [files / "servers.env"]
    after = _settings(files, "servers.env")
    assert after["PREFECT_SERVER_API_AUTH_STRING"] == "raise:new"
    assert after["POSTGRES_PASSWORD"] == servers["POSTGRES_PASSWORD"]


def test_what_only_the_servers_file_has_is_kept(files):
    path = files / "servers.env"
    chosen = {
        "POSTGRES_HOST": "database.lab",
        "MLFLOW_ARTIFACTS_DESTINATION": "s3://mine/files",
        "RAISE_LISTEN": "0.0.0.0",
    }
    lines = path.read_text().splitlines()
    for name, value in chosen.items():
        (number,) = (n for n, line in enumerate(lines) if line.startswith(f"{name}="))
        lines[number] = f"{name}={value}"
    chosen["PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"] = "events,flow_runs"
    lines.append("PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED=events,flow_runs")
    path.write_text("\n".join(lines).replace("localhost:*", "localhost:*,alias.lab:*"))
    assert write(files, "elsewhere", "elsewhere") == [path]
    after = _settings(files, "servers.env")
    assert {name: after[name] for name in chosen} == chosen
    hosts = "services.lab:*,localhost:*,127.0.0.1:*,alias.lab:*"
    assert after["MLFLOW_SERVER_ALLOWED_HOSTS"] == hosts
    assert "@database.lab:5432/mlflow" in after["MLFLOW_BACKEND_STORE_URI"]
    assert "@database.lab:5432/prefect" in after["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    assert write(files, "elsewhere", "elsewhere") == []


def test_the_command_says_what_it_wrote(tmp_path):
    found = CliRunner().invoke(cluster_env, [str(tmp_path), "--services", "services.lab"])
    assert found.exit_code == 0
    assert found.output.count("written") == 2
    assert _settings(tmp_path)["RAY_ADDRESS"] == "services.lab:6379"
    assert not [value for value in _settings(tmp_path).values() if len(value) >= 32
                and value in found.output]  # fmt: skip


def test_a_file_that_others_may_read_is_refused(files):
    (files / FILE).chmod(0o604)
    with pytest.raises(UserError, match="chmod o="):
        read(files)


@pytest.mark.parametrize(
    "line", ['A="hidden"', "A=hid den", "A=$hidden", "export A=hidden", "hidden", "A='hidden'"]
)
def test_what_readers_would_read_differently_is_refused_without_its_value(tmp_path, line):
    path = tmp_path / FILE
    path.write_text(f"# first\n{line}\n")
    path.chmod(0o600)
    with pytest.raises(UserError, match="line 2") as refusal:
        read(tmp_path)
    assert "hid" not in str(refusal.value)


def test_the_environment_wins_and_the_rest_is_taken(files):
    environment = {"DO_NOT_TRACK": "mine"}
    load(files, environment)
    assert environment["DO_NOT_TRACK"] == "mine"
    assert environment["RAY_AUTH_TOKEN"] == _settings(files)["RAY_AUTH_TOKEN"]
    load(files / "nowhere", empty := {})
    assert empty == {}


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING"),
        ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_PASSWORD"),
        ("RAY_ADDRESS", "RAY_AUTH_TOKEN"),
    ],
)
def test_another_server_does_not_get_this_clusters_password(files, address, secret):
    environment = {address: "http://elsewhere:1"}
    load(files, environment)
    assert secret not in environment
    load(files, same := {address: _settings(files)[address]})
    assert secret in same


def test_a_password_in_an_address_is_refused_and_not_repeated(files):
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI in the environment") as refusal:
        load(files, {"MLFLOW_TRACKING_URI": "http://me:hidden@host:5000"})
    assert "hidden" not in str(refusal.value)
    assert "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" in str(refusal.value)


def test_up_refuses_a_home_whose_servers_are_elsewhere(files):
    with pytest.raises(UserError, match=r"names the Prefect server at http://services\.lab"):
        Services(files).up({}, lambda name, what: None)
    assert not (files / "services.lock").exists()


def test_servers_of_up_ask_for_the_passwords_that_are_set(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "raise:one")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "raise")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "two-two-two-two")
    monkeypatch.setattr("flows.service_commands.find_spec", lambda name: object())
    extras = service_commands.EXTRAS
    assert extras["prefect"](tmp_path) == {"PREFECT_SERVER_API_AUTH_STRING": "raise:one"}
    mlflow = extras["mlflow"](tmp_path)
    assert mlflow["MLFLOW_AUTH_ADMIN_PASSWORD"] == "two-two-two-two"
    assert f"sqlite:///{tmp_path}/mlflow/auth.db" in (tmp_path / "mlflow/auth.ini").read_text()
    command = service_commands.COMMANDS["mlflow"](tmp_path, 5000)
    assert "basic-auth" in command
    assert not any("two-two" in word for word in command)


def test_ray_of_up_takes_the_token_of_the_file(tmp_path):
    assert "RAY_AUTH_TOKEN" not in service_commands.EXTRAS["ray"](tmp_path)
    assert ray_token_command(tmp_path) == f"cat {tmp_path}/ray_token"
    write(tmp_path, "127.0.0.1", "127.0.0.1")
    token = _settings(tmp_path)["RAY_AUTH_TOKEN"]
    assert service_commands.EXTRAS["ray"](tmp_path)["RAY_AUTH_TOKEN"] == token
    assert token not in ray_token_command(tmp_path)
    assert str(tmp_path / FILE) in ray_token_command(tmp_path)


def test_servers_of_up_ask_for_none_if_none_is_set(tmp_path, monkeypatch):
    for name in ("PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    assert service_commands.EXTRAS["prefect"](tmp_path) == {}
    assert service_commands.EXTRAS["mlflow"](tmp_path) == {}
    assert "basic-auth" not in service_commands.COMMANDS["mlflow"](tmp_path, 5000)


def test_mlflow_without_what_its_passwords_need_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "raise")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "two-two-two-two")
    monkeypatch.setattr("flows.service_commands.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"raise-rpm\[cluster\]"):
        service_commands.EXTRAS["mlflow"](tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
    with pytest.raises(UserError, match="without MLFLOW_TRACKING_USERNAME"):
        service_commands.EXTRAS["mlflow"](tmp_path)
