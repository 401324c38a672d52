"""What a step costs by preset, model and configuration; the table beside the records."""

import dataclasses
import io
from pathlib import Path

import pytest

from flows import step_costs
from flows.costs import Costs
from flows.lowering import trainings
from flows.request import Request
from flows.step_costs import MeasuredStep, measured_step, measured_steps, write_table
from raise_model.presets import as_published, shortened
from raise_model.store import Store
from raise_model.trial_record import read_record

RECORDS = Path(__file__).parents[2] / "artifacts" / "reports" / "store"


def spec(preset, model, configuration, **changes):
    request = Request(preset=preset, models=[model], configurations=[configuration], trials=1)
    (made,) = trainings(request, lambda *split: "0" * 64)
    return dataclasses.replace(made, **changes)


@pytest.fixture
def table(monkeypatch, tmp_path):
    """Rows in place of the project's own."""

    def set_rows(*rows):
        with (tmp_path / "steps.csv").open("w", newline="") as file:
            write_table(rows, file)
        monkeypatch.setattr(step_costs, "FILE", tmp_path / "steps.csv")
        step_costs._read.cache_clear()

    yield set_rows
    step_costs._read.cache_clear()


def row(model, configuration, seconds, **changes):
    values = {
        "preset": "lite", "model": model, "configuration": configuration, "seconds": seconds,
        "least": seconds / 2, "most": 2 * seconds, "trainings": 3, "device": "AMD", "threads": 1,
    }  # fmt: skip
    return MeasuredStep(**(values | changes))


def cost(made, preset="lite", device="cpu", root="/nowhere"):
    return Costs(Store(root), preset, device).step(made)


def test_a_step_has_the_cost_of_its_model_preset_and_configuration(table):
    table(row("raise", "center", 0.25), row("raise", "out_in_grid", 0.5, trainings=1),
          row("raise", "center", 0.125, preset="demo"))  # fmt: skip
    center = cost(spec("lite", "raise", "center"))
    assert center.seconds == 0.25
    assert center.source == (
        "measured: median of 3 trainings (0.12 to 0.5 s) of raise on center, AMD, 1 thread"
    )
    grid = cost(spec("lite", "raise", "out_in_grid"))
    assert (grid.seconds, grid.source) == (
        0.5, "measured: one training of raise on out_in_grid, AMD, 1 thread",
    )  # fmt: skip
    assert cost(spec("demo", "raise", "center"), "demo").seconds == 0.125


def test_the_same_networks_stand_in_and_say_so(table):
    table(row("raise_plus", "grid_2x2", 0.25))
    for model in ("raise", "raise_plus"):
        for configuration in ("grid_2x2", "grid_2x2_uni"):
            found = cost(spec("lite", model, configuration))
            assert found.seconds == 0.25
            assert "of raise_plus on grid_2x2" in found.source


def test_what_was_not_measured_is_an_estimate(table):
    table(row("raise", "center", 0.25), row("raise", "center", 0.001, device="NVIDIA H100"))
    left_right = cost(spec("lite", "raise", "left_right"))
    assert (left_right.seconds, left_right.source) == (
        0.2, "estimate: one thread of a CPU, raise on any configuration",
    )  # fmt: skip
    ours = spec("lite", "raise", "center")
    other = dataclasses.replace(ours, config=ours.config | {"labelled_batch": 1})
    assert cost(other).source.startswith("estimate: ")
    # An ablation's own way to train has another cost; a shorter training has the same.
    assert cost(as_published(shortened(ours))).source.startswith("estimate: ")
    assert cost(shortened(ours)).seconds == 0.25
    assert cost(ours, device="cuda").seconds == 0.001
    assert cost(spec("lite", "raise", "left_right"), device="cuda").source.startswith("guess: ")


def test_of_several_devices_that_with_most_trainings_counts(table):
    table(row("raise", "center", 0.25, device="A", trainings=1),
          row("raise", "center", 0.5, device="B", trainings=4),
          row("raise", "center", 0.125, device="C", trainings=2))  # fmt: skip
    assert cost(spec("lite", "raise", "center")).seconds == 0.5


def test_the_table_is_that_of_the_committed_records():
    """Each row is backed by records of which it is made; more may have come since."""
    records = [read_record(path) for path in sorted(RECORDS.glob("*.json"))]
    made = {(r.preset, r.model, r.configuration, r.device): r for r in measured_steps(records)}
    rows = step_costs._read(False)
    assert len(rows) >= 10
    for row in rows.values():
        found = made.get((row.preset, row.model, row.configuration, row.device))
        hint = f"{row}: make the table anew by python benchmarks/step_costs.py"
        assert found is not None, hint
        assert found.least <= row.least <= row.seconds <= row.most <= found.most, hint
        assert found.trainings >= row.trainings, hint
    assert measured_step(spec("lite", "raise", "center"), on_gpu=False) is not None


def test_a_row_is_made_of_all_trainings_of_a_setting():
    records = [read_record(path) for path in RECORDS.glob("raise-center-5pct-s*.json")]
    demo = [r for r in records if r.spec.steps == 3000]
    (made,) = measured_steps(demo)
    seconds = sorted(r.done["seconds"] / 3000 for r in demo)
    assert (made.preset, made.trainings) == ("demo", len(demo))
    assert made.seconds == pytest.approx(seconds[len(seconds) // 2], abs=1e-4)
    assert (made.least, made.most) == pytest.approx((seconds[0], seconds[-1]), abs=1e-4)
    file = io.StringIO()
    write_table([made], file)
    assert file.getvalue().splitlines()[1].startswith("demo,raise,center,")
