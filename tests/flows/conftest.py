"""Prefect in tests keeps its files out of the home folder of whoever runs them."""

import os
import tempfile

# Read when Prefect is imported, hence not in a fixture.
_folder = tempfile.TemporaryDirectory(prefix="raise-prefect-", ignore_cleanup_errors=True)
os.environ["PREFECT_HOME"] = _folder.name
os.environ["DO_NOT_TRACK"] = "true"
os.environ.pop("PREFECT_API_URL", None)


import pandas as pd  # noqa: E402  (after Prefect's settings)
import pytest  # noqa: E402

from raise_model.presets import trial_spec  # noqa: E402
from raise_model.store import Store  # noqa: E402


@pytest.fixture
def trained_store():
    """Make a store with one finished demo training of Center, without weights."""

    def make(root):
        made = Store(str(root))
        spec = trial_spec(
            model="raise", preset="demo", dataset="raven", configuration="center",
            train_digest="a", validation_digest="b", seed=0,
        )  # fmt: skip
        folder = made.trial(spec)
        folder.put_spec(spec)
        done = {"step": 3000, "best_step": 3000, "validation_accuracy": 0.8, "seconds": 300.0}
        made.create_json(folder.file("done.json"), done)
        curve = pd.DataFrame({"step": [3000.0], "validation_accuracy": [0.8]}).to_parquet()
        made.create(folder.file("curve.parquet"), curve)
        return made

    return make
