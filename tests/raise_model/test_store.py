"""Exclusive create and whole writes, on a folder and on S3 (a server that speaks it)."""

import json
import os
import threading
import time

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from raise_model.errors import StoreAway, UserError
from raise_model.specs import DataSpec, EvaluationSpec, TrialSpec
from raise_model.store import PATIENT_ATTEMPTS, Store


def make_spec(**changes):
    data = DataSpec(
        dataset="raven", configuration="center", train_digest="a", validation_digest="b",
        image_size=32, resize="area", label_map="official", label_ratio=0.05,
    )  # fmt: skip
    fields = {
        "model": "toy", "config": {"width": 3}, "revision": 1, "precision": "fp32", "data": data,
        "seed": 0, "steps": 7, "validate_every": 3, "validation_problems": 5,
    }  # fmt: skip
    return TrialSpec(**(fields | changes))


@pytest.fixture
def store(any_store):
    return any_store


def test_create_refuses_what_exists_and_leaves_it(store):
    store.create("a/b.json", b"first")
    with pytest.raises(FileExistsError):
        store.create("a/b.json", b"second")
    assert store.read("a/b.json") == b"first"


def test_what_never_changes_is_asked_of_s3_once(store, monkeypatch):
    if "://" not in store.root:
        pytest.skip("local files are read each time")
    store.create_json("trials/x/done.json", {"best_step": 1})
    asked = []
    cat_file = store.filesystem.cat_file
    monkeypatch.setattr(
        store.filesystem, "cat_file", lambda path: asked.append(path) or cat_file(path)
    )
    trial = store.trial("x")
    assert trial.is_done
    assert trial.done() == trial.done() == {"best_step": 1}
    assert len(asked) == 1
    assert not trial.evaluation("y").is_done
    store.create_json("trials/x/evaluations/y/result.json", {})
    assert trial.evaluation("y").is_done, "what was missing may come"
    store.delete("trials/x/done.json")
    assert not trial.is_done


def test_write_replaces_and_list_shows_only_whole_files(store):
    store.write("a/b", b"one")
    store.write("a/b", b"two")
    store.write("a/c/d", b"")
    assert store.read("a/b") == b"two"
    assert store.list("a") == ["b", "c"]
    assert store.list("nowhere") == []
    store.delete("a/b")
    store.delete("a/b")
    assert not store.exists("a/b")
    with pytest.raises(FileNotFoundError):
        store.read("a/b")


def test_only_one_of_many_creators_wins(store):
    wins = []
    start = threading.Barrier(8)

    def create(number):
        start.wait()
        try:
            store.create("race", str(number).encode())
        except FileExistsError:
            return
        wins.append(number)

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert store.read("race") == str(wins[0]).encode()


class Troubled:
    """An S3 server that answers 500 as often as it is told to, after it did what was asked."""

    def __init__(self):
        self.trouble = 0
        backend = DomainDispatcherApplication(create_backend_app)

        def application(environ, start_response):
            in_trouble = self.trouble > 0
            self.trouble -= in_trouble

            def answer(status, headers, *rest):
                return start_response("500 Trouble" if in_trouble else status, headers, *rest)

            return backend(environ, answer)

        self._server = make_server("127.0.0.1", 0, application, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def troubled(monkeypatch):
    server = Troubled()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    # As many attempts as ever, without the pauses between them.
    backoff = "botocore.retries.standard.ExponentialBackoff.delay_amount"
    monkeypatch.setattr(backoff, lambda *arguments: 0.01)
    bucket = f"bucket-{time.monotonic_ns()}"
    Store(f"s3://{bucket}").filesystem.mkdir(bucket)
    server.root = f"s3://{bucket}/x"
    yield server
    server.stop()


def test_long_work_waits_for_s3_and_knows_what_it_has_created(troubled):
    store = Store(troubled.root, patient=True)
    troubled.trouble = PATIENT_ATTEMPTS - 2
    store.create("claim", b"mine")
    assert troubled.trouble == 0
    assert store.read("claim") == b"mine"
    troubled.trouble = 3
    with pytest.raises(FileExistsError):
        store.create("claim", b"another's")
    troubled.trouble = 3
    assert store.list("") == ["claim"]


def test_s3_that_stays_away_is_one_line(troubled):
    store = Store(troubled.root, patient=True)
    troubled.trouble = 1000
    with pytest.raises(StoreAway, match=rf"store {troubled.root} does not answer .* run the same"):
        store.create("claim", b"mine")
    troubled.stop()
    for ask in (store.list, store.exists, store.read, store.delete):
        with pytest.raises(StoreAway, match="does not answer"):
            ask("trials")


def test_unknown_scheme_is_refused():
    with pytest.raises(UserError, match="gs://"):
        Store("gs://bucket/x")


def test_file_uri_and_path_are_the_same_store(tmp_path):
    Store(f"file://{tmp_path}/x").write("a", b"1")
    assert Store(str(tmp_path / "x")).read("a") == b"1"


def test_probe_names_root_and_reason(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("no folder")
    with pytest.raises(UserError, match=r"file.*cannot be written"):
        Store(str(blocker)).probe()
    good = Store(str(tmp_path / "good"))
    good.probe()
    assert good.list("") == []


def test_probe_refuses_a_store_that_creates_twice(tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    monkeypatch.setattr(store, "create", store.write)
    with pytest.raises(UserError, match="creates a file that exists"):
        store.probe()
    assert store.list("") == []


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    store.write("a", b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write("a", b"new")
    with pytest.raises(OSError, match="No space left"):
        store.create("b", b"new")
    assert store.read("a") == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_files_have_the_permissions_of_the_users_umask(tmp_path):
    before = os.umask(0o027)
    try:
        store = Store(str(tmp_path))
        store.create("created", b"")
        store.write("written", b"")
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("created", "written")}
    assert modes == {"created": 0o640, "written": 0o640}


def test_a_folder_with_another_spec_is_refused(store):
    folder = store.trial(make_spec())
    folder.put_spec(make_spec())
    folder.put_spec(make_spec())
    with pytest.raises(UserError, match="another spec"):
        folder.put_spec(make_spec(seed=1))


def test_identity_has_what_changes_numbers_and_survives_json():
    spec = make_spec()
    assert (
        TrialSpec.from_json(json.loads(json.dumps(spec.to_json()))).fingerprint == spec.fingerprint
    )
    assert spec.fingerprint in {spec.fingerprint} - {
        make_spec(seed=1).fingerprint,
        make_spec(config={"width": 4}).fingerprint,
        make_spec(revision=2).fingerprint,
        make_spec(steps=8).fingerprint,
    }
    with pytest.raises(UserError, match="label_ratio"):
        DataSpec(**{**spec.to_json()["data"], "label_ratio": 1.5})
    with pytest.raises(UserError, match="steps"):
        make_spec(steps=0)


def test_first_result_of_an_evaluation_stays(store):
    spec = EvaluationSpec(
        protocol="bottom_right", options={"space": "latent"}, dataset="iraven",
        configuration="center", split="test", digest="d", rounds=1, seed=0, revision=1,
    )  # fmt: skip
    folder = store.trial(make_spec())
    evaluation = folder.evaluation(spec)
    assert not evaluation.is_done
    evaluation.create_result(spec, {"accuracy": [0.5]})
    evaluation.create_result(spec, {"accuracy": [0.7]})
    assert evaluation.result() == {"accuracy": [0.5]}
    assert [e.spec().fingerprint for e in folder.evaluations()] == [spec.fingerprint]
