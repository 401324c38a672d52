"""What stands in the results table: rows, the paper's numbers, marks, averages."""

import dataclasses
import io
import math

import pandas as pd
import pytest
from rich.console import Console

from artifacts.numbers import selection_numbers
from artifacts.paper_cells import paper_cells
from artifacts.records import read_records
from artifacts.report_tables import SIGNS
from artifacts.results_table import results_table
from artifacts.tables import CONFIGURATIONS
from raise_model.presets import LABEL_RATIOS, shortened, trial_spec


@pytest.fixture
def center(store, make_spec, make_evaluation, evaluated):
    """Three seeds on Center, both data sets."""
    for seed, accuracy in enumerate((0.2, 0.3, 0.4)):
        evaluated(make_spec(seed), make_evaluation("raven"), [accuracy])
        evaluated(make_spec(seed), make_evaluation("iraven"), [accuracy + 0.1])
    return store


def preset_spec(configuration="center", *, model="raise", preset="lite", seed=0, **options):
    return trial_spec(
        model=model, preset=preset, dataset="raven", configuration=configuration,
        train_digest="a", validation_digest="b", seed=seed, **options,
    )  # fmt: skip


def table_of(store, **options):
    return results_table(read_records(store), **options)


def column(table, name="Center", test="RAVEN"):
    """Cells of a configuration by row, of rows that have one."""
    cells = table.cells[table.cells["test"] == test]
    found = dict(zip(cells["model"], cells[name], strict=True))
    return {model: text for model, text in found.items() if text != "·"}


def published(table, dataset="raven"):
    """By mean, what the details have of the paper; None for nothing."""
    rows = table.details[table.details["dataset"] == dataset]
    return {
        mean: None if math.isnan(paper) else paper
        for mean, paper in zip(rows["mean"].round(6), rows["published"], strict=True)
    }


def test_the_paper_stands_above_ours_with_a_sign(center):
    table = table_of(center)
    assert list(table.cells.columns) == ["model", "test", "paper", "Center"]
    assert list(table.cells["test"]) == ["RAVEN", "RAVEN", "I-RAVEN", "I-RAVEN"]
    ours = f"30.0 ± 10.0 {SIGNS['below']}"
    assert list(column(table).items()) == [("RAISE, paper", "99.2"), ("RAISE (custom)", ours)]
    assert column(table, test="I-RAVEN")["RAISE, paper"] == "99.8"
    assert list(table.details["dataset"]) == ["raven", "iraven"]


def test_heading_says_what_the_numbers_rest_on(center):
    heading = "\n".join(table_of(center, preset="demo").heading)
    assert "preset demo" in heading
    assert "1000 optimiser steps" in heading
    assert "rule labels: 5 % of the training problems; label map official" in heading
    assert "seeds 3" in heading


def test_fewer_than_three_seeds_have_no_mark(store, make_spec, make_evaluation, evaluated):
    for seed in range(2):
        evaluated(make_spec(seed), make_evaluation("raven"), [0.3])
    table = table_of(store)
    assert column(table)["RAISE (custom)"] == "30.0 ± 0.0"
    assert list(table.details["mark"]) == [""]
    assert "no signs against the paper: they need 3 seeds" in table.to_markdown()


def test_each_share_of_labels_has_a_row_and_the_paper_only_its_own(
    store, make_evaluation, evaluated
):
    shares = {0.0: 0.1, 0.01: 0.2, 0.05: 0.3, 0.2: 0.4, 1.0: 0.5}
    for ratio, accuracy in shares.items():
        spec = preset_spec(label_ratio=ratio, equal_exposure=True)
        evaluated(spec, make_evaluation("raven"), [accuracy])
    table = table_of(store)
    assert list(column(table).items()) == [
        ("RAISE, paper", "99.2"),
        ("RAISE (lite)", "30.0"),
        ("RAISE (-aux), paper", "30.2"),
        ("RAISE, 0 % labels (lite)", "10.0"),
        ("RAISE, 1 % labels (lite)", "20.0"),
        ("RAISE, 20 % labels (lite)", "40.0"),
        ("RAISE, 100 % labels (lite)", "50.0"),
    ]
    assert list(table.cells["paper"]) == [*["RAISE"] * 2, *["RAISE (-aux)"] * 2, *["·"] * 3]
    assert published(table) == {0.3: 0.992, 0.1: 0.302, 0.2: None, 0.4: None, 0.5: None}
    assert "Center 5 %" not in "".join(table.heading)
    assert "5 % of the training problems, unless a row says otherwise" in "".join(table.heading)


