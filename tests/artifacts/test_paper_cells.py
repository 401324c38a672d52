"""Every number of the paper has one cell, and in it what its training gave."""

import dataclasses
import itertools

import pandas as pd
import pytest

from artifacts import published
from artifacts.gaps import Asking, gaps
from artifacts.numbers import selection_numbers
from artifacts.paper_cells import paper_cells
from artifacts.paper_tables import paper_tables
from artifacts.records import EvaluationRecord, TrialRecord
from raise_model.presets import trial_spec
from raise_model.specs import EvaluationSpec

SEVEN = ("center", "left_right", "up_down", "out_in_center", "out_in_grid", "grid_2x2", "grid_3x3")
RATIO = dict(zip(SEVEN, (0.05, 0.05, 0.05, 0.05, 0.2, 1.0, 1.0), strict=True))
OURS = {"RAISE": "raise", "Transformer": "transformer", "ANP": "anp", "LGPP": "lgpp"}
OURS |= {"CLAP": "clap", "CLAP-NP": "clap"}
SETTINGS = list(itertools.product((1, 2), (1, 3, 7, 15)))


def training(model, configuration, *, seed=0, ratio=None, dataset="raven", preset="lite"):
    return trial_spec(
        model=model, preset=preset, dataset=dataset, configuration=configuration,
        train_digest="a", validation_digest="b", seed=seed, label_ratio=ratio,
    )  # fmt: skip


def evaluation(spec, dataset, result, *, protocol="bottom_right", split="test", **options):
    made = EvaluationSpec(
        protocol=protocol, options=options, dataset=dataset, split=split, digest="c", rounds=1,
        configuration=spec.data.configuration, seed=0, revision=1,
    )  # fmt: skip
    return EvaluationRecord(spec=made, result={"problems": 2000} | result, path="")


def trial(spec, *evaluations):
    done = {"validation_accuracy": 0.5, "best_step": 10, "seconds": 1.0}
    return TrialRecord(spec=spec, done=done, evaluations=evaluations)


def cells_of(records, preset=None):
    return paper_cells(selection_numbers(records), preset)


def one(cells, table, dataset, configuration, model):
    key = (table, dataset, configuration, model)
    (found,) = [
        c for c in cells
        if (c.cell.table, c.cell.dataset, c.cell.configuration, c.cell.model) == key
    ]  # fmt: skip
    return found


def center(cells, dataset="RAVEN"):
    return one(cells, "bottom_right_selection", dataset, "center", "RAISE")


def test_every_row_of_the_csv_has_one_cell_in_one_table():
    rows = published.frame().to_dict("records")
    cells = paper_cells([])
    assert len(cells) == len(rows) == 912
    for row, each in zip(rows, cells, strict=True):
        cell = each.cell
        assert (cell.table, cell.dataset, cell.configuration, cell.model) == (
            row["table"], row["dataset"], row["configuration"], row["model"],
        )  # fmt: skip
        assert 100 * cell.value.accuracy == pytest.approx(row["accuracy_percent"])
        assert pd.isna(row["std_percent"]) == (cell.value.std is None)
    shown = [c.place for t in paper_tables(cells) for c in t.cells() if c.place is not None]
    assert sorted(shown) == list(range(912))


def full_store():
    """All trainings of the five generative models, each accuracy a number of its own.

    Returns the records and, written beside them, what each row of the paper should show.
    """
    values = (place / 10_000 for place in itertools.count(1))
    expected, records = {}, []
    tests = (("RAVEN", "raven"), ("I-RAVEN", "iraven"))
    for model in ("raise", "transformer", "anp", "lgpp", "clap"):
        space = "pixel" if model == "anp" else "latent"
        names = [name for name, key in OURS.items() if key == model]
        for configuration in SEVEN:
            spec, evaluations = training(model, configuration), []
            for label, dataset in tests:
                value = next(values)
                evaluations.append(evaluation(spec, dataset, {"accuracy": [value]}, space=space))
                tables = ["bottom_right_selection"]
                if model != "raise":
                    tables.append("bottom_right_selection_no_labels")
                for table, name in itertools.product(tables, names):
                    expected[table, label, configuration, name, None, None] = value
                if model == "raise":
                    key = ("answer_selection_strategy", label, configuration)
                    expected[*key, "RAISE-latent", None, None] = value
                    pixel = next(values)
                    evaluations.append(
                        evaluation(spec, dataset, {"accuracy": [pixel]}, space="pixel")
                    )
                    expected[*key, "RAISE-pixel", None, None] = pixel
                settings = []
                for targets, wrong in SETTINGS:
                    value = next(values)
                    settings.append({"targets": targets, "distractors": wrong, "problems": 2000,
                                     "accuracy": [value]})  # fmt: skip
                    for name in names:
                        key = ("arbitrary_position", label, configuration, name)
                        expected[*key, targets, wrong] = value
                for masks, duplicates in (("batch", "keep"), ("problem", "keep")):
                    # A variant of ours must not stand in the paper's table.
                    shown = (
                        settings
                        if masks == "batch"
                        else [s | {"accuracy": [0.99]} for s in settings]
                    )
                    evaluations.append(
                        evaluation(
                            spec,
                            dataset,
                            {"settings": shown},
                            protocol="arbitrary_position",
                            space=space,
                            masks=masks,
                            duplicates=duplicates,
                        )
                    )
            records.append(trial(spec, *evaluations))
        for configuration in ("out_in_grid_uni", "grid_2x2_uni", "grid_3x3_uni"):
            spec, evaluations = training(model, configuration), []
            for label, dataset in tests:
                value = next(values)
                evaluations.append(evaluation(spec, dataset, {"accuracy": [value]}, space=space))
                for name in names:
                    key = ("bottom_right_selection_uni", label, configuration, name)
                    expected[*key, None, None] = value
            records.append(trial(spec, *evaluations))
        for configuration, ratio in (("center", 0.05), ("out_in_center", 0.2)):
            spec = training(model, configuration, ratio=ratio, dataset="raven_held_out")
            value = next(values)
            records.append(
                trial(spec, evaluation(spec, "raven_held_out", {"accuracy": [value]}, space=space))
            )
            for name in names:
                key = ("held_out", "RAVEN", f"{configuration}_held_out", name)
                expected[*key, None, None] = value
    for configuration in SEVEN:
        spec, evaluations = training("raise", configuration, ratio=0.0), []
        for label, dataset in tests:
            value = next(values)
            evaluations.append(evaluation(spec, dataset, {"accuracy": [value]}, space="latent"))
            key = ("bottom_right_selection_no_labels", label, configuration, "RAISE (-aux)")
            expected[*key, None, None] = value
        records.append(trial(spec, *evaluations))
    return records, expected


