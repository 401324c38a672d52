"""Every study lowers without running; nothing is there twice; what is identity and what not."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from flows.lowering import waves
from flows.presets import PRESETS, STUDIES
from flows.studies import Request, lower, needed_splits
from raise_model.errors import UserError
from raise_model.evaluation import evaluate
from raise_model.store import Store

EVALUATION_ONLY = (
    "answer_selection",
    "arbitrary_position",
    "odd_one_out",
    "latent_concepts",
    "multi_answer",
)
PAPER_MODELS = ["raise", "transformer", "clap", "anp", "lgpp"]


@pytest.fixture(autouse=True)
def protocols(monkeypatch):
    found = {name: SimpleNamespace(revision=1) for name in evaluate.PROTOCOLS}
    monkeypatch.setattr(evaluate, "PROTOCOLS", found)


def digest(*split):
    return "-".join(split)


def names(lowered):
    return [trial.name for trial in lowered.trials]


def lowered_of(preset, *studies, **options):
    return lower(Request(preset=preset, studies=studies, **options), digest)


def studies_of(preset):
    return [study for study in STUDIES if study != "ablation" or preset == "lite"]


@pytest.mark.parametrize(("preset", "study"), [(p, s) for p in PRESETS for s in studies_of(p)])
def test_every_study_lowers_under_every_preset(preset, study):
    lowered = lowered_of(preset, study, trials=1)
    assert lowered.trials
    assert {name for name, _ in lowered.evaluations} <= set(names(lowered))
    lines = [spec.dataset for _, spec in lowered.evaluations]
    # The others' protocols are those of solvers that support them.
    assert lines or study not in ("main_table", "label_ratio", *EVALUATION_ONLY[:2])


@pytest.mark.parametrize("preset", PRESETS)
def test_nothing_is_there_twice(preset):
    everything = lowered_of(preset, *studies_of(preset), trials=2)
    parts = [lowered_of(preset, study, trials=2) for study in studies_of(preset)]
    assert len(set(names(everything))) == len(everything.trials)
    assert set(names(everything)) == {name for part in parts for name in names(part)}
    pairs = [(name, spec.name) for name, spec in everything.evaluations]
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) == {(n, spec.name) for part in parts for n, spec in part.evaluations}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_presets_own_studies_are_their_union(preset):
    own = lower(Request(preset=preset, trials=1), digest)
    assert own == lowered_of(preset, *PRESETS[preset].studies, trials=1)


@pytest.mark.parametrize("study", EVALUATION_ONLY)
@pytest.mark.parametrize("preset", PRESETS)
def test_studies_that_only_evaluate_train_what_the_main_table_trains(preset, study):
    table = lowered_of(preset, "main_table", models=["raise", "transformer", "anp"], trials=2)
    both = lowered_of(preset, "main_table", study, models=["raise", "anp"], trials=2)
    alone = lowered_of(preset, study, models=["raise", "transformer", "anp"], trials=2)
    assert names(alone) == names(table)
    assert set(names(both)) < set(names(table))


def test_every_cell_gets_its_first_seed_before_any_a_second():
    seeds = [trial.seed for trial in lower(Request(preset="lite"), digest).trials]
    assert set(seeds) == {0, 1, 2}
    assert seeds == sorted(seeds)


def test_of_the_first_seeds_the_cheap_trainings_come_first():
    """Studies in order; costs that are not far apart change nothing."""
    trials = lowered_of("paper", "main_table", "no_labels", trials=2).trials
    first = [(t.model, t.steps) for t in trials if t.seed == 0 and t.data.label_ratio]
    cheap = {"anp", "lgpp", "clap"}
    table = [t.model for t in trials if t.seed == 0][: 5 * 7]
    assert set(table[:21]) == cheap
    assert set(table[21:]) == {"transformer", "raise"}
    assert [steps for model, steps in first if model == "raise"] == [120_000] * 2 + [600_000] * 5
    assert [t.data.label_ratio for t in trials if t.seed == 0][5 * 7 :] == [0.0] * 7
    lite = [
        t.model for t in lowered_of("lite", "main_table", trials=1).trials
        if not t.data.configuration.startswith("out_in")  # more steps of RAISE than elsewhere
    ]  # fmt: skip
    assert (lite[:5], lite[-5:]) == (["lgpp"] * 5, ["raise"] * 5)
    near = [model for model in PAPER_MODELS if model not in ("lgpp", "raise")]
    assert lite[5:-5] == near * 5


def test_demo_is_two_seeds_of_raise_on_center_with_five_percent_labels():
    lowered = lower(Request(preset="demo"), digest)
    assert [(t.model, t.data.configuration, t.seed) for t in lowered.trials] == [
        ("raise", "center", 0),
        ("raise", "center", 1),
    ]
    assert {(t.data.label_ratio, t.data.label_map) for t in lowered.trials} == {(0.05, "official")}
    assert {spec.dataset for _, spec in lowered.evaluations} == {"raven", "iraven"}


def test_only_the_test_split_of_the_other_data_set_is_needed():
    assert sorted(needed_splits(Request(preset="demo", studies=["main_table"]))) == [
        ("iraven", "center", "test"),
        ("raven", "center", "test"),
        ("raven", "center", "train"),
        ("raven", "center", "val"),
    ]


def test_paper_and_lite_have_all_that_the_paper_has():
    """Seeds, cells and models of the paper's tables."""
    assert (PRESETS["paper"].seeds, PRESETS["lite"].seeds) == (10, 3)
    for preset, seeds in (("paper", 2), ("lite", 3)):
        lowered = lower(Request(preset=preset, trials=seeds), digest)
        cells = {}
        for trial in lowered.trials:
            key = (trial.model, trial.data.configuration, trial.data.dataset)
            cells.setdefault((*key, trial.data.label_ratio), []).append(trial.seed)
        assert {tuple(found) for found in cells.values()} == {tuple(range(seeds))}
        # Main table and noise: 10 configurations of five models; held out: two; RAISE without
        # labels: seven.
        assert len(cells) == 50 + 10 + 7
        assert {model for model, *_ in cells} == set(PAPER_MODELS)


