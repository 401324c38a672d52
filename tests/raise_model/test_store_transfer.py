"""Records between stores: checked whole before anything is written, merged, repairable."""

import dataclasses
import errno
import hashlib
import io
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch

from raise_model import atomic_write
from raise_model.errors import UserError
from raise_model.specs import DataSpec, EvaluationSpec, TrialSpec
from raise_model.store import Store
from raise_model.store_transfer import export_trials, import_trials
from raise_model.training import checkpoint

SPEC = TrialSpec(
    model="toy", config={"width": 3}, revision=1, precision="fp32", seed=0, steps=6,
    validate_every=3, validation_problems=5,
    data=DataSpec(
        dataset="raven", configuration="center", train_digest="a", validation_digest="b",
        image_size=32, resize="area", label_map="official", label_ratio=0.05,
    ),
)  # fmt: skip
OTHER = dataclasses.replace(SPEC, seed=1)
EVALUATION = EvaluationSpec(
    protocol="bottom_right", options={"space": "latent"}, dataset="raven",
    configuration="center", split="test", digest="c", rounds=1, seed=0, revision=1,
)  # fmt: skip
RESULT = {"accuracy": [0.75], "correct": ["1101"], "problems": 4, "best_step": 6}


def finish(store, spec, *, weights=True, evaluations=((EVALUATION, RESULT),)):
    """A finished training of ten parameters."""
    folder = store.trial(spec)
    folder.put_spec(spec)
    if weights:
        tensors = {"w": torch.full((10,), float(spec.seed))}
        checkpoint.save(folder, "best", 6, {"solver": tensors}, {})
    buffer = io.BytesIO()
    pq.write_table(pa.table({"step": [3.0, 6.0], "validation_accuracy": [0.5, 0.75]}), buffer)
    store.write(folder.file("curve.parquet"), buffer.getvalue())
    done = {
        "step": 6, "best_step": 6, "validation_accuracy": 0.75, "seconds": 1.5, "parameters": 10,
    }  # fmt: skip
    store.create_json(folder.file("done.json"), done)
    for evaluation, result in evaluations:
        folder.evaluation(evaluation).create_result(evaluation, result)
    return folder


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "store"))


