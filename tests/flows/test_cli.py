"""The command line: one line an error, JSON last, quick help."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows import cli_data, runs
from flows.cli import cli
from flows.doctor import api_source
from flows.processes import MARK
from flows.services import Services
from raise_model.errors import UserError
from raise_model.store import Store
from tune_spaces.home import raise_home


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("RAISE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return lambda *arguments: CliRunner().invoke(cli, arguments)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; import flows.cli; "
        "print([m for m in ('torch', 'ray', 'prefect', 'mlflow', 'pandas') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr


def test_a_users_mistake_is_one_line_and_status_two(run, tmp_path):
    found = run("logs", "nothing", "--store", str(tmp_path))
    assert found.exit_code == 2
    assert found.stderr.startswith("error: no trial nothing in ")
    assert found.stderr.count("\n") == 1


def test_debug_shows_the_exception(run):
    assert isinstance(run("--debug", "logs", "nothing").exception, UserError)


def test_status_without_services_says_down_and_fails(run, tmp_path):
    found = run("status", "--json")
    assert found.exit_code == 1
    value = json.loads(found.stdout.splitlines()[-1])
    assert value["home"] == str(tmp_path / "home")
    assert [s["running"] for s in value["services"]] == [False] * 4


def test_down_without_services_is_no_error(run):
    found = run("down")
    assert found.exit_code == 0
    assert found.stdout.startswith("nothing runs in ")


def test_settings_are_made_anew_where_those_of_the_shell_are_refused(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://user:secret@cluster:4200/api")
    assert run("status").exit_code == 2
    assert run("cluster-env", str(tmp_path / "new")).exit_code == 0
    assert (tmp_path / "new" / "cluster.env").exists()


@pytest.mark.parametrize("command", ["trials", "sync", "results", "clean", "logs x"])
def test_a_store_that_is_not_there_is_a_mistake(run, tmp_path, command):
    found = run(*command.split(), "--store", str(tmp_path / "none"))
    assert found.exit_code == 2
    assert found.stderr == (
        f"error: store {tmp_path / 'none'} does not exist; name another with --store\n"
    )


@pytest.mark.parametrize(
    "command", [("ingest", ""), ("store", "export", ""), ("store", "import", ""), ("verify", "")]
)
def test_an_empty_path_is_not_this_folder(run, command):
    found = run(*command)
    assert found.exit_code == 2
    assert "it is empty; is a variable of the shell not set?" in found.stderr


def test_an_export_of_nothing_is_a_mistake(run, tmp_path):
    (tmp_path / "empty").mkdir()
    found = run("store", "export", str(tmp_path / "out"), "--store", str(tmp_path / "empty"))
    assert found.exit_code == 2
    assert found.stderr == f"error: no finished trial in {tmp_path / 'empty'}\n"


def test_an_empty_home_is_the_default(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAISE_HOME", "")
    assert raise_home() == tmp_path / ".raise"


def test_a_home_that_cannot_be_made_is_one_line(monkeypatch):
    with pytest.raises(UserError, match="RAISE_HOME /proc/x cannot be made: "):
        Services(Path("/proc/x")).up({}, lambda name, what: None)


def test_a_second_runner_does_not_take_the_place_of_ups(monkeypatch, tmp_path):
    path = tmp_path / "runner.ready"
    monkeypatch.delenv(MARK, raising=False)
    runs._say_ready(path)
    assert path.read_text() == str(os.getpid())
    path.write_text(str(os.getppid()))
    runs._say_ready(path)
    assert path.read_text() == str(os.getppid())
    monkeypatch.setenv(MARK, "x")
    runs._say_ready(path)
    assert path.read_text() == str(os.getpid())


def test_commands_name_the_store_of_smoke_runs(run, tmp_path, monkeypatch):
    monkeypatch.delenv("RAISE_STORE", raising=False)
    (tmp_path / "home/smoke").mkdir(parents=True)
    found = run("trials")
    assert found.exit_code == 2
    hint = f"; runs of preset smoke are in --store {tmp_path / 'home/smoke'}\n"
    assert f"name another with --store{hint}" in found.stderr
    (tmp_path / "home/store").mkdir()
    found = run("trials")
    assert found.exit_code == 0
    assert found.stderr == f"no trial in {tmp_path / 'home/store'}{hint}"
    assert run("logs", "x").stderr == f"error: no trial x in {tmp_path / 'home/store'}{hint}"
    assert "preset smoke" not in run("trials", "--store", str(tmp_path / "home/smoke")).stderr


@pytest.mark.parametrize("uri", ["nonsense", "localhost:5000", "ftp://host", "http://"])
def test_an_address_that_is_none_is_named_with_its_variable(run, monkeypatch, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    found = run("sync")
    assert found.exit_code == 2
    assert found.stderr == (
        f"error: MLFLOW_TRACKING_URI={uri} in the environment is no address of a server, as "
        "http://HOST:5000 is\n"
    )


def test_doctor_passes_here_and_ends_with_json(run):
    found = run("doctor", "--json")
    assert found.exit_code == 0, found.output
    value = json.loads(found.stdout.splitlines()[-1])
    verdicts = {check["name"]: check["verdict"] for check in value["checks"]}
    assert value["ok"]
    assert verdicts["home"] == "ok"
    assert verdicts["services"] == "note"


def test_doctor_fails_where_the_home_cannot_be_written(run, monkeypatch):
    monkeypatch.setenv("RAISE_HOME", "/proc/raise")
    found = run("doctor")
    assert found.exit_code == 1
    assert "broken: home" in found.stderr


def test_doctor_says_what_the_shell_lacks_and_what_other_machines_hide(run, tmp_path, monkeypatch):
    home, store = tmp_path / "home", tmp_path / "store"
    home.mkdir()
    for name in ("PREFECT_API_URL", "RAY_ADDRESS"):  # gone again afterwards, though others set them
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAISE_HOME", str(home))
    monkeypatch.setenv("RAISE_STORE", str(store))
    file = home / "cluster.env"
    file.write_text("PREFECT_API_URL=http://127.0.0.1:9/api\nRAY_ADDRESS=127.0.0.1:9\n")
    file.chmod(0o600)
    found = run("doctor", "--json")
    assert found.exit_code == 0, found.output
    checks = json.loads(found.stdout.splitlines()[-1])["checks"]
    said = {check["name"]: (check["verdict"], check["text"]) for check in checks}
    assert said["prefect shell"] == (
        "note",
        f"http://127.0.0.1:9/api for raise-rpm; before prefect: set -a; . {file}; set +a",
    )
    verdict, text = said["ray address"]
    assert (verdict, text.split(";")[0]) == (
        "note", "no Ray cluster answers at 127.0.0.1:9 (Connection refused)"
    )  # fmt: skip
    assert said["store"] == ("ok", f"{store} can be written")
    monkeypatch.setenv("RAISE_STORE", "/proc/store")
    found = run("doctor")
    assert found.exit_code == 1
    assert "broken: store" in found.stderr


def test_the_server_is_named_by_the_environment_before_the_folder(tmp_path):
    assert api_source(tmp_path, {}) is None
    (tmp_path / "pyproject.toml").write_text('[tool.prefect.api]\nurl = "http://b/api"\n')
    assert api_source(tmp_path, {}) == (str(tmp_path / "pyproject.toml"), "http://b/api")
    (tmp_path / "prefect.toml").write_text('[api]\nurl = "http://c/api"\n')
    assert api_source(tmp_path, {}) == (str(tmp_path / "prefect.toml"), "http://c/api")
    environment = {"PREFECT_API_URL": "http://a/api"}
    assert api_source(tmp_path, environment) == ("environment", "http://a/api")


def test_parameters_are_read_as_prefect_reads_them():
    pairs = ["preset=demo", "trials=3", 'models=["raise"]', "store=a=b"]
    assert cli_data.parse_parameters(pairs) == {
        "preset": "demo",
        "trials": 3,
        "models": ["raise"],
        "store": "a=b",
    }
    with pytest.raises(UserError, match="write it as name=value"):
        cli_data.parse_parameters(["preset"])


def test_a_trial_is_found_by_the_beginning_of_its_name(tmp_path):
    store = Store(str(tmp_path))
    for name in ("raise-a-1", "raise-a-2", "raise-b"):
        store.write(f"trials/{name}/log.txt", b"")
    assert cli_data.find_trial(store, "raise-b").name == "raise-b"
    with pytest.raises(UserError, match="short for 2 trials"):
        cli_data.find_trial(store, "raise-a")
    with pytest.raises(UserError, match="no trial x"):
        cli_data.find_trial(store, "x")


def test_logs_prints_the_end_of_the_log(run, tmp_path):
    store = Store(str(tmp_path / "home" / "store"))
    store.write("trials/raise-a/log.txt", b"one\ntwo\nthree\n")
    assert run("logs", "raise", "--lines", "2").stdout == "two\nthree\n"
