"""Tables of what the paper has no cell for, and rows of this project's own models."""

import dataclasses
import re

from artifacts.report import build_report
from artifacts.studies import ABLATION_CONFIGURATIONS, ODD, RATIOS, WAYS
from flows import study_evaluations, study_trainings
from flows.request import Request
from raise_model.presets import as_published, shortened

SEVEN = ("center", "left_right", "up_down", "out_in_center", "out_in_grid", "grid_2x2", "grid_3x3")


def table_of(report, key):
    (table,) = [table for table in (*report.paper, *report.own) if table.key == key]
    return table


def rows_of(report, key):
    return table_of(report, key).frame().to_dict("records")


def test_results_that_the_paper_lacks_have_tables_of_their_own(filled):
    report = build_report(filled)
    # RAISE plus has a row in the paper's tables.
    assert "own-models" not in {table.key for table in report.own}
    (row,) = rows_of(report, "odd-one-out")
    assert row["panel accuracy"] == "0.500 ± 0.100"
    assert row["chance panel"] == "0.111 ± 0.000"
    (row,) = rows_of(report, "odd-one-out-by-attribute")
    assert row["type"] == "0.350 ± 0.100"
    (row,) = rows_of(report, "odd-one-out-by-position")
    assert [row[str(place)] for place in (1, 9)] == ["0.000 ± 0.000", "0.800 ± 0.000"]


def test_an_own_models_numbers_stand_below_the_model_that_it_extends(filled):
    report = build_report(filled, preset="lite")
    rows = rows_of(report, "bottom_right_selection-i-raven")
    names = [row["Model"] for row in rows]
    place = names.index("RAISE plus")
    assert names[place - 1] == "RAISE"
    assert (rows[place]["Center"], rows[place]["L-R"]) == ("98.7", "·")
    assert rows[place - 1]["Center"] == "· / 99.8"
    names = [row["Model"] for row in rows_of(report, "answer_selection_strategy-i-raven")]
    assert "RAISE plus, latent" in names
    assert not any("pixel" in name and "plus" in name for name in names)
    raven = [row["Model"] for row in rows_of(report, "bottom_right_selection-raven")]
    assert "RAISE plus" not in raven
    counts = report.summary()["cells"]
    # Main table and answer selection; neither reproduced nor missing.
    assert (counts["reproduced"], counts["own model only"]) == (0, 2)
    notes = " ".join(table_of(report, "bottom_right_selection-i-raven").notes)
    assert "Nothing of the paper's own models is reproduced yet" in notes
    assert "all of ours: preset lite, 1 seed." in notes
    assert "Rule labels of RAISE plus" in notes
    assert "Center 5 % (merged)" in notes
    assert table_of(report, "held_out-raven").notes[0] == (
        "Nothing of this table is reproduced yet; see Missing."
    )


def test_an_own_model_with_all_seven_has_an_average(store, evaluated, training, evaluation):
    for place, name in enumerate(SEVEN):
        # Of two seeds of Center one is no seed of the others.
        for seed in range(2 if name == "center" else 1):
            trial = training(seed, model="raise_plus", preset="lite", configuration=name)
            test = dataclasses.replace(evaluation(), configuration=name)
            evaluated(trial, test, [(0.2 if seed else 0.1) * (place + 1)])
        rows = rows_of(build_report(store, preset="lite"), "bottom_right_selection-raven")
        (row,) = [row for row in rows if row["Model"] == "RAISE plus"]
        expected = "·" if name != "grid_3x3" else "40.0 (1 seed)"
        assert row["Average"] == expected
    assert row["Center"] == "15.0 ± 7.1 (2 seeds)"
    report = build_report(store, preset="lite")
    (average,) = [
        cell.number for cell in table_of(report, "bottom_right_selection-raven").cells()
        if cell.number and cell.number.key.startswith("average")
    ]  # fmt: skip
    assert len(average.seeds) == 7
    # Seven cells and the average, in the main table and in that of answer selection.
    assert report.summary()["cells"]["own model only"] == 16


def test_time_to_accuracy_has_a_row_a_training(filled):
    rows = rows_of(build_report(filled), "accuracy-against-time")
    assert len(rows) == 4
    assert {row["Training"] for row in rows} == {t.name for t in filled.trials()}
    assert {row["Paper (test)"] for row in rows} == {"99.2"}
    # Nothing reached 95 %.
    assert not {"Steps to 95 %", "Minutes to paper's"} & rows[0].keys()
    assert {row["Minutes in all"] for row in rows} == {"33.3"}


