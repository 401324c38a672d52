"""The flow's parameters as the Prefect server and its form see them."""

import pytest

from flows.full_repro import full_repro
from flows.local_plan import plan_here, validated
from flows.presets import CONFIGURATIONS
from raise_model.errors import UserError

SCHEMA = full_repro.parameters.model_dump()
PROPERTIES = SCHEMA["properties"]


def test_every_parameter_has_a_default_a_description_and_a_place():
    assert SCHEMA.get("required", []) == []
    for name, about in PROPERTIES.items():
        assert "default" in about, name
        assert about["description"], name
    assert sorted(about["position"] for about in PROPERTIES.values()) == list(
        range(len(PROPERTIES))
    )


def test_parameters_are_flat_and_of_one_type_each():
    assert not SCHEMA.get("definitions")
    for name, about in PROPERTIES.items():
        assert "anyOf" not in about, name
        assert about["type"] in ("string", "integer", "number", "array", "boolean"), name


def test_choices_are_lists_in_the_form():
    assert PROPERTIES["preset"]["enum"] == ["auto", "paper", "lite", "demo", "smoke"]
    assert PROPERTIES["device"]["enum"] == ["auto", "cpu", "cuda"]
    assert PROPERTIES["configurations"]["items"]["enum"] == list(CONFIGURATIONS)


def test_the_defaults_are_valid():
    assert validated({})["preset"] == "auto"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"preset": "papr"}, "preset: Input should be 'auto'"),
        ({"label_ratio": 1.5}, "label_ratio: Input should be less than or equal to 1"),
        ({"trials": "many"}, "trials: Input should be a valid integer"),
        ({"max_hours": 0}, "max_hours: Input should be greater than 0"),
        ({"presets": "demo"}, "unknown parameter 'presets'; known: preset, studies"),
    ],
)
def test_a_wrong_value_is_one_line(parameters, message):
    with pytest.raises(UserError) as refusal:
        validated(parameters)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_a_plan_counts_trials_steps_and_missing_data(tmp_path):
    parameters = {"preset": "demo", "studies": ["main_table"], "trials": 3}
    plan, refusal = plan_here({**parameters, "store": str(tmp_path)})
    assert (plan.trials, plan.trials_done, plan.evaluations) == (3, 0, 6)
    assert (plan.splits, plan.splits_missing) == (4, 4)
    assert plan.steps % 3 == 0
    assert plan.steps > 0
    assert refusal == ""


def test_a_plan_above_max_hours_names_the_preset_that_fits(tmp_path):
    part = {"studies": ["main_table"], "models": ["raise"]}
    parameters = {"preset": "paper", "device": "cpu", "store": str(tmp_path), **part}
    plan, refusal = plan_here(parameters)
    assert plan.hours > 24
    assert "preset=paper would take about" in refusal
    assert "more than max_hours=24; use preset=lite" in refusal
    assert plan_here({**parameters, "max_hours": 1e6})[1] == ""


def test_a_preset_that_a_model_lacks_is_not_advised(tmp_path):
    parameters = {"preset": "lite", "studies": ["main_table"], "models": ["raise_plus"]}
    _, refusal = plan_here(
        {**parameters, "max_hours": 0.01, "device": "cpu", "store": str(tmp_path)}
    )
    assert "more than max_hours=0.01; ask for less" in refusal
