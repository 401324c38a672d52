"""The derived arrays: the resize to the letter, the cache, batches."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from raise_model.data import loader
from raise_model.data.generate import make_problem
from raise_model.data.loader import load, resize_panels
from raise_model.data.schema import open_manifest
from raise_model.errors import UserError
from raise_model.store import Store


def noise(panels=3):
    return np.random.default_rng(0).integers(0, 256, (panels, 160, 160), dtype=np.uint8)


def load_64(store, cache, split="train", **options):
    options = {"image_size": 64, "resize": "bilinear"} | options
    return load(store, "raven", "grid_2x2", split, cache=cache, **options)


def test_bilinear_is_the_formula_without_antialias():
    panels = noise()
    # Of every five rows, 0 and 1 make one with weights 1/4, 3/4, and 3 and 4 another; 2 is unused.
    weights = np.zeros((64, 160))
    for k in range(32):
        weights[2 * k, 5 * k : 5 * k + 2] = 0.25, 0.75
        weights[2 * k + 1, 5 * k + 3 : 5 * k + 5] = 0.75, 0.25
    expected = np.rint(weights @ panels.astype(float) @ weights.T)
    assert np.array_equal(resize_panels(panels, 64, "bilinear"), expected)


def test_bilinear_never_reads_rows_and_columns_2_mod_5():
    panels = noise()
    spoilt = panels.copy()
    spoilt[:, 2::5] = 0
    spoilt[:, :, 2::5] = 255
    kept, read = (resize_panels(p, 64, "bilinear") for p in (panels, spoilt))
    assert np.array_equal(kept, read)
    antialiased = torch.nn.functional.interpolate(
        torch.from_numpy(spoilt)[:, None].float(), size=(64, 64), mode="bilinear", antialias=True
    )
    assert abs(antialiased[:, 0].numpy() - kept).max() > 10


@pytest.mark.parametrize("size", [80, 32, 20])
def test_area_is_the_mean_of_each_block(size):
    panels = noise()
    side = 160 // size
    means = panels.reshape(3, size, side, size, side).astype(float).mean((2, 4))
    small = resize_panels(panels, size, "area")
    assert small.dtype == np.uint8
    assert abs(small - means).max() <= 0.5


@pytest.mark.parametrize("size", [48, 60])
def test_area_shares_pixels_between_squares(size):
    edges = np.arange(size + 1) * 160 / size
    pixels = np.arange(160)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights = overlap.clip(0) * size / 160
    small = resize_panels(noise(), size, "area")
    assert abs(small - weights @ noise().astype(float) @ weights.T).max() <= 0.5 + 1e-9


def test_area_refuses_to_enlarge():
    with pytest.raises(UserError, match="reduces panels of 160 pixels, to 200"):
        resize_panels(noise(), 200, "area")


def test_full_size_is_untouched():
    panels = noise()
    assert np.array_equal(resize_panels(panels, 160, "bilinear"), panels)


def test_resize_does_not_depend_on_how_many_panels_are_given():
    panels = noise(37)
    at_once = resize_panels(panels, 64, "bilinear")
    one_by_one = [resize_panels(panels[i : i + 1], 64, "bilinear")[0] for i in range(37)]
    assert np.array_equal(at_once, one_by_one)


def test_problems_come_in_order_with_targets_and_labels(generated, tmp_path):
    problems = load_64(generated, tmp_path)
    indices = [i for i in range(100) if i % 10 < 6]
    assert problems.num_problems == 60
    for row in (0, 1, 6, 59):
        made = make_problem("raven", "grid_2x2", 1234, indices[row])
        small = resize_panels(made.panels, 64, "bilinear")
        assert np.array_equal(problems.panels[row], small)
        assert problems.target[row] == made.target
        rules = {rule["attribute"]: rule["rule"] for rule in made.rules}
        names = ("constant", "progression", "arithmetic", "distribute_three")
        official = [
            names.index(rules.get(a, "constant")) for a in ("number", "type", "size", "color")
        ]
        assert problems.rule_labels("official")[row].tolist() == official
    assert problems.digest == open_manifest(generated, "raven", "grid_2x2", "train").digest


def test_batch_completes_the_matrix_with_the_right_answer(generated, tmp_path):
    problems = load_64(generated, tmp_path)
    rows = torch.tensor([5, 2, 40])
    labels = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0], [-1, -1, -1, -1]])
    batch = problems.batch(rows, torch.device("cpu"), labels=labels, candidates=True)
    raw = torch.from_numpy(problems.panels[rows.numpy()].copy()).float().div(255)[:, :, None]
    assert torch.equal(batch.panels[:, :8], raw[:, :8])
    assert torch.equal(batch.candidates, raw[:, 8:])
    assert torch.equal(batch.answer, torch.from_numpy(problems.target[rows.numpy()]).long())
    assert torch.equal(batch.panels[:, 8], batch.candidates[torch.arange(3), batch.answer])
    assert torch.equal(batch.rule_labels, labels)
    assert torch.equal(batch.index, rows)
    plain = problems.batch(rows, torch.device("cpu"))
    assert plain.candidates is None
    assert plain.answer is None
    assert plain.panels.shape == (3, 9, 1, 64, 64)


def test_array_is_derived_once_and_mapped(generated, tmp_path, monkeypatch):
    first = load_64(generated, tmp_path)
    monkeypatch.setattr(loader, "resize_panels", None)
    second = load_64(generated, tmp_path)
    assert np.array_equal(first.panels, second.panels)
    assert isinstance(second.panels, np.memmap)
    assert len(list(tmp_path.iterdir())) == 1


def test_sizes_have_arrays_of_their_own(generated, tmp_path):
    shapes = {
        load_64(generated, tmp_path, image_size=s, resize="area").panels.shape for s in (20, 80)
    }
    assert shapes == {(60, 16, 20, 20), (60, 16, 80, 80)}
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["truncated", "empty", "foreign", "other shape"])
def test_a_damaged_array_is_made_anew(generated, tmp_path, damage):
    whole = np.array(load_64(generated, tmp_path).panels)
    (file,) = tmp_path.iterdir()
    if damage == "truncated":
        os.truncate(file, file.stat().st_size - 1)
    elif damage == "empty":
        os.truncate(file, 0)
    elif damage == "foreign":
        file.write_text("not an array")
    else:
        np.save(file, whole[:10])
    assert np.array_equal(load_64(generated, tmp_path).panels, whole)


def test_a_failed_derivation_leaves_nothing(generated, tmp_path, monkeypatch):
    def failing(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(loader, "resize_panels", failing)
    with pytest.raises(UserError, match=r"cannot write the cache .*No space left on device"):
        load_64(generated, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_one_line(generated, tmp_path):
    store = Store(str(tmp_path / "store"))
    manifest = open_manifest(generated, "raven", "grid_2x2", "val")
    (name,) = manifest.files
    for file in ("_manifest.json", name):
        path = f"{manifest.folder}/{file}"
        store.create(path, generated.read(path))
    store.delete(f"{manifest.folder}/{name}")
    with pytest.raises(UserError, match=r"cannot be read.*delete its folder"):
        load_64(store, tmp_path / "cache", split="val")
    store.create(f"{manifest.folder}/{name}", b"PAR1 rubbish PAR1")
    with pytest.raises(UserError, match="cannot be read"):
        load_64(store, tmp_path / "cache", split="val")


def test_too_few_problems_are_noticed(generated, tmp_path):
    store = Store(str(tmp_path / "store"))
    manifest = open_manifest(generated, "raven", "grid_2x2", "val")
    (name,) = manifest.files
    store.create(
        f"{manifest.folder}/_manifest.json", generated.read(f"{manifest.folder}/_manifest.json")
    )
    rows = pq.ParquetFile(generated.path(f"{manifest.folder}/{name}")).read()
    pq.write_table(rows.slice(0, 5), store.path(f"{manifest.folder}/{name}"))
    with pytest.raises(UserError, match="holds 5 problems, not 20"):
        load_64(store, tmp_path / "cache", split="val")


def test_two_may_derive_at_once(generated, tmp_path, monkeypatch):
    resize, both = loader.resize_panels, threading.Barrier(2)

    def together(*arguments):
        both.wait(timeout=60)
        return resize(*arguments)

    monkeypatch.setattr(loader, "resize_panels", together)
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda _: load_64(generated, tmp_path), range(2))
    assert np.array_equal(one.panels, two.panels)
    assert len(list(tmp_path.iterdir())) == 1
