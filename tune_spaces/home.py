"""The folder of everything that the embedded services keep, and Ray's settings in it.

Imports no Ray, so that commands which only start or ask services are quick.
"""

import contextlib
import os
import secrets
from pathlib import Path

OBJECT_STORE_BYTES = 128 * 1024**2
"""Ray's shared memory of a cluster of our own: specs and curve rows, no tensors."""
SWEEP_FOLDERS = "raise-tune-"
"""How the temporary folders begin that sweeps keep for Ray Tune while they run."""


def raise_home() -> Path:
    """Folder of the state of embedded services: ``RAISE_HOME``, else ``.raise`` here."""
    return Path(os.environ.get("RAISE_HOME") or ".raise").expanduser().absolute()


def default_cache() -> Path:
    """Folder of derived arrays, on each node."""
    return raise_home() / "cache"


def ray_environment(home: Path) -> dict[str, str]:
    """Variables for ``ray start`` and for every process that connects to that cluster.

    Makes the cluster's token under ``home`` if there is none.
    """
    token = home / "ray_token"
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        handle = os.open(token, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32))
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        # Draining is for servers; it would take half a minute.
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        # A worker that changed into its trial's folder could not live without it.
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
    }
