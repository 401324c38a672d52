"""Trainings in a store: real data, real RAISE (smoke size), interruptions, what is written when."""

import dataclasses
import io
import json

import pyarrow.parquet as pq
import pytest
import torch

from raise_model import store_transfer
from raise_model.claims import ClaimLost, Held
from raise_model.data.generate import generate
from raise_model.errors import UserError
from raise_model.evaluation.evaluate import PROTOCOLS, evaluate
from raise_model.presets import trial_spec
from raise_model.specs import EvaluationSpec
from raise_model.store import Store
from raise_model.store_transfer import export_trials, import_trials
from raise_model.training import trial as trial_module
from raise_model.training.trial import run_trial


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A store with 120 problems of Center, and a cache folder."""
    folder = tmp_path_factory.mktemp("data")
    store = Store(str(folder / "store"))
    manifests = generate(store, dataset="raven", configuration="center", problems=120, workers=1)
    return folder, {split: manifest.digest for split, manifest in manifests.items()}


@pytest.fixture
def store(data, tmp_path):
    """An empty trial store over the same data set."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "datasets").symlink_to(data[0] / "store" / "datasets")
    return Store(str(tmp_path / "store"))


@pytest.fixture
def spec(data):
    made = trial_spec(
        model="raise", preset="smoke", dataset="raven", configuration="center",
        train_digest=data[1]["train"], validation_digest=data[1]["val"], seed=0, label_ratio=0.2,
    )  # fmt: skip
    return dataclasses.replace(made, steps=9, validate_every=3, validation_problems=10)


@pytest.fixture
def run(store, spec, data):
    def run(minutes=None, report=None, spec=spec, store=store):
        return run_trial(
            store, spec, device="cpu", threads=1, cache=data[0] / "cache", report=report,
            minutes=minutes,
        )  # fmt: skip

    return run


def best_weights(store, spec):
    folder = store.trial(spec)
    step = folder.done()["best_step"]
    data = store.read(folder.file(f"best-{step:08d}.pt"))
    return torch.load(io.BytesIO(data), weights_only=True)["solver"]


def evaluation_spec(data):
    return EvaluationSpec(
        protocol="bottom_right", options={"space": "latent"}, dataset="raven",
        configuration="center", split="test", digest=data[1]["test"], rounds=1, seed=0,
        revision=PROTOCOLS["bottom_right"].revision,
    )  # fmt: skip


def test_finished_training_has_everything_and_is_not_repeated(store, spec, run, monkeypatch):
    rows = []
    assert run(report=rows.append)
    folder = store.trial(spec)
    done = folder.done()
    assert done["step"] == 9
    assert done["provenance"]["threads"] == 1
    assert [row["step"] for row in rows] == [3, 6, 9]
    curve = pq.read_table(io.BytesIO(store.read(folder.file("curve.parquet"))))
    assert curve.column("step").to_pylist() == [3, 6, 9]
    assert done["validation_accuracy"] == max(curve.column("validation_accuracy").to_pylist())
    assert "done" in store.read(folder.file("log.txt")).decode()
    monkeypatch.setattr(trial_module, "_run_claimed", None)
    assert run(), "a finished training is only looked at"


@pytest.mark.parametrize(
    ("protocol", "options", "keys"),
    [
        (
            "arbitrary_position",
            {"space": "latent", "masks": "problem", "duplicates": "keep"},
            {"settings"},
        ),
        ("odd_one_out", {"odd": "any"}, {"panel_accuracy", "repair"}),
        ("rule_accuracy", {}, {"prior", "posterior"}),
        ("concept_alignment", {}, {"matrix", "disentanglement"}),
        ("latent_traversal", {}, {"changed", "png"}),
        ("multi_answer", {"targets": 2, "samples": 2, "noise": 0.1}, {"share_valid"}),
    ],
)
def test_every_protocol_runs_on_a_stored_training(store, spec, run, data, protocol, options, keys):
    run()
    asked = dataclasses.replace(
        evaluation_spec(data), protocol=protocol, options=options,
        revision=PROTOCOLS[protocol].revision,
    )  # fmt: skip
    folder = store.trial(spec)
    result = evaluate(store, folder, asked, device="cpu", cache=data[0] / "cache")
    assert keys | {"problems", "best_step", "provenance", "seen"} <= result.keys()
    folder.evaluation(asked).create_result(asked, result)
    assert folder.evaluation(asked).result() == result, "it can be stored as JSON"