def test_trainings_are_sorted_by_their_share_of_labels_as_a_number(
    store, evaluated, training, evaluation
):
    for ratio in (1.0, 0.05, 0.2, 0.0, 0.01):
        evaluated(training(ratio=ratio), evaluation(), [ratio])
    report = build_report(store, preset="demo")
    labels = [row["Labels"] for row in rows_of(report, "accuracy-against-time")]
    assert labels == ["0 %", "1 %", "5 %", "20 %", "100 %"]
    assert [record.spec.data.label_ratio for record in report.records] == [0.0, 0.01, 0.05, 0.2, 1]


def test_label_ratios_and_ablations_are_told_apart(store, evaluated, training, evaluation):
    for ratio, accuracy in ((0.0, 0.2), (0.05, 0.8), (1.0, 0.9)):
        evaluated(training(ratio=ratio), evaluation(), [accuracy])
    longer = dataclasses.replace(training(), steps=7000)
    evaluated(longer, evaluation(), [0.95])
    report = build_report(store, preset=None)
    assert "label_ratio" in {figure.key for figure in report.figures}
    # The custom training is preferred to the demo, which stands in the curve.
    (cell,) = [
        c for c in report.cells
        if c.ours and (c.cell.table, c.cell.model) == ("bottom_right_selection", "RAISE")
    ]  # fmt: skip
    assert cell.ours.mean == 0.95
    keys = {table.key for table in report.own}
    assert "other-settings" not in keys
    only_demo = {t.key for t in build_report(store, preset="demo").own}
    assert only_demo == {"label-ratio", "accuracy-against-time"}


def test_label_ratios_stand_beside_the_papers_and_say_what_is_not_trained(
    store, evaluated, finish, training, evaluation
):
    for ratio, accuracy in ((0.0, 0.2), (0.05, 0.8), (1.0, 0.9)):
        for dataset in ("iraven", "raven"):
            evaluated(training(ratio=ratio), evaluation(dataset), [accuracy])
    finish(training(ratio=0.5))
    rows = rows_of(build_report(store, preset="demo", seeds=1), "label-ratio")
    assert [row["Test"] for row in rows] == ["RAVEN", "I-RAVEN"]
    # published.csv: RAISE (-aux) and RAISE on Center.
    expected = {
        "0 %": "20.0 / 30.2", "1 %": "not trained", "5 %": "80.0 / 99.2", "10 %": "not trained",
        "20 %": "not trained", "50 %": "not evaluated", "100 %": "90.0",
    }  # fmt: skip
    assert {name: text for name, text in rows[0].items() if name in expected} == expected
    assert (rows[1]["0 %"], rows[1]["5 %"]) == ("20.0 / 56.6", "80.0 / 99.8")


def test_an_ablation_has_its_own_table_and_no_cell_of_the_paper(
    store, evaluated, training, evaluation
):
    plain, plus = (
        shortened(training(model=model, preset="lite")) for model in ("raise", "raise_plus")
    )
    for trial, accuracy in ((as_published(plain), 0.1), (plain, 0.7), (plus, 0.9)):
        evaluated(trial, evaluation(), [accuracy])
    for preset in ("lite", None):
        report = build_report(store, preset=preset)
        rows = rows_of(report, "ablation")
        assert [(row["Training"], row["Center"]) for row in rows] == [
            ("RAISE, as the authors train", "10.0"),
            ("RAISE, as here, the authors' label map", "70.0"),
            ("RAISE plus, as here", "90.0"),
        ]
        assert "on an idle core" in " ".join(table_of(report, "ablation").notes)
        assert not any(cell.ours for cell in report.cells)
        assert not report.extensions
        assert {t.key for t in report.own} == {"ablation", "accuracy-against-time"}
    assert not build_report(store, preset="demo").own


def test_what_an_ablation_lacks_is_said_in_its_row(store, evaluated, finish, training, evaluation):
    plus = shortened(training(model="raise_plus", preset="lite", configuration="grid_2x2"))
    evaluated(plus, dataclasses.replace(evaluation(), configuration="grid_2x2"), [0.9])
    finish(as_published(shortened(training(preset="lite"))))
    rows = rows_of(build_report(store, preset="lite"), "ablation")
    shown = [(row["Center"], row["L-R"], row["2x2Grid"]) for row in rows]
    assert shown == [
        ("not evaluated", "not trained", "not trained"),
        # With one slot a component the label maps are the same.
        ("·", "·", "not trained"),
        ("not trained", "not trained", "90.0"),
    ]


