"""Problems written in the published layout are the published files, and come back the same."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest

from raise_model.data import schema
from raise_model.data.generate import generate, make_problem
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.ingest import ingest
from raise_model.data.published import read_problem
from raise_model.data.published_export import export, npz, xml
from raise_model.errors import UserError
from raise_model.store import Store

DRAWN = [name for name, made in CONFIGURATIONS.items() if not made.uniform]
BOX = re.compile(rb' real_bbox="\[([^"]*)\]"')


@pytest.mark.parametrize("dataset", ["raven", "iraven"])
@pytest.mark.parametrize("name", DRAWN)
def test_published_files_are_written_as_they_were(published, dataset, name):
    for file in (published / dataset / CONFIGURATIONS[name].folder).glob("*.npz"):
        text = file.with_suffix(".xml").read_bytes()
        problem = read_problem(file.read_bytes(), text, name, index=3)
        with np.load(file) as theirs, np.load(io.BytesIO(npz(problem, name))) as ours:
            assert ours.files == theirs.files
            for key in theirs.files:
                assert ours[key].shape == theirs[key].shape
                assert (ours[key] == theirs[key].astype(ours[key].dtype)).all()
                if key != "structure":
                    assert ours[key].dtype == theirs[key].dtype
        written = xml(problem, name, names_modified=True)
        # The order of modified attributes means nothing; boxes are rounded to four digits.
        assert panels_and_rules(written) == panels_and_rules(text)
        assert (b"<Modified_attributes>" in written) == (dataset == "iraven")
        np.testing.assert_allclose(boxes(written), boxes(text), atol=1.01e-4)


def panels_and_rules(text):
    return BOX.sub(b"", text).partition(b"</Rules>")[0]


def boxes(text):
    return [[float(number) for number in box.split(b",")] for box in BOX.findall(text)]


@pytest.mark.parametrize("dataset", ["raven", "iraven"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_written_problems_are_read_as_they_were(dataset, name):
    problem = make_problem(dataset, name, 5, 0)
    text = xml(problem, name, names_modified=dataset == "iraven")
    read = read_problem(npz(problem, name), text, name, 0)
    assert np.array_equal(read.panels, problem.panels)
    expected = replace(
        problem,
        panels=read.panels,
        rules=[{**rule, "value": None} for rule in problem.rules],
        modified=problem.modified if dataset == "iraven" else None,
    )
    for column in ("index", "target", "rules", "layouts", "entities", "modified"):
        assert getattr(read, column) == getattr(expected, column)


@pytest.fixture
def store(tmp_path):
    made = Store(str(tmp_path / "store"))
    generate(made, dataset="iraven", configuration="out_in_grid", problems=20)
    return made


def columns(store, dataset):
    manifest = schema.open_manifest(store, dataset, "out_in_grid", "train")
    (chunk,) = schema.read_chunks(store, manifest, schema.SCHEMA.names)
    names = ("index", "panels", "target", "layouts", "entities", "modified")
    return {name: chunk.column(name).to_pylist() for name in names}


def test_exported_and_ingested_is_the_same_table(store, tmp_path):
    folder = tmp_path / "files"
    for split, problems in (("train", 12), ("val", 4), ("test", 4)):
        written = export(store, folder, dataset="iraven", configuration="out_in_grid", split=split)
        assert written == problems
    assert len(list((folder / "in_distribute_four_out_center_single").iterdir())) == 40
    report = ingest(store, [folder], strict=True)
    assert {(m.dataset, m.split) for m in report.manifests} == {
        ("iraven_published", split) for split in ("train", "val", "test")
    }
    assert columns(store, "iraven_published") == columns(store, "iraven")


def test_an_interrupted_export_goes_on(store, tmp_path):
    def run():
        export(store, tmp_path / "files", dataset="iraven", configuration="out_in_grid",
               split="test")  # fmt: skip

    run()
    files = sorted((tmp_path / "files").rglob("RAVEN*"))
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}
    files[0].unlink()
    run()
    assert {file: file.read_bytes() for file in files} == {f: b[0] for f, b in before.items()}
    assert all(f.stat().st_mtime_ns == before[f][1] for f in files[1:])
    assert sorted(files[0].parent.iterdir()) == files


def test_other_content_is_never_overwritten(store, tmp_path):
    folder = tmp_path / "files" / "in_distribute_four_out_center_single"
    folder.mkdir(parents=True)
    (folder / "RAVEN_9_test.xml").write_text("mine")
    with pytest.raises(UserError, match=r"RAVEN_9_test\.xml is there with other content"):
        export(store, tmp_path / "files", dataset="iraven", configuration="out_in_grid",
               split="test")  # fmt: skip
    assert (folder / "RAVEN_9_test.xml").read_text() == "mine"


def test_a_file_that_cannot_be_written_leaves_nothing_partial(store, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("raise_model.atomic_write.os.replace", full)
    with pytest.raises(UserError, match=r"cannot write .*No space left"):
        export(store, tmp_path / "files", dataset="iraven", configuration="out_in_grid",
               split="test")  # fmt: skip
    assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []


def test_a_folder_that_is_a_file_is_one_line(store, tmp_path):
    (tmp_path / "blocked").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*blocked"):
        export(store, tmp_path / "blocked", dataset="iraven", configuration="out_in_grid",
               split="test")  # fmt: skip


def test_a_split_that_is_not_there_is_one_line(store, tmp_path):
    with pytest.raises(UserError, match="no data set raven/center/train"):
        export(store, tmp_path, dataset="raven", configuration="center", split="train")