def test_training_paused_at_every_validation_ends_with_the_same_bits(
    store, spec, run, data, tmp_path
):
    while not run(minutes=0):
        pass
    other = Store(str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "datasets").symlink_to(data[0] / "store" / "datasets")
    assert run(store=other)
    first, second = best_weights(store, spec), best_weights(other, spec)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    ours, theirs = store.trial(spec).done(), other.trial(spec).done()
    assert ours["attempts"] == 3
    assert ours["validation_accuracy"] == theirs["validation_accuracy"]
    assert store.read(store.trial(spec).file("curve.parquet")) == other.read(
        other.trial(spec).file("curve.parquet")
    )
    result = [
        evaluate(s, s.trial(spec), evaluation_spec(data), device="cpu", cache=data[0] / "cache")
        for s in (store, other)
    ]
    assert result[0]["correct"] == result[1]["correct"]


def test_resumed_attempt_reports_earlier_rows_again(run):
    run(minutes=0)
    rows = []
    run(report=rows.append)
    assert [row["step"] for row in rows] == [3, 6, 9]
    assert all(row["steps"] == 9 for row in rows)


class FullDisk(Store):
    """Every write of a file whose name starts with ``prefix`` fails."""

    prefix = ""

    def _refuse(self, path):
        if path.rsplit("/", 1)[-1].startswith(self.prefix):
            raise OSError(28, "No space left on device")

    def write(self, path, data, *, durable=True):
        self._refuse(path)
        super().write(path, data, durable=durable)

    def create(self, path, data):
        self._refuse(path)
        super().create(path, data)


@pytest.fixture
def validations(monkeypatch):
    """Validation accuracies that rise or fall; the weights seen at each."""
    seen = []

    def give(step):
        def bottom_right(solver, problems, **options):
            seen.append({name: tensor.clone() for name, tensor in solver.state_dict().items()})
            return {"accuracy": [0.5 + step * len(seen)], "rule_accuracy": None}

        monkeypatch.setattr(trial_module, "bottom_right", bottom_right)
        return seen

    return give


def test_best_weights_are_those_of_the_best_validation(store, spec, run, validations):
    seen = validations(-0.1)
    run()
    assert store.trial(spec).done()["best_step"] == 3
    best = best_weights(store, spec)
    assert all(torch.equal(best[name], tensor) for name, tensor in seen[0].items())
    assert not all(torch.equal(best[name], tensor) for name, tensor in seen[-1].items())


@pytest.mark.parametrize("prefix", ["best-", "best-00000009", "curve", "last-", "last-00000009"])
def test_done_is_never_written_before_what_it_promises(store, spec, run, validations, prefix):
    validations(0.1)
    full = FullDisk(store.root)
    full.prefix = prefix
    with pytest.raises(OSError, match="No space left"):
        run(store=full)
    assert not store.trial(spec).is_done
    assert run(), "it goes on once there is space"


def test_second_process_is_refused_while_the_first_lives(store, spec, run):
    with store.trial(spec).claim(), pytest.raises(Held):
        run()
    assert not store.trial(spec).is_done


def test_who_lost_the_claim_while_it_wrote_leaves_the_successors_files(
    store, spec, run, monkeypatch
):
    """It stood still in a write for longer than others wait."""
    folder = store.trial(spec)
    theirs = {"claims/0002.json": b"{}", "best-00000099.json": b"{}", "log.txt": b"theirs"}
    save = trial_module.checkpoint.save

    def save_slowly(trial, role, step, tensors, meta):
        save(trial, role, step, tensors, meta)
        if role == "last":
            for name, data in theirs.items():
                store.write(folder.file(name), data)

    monkeypatch.setattr(trial_module.checkpoint, "save", save_slowly)
    with pytest.raises(ClaimLost):
        run()
    assert {name: store.read(folder.file(name)) for name in theirs} == theirs


