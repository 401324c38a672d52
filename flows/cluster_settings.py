"""Addresses and credentials of a cluster in one file: ``cluster.env``.

The file has lines ``NAME=value`` that a shell, systemd (``EnvironmentFile=``), Docker Compose
(``env_file``) and ``kubectl create secret --from-env-file`` all read alike, so it is the one
place where a password is set.  Every command of ``raise-rpm`` reads ``$RAISE_HOME/cluster.env``;
what the shell sets itself wins.  Servers need a second file, ``servers.env``, which is made
from the first: databases and the server's side of the passwords.
"""

import os
import re
import secrets
import stat
import urllib.parse
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from raise_model.errors import UserError

FILE = "cluster.env"
SERVER_FILE = "servers.env"

PARTS: Mapping[str, tuple[str, ...]] = {
    "PREFECT_API_URL": ("PREFECT_API_AUTH_STRING",),
    "MLFLOW_TRACKING_URI": ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"),
    "RAY_ADDRESS": ("RAY_AUTH_TOKEN",),
    "AWS_ENDPOINT_URL": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
}
"""Where each part listens, and the credentials that are for it alone."""
HTTP_EXAMPLES: Mapping[str, str] = {
    "PREFECT_API_URL": "http://HOST:4200/api",
    "MLFLOW_TRACKING_URI": "http://HOST:5000",
}
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
"""Where MLflow's client also writes without a server."""

_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=?&*~-]*")
"""Values that mean the same to every reader: no blanks, quotes, ``$``, ``#`` or backslashes."""


def read(home: Path) -> dict[str, str]:
    """Variables of the cluster settings of a home; empty without the file.

    :raises UserError: if others may read the file, or a line of it is not plain.
    """
    path = home / FILE
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if path.stat().st_mode & stat.S_IRWXO:
        raise UserError(f"{path} holds passwords and other users may read it: chmod o= {path}")
    return parse(text, path)


def parse(text: str, path: Path) -> dict[str, str]:
    """The variables of such a file; ``path`` is named in errors, values never are.

    :raises UserError: if a line is neither empty, a comment, nor a plain ``NAME=value``.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise UserError(f"{path}, line {number}: not NAME=value")
        name, value = match.groups()
        if not _PLAIN.fullmatch(value):
            raise UserError(
                f"{path}, line {number}: the value of {name} has blanks, quotes or signs that "
                "shells, systemd and Compose read differently; use letters, digits and ./:@%+,=-_"
            )
        found[name] = value
    for name in PARTS:
        check_address(name, found.get(name, ""), str(path))
    return found


def check_address(name: str, value: str, where: str) -> None:
    """Check the form of an address, and that it has no password: it is logged and shown.

    :param value: empty: none is set.
    :raises UserError: in one line that names the variable.
    """
    parts = urllib.parse.urlsplit(value)
    if "@" in parts.netloc:
        raise UserError(
            f"{name} in {where} carries a password; write it as {' and '.join(PARTS[name])}"
        )
    example = HTTP_EXAMPLES.get(name)
    if not value or example is None:
        return
    is_database = name == "MLFLOW_TRACKING_URI" and parts.scheme.partition("+")[0] in DATABASES
    if not is_database and not (parts.scheme in ("http", "https") and parts.hostname):
        raise UserError(f"{name}={value} in {where} is no address of a server, as {example} is")


def load(home: Path, environment: MutableMapping[str, str] = os.environ) -> frozenset[str]:
    """Put the cluster settings of a home into the environment, where it has no value.

    Credentials are only taken together with the address they are for: a shell that names
    another server does not send it this cluster's password.

    To be called before Prefect, MLflow or Ray is imported.

    :returns: names of the variables that it set.
    :raises UserError: as :func:`read`, and if an address in the environment has a password.
    """
    for name in PARTS:
        check_address(name, environment.get(name, ""), "the environment")
    settings = read(home)
    for address, credentials in PARTS.items():
        if environment.get(address, settings.get(address)) != settings.get(address):
            for name in credentials:
                settings.pop(name, None)
    missing = settings.keys() - environment.keys()
    environment.update({name: settings[name] for name in missing})
    return frozenset(missing)


def names_other_machine(home: Path) -> str:
    """What to say if the cluster settings of a home are of servers elsewhere; empty if not."""
    url = read(home).get("PREFECT_API_URL", "")
    host = urllib.parse.urlsplit(url).hostname
    if host in (None, "127.0.0.1", "localhost", "::1"):
        return ""
    return f"{home / FILE} names the Prefect server at {url}"


def write(folder: Path, services: str, head: str) -> list[Path]:
    """Make ``cluster.env`` (kept if it exists) and ``servers.env``; returns those written.

    :param services: host of Prefect, MLflow and the object store.
    :param head: host of the Ray head.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    path = folder / FILE
    if not path.exists():
        _write_secret(path, _cluster_text(services, head))
        written.append(path)
    settings = read(folder)
    servers = folder / SERVER_FILE
    known = parse(servers.read_text(), servers) if servers.exists() else {}
    text = _servers_text(settings, known)
    if not servers.exists() or servers.read_text() != text:
        _write_secret(servers, text)
        written.append(servers)
    return written