def test_each_cell_shows_its_own_training_and_evaluation():
    records, expected = full_store()
    filled = 0
    for each in cells_of(records):
        c = each.cell
        key = (c.table, c.dataset, c.configuration, c.model, c.num_targets, c.num_distractors)
        if c.configuration == "average":
            parts = [(c.table, c.dataset, name, *key[3:]) for name in SEVEN]
            known = [expected[part] for part in parts if part in expected]
            wanted = sum(known) / 7 if len(known) == 7 else None
        else:
            wanted = expected.get(key)
        assert (each.ours is None) == (wanted is None), key
        if each.ours is not None:
            assert each.ours.mean == pytest.approx(wanted), key
            filled += 1
    # Without the tables' rows of PrAE, ALANS and the three GCA: 5 of 10 models.
    assert filled == 912 - 5 * (16 + 6 + 2)
    assert not [gap for gap in gaps(cells_of(records), Asking(preset=None)) if gap.command]


def test_a_training_of_another_ratio_is_not_the_papers():
    spec = training("raise", "center", ratio=0.2)
    record = trial(spec, evaluation(spec, "raven", {"accuracy": [0.5]}, space="latent"))
    assert center(cells_of([record])).ours is None


def test_validation_problems_never_stand_in_a_table():
    spec = training("raise", "center")
    made = evaluation(spec, "raven", {"accuracy": [0.5]}, space="latent", split="val")
    assert center(cells_of([trial(spec, made)])).ours is None


def with_accuracy(preset, accuracy, seed=0):
    spec = training("raise", "center", preset=preset, seed=seed)
    return trial(spec, evaluation(spec, "raven", {"accuracy": [accuracy]}, space="latent"))


def test_the_larger_preset_stands_in_the_table_whatever_its_accuracy():
    records = [with_accuracy("demo", 0.9), with_accuracy("lite", 0.2), with_accuracy("smoke", 1.0)]
    for order in itertools.permutations(records):
        assert center(cells_of(order)).ours.mean == 0.2
    assert center(cells_of(records, "demo")).ours.mean == 0.9
    assert center(cells_of(records, "paper")).ours is None


def test_marks_need_three_seeds_and_follow_the_interval():
    two = [with_accuracy("lite", 0.99 + seed / 1000, seed) for seed in range(2)]
    assert center(cells_of(two)).mark is None
    three = [*two, with_accuracy("lite", 0.994, 2)]
    assert center(cells_of(three)).mark == "inside"
    low = [with_accuracy("lite", 0.5 + seed / 1000, seed) for seed in range(3)]
    assert center(cells_of(low)).mark == "below"


def test_an_average_is_by_seed_over_the_seven():
    records = []
    for place, name in enumerate(SEVEN):
        for seed in range(3 if name != "grid_3x3" else 2):
            spec = training("raise", name, seed=seed)
            value = place / 10 + seed / 100
            records.append(
                trial(spec, evaluation(spec, "raven", {"accuracy": [value]}, space="latent"))
            )
    found = one(cells_of(records), "bottom_right_selection", "RAVEN", "average", "RAISE")
    # Seeds 0 and 1, which all seven have: means .3 and .31.
    assert found.ours.mean == pytest.approx(0.305)
    assert found.ours.spreads["std"] == pytest.approx(0.01 / 2**0.5)
    assert found.ours.spreads["seeds"] == 2
    assert len(found.ours.seeds) == 14
    six = [record for record in records if record.spec.data.configuration != "center"]
    assert one(cells_of(six), "bottom_right_selection", "RAVEN", "average", "RAISE").ours is None


def test_error_of_a_published_average_is_that_of_seven_samples():
    found = one(paper_cells([]), "bottom_right_selection", "RAVEN", "average", "RAISE").cell.value
    percent = [99.2, 98.5, 99.3, 97.6, 89.3, 68.2, 77.7]
    variance = sum(p / 100 * (1 - p / 100) / 2000 for p in percent)
    assert found.error == pytest.approx(variance**0.5 / 7)


def test_the_newest_revision_stands_in_the_table():
    old, new = (with_accuracy("lite", accuracy) for accuracy in (0.9, 0.3))
    newer = dataclasses.replace(new.spec, revision=old.spec.revision + 1)
    more_seeds = with_accuracy("lite", 0.9, 1)
    records = [old, more_seeds, trial(newer, *new.evaluations)]
    found = center(cells_of(records))
    assert found.ours.mean == 0.3
    assert found.ours.presets == ("lite",)
