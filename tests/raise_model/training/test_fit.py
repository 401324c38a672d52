"""The loop: optimisers, schedules, best by validation, non-finite losses, bit-exact resume."""

import importlib.util
import io
import math
from pathlib import Path

import pytest
import torch

from raise_model.problem import UNLABELLED, Batch
from raise_model.store import Store
from raise_model.training import checkpoint
from raise_model.training.fit import FiniteCheck, NonFiniteLoss, TrainingState, fit

_path = Path(__file__).parent.parent / "toy_solver.py"
_spec = importlib.util.spec_from_file_location("toy_solver", _path)
toy_solver = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(toy_solver)

SIZE = 4


class RandomBatches:
    """Random panels, one generator."""

    def __init__(self, seed=0):
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, pool, size, *, partial=False):
        panels = torch.rand(size, 9, 1, SIZE, SIZE, generator=self.generator)
        labels = torch.full((size, 3), UNLABELLED)
        return Batch(index=torch.arange(size), panels=panels, rule_labels=labels)

    def num_problems(self, pool):
        return 1000

    def state_dict(self):
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])


def new_state(cls=toy_solver.ToySolver):
    torch.manual_seed(0)
    return TrainingState(
        solver=cls(toy_solver.ToyConfig(), SIZE),
        batches=RandomBatches(),
        generator=torch.Generator().manual_seed(0),
    )


def run(state, *, steps=12, validate_every=4, accuracies=None, save=None, pause=lambda: False):
    """Fit with given validation accuracies (else one that falls); return the reported rows."""
    rows = []
    given = iter(accuracies) if accuracies is not None else None

    def validate(solver):
        assert not solver.training, "validation must see the solver in evaluation mode"
        return {"validation_accuracy": next(given) if given else 1 - state.step / 100}

    finished = fit(
        state, steps=steps, validate_every=validate_every, precision="fp32", validate=validate,
        save=save or (lambda state, is_best: None), report=rows.append, pause=pause,
    )  # fmt: skip
    return finished, rows


def bits(state):
    buffer = io.BytesIO()
    torch.save(state.tensors(), buffer)
    loaded = torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
    return loaded


def assert_same_bits(first, second):
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            assert_same_bits(first[key], second[key])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for a, b in zip(first, second, strict=True):
            assert_same_bits(a, b)
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second)
    else:
        assert first == second


def test_each_loss_steps_only_its_own_optimiser():
    state = new_state()
    decoder = {k: v.clone() for k, v in state.solver.decoder.state_dict().items()}
    encoder = state.solver.encoder[1].weight.detach().clone()
    run(state, steps=1, validate_every=1)
    assert torch.equal(state.solver.decoder.weight, decoder["weight"])
    assert not torch.equal(state.solver.encoder[1].weight, encoder)
    encoder = state.solver.encoder[1].weight.detach().clone()
    state.best_accuracy = -math.inf
    # The budget ended inside the round; the next round begins anew with the coder.
    run(state, steps=3, validate_every=1)
    assert not torch.equal(state.solver.decoder.weight, decoder["weight"])
    assert not torch.equal(state.solver.encoder[1].weight, encoder)


def test_rates_and_schedules_are_functions_of_the_step():
    state = new_state()
    run(state, steps=8, validate_every=8)
    rate = toy_solver.ToyConfig().learning_rate
    assert state.optimizers["decoder"].param_groups[0]["lr"] == pytest.approx(
        2 * rate * (1 - 0.5 * 7 / 8)
    )
    assert state.optimizers["coder"].param_groups[0]["lr"] == pytest.approx(
        rate * (1 - 0.5 * 6 / 8)
    )
    assert float(state.solver.temperature) == pytest.approx(1 - 7 / 8)


def test_validation_comes_at_multiples_of_its_interval_and_at_the_end():
    finished, rows = run(new_state(), steps=11, validate_every=4)
    assert finished
    assert [row["step"] for row in rows] == [4, 8, 11]
    assert {"prediction", "image", "validation_accuracy"} <= rows[0].keys()


def test_earliest_of_equal_best_accuracies_wins():
    saved = []
    state = new_state()
    run(
        state, steps=16, validate_every=4, accuracies=[0.2, 0.5, 0.5, 0.4],
        save=lambda state, is_best: saved.append((state.step, is_best)),
    )  # fmt: skip
    assert saved == [(4, True), (8, True), (12, False), (16, False)]
    assert (state.best_step, state.best_accuracy) == (8, 0.5)


