"""Which version and commit of the package this is."""

import os
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def package_version() -> str:
    """Version of the installed distribution, ``unknown`` outside one."""
    try:
        return version("raise-rpm")
    except PackageNotFoundError:
        return "unknown"


def commit() -> str | None:
    """Commit of the clone that this package runs from, with ``+`` if files differ from it.

    ``RAISE_COMMIT`` wins: an image or an archive has no repository, but knows its commit.
    """
    if given := os.environ.get("RAISE_COMMIT"):
        return given
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    git = ["git", "-C", str(root)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    if head.returncode != 0:
        return None
    changes = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True
    )
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "")
