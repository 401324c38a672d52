"""What each model does otherwise than its paper and its authors' code: the report's footnotes.

A model says it once, as the list in the docstring of its module.
"""

import inspect
import re
import sys

from raise_model.models import registry


def departures(model: str) -> list[str]:
    """One text each, with code between backticks.

    Empty for a module without such a list, and for a model that is not registered here.
    """
    if model not in registry.names():
        return []
    text = inspect.getdoc(sys.modules[registry.solver_class(model).__module__]) or ""
    items = re.findall(r"(?m)^\* (.+(?:\n  .+)*)", text)
    return [_plain(item) for item in items]


def _plain(item: str) -> str:
    """A list's item of reStructuredText in one line, its roles and code as plain code."""
    return re.sub(r"(?::\w+:)?`{1,2}([^`]+)`{1,2}", r"`\1`", " ".join(item.split()))
