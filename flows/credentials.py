"""Whether the Prefect and the MLflow server take this process's credentials.

Both answer their health checks to anybody, so a wrong password would otherwise show up late,
as a long traceback of the one or a "no server answers" of the other.
"""

import base64
import os
import urllib.error
import urllib.request
from collections.abc import Mapping

from flows.cluster_settings import FILE, check_address
from raise_model.errors import UserError

REFUSED = (401, 403)

# Whatever proxy the shell has is not for a cluster's own servers.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def check_prefect(url: str, environment: Mapping[str, str] = os.environ) -> None:
    """:raises UserError: if the Prefect API at ``url`` refuses ``PREFECT_API_AUTH_STRING``.

    A server that does not answer at all is no matter of credentials, and no error here.
    """
    check_address("PREFECT_API_URL", url, "the environment")
    pair = environment.get("PREFECT_API_AUTH_STRING", "")
    if _status(f"{url.rstrip('/')}/admin/version", pair) in REFUSED:
        raise UserError(_advice("Prefect", url, pair, "PREFECT_API_AUTH_STRING"))


def check_mlflow(uri: str, environment: Mapping[str, str] = os.environ) -> None:
    """:raises UserError: if the MLflow server refuses ``MLFLOW_TRACKING_USERNAME`` and password.

    A server that does not answer at all is no matter of credentials, and no error here.
    """
    check_address("MLFLOW_TRACKING_URI", uri, "the environment")
    if not uri.startswith(("http://", "https://")):
        return
    user = environment.get("MLFLOW_TRACKING_USERNAME", "")
    password = environment.get("MLFLOW_TRACKING_PASSWORD", "")
    pair = f"{user}:{password}" if user or password else ""
    question = f"{uri.rstrip('/')}/api/2.0/mlflow/experiments/get?experiment_id=0"
    if _status(question, pair) in REFUSED:
        names = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        raise UserError(_advice("MLflow", uri, pair, names))


def _advice(server: str, url: str, given: str, names: str) -> str:
    what = f"refuses {names}" if given else f"asks for a password; set {names}"
    return f"the {server} server at {url} {what} (in RAISE_HOME/{FILE} or the environment)"


def _status(url: str, pair: str) -> int:
    """HTTP status of a GET; 0 if nothing answers."""
    headers = {}
    if pair:
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    try:
        with _opener.open(urllib.request.Request(url, headers=headers), timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError):
        return 0
