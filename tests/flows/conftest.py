"""Prefect in tests keeps its files out of the home folder of whoever runs them."""

import os
import tempfile

# Read when Prefect is imported, hence not in a fixture.
_folder = tempfile.TemporaryDirectory(prefix="raise-prefect-", ignore_cleanup_errors=True)
os.environ["PREFECT_HOME"] = _folder.name
os.environ["DO_NOT_TRACK"] = "true"
os.environ.pop("PREFECT_API_URL", None)
