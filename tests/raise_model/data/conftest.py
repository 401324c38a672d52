"""Real files and small generated sets."""

from pathlib import Path

import pytest

from raise_model.data.generate import generate
from raise_model.store import Store

PUBLISHED = Path(__file__).parents[2] / "data" / "published"


@pytest.fixture(scope="session")
def published():
    """Folder of ``raven`` and ``iraven``: a few problems in the published format."""
    return PUBLISHED


@pytest.fixture(scope="session")
def generated(tmp_path_factory):
    """A store with 100 problems of ``raven`` grid_2x2, which nobody writes to."""
    store = Store(str(tmp_path_factory.mktemp("generated")))
    generate(store, dataset="raven", configuration="grid_2x2", problems=100)
    return store
