"""Every study lowers without running; nothing is there twice; what is identity and what not."""

import dataclasses
import json

import pytest

from flows.presets import PRESETS, STUDIES
from flows.studies import Request, lower, needed_splits
from raise_model.errors import UserError


def digest(*split):
    return "-".join(split)


def names(lowered):
    return [trial.name for trial in lowered.trials]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("study", STUDIES)
def test_every_study_lowers_under_every_preset(preset, study):
    lowered = lower(Request(preset=preset, studies=[study]), digest)
    assert len(lowered.trials) == PRESETS[preset].seeds * len(PRESETS[preset].configurations)
    assert {name for name, _ in lowered.evaluations} == set(names(lowered))


def test_nothing_is_there_twice():
    lowered = lower(Request(preset="lite"), digest)
    assert len(set(names(lowered))) == len(lowered.trials)
    pairs = [(name, spec.name) for name, spec in lowered.evaluations]
    assert len(set(pairs)) == len(pairs)


def test_answer_selection_only_evaluates_the_main_tables_trainings():
    table = lower(Request(preset="lite", studies=["main_table"]), digest)
    both = lower(Request(preset="lite"), digest)
    assert names(both) == names(table)
    assert len(both.evaluations) == 2 * len(table.evaluations)


def test_every_cell_gets_its_first_seed_before_any_a_second():
    seeds = [trial.seed for trial in lower(Request(preset="lite"), digest).trials]
    assert seeds == sorted(seeds)


def test_demo_is_two_seeds_of_raise_on_center_with_five_percent_labels():
    lowered = lower(Request(preset="demo"), digest)
    assert [(t.model, t.data.configuration, t.seed) for t in lowered.trials] == [
        ("raise", "center", 0),
        ("raise", "center", 1),
    ]
    assert {(t.data.label_ratio, t.data.label_map) for t in lowered.trials} == {(0.05, "official")}
    assert {spec.dataset for _, spec in lowered.evaluations} == {"raven", "iraven"}


def test_only_the_test_split_of_the_other_data_set_is_needed():
    assert sorted(needed_splits(Request(preset="demo"))) == [
        ("iraven", "center", "test"),
        ("raven", "center", "test"),
        ("raven", "center", "train"),
        ("raven", "center", "val"),
    ]


def test_the_papers_label_ratios_differ_by_configuration_unless_one_is_given():
    asked = {"preset": "paper", "configurations": ["center", "out_in_grid", "grid_3x3"]}
    ratios = [t.data.label_ratio for t in lower(Request(**asked, trials=1), digest).trials]
    assert ratios == [0.05, 0.2, 1.0]
    given = lower(Request(**asked, trials=1, label_ratio=0.0), digest)
    assert {t.data.label_ratio for t in given.trials} == {0.0}


def test_published_data_are_trained_and_tested_on_published_data():
    splits = needed_splits(Request(preset="demo", data="published"))
    assert {dataset for dataset, _, _ in splits} == {"raven_published", "iraven_published"}


def test_identity_has_no_path_no_device_and_no_resource():
    lowered = lower(Request(preset="demo"), digest)
    text = json.dumps([t.to_json() for t in lowered.trials]).lower()
    text += json.dumps([s.to_json() for _, s in lowered.evaluations]).lower()
    for word in ("store", "device", "cpus", "gpus", "thread", "path", "address"):
        assert f'"{word}' not in text


def test_a_learning_rate_and_a_digest_are_identity():
    trial = lower(Request(preset="demo"), digest).trials[0]
    rates = [key for key in trial.config if "learning_rate" in key or key == "lr"]
    assert rates
    changed = {**trial.config, rates[0]: trial.config[rates[0]] * 2}
    assert dataclasses.replace(trial, config=changed).fingerprint != trial.fingerprint
    other = lower(Request(preset="demo"), lambda *split: "other").trials[0]
    assert other.fingerprint != trial.fingerprint


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("preset", "papr", "unknown preset 'papr'; known: paper, lite"),
        ("models", ["raize"], "unknown model 'raize'; known: anp, clap, lgpp, raise"),
        ("configurations", ["centre"], "unknown configuration 'centre'; known: center"),
        ("studies", ["table"], "unknown study 'table'; known: main_table"),
        ("label_ratio", 1.5, "label_ratio must lie in"),
        ("label_ratio", -0.5, "label_ratio must lie in"),
        ("trials", -1, "trials must be 1 or more"),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(field, value, message):
    with pytest.raises(UserError) as refusal:
        Request(**{"preset": "demo", field: value})
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