def test_best_weights_are_those_of_the_best_step_not_the_last(tmp_path):
    folder = Store(str(tmp_path)).trial("toy")
    seen = {}

    def save(state, is_best):
        seen[state.step] = state.solver.encoder[1].weight.detach().clone()
        if is_best:
            checkpoint.save(folder, "best", state.step, {"solver": state.solver.state_dict()}, {})

    run(new_state(), steps=12, validate_every=4, accuracies=[0.1, 0.9, 0.3], save=save)
    best = checkpoint.load(folder, "best")
    assert best.step == 8
    assert torch.equal(best.tensors["solver"]["encoder.1.weight"], seen[8])
    assert not torch.equal(seen[8], seen[12])


def test_run_interrupted_three_times_gives_the_same_bits(tmp_path):
    undisturbed = new_state()
    run(undisturbed, steps=20, validate_every=4)

    folder = Store(str(tmp_path)).trial("toy")
    attempts = 0
    while True:
        attempts += 1
        # What a new process starts with must not matter.
        torch.manual_seed(1000 + attempts)
        state = new_state()
        torch.manual_seed(2000 + attempts)
        if (last := checkpoint.load(folder, "last")) is not None:
            state.restore(last.step, last.tensors, last.meta)
        else:
            torch.manual_seed(0)
            state = new_state()
        finished, _ = run(
            state, steps=20, validate_every=4, pause=lambda n=attempts: n < 4,
            save=lambda s, b: checkpoint.save(folder, "last", s.step, s.tensors(), s.meta()),
        )  # fmt: skip
        if finished:
            break
    assert attempts == 4
    assert_same_bits(bits(state), bits(undisturbed))
    assert [{k: v for k, v in row.items()} for row in state.curve] == undisturbed.curve


class ExplodingSolver(toy_solver.ToySolver):
    """Its fifth loss is NaN."""

    def training_steps(self, batches, generator):
        for loss in super().training_steps(batches, generator):
            self.count = getattr(self, "count", 0) + 1
            factor = float("nan") if self.count == 5 else 1.0
            yield toy_solver.Loss(
                optimizer=loss.optimizer, total=loss.total * factor, terms=loss.terms,
                problems=torch.tensor([17, 4]),
            )  # fmt: skip


def test_non_finite_loss_stops_before_the_step_and_names_it():
    saved = []
    state = new_state(ExplodingSolver)
    with pytest.raises(NonFiniteLoss, match=r"step 5: .*coder.*prediction=.*problems 17, 4;"):
        run(state, steps=12, validate_every=4, save=lambda s, b: saved.append(s.step))
    assert saved == [4], "the last good checkpoint stays"
    assert all(torch.isfinite(p).all() for p in state.solver.parameters())


def test_losses_looked_at_together_are_refused_too():
    """As on a GPU: nothing is read until the flush, which names the first bad step."""
    losses = [
        toy_solver.Loss(optimizer="coder", total=torch.tensor(value), terms={})
        for value in (1.0, float("inf"), float("nan"))
    ]
    check = FiniteCheck(at_once=False)
    for step, loss in enumerate(losses, 4):
        check.add(step, loss)
    with pytest.raises(NonFiniteLoss, match=r"step 6: .* is inf"):
        check.flush()
    check.flush()  # nothing is left


def test_checkpoint_whose_bytes_were_damaged_does_not_exist(tmp_path):
    store = Store(str(tmp_path))
    folder = store.trial("toy")
    checkpoint.save(folder, "last", 4, {"x": torch.ones(3)}, {"a": 1})
    checkpoint.save(folder, "last", 8, {"x": torch.zeros(3)}, {"a": 2})
    assert checkpoint.load(folder, "last").step == 8
    data = store.read(folder.file("last-00000008.pt"))
    store.write(folder.file("last-00000008.pt"), data[:-7])
    loaded = checkpoint.load(folder, "last")
    assert (loaded.step, loaded.meta) == (4, {"a": 1})
    store.delete(folder.file("last-00000004.pt"))
    assert checkpoint.load(folder, "last") is None


def test_tensors_without_description_are_an_unfinished_write(tmp_path):
    folder = Store(str(tmp_path)).trial("toy")
    checkpoint.save(folder, "last", 4, {"x": torch.ones(3)}, {})
    folder.store.write(folder.file("last-00000008.pt"), b"half")
    assert checkpoint.load(folder, "last").step == 4
    checkpoint.prune(folder, "last", 4)
    assert folder.store.list(folder.path) == ["last-00000004.json", "last-00000004.pt"]