def test_the_lists_of_studies_are_those_of_the_flow():
    assert list(study_trainings.RATIOS) == list(RATIOS)
    assert list(study_trainings.ABLATION_CONFIGURATIONS) == list(ABLATION_CONFIGURATIONS)
    request = Request(preset="lite", models=["raise"], trials=1)

    def digest(*split):
        return "0" * 64

    lowered = study_trainings.ablation(request, digest)
    counted = sum(way.has(name) for way in WAYS for name in ABLATION_CONFIGURATIONS)
    assert len({trial.name for trial in lowered.trials}) == counted
    pairs = study_evaluations.odd_one_out(request, digest).evaluations
    assert {spec.options["odd"] for _, spec in pairs} == set(ODD)


def test_a_setting_beside_the_tables_says_in_what_it_differs(
    store, evaluated, training, evaluation
):
    evaluated(training(preset="lite"), evaluation(), [0.7])
    evaluated(training(preset="demo"), evaluation(), [0.6])
    (row,) = rows_of(build_report(store), "other-settings")
    assert (row["Preset"], row["Ours"], row["Test"]) == ("demo", "60.0", "RAVEN")
    assert f"steps {training().steps} ({training(preset='lite').steps})" in row["Differs in"]


def odd(evaluation, configuration, kind):
    test = evaluation(protocol="odd_one_out", odd=kind)
    return dataclasses.replace(test, configuration=configuration)


def test_what_was_not_evaluated_has_a_row(store, evaluated, training, evaluation):
    result = {"panel_accuracy": 0.5, "attribute_accuracy": 0.25}
    for kind in ("any", "bottom_right"):
        evaluated(training(preset="lite"), odd(evaluation, "center", kind), [], **result)
    other = training(preset="lite", configuration="out_in_center")
    evaluated(other, odd(evaluation, "out_in_center", "any"), [], **result)
    # Another share of labels is no training of the main table.
    evaluated(training(preset="lite", ratio=0.2), evaluation(), [0.5])
    table = table_of(build_report(store, preset="lite"), "odd-one-out")
    rows = table.frame().to_dict("records")
    assert [(row["Configuration"], row["What"], row["panel accuracy"]) for row in rows] == [
        ("Center", "any panel", "0.500"),
        ("Center", "last panel", "0.500"),
        ("O-IC", "any panel", "0.500"),
        ("O-IC", "last panel", "not evaluated"),
    ]
    assert rows[3]["attribute accuracy"] == "·"


def test_columns_that_say_nothing_or_the_same_in_each_row_are_left_out(filled):
    report = build_report(filled, preset="demo")
    table = table_of(report, "odd-one-out")
    assert not {"What", "Model", "Problems", "Preset", "Measure"} & set(table.columns)
    assert table.notes[-1] == (
        "All: model RAISE; problems RAVEN, test, 2000; preset demo, 3 seeds."
    )
    # The CSV has them all the same.
    head, line = table.to_csv().splitlines()
    assert head.startswith("Configuration,")
    assert head.endswith("Model,Problems,Preset")
    assert line.endswith('RAISE,"RAVEN, test, 2000","demo, 3 seeds"')


def test_measures_of_attributes_are_rows_and_attributes_columns(
    store, evaluated, training, evaluation
):
    both = {"prior": 0.5, "posterior": 1.0}
    shares = {"type0": both, "number_position0": both, "type1": {"prior": 0.25}}
    evaluated(training(), evaluation(protocol="rule_accuracy"), [], by_attribute=shares)
    rows = rows_of(build_report(store), "rule-accuracy-by-attribute")
    names = ("Measure", "number/position 0", "type 0", "type 1")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("prior", "0.500", "0.500", "0.250"),
        ("posterior", "1.000", "1.000", "·"),
    ]


def test_data_sets_have_the_published_names(store, evaluated, training, evaluation):
    for ratio in (0.0, 0.05):
        for dataset in ("raven", "iraven", "iraven_overlapping"):
            evaluated(training(ratio=ratio), evaluation(dataset), [0.5])
    evaluated(training(), evaluation("iraven_paired"), [0.5])
    report = build_report(store)
    tables = {table.key: table.to_markdown() for table in (*report.paper, *report.own)}
    assert not [key for key, text in tables.items() if re.search("i?raven", text)]
    assert "I-RAVEN (paired)" in tables["other-tests"]
    assert "I-RAVEN (overlapping)" in tables["label-ratio"]