def _write_secret(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)


def _cluster_text(services: str, head: str) -> str:
    return f"""\
# Addresses and credentials of the cluster, for every machine and user of it.
# Plain NAME=value: no quotes, no blanks.  Keep it private: chmod 600.
PREFECT_API_URL=http://{services}:4200/api
PREFECT_API_AUTH_STRING=raise:{secrets.token_hex(16)}
MLFLOW_TRACKING_URI=http://{services}:5000
MLFLOW_TRACKING_USERNAME=raise
MLFLOW_TRACKING_PASSWORD={secrets.token_hex(16)}
RAY_ADDRESS={head}:6379
RAY_AUTH_MODE=token
RAY_AUTH_TOKEN={secrets.token_hex(32)}
# The object store.  On Amazon S3 leave AWS_ENDPOINT_URL out.
AWS_ENDPOINT_URL=http://{services}:8333
AWS_ACCESS_KEY_ID=raise
AWS_SECRET_ACCESS_KEY={secrets.token_hex(16)}
AWS_DEFAULT_REGION=us-east-1
# No usage reports; how Ray starts workers, and that it stops without half a minute's pause.
DO_NOT_TRACK=true
MLFLOW_DISABLE_TELEMETRY=true
RAY_USAGE_STATS_ENABLED=0
RAY_ENABLE_UV_RUN_RUNTIME_ENV=0
RAY_CHDIR_TO_TRIAL_DIR=0
RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0
"""


def _servers_text(settings: Mapping[str, str], known: Mapping[str, str]) -> str:
    services = urllib.parse.urlsplit(settings.get("PREFECT_API_URL", "")).hostname or "127.0.0.1"
    password = known.get("POSTGRES_PASSWORD") or secrets.token_hex(16)
    host = known.get("POSTGRES_HOST") or "127.0.0.1"
    database = f"raise:{password}@{host}:5432"
    auth = settings.get("PREFECT_API_AUTH_STRING", "")
    key = known.get("MLFLOW_FLASK_SERVER_SECRET_KEY") or secrets.token_hex(16)
    files = known.get("MLFLOW_ARTIFACTS_DESTINATION") or "/var/lib/raise/artifacts"
    hosts = [f"{services}:*", "localhost:*", "127.0.0.1:*"]
    hosts += known.get("MLFLOW_SERVER_ALLOWED_HOSTS", "").split(",")
    text = f"""\
# Made from {FILE} by raise-rpm cluster-env; for the machines of the servers alone.
PREFECT_SERVER_API_AUTH_STRING={auth}
PREFECT_SERVER_DATABASE_CONNECTION_URL=postgresql+asyncpg://{database}/prefect
PREFECT_SERVER_ANALYTICS_ENABLED=false
# Pages call the server that they came from, by a tunnel or a proxy too.
PREFECT_UI_API_URL=/api
# prefect deployment run --watch shows a run's log, not its states alone.
PREFECT_SERVER_LOGS_STREAM_OUT_ENABLED=true
PREFECT_SERVER_LOGS_STREAM_PUBLISHING_ENABLED=true
MLFLOW_AUTH_ADMIN_USERNAME={settings.get("MLFLOW_TRACKING_USERNAME", "")}
MLFLOW_AUTH_ADMIN_PASSWORD={settings.get("MLFLOW_TRACKING_PASSWORD", "")}
MLFLOW_FLASK_SERVER_SECRET_KEY={key}
MLFLOW_BACKEND_STORE_URI=postgresql+psycopg2://{database}/mlflow
MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
MLFLOW_SERVER_ALLOWED_HOSTS={",".join(dict.fromkeys(filter(None, hosts)))}
POSTGRES_USER=raise
# What follows is kept when this file is made anew: the database's password and host,
POSTGRES_PASSWORD={password}
POSTGRES_HOST={host}
# where MLflow keeps files (a folder of its machine, or s3://BUCKET/FOLDER),
MLFLOW_ARTIFACTS_DESTINATION={files}
# where Prefect and MLflow listen, and whatever else is added.
RAISE_LISTEN={known.get("RAISE_LISTEN") or "127.0.0.1"}
"""
    made = {line.partition("=")[0] for line in text.splitlines()}
    return text + "".join(f"{name}={value}\n" for name, value in known.items() if name not in made)
