"""The flow's parameters as the Prefect server and its form see them."""

import pytest

from flows import plan as plan_module
from flows.full_repro import full_repro
from flows.local_plan import plan_here, validated
from flows.presets import CONFIGURATIONS
from flows.studies import Request, lower
from raise_model.errors import UserError
from raise_model.store import Store

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
    assert " of training on " in refusal
    assert "more than max_hours=24; use preset=lite" in refusal
    assert plan_here({**parameters, "max_hours": 1e6})[1] == ""


def test_a_preset_that_a_model_lacks_is_not_advised(tmp_path):
    parameters = {"preset": "lite", "studies": ["main_table"], "models": ["raise_plus"]}
    _, refusal = plan_here(
        {**parameters, "max_hours": 0.01, "device": "cpu", "store": str(tmp_path)}
    )
    assert "more than max_hours=0.01; ask for less" in refusal


def test_a_plan_for_a_cluster_says_where_its_costs_are_from(tmp_path):
    parameters = {"preset": "paper", "studies": ["main_table"], "configurations": ["grid_2x2"]}
    parameters |= {"trials": 1, "store": str(tmp_path), "gpus_per_trial": 0.5}
    plan, _ = plan_here(parameters, gpus=2, gpu="A100")
    assert (plan.device, plan.slots, plan.trials) == ("cuda", 4, 5)
    rows = {row.model: row for row in plan.costs}
    assert set(rows) == {"raise", "transformer", "clap", "anp", "lgpp"}
    raise_row = rows["raise"]
    assert "estimate: arithmetic at 33% of 19,500 GFLOP/s of one A100" in raise_row.source
    # 512 problems of 5.9 GFLOP at a third of a half of the peak.
    assert raise_row.seconds_per_step == pytest.approx(512 * 5.9 / (19_500 / 6))
    assert plan.device_hours == pytest.approx(sum(row.device_hours for row in plan.costs))
    whole, _ = plan_here({**parameters, "gpus_per_trial": 1.0}, gpus=1, gpu="H100")
    assert whole.slots == 1
    assert whole.hours == pytest.approx(whole.device_hours)
    assert whole.hours < plan.device_hours
    with pytest.raises(UserError, match="unknown GPU 'B9'; known: V100, A100"):
        plan_here(parameters, gpus=1, gpu="B9")
    with pytest.raises(UserError, match="device=cpu uses none of 8 GPUs"):
        plan_here({**parameters, "device": "cpu"}, gpus=8)


def test_a_finished_training_of_the_store_tells_what_the_others_cost(tmp_path):
    parameters = {"preset": "demo", "studies": ["main_table"], "trials": 3, "device": "cpu"}
    parameters |= {"store": str(tmp_path)}
    request = Request(preset="demo", studies=["main_table"], trials=3)
    first = lower(request, lambda *split: "0" * 64).trials[0]
    folder = Store(str(tmp_path)).trial(first)
    folder.put_spec(first)
    before, _ = plan_here(parameters)
    (unknown,) = before.costs
    assert unknown.source.startswith("measured: median of ")
    assert unknown.source.endswith(" of raise on center, AMD EPYC, 1 thread")
    done = {
        "step": 100,
        "best_step": 100,
        "seconds": 700.0,
        "provenance": {"device": "NVIDIA H100"},
    }
    folder.store.create_json(folder.file("done.json"), done)
    on_gpu, _ = plan_here(parameters)
    assert on_gpu.costs[0].source == before.costs[0].source
    done["provenance"] = {"device": "Slow CPU"}
    folder.store.write_json(folder.file("done.json"), done)
    after, _ = plan_here(parameters, slots=1)
    (row,) = after.costs
    assert row.source == "measured: 1 trials of the store on Slow CPU"
    assert (row.trials, row.seconds_per_step) == (2, 7.0)
    assert after.hours == pytest.approx((2 * (7.0 * first.steps + 10.0)) / 3600)


@pytest.mark.parametrize(
    ("parameters", "refusal"),
    [
        ({"cpus_per_trial": 99}, "cpus_per_trial=99, but the largest node of this machine's Ray"),
        ({"device": "cuda"}, "device=cuda, but no node of this machine's Ray cluster has a GPU"),
        ({"cpus_per_trial": 2}, ""),
    ],
)
def test_a_plan_says_what_this_machine_lacks(tmp_path, monkeypatch, parameters, refusal):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    plan, said = plan_here({"preset": "demo", "store": str(tmp_path), **parameters})
    assert plan.slots == 1
    assert said.startswith(refusal)
    assert bool(said) == bool(refusal)


def test_gpus_of_trials_are_not_left_out_where_there_are_none(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    parameters = {"preset": "demo", "store": str(tmp_path), "gpus_per_trial": 7.0}
    with pytest.raises(UserError, match="gpus_per_trial=7, but there is no GPU; leave it out"):
        plan_here(parameters)
    with pytest.raises(UserError, match="gpus_per_trial=7, but device=cpu uses none"):
        plan_here({**parameters, "device": "cpu"})


def test_trials_start_in_order_on_the_first_free_slot():
    assert plan_module._wall_seconds([1, 2, 3, 4], 2) == 6
    assert plan_module._wall_seconds([4, 3, 2, 1], 2) == 5
    assert plan_module._wall_seconds([], 2) == 0
    assert plan_module._wall_seconds(iter([3, 1]), 10**20) == 3