def test_the_papers_label_ratios_differ_by_configuration_unless_one_is_given():
    asked = {"configurations": ["center", "out_in_grid", "grid_3x3"], "models": ["raise"]}
    trials = lowered_of("paper", "main_table", **asked, trials=1).trials
    ratios = {t.data.configuration: t.data.label_ratio for t in trials}
    assert ratios == {"center": 0.05, "out_in_grid": 0.2, "grid_3x3": 1.0}
    given = lowered_of("paper", "main_table", **asked, trials=1, label_ratio=0.5)
    assert {t.data.label_ratio for t in given.trials} == {0.5}


def test_without_labels_only_models_that_read_them_are_trained_again():
    lowered = lowered_of("lite", "no_labels", models=PAPER_MODELS, trials=1, label_ratio=0.5)
    assert [t.model for t in lowered.trials] == ["raise"] * 7
    assert {t.data.label_ratio for t in lowered.trials} == {0.0}
    assert len(lowered.evaluations) == 14


@pytest.mark.parametrize("preset", ["paper", "lite", "demo"])
def test_all_label_ratios_have_the_same_steps_and_settings(preset):
    lowered = lowered_of(preset, "label_ratio", trials=1)
    assert [t.data.label_ratio for t in lowered.trials] == [0, 0.01, 0.05, 0.1, 0.2, 0.5, 1]
    assert {t.data.configuration for t in lowered.trials} == {"center"}
    same = [dataclasses.replace(t.data, label_ratio=0.0) for t in lowered.trials]
    specs = [
        dataclasses.replace(t, data=data).fingerprint
        for t, data in zip(lowered.trials, same, strict=True)
    ]
    assert len(set(specs)) == 1


def test_the_ratio_curve_shares_the_main_tables_trainings_where_batches_are_joint():
    table = lowered_of("lite", "main_table", models=["raise"], configurations=["center"])
    both = lowered_of(
        "lite", "main_table", "label_ratio", models=["raise"], configurations=["center"]
    )
    assert set(names(table)) <= set(names(lowered_of("lite", "label_ratio")))
    assert len(both.trials) == 7 * 3


def test_the_ratio_curve_follows_the_configurations_asked_for():
    lowered = lowered_of("lite", "label_ratio", trials=1, configurations=["out_in_center"])
    assert {t.data.configuration for t in lowered.trials} == {"out_in_center"}


def test_first_seeds_are_a_part_of_their_own_while_both_parts_have_work(tmp_path):
    store = Store(str(tmp_path))
    names = ["center", "left_right"]
    trials = lowered_of("smoke", "main_table", trials=3, configurations=names).trials

    def finish(trial):
        folder = store.trial(trial)
        path = tmp_path / folder.file("done.json")
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        assert folder.is_done

    first, others = waves(store, trials, slots=1)
    assert {trial.seed for trial in first} == {0}
    assert [*first, *others] == sorted(trials, key=lambda trial: trial.seed)
    assert len(waves(store, trials, slots=2)) == 2
    finish(first[0])
    assert len(waves(store, trials, slots=1)) == 2
    for trial in first[1:]:
        finish(trial)
    assert waves(store, trials, slots=1) == [list(trials)]
    assert waves(store, [], slots=1) == [[]]
    assert waves(store, first, slots=1) == [list(first)]


def test_first_seeds_that_leave_slots_idle_are_no_part_of_their_own(tmp_path):
    trials = lowered_of(
        "smoke", "main_table", trials=2, models=["raise"], configurations=["center"]
    ).trials
    assert len(trials) == 2
    assert waves(Store(str(tmp_path)), trials, slots=2) == [list(trials)]
    assert len(waves(Store(str(tmp_path)), trials, slots=1)) == 2