def test_failure_is_in_the_log_and_frees_the_claim(store, spec, run, monkeypatch):
    monkeypatch.setattr(trial_module, "fit", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run()
    log = store.read(store.trial(spec).file("log.txt")).decode()
    assert "ZeroDivisionError" in log
    assert store.trial(spec).holder() is None


def test_other_data_under_the_same_name_is_refused(spec, run):
    data = dataclasses.replace(spec.data, train_digest="0" * 64)
    with pytest.raises(UserError, match="digest"):
        run(spec=dataclasses.replace(spec, data=data))


def test_other_revision_of_the_model_is_refused(spec, run):
    with pytest.raises(UserError, match="revision"):
        run(spec=dataclasses.replace(spec, revision=99))


def test_precision_that_the_machine_lacks_is_refused(spec, run, monkeypatch):
    from raise_model.training import device

    monkeypatch.setattr(device, "_cpu_has_bf16", lambda: False)
    with pytest.raises(UserError, match="bf16"):
        run(spec=dataclasses.replace(spec, precision="bf16"))


def test_evaluating_an_unfinished_training_is_refused(store, spec, data):
    store.trial(spec).put_spec(spec)
    with pytest.raises(UserError, match="not finished"):
        evaluate(
            store, store.trial(spec), evaluation_spec(data), device="cpu", cache=data[0] / "cache"
        )


def test_large_weights_are_exported_in_shards(store, spec, run, tmp_path, monkeypatch):
    run()
    monkeypatch.setattr(store_transfer, "SHARD_BYTES", 3_000)
    folder = tmp_path / "records"
    export_trials(store, folder, weights=True)
    shards = sorted(folder.glob(f"{spec.name}.bf16-*.safetensors"))
    assert len(shards) > 2
    assert shards[-1].name.endswith(f"-{len(shards):05d}-of-{len(shards):05d}.safetensors")
    import_trials(Store(str(tmp_path / "target")), folder)
    rounded, exact = best_weights(Store(str(tmp_path / "target")), spec), best_weights(store, spec)
    assert rounded.keys() == exact.keys()
    whole = shards[1].read_bytes()
    shards[1].write_bytes(whole[:100])
    with pytest.raises(UserError, match=r"00002-of-.* cannot be read"):
        import_trials(Store(str(tmp_path / "other")), folder)
    shards[1].write_bytes(whole)
    shards[0].unlink()
    with pytest.raises(UserError, match=r"of its \d+ shards are there"):
        import_trials(Store(str(tmp_path / "other")), folder)
    assert not (tmp_path / "other" / "trials").exists()


def test_records_carry_finished_work_and_refuse_conflicts(store, spec, run, data, tmp_path):
    run()
    evaluation = evaluation_spec(data)
    result = evaluate(store, store.trial(spec), evaluation, device="cpu", cache=data[0] / "cache")
    store.trial(spec).evaluation(evaluation).create_result(evaluation, result)
    folder = tmp_path / "records"
    assert export_trials(store, folder, weights=True) == [spec.name]
    record = folder / f"{spec.name}.json"
    assert record.stat().st_size < 30_000

    target = Store(str(tmp_path / "target"))
    assert import_trials(target, folder).imported == [spec.name]
    assert import_trials(target, folder).present == [spec.name]
    assert target.trial(spec).done() == store.trial(spec).done()
    assert target.trial(spec).evaluation(evaluation).result() == result
    rounded, exact = best_weights(target, spec), best_weights(store, spec)
    for name, tensor in exact.items():
        expected = tensor.bfloat16() if tensor.is_floating_point() else tensor
        assert torch.equal(rounded[name], expected)
    (tmp_path / "target" / "datasets").symlink_to(data[0] / "store" / "datasets")
    again = evaluate(target, target.trial(spec), evaluation, device="cpu", cache=data[0] / "cache")
    assert (result.get("rounded_to"), again["rounded_to"]) == (None, "bf16")

    changed = json.loads(record.read_text())
    changed["done"]["validation_accuracy"] += 0.1
    record.write_text(json.dumps(changed))
    with pytest.raises(UserError, match="nothing was imported"):
        import_trials(target, folder)
    changed["spec"]["seed"] += 1
    record.write_text(json.dumps(changed))
    with pytest.raises(UserError, match="was changed"):
        import_trials(target, folder)
