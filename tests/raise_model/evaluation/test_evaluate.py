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


@pytest.mark.parametrize(
    ("protocol", "options", "message"),
    [
        ("rule_accuracy", {"space": "latent"}, "rule_accuracy takes no options; given: space"),
        ("bottom_right", {}, "bottom_right takes the options space; given: none"),
        ("odd_one_out", {"odd": "top"}, "odd is one of any, bottom_right, candidate, not 'top'"),
        (
            "multi_answer",
            {"targets": 1, "samples": 0, "noise": 0.0},
            "samples is a whole number above 0, not 0",
        ),
        (
            "multi_answer",
            {"targets": 1, "samples": 2, "noise": True},
            "noise is a number of 0 or more, not True",
        ),
        ("multi_answer", {"targets": 3, "samples": 2, "noise": 0}, "targets is one of 1, 2, not 3"),
    ],
)
def test_options_that_a_protocol_does_not_take_are_refused(tmp_path, protocol, options, message):
    store = Store(str(tmp_path))
    asked = spec(protocol=protocol, options=options, revision=PROTOCOLS[protocol].revision)
    with pytest.raises(UserError, match=message):
        evaluate(store, store.trial("none"), asked, device="cpu", cache=tmp_path)
