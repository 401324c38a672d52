"""Whether a Ray cluster takes this process's token.

``ray.init`` with a wrong token tries for half a minute, prints a warning a second and then
says that it could not connect; with a token file that is missing or empty Ray ends the whole
process.  Here either is one line, at once.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ray import _raylet
from ray.exceptions import AuthenticationError

from raise_model.errors import UserError


def check_token_file(environment: Mapping[str, str] = os.environ) -> None:
    """:raises UserError: if ``RAY_AUTH_TOKEN_PATH`` is needed and names no token."""
    path = environment.get("RAY_AUTH_TOKEN_PATH", "")
    if environment.get("RAY_AUTH_TOKEN") or not path:
        return
    try:
        token = Path(path).read_text().strip()
    except OSError as error:
        raise UserError(f"RAY_AUTH_TOKEN_PATH: {path} cannot be read: {error.strerror}") from error
    if not token:
        raise UserError(f"RAY_AUTH_TOKEN_PATH: {path} is empty; write the cluster's token there")


def check_token(address: str, environment: Mapping[str, str] = os.environ) -> None:
    """Ask the control store at ``host:port`` for its name, with this process's token.

    Ray's C++ half must have read the variables (:func:`tune_spaces.cluster.connect` sees to
    it).

    :raises UserError: if it refuses the token, there is none, or nothing answers.
    """
    check_token_file(environment)
    raylet: Any = _raylet
    try:
        with _silent_stderr():
            raylet.GcsClient(address=address)
    except AuthenticationError as error:
        raise UserError(
            f"the Ray cluster at {address} refuses {_source(environment)}; set RAY_AUTH_MODE=token "
            "and the cluster's RAY_AUTH_TOKEN (in RAISE_HOME/cluster.env or the environment)"
        ) from error
    except Exception as error:  # no common class: Ray's own and plain RuntimeErrors
        raise UserError(f"no Ray cluster answers at {address} ({_first_line(error)})") from error


def _source(environment: Mapping[str, str]) -> str:
    if environment.get("RAY_AUTH_MODE") != "token":
        return "a process without a token"
    if environment.get("RAY_AUTH_TOKEN"):
        return "the token in RAY_AUTH_TOKEN"
    return f"the token in {environment.get('RAY_AUTH_TOKEN_PATH', '~/.ray/auth_token')}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Ray's C++ half writes its warnings straight to file descriptor 2."""
    sys.stderr.flush()
    kept = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)