@pytest.fixture
def target(tmp_path):
    return Store(str(tmp_path / "target"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A store of two trials with one evaluation each, and their records."""
    folder = tmp_path_factory.mktemp("exported")
    store = Store(str(folder / "store"))
    finish(store, SPEC)
    finish(store, OTHER)
    export_trials(store, folder / "records", weights=True)
    return store, folder / "records"


@pytest.fixture
def records(exported, tmp_path):
    """Records of two trials, the first with weights; a test may change them."""
    return Path(shutil.copytree(exported[1], tmp_path / "records"))


@pytest.fixture
def change(records):
    """Change the record that is read last."""

    def change(edit):
        path = max(records.glob("*.json"))
        record = json.loads(path.read_text())
        edit(record)
        path.write_text(json.dumps(record))

    return change


def refused(call, pattern):
    """A one-line error that matches."""
    with pytest.raises(UserError, match=pattern) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_what_is_exported_is_imported(exported, records, target):
    store = exported[0]
    report = import_trials(target, records)
    assert sorted(report.imported) == sorted((SPEC.name, OTHER.name))
    for spec in (SPEC, OTHER):
        ours, theirs = store.trial(spec), target.trial(spec)
        assert theirs.done() == ours.done()
        assert theirs.evaluation(EVALUATION).result() == RESULT
        curves = [pq.read_table(io.BytesIO(t.store.read(t.file("curve.parquet"))))
                  for t in (ours, theirs)]  # fmt: skip
        assert curves[0].equals(curves[1])
    assert not import_trials(target, records).imported


def set_in(*path, value):
    def edit(record):
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "pattern"),
    [
        (lambda r: r.pop("done"), "done is missing; export it again"),
        (set_in("done", value=None), "done is missing"),
        (set_in("done", value=3), "done is no JSON object"),
        (lambda r: r["done"].pop("best_step"), "best_step of done must be"),
        (set_in("done", "best_step", value=7), "after its step"),
        (set_in("done", "validation_accuracy", value=float("nan")), "it holds NaN"),
        (set_in("done", "validation_accuracy", value=75), r"a number in \[0, 1\], not 75"),
        (set_in("done", "seconds", value="long"), "seconds of done"),
        (lambda r: r.pop("curve"), "curve is missing"),
        (set_in("curve", "step", value=[3.0]), "has not the 1 rows"),
        (set_in("curve", "step", value=["3", "6"]), "something else than numbers"),
        (lambda r: r["curve"].pop("step"), "curve lacks step"),
        (lambda r: r.pop("evaluations"), "evaluations is missing"),
        (lambda r: r["evaluations"][0].pop("result"), "must have spec and result"),
        (lambda r: r["evaluations"][0].pop("spec"), "must have spec and result"),
        (lambda r: r["evaluations"].append(r["evaluations"][0]), "is there twice"),
        (set_in("evaluations", 0, "spec", "new", value=1), "'new', .* another version of raise"),
        (lambda r: r["evaluations"][0]["spec"].pop("seed"), "lacks seed"),
        (set_in("evaluations", 0, "spec", "seed", value="0"), "seed of the .* must be a int"),
        (set_in("evaluations", 0, "spec", "split", value="dev"), "train, val or test, not 'dev'"),
        (set_in("evaluations", 0, "spec", "dataset", value="../../x"), "is no name"),
        (set_in("evaluations", 0, "result", value=[]), "result of evaluation 1"),
        (set_in("evaluations", 0, "result", "accuracy", value=[0.5]), "not by its correct"),
        (set_in("evaluations", 0, "result", "best_step", value=3), "of other weights"),
        (set_in("spec", "new", value=1), "'new', .* another version of raise-rpm"),
        (set_in("spec", "data", "new", value=1), "'new', .* another version of raise-rpm"),
        (lambda r: r["spec"].pop("data"), "lacks data"),
        (set_in("spec", "steps", value="6"), "is no trial record"),
        (set_in("spec", "data", "label_ratio", value=2.0), "json is no trial record: label_ratio"),
        (set_in("weights", value={"a": 1}), "has no SHA-256"),
        (set_in("new", value=1), "'new', .* another version of raise-rpm"),
    ],
)
def test_a_faulty_record_is_refused_before_anything_is_written(
    edit, pattern, change, records, target
):
    change(edit)
    refused(lambda: import_trials(target, records), pattern)
    assert not target.list("")


@pytest.mark.parametrize("data", [b"\xff\xfe{}", b"[1", b"[]", b'{"spec": 1e999}', b"[" * 100_000])
def test_a_file_that_is_no_record_is_refused(data, records, target):
    (records / "x.json").write_bytes(data)
    refused(lambda: import_trials(target, records), r"x\.json is no trial record: .*remove the")
    assert not target.list("")


def test_a_folder_named_as_a_record_is_refused(records, target):
    (records / "x.json").mkdir()
    refused(lambda: import_trials(target, records), r"x\.json cannot be read: .*or remove it")
    assert not target.list("")


def test_a_folder_without_records_is_refused(tmp_path, target):
    refused(lambda: import_trials(target, tmp_path), "holds no trial record; give a folder that")
    refused(lambda: import_trials(target, tmp_path / "no"), "is not a folder; give a folder that")


@pytest.mark.parametrize(
    ("theirs", "pattern"),
    [
        (RESULT | {"accuracy": [0.5], "correct": ["1100"]}, "another accuracy there .* nothing"),
        (RESULT | {"seen": {"problems": 3}, "provenance": {"machine": "x"}}, None),
        (RESULT | {"rule_accuracy": 0.5}, None),
    ],
)
def test_other_results_of_the_same_evaluation_are_refused(theirs, pattern, records, target):
    first, last = sorted((SPEC, OTHER), key=lambda spec: spec.name)
    finish(target, last, evaluations=[(EVALUATION, theirs)])
    if pattern is None:
        assert import_trials(target, records).imported == [first.name]
        assert target.trial(last).evaluation(EVALUATION).result() == theirs
        return
    refused(lambda: import_trials(target, records), pattern)
    assert not target.trial(first).is_done


ROUNDED = RESULT | {"accuracy": [0.5], "correct": ["1100"], "rounded_to": "bf16"}


@pytest.mark.parametrize(("ours", "theirs"), [(ROUNDED, RESULT), (RESULT, ROUNDED)])
def test_a_result_of_weights_of_another_precision_stays_and_is_named(
    ours, theirs, store, target, tmp_path, caplog
):
    folder = tmp_path / "records"
    finish(store, SPEC, evaluations=[(EVALUATION, theirs)])
    export_trials(store, folder)
    finish(target, SPEC, evaluations=[(EVALUATION, ours)])
    assert import_trials(target, folder).present == [SPEC.name]
    assert target.trial(SPEC).evaluation(EVALUATION).result() == ours
    export_trials(target, folder)
    record = json.loads((folder / f"{SPEC.name}.json").read_text())
    assert [e["result"] for e in record["evaluations"]] == [theirs]
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 2
    assert all("1 result kept as before" in text and EVALUATION.name in text for text in said)
    # The same precision on both sides is a contradiction.
    export_trials(store, tmp_path / "same")
    other = theirs | {"accuracy": [1.0], "correct": ["1111"]}
    path = tmp_path / "same" / f"{SPEC.name}.json"
    change = json.loads(path.read_text())
    change["evaluations"][0]["result"] = other
    path.write_text(json.dumps(change))
    refused(lambda: import_trials(store, tmp_path / "same"), "another accuracy there")


def test_weights_that_are_missing_or_damaged_come_with_a_later_import(records, target, tmp_path):
    bare = Path(shutil.copytree(records, tmp_path / "bare"))
    for path in bare.glob("*.safetensors"):
        path.unlink()
    assert not import_trials(target, bare).weights_added
    assert checkpoint.load(target.trial(SPEC), "best", step=6) is None
    report = import_trials(target, records)
    assert sorted(report.present) == sorted((SPEC.name, OTHER.name))
    assert report.weights_added == [SPEC.name]
    best = checkpoint.load(target.trial(SPEC), "best", step=6)
    assert best is not None
    assert best.rounded_to == "bf16"
    # The other way round nothing is taken away.
    assert not import_trials(target, bare).weights_added
    assert not import_trials(target, records).weights_added
    target.write(target.trial(SPEC).file("best-00000006.pt"), b"torn")
    assert import_trials(target, records).weights_added == [SPEC.name]
    assert checkpoint.load(target.trial(SPEC), "best", step=6) is not None


def test_weights_of_the_training_stay_as_they_are(records, target):
    finish(target, SPEC)
    assert not import_trials(target, records).weights_added
    best = checkpoint.load(target.trial(SPEC), "best", step=6)
    assert best is not None
    assert best.rounded_to is None


def test_weights_of_another_trial_are_refused(records, target):
    path = records / f"{SPEC.name}.bf16.safetensors"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    record = json.loads((records / f"{SPEC.name}.json").read_text())
    assert record["weights"] == {path.name: digest}
    own = path.read_bytes()
    path.write_bytes(safetensors.torch.save({"w": torch.ones(10)}))
    refused(lambda: import_trials(target, records), "other weights than its record names; copy")
    assert not target.list("")
    # Of a record without digests the number of parameters is known.
    record.pop("weights")
    (records / f"{SPEC.name}.json").write_text(json.dumps(record))
    path.write_bytes(safetensors.torch.save({"w": torch.ones(9)}))
    refused(lambda: import_trials(target, records), "fewer weights than .* has parameters; copy")
    path.write_bytes(own)
    import_trials(target, records)
    assert checkpoint.load(target.trial(SPEC), "best", step=6) is not None


def test_export_keeps_what_only_the_old_record_has(records, tmp_path):
    lean = Store(str(tmp_path / "lean"))
    more = dataclasses.replace(EVALUATION, seed=5)
    finish(lean, SPEC, weights=False, evaluations=[(more, RESULT)])
    before = json.loads((records / f"{SPEC.name}.json").read_text())
    export_trials(lean, records)
    record = json.loads((records / f"{SPEC.name}.json").read_text())
    assert sorted(e["spec"]["seed"] for e in record["evaluations"]) == [0, 5]
    assert record["weights"] == before["weights"]


def test_export_refuses_what_contradicts_the_old_record(records, tmp_path):
    lean = Store(str(tmp_path / "lean"))
    finish(lean, dataclasses.replace(SPEC, seed=2))
    other = RESULT | {"accuracy": [0.5], "correct": ["0101"]}
    finish(lean, SPEC, evaluations=[(EVALUATION, other)])
    before = {path.name: path.read_bytes() for path in records.iterdir()}
    refused(lambda: export_trials(lean, records, weights=True), "nothing was exported, remove")
    (records / f"{SPEC.name}.json").write_text("{")
    refused(lambda: export_trials(lean, records), "is no trial record")
    (records / f"{SPEC.name}.json").write_bytes(before[f"{SPEC.name}.json"])
    assert {path.name: path.read_bytes() for path in records.iterdir()} == before


@pytest.mark.parametrize(
    ("file", "data", "pattern"),
    [
        ("curve.parquet", b"PAR1", "curve.parquet is missing or damaged .*; restore it"),
        ("done.json", b'{"best_step": "x"}', "is damaged: step of done"),
        ("best-00000006.pt", b"torn", r"best-00000006.pt or its .json is missing or damaged; rest"),
    ],
)
def test_a_damaged_trial_of_the_store_is_not_exported(file, data, pattern, store, tmp_path):
    finish(store, SPEC)
    folder = finish(store, OTHER)
    for name in ("pt", "json"):  # the smaller seed is without weights
        store.delete(store.trial(SPEC).file(f"best-00000006.{name}"))
    store.write(folder.file(file), data)
    refused(lambda: export_trials(store, tmp_path / "out", weights=True), pattern)
    assert not (tmp_path / "out").exists()


def test_weights_are_those_of_a_seed_that_has_them(store, tmp_path, caplog):
    finish(store, SPEC, weights=False)
    finish(store, OTHER)
    bare = dataclasses.replace(SPEC, steps=12)
    finish(store, bare, weights=False)
    names = export_trials(store, tmp_path / "out", weights=True)
    assert len(names) == 3
    found = [path.name for path in (tmp_path / "out").glob("*.safetensors")]
    assert found == [f"{OTHER.name}.bf16.safetensors"]
    assert [r.getMessage() for r in caplog.records if bare.name in r.getMessage()]
    assert SPEC.name not in caplog.text


def test_export_onto_a_bucket_is_refused(store):
    refused(lambda: export_trials(store, Path("s3://bucket/x")), "a folder of this machine")


@pytest.mark.parametrize("step", range(1, 12))
def test_an_import_cut_short_is_repaired_by_the_next(step, records, target, monkeypatch):
    written = atomic_write._written
    calls = []

    def full(path, data, *, durable):
        calls.append(path)
        if len(calls) >= step and path.parent.name != "claims":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return written(path, data, durable=durable)

    monkeypatch.setattr(atomic_write, "_written", full)
    with pytest.raises(OSError, match="No space"):
        import_trials(target, records)
    monkeypatch.undo()
    import_trials(target, records)
    for spec in (SPEC, OTHER):
        assert target.trial(spec).is_done
        assert target.trial(spec).evaluation(EVALUATION).result() == RESULT
    assert checkpoint.load(target.trial(SPEC), "best", step=6) is not None


def test_a_trial_that_another_process_holds_is_named(records, target):
    with target.trial(OTHER).claim():
        refused(
            lambda: import_trials(target, records),
            f"another process holds {OTHER.name} in .*; run the same command again",
        )
    import_trials(target, records)
    assert target.trial(OTHER).is_done


def test_import_of_what_is_there_writes_nothing(records, target, monkeypatch):
    import_trials(target, records)
    monkeypatch.setattr(atomic_write, "_written", None)
    assert len(import_trials(target, records).present) == 2