def test_an_ablation_is_not_beside_the_paper(store, make_evaluation, evaluated):
    for spec, accuracy in ((preset_spec(), 0.9), (shortened(preset_spec()), 0.5)):
        evaluated(spec, make_evaluation("raven"), [accuracy])
    table = table_of(store)
    assert column(table)["RAISE (lite, ablation)"] == "50.0"
    (row,) = table.cells[table.cells["model"] == "RAISE (lite, ablation)"].to_dict("records")
    assert row["paper"] == "·"
    assert published(table) == {0.9: 0.992, 0.5: None}
    # Nor where there is nothing else.
    alone = results_table([r for r in read_records(store) if r.presets != ("lite",)])
    assert list(column(alone)) == ["RAISE (lite, ablation)"]


def test_raise_plus_has_one_row_of_seven_configurations_and_their_average(
    store, make_evaluation, evaluated
):
    for place, name in enumerate(CONFIGURATIONS):
        if place == 6:
            assert "Average" not in table_of(store).cells.columns
        spec = preset_spec(name, model="raise_plus")
        evaluated(spec, make_evaluation(configuration=name), [place / 10])
    # One configuration has more seeds; the average is of those that all have.
    evaluated(preset_spec(model="raise_plus", seed=1), make_evaluation(), [0.8])
    table = table_of(store)
    assert len(set(table.details["label_map"].dropna())) == 2
    assert len(set(table.details["image_size"].dropna())) > 2
    assert list(table.cells["model"]) == ["RAISE, paper", "RAISE plus (lite)"]
    labels = ["Average", *CONFIGURATIONS.values()]
    assert list(table.cells.columns) == ["model", "test", "paper", *labels]
    assert list(table.cells[labels].iloc[1]) == [
        "30.0", "40.0 ± 56.6", "10.0", "20.0", "30.0", "40.0", "50.0", "60.0"
    ]  # fmt: skip
    assert list(table.cells["Average"]) == ["90.0", "30.0"]
    # Nothing is published for it.
    assert table.details["published"].isna().all()
    assert "RAISE plus is a model of this project" in table.to_markdown()
    (average,) = table.details[table.details["configuration"] == "average"].to_dict("records")
    assert (average["mean"], average["seeds"]) == (pytest.approx(0.3), 1)
    assert (average["model"], average["preset"]) == ("raise_plus", "lite")


def test_an_average_of_the_papers_model_is_marked(store, make_evaluation, evaluated):
    for name in CONFIGURATIONS:
        for seed in range(3):
            spec = preset_spec(name, seed=seed)
            evaluated(spec, make_evaluation(configuration=name), [0.6 + seed / 100])
    table = table_of(store)
    assert column(table, "Average")["RAISE (lite)"] == f"61.0 ± 1.0 {SIGNS['below']}"
    (average,) = table.details[table.details["configuration"] == "average"].to_dict("records")
    assert (average["published"], average["mark"]) == (0.9, "below")


@pytest.mark.parametrize("preset", [None, "demo", "lite"])
def test_numbers_and_marks_are_those_of_the_report(store, make_evaluation, evaluated, preset):
    specs = [
        *(preset_spec(preset="demo", seed=seed) for seed in range(3)),
        *(preset_spec("left_right", preset="demo", seed=seed) for seed in range(3)),
        *(preset_spec(seed=seed) for seed in range(3)),
        preset_spec(label_ratio=1.0),
        shortened(preset_spec()),
        preset_spec(model="raise_plus"),
    ]
    for place, spec in enumerate(specs):
        for space in ("latent", "pixel"):
            evaluation = make_evaluation(configuration=spec.data.configuration, space=space)
            evaluated(spec, evaluation, [0.99 - place / 100])
    records = read_records(store)
    wanted = {
        (round(each.ours.mean, 6), each.cell.value.accuracy, each.mark or "")
        for each in paper_cells(selection_numbers(records), preset)
        if each.ours is not None
    }
    details = results_table(records, preset=preset).details
    compared = details[details["published"].notna()]
    columns = (compared["mean"].round(6), compared["published"], compared["mark"])
    assert set(zip(*columns, strict=True)) == wanted
    assert wanted
    assert set(details["mark"][details["published"].isna()]) == {""}


