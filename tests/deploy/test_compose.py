"""deploy/compose.yaml: valid, on loopback, and without a password in it."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from flows.cluster_settings import write

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose.yaml"
SCHEMA = ROOT / "tests" / "data" / "compose-spec.json"
SECRET = re.compile(r"PASSWORD|SECRET|AUTH_STRING|CONNECTION_URL|BACKEND_STORE_URI|TOKEN")


@pytest.fixture(scope="module")
def document():
    return yaml.safe_load(COMPOSE.read_text())


def test_the_file_follows_the_compose_specification(document):
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))


def test_a_mistake_would_be_found(document):
    broken = document | {"services": {"s3": document["services"]["s3"] | {"port": ["1:1"]}}}
    with pytest.raises(jsonschema.ValidationError, match="port"):
        jsonschema.validate(broken, json.loads(SCHEMA.read_text()))


def test_every_part_of_the_cluster_is_there(document):
    services = document["services"]
    assert set(services) == {
        "postgres", "s3", "buckets", "prefect", "mlflow", "ray-head", "ray-worker",
        "ray-worker-gpu", "worker",
    }  # fmt: skip
    assert services["ray-worker-gpu"]["profiles"] == ["gpu"]
    assert all("profiles" not in services[name] for name in services if name != "ray-worker-gpu")
    own = set(services) - {"postgres", "s3"}
    assert {services[name]["image"] for name in own} == {"${RAISE_IMAGE:-raise-rpm}"}


def test_ports_are_published_on_loopback_alone(document):
    ports = [port for s in document["services"].values() for port in s.get("ports", [])]
    assert len(ports) == 4
    assert all(str(port).startswith("127.0.0.1:") for port in ports)


def test_what_a_service_waits_for_exists(document):
    for service in document["services"].values():
        assert set(service.get("depends_on", ())) <= set(document["services"])
        for config in service.get("configs", ()):
            assert config["source"] in document["configs"]
        for volume in service.get("volumes", ()):
            assert volume.split(":")[0] in document["volumes"]


def test_no_password_is_in_the_file_or_on_a_command_line(document):
    for name, service in document["services"].items():
        for variable, value in service.get("environment", {}).items():
            if SECRET.search(variable):
                assert "${" in value, f"{name}: {variable}"
        words = json.dumps([service.get("command"), service.get("entrypoint")])
        assert not SECRET.search(words), name


def test_both_servers_ask_for_passwords(document):
    services = document["services"]
    assert "PREFECT_SERVER_API_AUTH_STRING" in services["prefect"]["environment"]
    assert "basic-auth" in services["mlflow"]["entrypoint"]


def test_every_variable_is_made_by_cluster_env_or_has_a_default(tmp_path):
    write(tmp_path, "127.0.0.1", "127.0.0.1")
    text = (tmp_path / "cluster.env").read_text() + (tmp_path / "servers.env").read_text()
    made = set(re.findall(r"^(\w+)=", text, re.MULTILINE))
    used = re.findall(r"\$\{(\w+)(:-)?", COMPOSE.read_text())
    assert {name for name, default in used if not default} <= made


def test_the_databases_are_there_before_postgres_is_ready(document):
    # While it makes them it answers on its socket alone.
    check = document["services"]["postgres"]["healthcheck"]["test"]
    assert check[check.index("-h") + 1] == "127.0.0.1"


def test_prefects_pages_call_the_server_that_they_came_from(document):
    assert document["services"]["prefect"]["environment"]["PREFECT_UI_API_URL"] == "/api"
