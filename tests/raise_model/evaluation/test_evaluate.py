"""What an evaluation refuses before it reads anything."""

import pytest

from raise_model.errors import UserError
from raise_model.evaluation.evaluate import PROTOCOLS, evaluate
from raise_model.specs import EvaluationSpec
from raise_model.store import Store


def spec(**changes):
    fields = {
        "protocol": "bottom_right", "options": {"space": "latent"}, "dataset": "raven",
        "configuration": "center", "split": "test", "digest": "0" * 64, "rounds": 1, "seed": 0,
        "revision": PROTOCOLS["bottom_right"].revision,
    }  # fmt: skip
    return EvaluationSpec(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": "top_left"}, "unknown protocol 'top_left'; known protocols: bottom_right"),
        ({"revision": 99}, "is of revision 99 of bottom_right, installed is 1"),
    ],
)
def test_unknown_protocol_and_revision_are_refused(tmp_path, changes, message):
    store = Store(str(tmp_path))
    with pytest.raises(UserError, match=message):
        evaluate(store, store.trial("none"), spec(**changes), device="cpu", cache=tmp_path)