@pytest.mark.usefixtures("center")
def test_settings_that_differ_have_their_own_rows(store, make_spec, make_evaluation, evaluated):
    evaluated(make_spec(0, steps=2000), make_evaluation("raven"), [0.6])
    evaluated(make_spec(0, "left_right"), make_evaluation("raven", "left_right"), [0.7])
    table = table_of(store)
    # The report takes the training of more seeds.
    assert column(table) == {
        "RAISE, paper": "99.2",
        "RAISE (custom)": f"30.0 ± 10.0 {SIGNS['below']}",
        "RAISE (custom, 2000 steps)": "60.0",
    }
    assert column(table, "L-R")["RAISE (custom)"] == "70.0"


def test_evaluations_that_differ_in_rounds_alone_are_both_shown(
    store, make_spec, make_evaluation, evaluated
):
    for rounds in (1, 2):
        evaluation = dataclasses.replace(make_evaluation(), rounds=rounds)
        evaluated(make_spec(), evaluation, [0.5 + rounds / 10] * rounds)
    texts = column(table_of(store))
    assert sorted(texts.values()) == ["60.0", "70.0", "99.2"]
    assert texts.keys() & {"RAISE (custom, rounds 1)", "RAISE (custom, rounds 2)"}


def test_pixels_have_a_row_below_the_papers_pixels(store, make_spec, make_evaluation, evaluated):
    for space, accuracy in (("latent", 0.9), ("pixel", 0.8)):
        evaluated(make_spec(), make_evaluation("raven", space=space), [accuracy])
    assert list(column(table_of(store)).items()) == [
        ("RAISE, paper", "99.2"),
        ("RAISE (custom)", "90.0"),
        ("RAISE-pixel, paper", "95.2"),
        ("RAISE, pixel (custom)", "80.0"),
    ]


def test_held_out_rules_are_a_configuration_with_labels_of_its_own(
    store, make_spec, make_evaluation, evaluated
):
    spec = trial_spec(
        model="raise", preset="lite", dataset="raven_held_out", configuration="out_in_center",
        train_digest="a", validation_digest="b", seed=0, label_ratio=0.2,
    )  # fmt: skip
    assert LABEL_RATIOS["out_in_center"] != 0.2
    evaluated(spec, make_evaluation("raven_held_out", "out_in_center"), [0.5])
    table = table_of(store)
    assert list(column(table, "O-IC-Held-Out"))[1] == "RAISE (lite)"
    assert published(table, "raven_held_out")[0.5] is not None


def test_markdown_has_both_spreads(center):
    text = table_of(center).to_markdown()
    lines = [line for line in text.splitlines() if line.startswith("| raise | Center | raven")]
    assert len(lines) == 1
    assert "| custom | 5.0 | 30.0 | 10.0 | 5.2..54.8 | 28.0..32.0 | 20.0 |" in lines[0]
    assert "| 99.2 | below |" in lines[0]


def test_csv_holds_every_number(center):
    frame = pd.read_csv(io.StringIO(table_of(center).to_csv()))
    raven = frame[frame["dataset"] == "raven"].iloc[0]
    assert raven["mean"] == pytest.approx(0.3)
    assert raven["std"] == pytest.approx(0.1)
    assert raven["published"] == pytest.approx(0.992)
    assert raven["label_map"] == "official"


def test_empty_table_says_so(store):
    table = table_of(store)
    assert table.to_rows() == []
    assert "no results yet" in table.to_markdown()
    assert "published" in table.to_csv()
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    assert "no results yet" in console.file.getvalue()


def test_seen_test_problems_are_flagged_and_reported_apart(
    store, make_spec, make_evaluation, evaluated
):
    clean = {"problems": 3, "accuracy": [0.5], "unseen_accuracy": [0.6]}
    leak = {"problems": 860, "accuracy": [0.9, 0.8], "unseen_accuracy": [0.5, 0.6]}
    evaluated(make_spec(), make_evaluation("raven"), [0.6], seen=clean)
    evaluated(make_spec(), make_evaluation("iraven"), [0.6], seen=None)
    evaluated(make_spec(), make_evaluation("iraven_overlapping"), [0.7], seen=leak)
    table = table_of(store)
    assert column(table, test="I-RAVEN")["RAISE (custom)"] == "60.0"
    # A test set of our own, with nothing of the paper.
    assert column(table, test="iraven_overlapping") == {"RAISE (custom)": "70.0†"}
    assert published(table, "iraven_overlapping") == {0.7: None}
    text = table.to_markdown()
    assert "nine panels of 860 of 2000 test problems; seen 85.0, unseen 55.0" in text
    assert "43.0: 85.0, others 55.0" in text
    assert "0.2: 50.0, others 60.0" in text
    assert "it is not known whether training shows" in text