def test_the_ablation_compares_trainings_of_one_network():
    lowered = lowered_of("lite", "ablation", trials=2)
    assert len(lowered.trials) == (2 + 2 + 3) * 2
    of_grid = [t for t in lowered.trials if t.data.configuration == "grid_2x2" and t.seed == 0]
    assert [(t.model, t.data.label_map, t.config["optimizer"]) for t in of_grid] == [
        ("raise", "official", "rmsprop"),
        ("raise", "official", "adamw"),
        ("raise_plus", "separate", "adamw"),
    ]
    assert [t.steps for t in of_grid] == [9_000, 5_000, 5_000]
    assert len(lowered.evaluations) == 2 * len(lowered.trials)
    assert {t.data.configuration for t in lowered.trials} == {"center", "left_right", "grid_2x2"}
    with pytest.raises(UserError, match=r"study ablation .* not of demo: ask for preset=lite"):
        lowered_of("demo", "ablation")


def test_noise_is_tested_on_the_three_grids_that_have_it():
    lowered = lowered_of("lite", "uniform_noise", models=["raise"], trials=1)
    assert [(t.data.configuration, t.data.label_ratio) for t in lowered.trials] == [
        ("out_in_grid_uni", 0.2),
        ("grid_2x2_uni", 0.2),
        ("grid_3x3_uni", 0.2),
    ]
    one = lowered_of("lite", "main_table", "uniform_noise", trials=1, configurations=["center"])
    assert {t.data.configuration for t in one.trials} == {"center"}


def test_of_data_without_noisy_grids_only_those_named_are_asked_for():
    for data in ("published", "overlapping"):
        lowered = lower(Request(preset="lite", data=data), digest)
        assert not any(t.data.configuration.endswith("_uni") for t in lowered.trials)
    named = lowered_of(
        "lite", "uniform_noise", data="published", configurations=["center", "grid_2x2_uni"]
    )
    assert {t.data.configuration for t in named.trials} == {"grid_2x2_uni"}


def test_held_out_trains_and_tests_on_the_splits_by_rule():
    lowered = lowered_of("lite", "held_out", models=["raise", "anp"], trials=1, label_ratio=0.5)
    assert [(t.model, t.data.configuration, t.data.label_ratio) for t in lowered.trials] == [
        ("anp", "center", 0.0),
        ("anp", "out_in_center", 0.0),
        ("raise", "center", 0.05),
        ("raise", "out_in_center", 0.2),
    ]
    assert {t.data.dataset for t in lowered.trials} == {"raven_held_out"}
    assert {t.data.train_digest for t in lowered.trials} == {
        "raven_held_out-center-train",
        "raven_held_out-out_in_center-train",
    }
    assert {spec.dataset for _, spec in lowered.evaluations} == {
        "raven_held_out",
        "iraven_held_out",
    }


def test_the_transformers_grid_is_the_papers_with_one_seed_and_no_test():
    lowered = lowered_of("paper", "transformer_grid", configurations=["center"])
    points = {
        (t.config["learning_rate"], t.config["representation_size"], t.config["blocks"])
        for t in lowered.trials
    }
    assert points == {
        (rate, size, blocks)
        for rate in (5e-4, 1e-4, 5e-5)
        for size in (512, 256, 128)
        for blocks in (2, 4, 6)
    }
    assert len(lowered.trials) == 27
    assert {t.seed for t in lowered.trials} == {0}
    assert lowered.evaluations == ()
    with pytest.raises(UserError, match="nothing to do: transformer_grid"):
        lowered_of("paper", "transformer_grid", models=["raise"])


@pytest.mark.parametrize("preset", PRESETS)
def test_the_grid_has_the_main_tables_training(preset):
    table = lowered_of(preset, "main_table", models=["transformer"], trials=1)
    assert set(names(table)) <= set(names(lowered_of(preset, "transformer_grid")))


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


def test_a_search_tries_the_presets_own_setting_and_points_around_it():
    lowered = lowered_of("lite", "search", models=["raise", "anp"], configurations=["center"])
    table = lowered_of("lite", "main_table", models=["raise", "anp"], configurations=["center"])
    assert len(lowered.trials) == 2 * 27
    assert {t.seed for t in lowered.trials} == {0}
    assert lowered.evaluations == ()
    assert lowered.prunable == frozenset(names(lowered))
    own = {t.name for t in table.trials if t.seed == 0}
    assert own <= set(names(lowered))
    assert names(lowered) == names(
        lowered_of("lite", "search", models=["raise", "anp"], configurations=["center"])
    )


def test_what_another_study_trains_is_never_given_up():
    asked = {"models": ["transformer"], "configurations": ["center"], "trials": 1}
    table = lowered_of("lite", "main_table", **asked)
    both = lowered_of("lite", "search", "main_table", **asked)
    assert table.prunable == frozenset()
    assert both.prunable == frozenset(names(both)) - set(names(table))
    assert len(both.prunable) == 26
