"""What every registered solver must do, and a toy solver with two optimisers too."""

import dataclasses
import importlib.util
import io
from pathlib import Path

import pytest
import torch

from raise_model.models import anp, registry, transformer
from raise_model.models.clap import config as clap_config
from raise_model.models.lgpp import config as lgpp_config
from raise_model.models.raise_net import config as raise_config
from raise_model.models.solver import UnsupportedProtocol, config_to_json

_path = Path(__file__).parent.parent / "toy_solver.py"
_spec = importlib.util.spec_from_file_location("toy_solver", _path)
toy_solver = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(toy_solver)

SIZE = 20
SMALL = {
    "raise": raise_config.smoke,
    "raise_plus": raise_config.smoke,
    "transformer": transformer.smoke,
    "anp": anp.smoke,
    "lgpp": lambda: lgpp_config.smoke("center"),
    "clap": lambda: clap_config.smoke("center"),
}
"""A small setting of each of the package's own solvers."""


def _build_toy(seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return toy_solver.ToySolver(toy_solver.ToyConfig(), SIZE)


def _builder(name, **changes):
    if name == "toy":
        return _build_toy
    config = config_to_json(dataclasses.replace(SMALL[name](), **changes))
    return lambda seed: registry.build(name, config, SIZE, seed)


SOLVERS = {name: _builder(name) for name in (*SMALL, "toy")} | {
    "raise as in the paper": _builder(
        "raise", batches="separate", rule_net_target="learnable", test_rule="sample",
        rule_sample="hard", label_loss="paper", targets_per_problem=1, target_positions="problem",
    ),
    "raise with averaged weights": _builder("raise", ema_decay=0.5, optimizer="rmsprop"),
}  # fmt: skip


@pytest.fixture(params=SOLVERS)
def new(request):
    return SOLVERS[request.param]


def train(solver, batches, steps, generator):
    """What ``fit`` does, without validation."""
    torch.manual_seed(0)  # for dropout
    optimizers, losses = solver.optimizers(), []
    solver.train()
    while len(losses) < steps:
        round_losses = solver.training_steps(batches, generator)
        while len(losses) < steps:
            rates = solver.set_step(len(losses), steps)
            if (loss := next(round_losses, None)) is None:
                break
            for group in optimizers[loss.optimizer].param_groups:
                group["lr"] = rates[loss.optimizer]
            optimizers[loss.optimizer].zero_grad()
            loss.total.backward()
            optimizers[loss.optimizer].step()
            losses.append(loss)
    return losses


def trained(new, batches, *, seed=0, draws=0, steps=6):
    solver = new(seed)
    train(solver, batches(size=SIZE), steps, torch.Generator().manual_seed(draws))
    return solver


def missing_of(rows):
    missing = torch.zeros(len(rows), 9, dtype=torch.bool)
    for row, places in enumerate(rows):
        missing[row, list(places)] = True
    return missing


def predict(solver, panels, missing, seed=0):
    solver.eval()
    with torch.no_grad():
        return solver.predict(panels, missing, torch.Generator().manual_seed(seed))


def tensors(prediction):
    given = {f.name: getattr(prediction, f.name) for f in dataclasses.fields(prediction)}
    return {name: value for name, value in given.items() if value is not None}


def panels_of(batch, problems):
    return batch(problems, size=SIZE, dtype=torch.float32).panels


def test_every_solver_of_the_package_is_under_contract():
    assert set(registry._OWN) == set(SMALL)


def test_losses_are_finite_scalars_for_declared_optimisers(new, batches):
    solver = new(0)
    names = set(solver.optimizers())
    losses = train(solver, batches(size=SIZE), 5, torch.Generator().manual_seed(0))
    assert {loss.optimizer for loss in losses} == names
    for loss in losses:
        assert loss.total.shape == ()
        assert torch.isfinite(loss.total)
        assert loss.terms
        assert all(torch.isfinite(v) and not v.requires_grad for v in loss.terms.values())
    assert set(solver.set_step(0, 10)) == names


def test_a_round_gives_every_parameter_a_gradient_through_its_own_optimiser(new, batches):
    solver = new(0)
    optimizers = solver.optimizers()
    owned = [p for o in optimizers.values() for g in o.param_groups for p in g["params"]]
    assert {id(p) for p in owned} == {id(p) for p in solver.parameters()}
    assert len(owned) == len(set(map(id, owned))), "optimisers are disjoint"
    reached = set()
    for loss in solver.training_steps(batches(size=SIZE), torch.Generator().manual_seed(0)):
        optimizers[loss.optimizer].zero_grad()
        loss.total.backward()
        for group in optimizers[loss.optimizer].param_groups:
            reached |= {id(p) for p in group["params"] if p.grad is not None and p.grad.any()}
    missed = [name for name, p in solver.named_parameters() if id(p) not in reached]
    assert not missed


def test_same_seeds_give_the_same_bits(new, batches):
    first = trained(new, batches).state_dict()
    again = trained(new, batches).state_dict()
    other = trained(new, batches, draws=1).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_global_generator_does_not_touch_predictions(new, batch, batches):
    solver = trained(new, batches)
    panels, missing = panels_of(batch, 3), missing_of([[8]] * 3)
    torch.manual_seed(1)
    first = tensors(predict(solver, panels, missing))
    torch.manual_seed(2)
    second = tensors(predict(solver, panels, missing))
    assert first
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    "rows", [[[0], [4], [8]], [[0, 1], [2, 7], [5, 8]], [[0, 4, 8], [1, 2, 3], [2, 6, 7]]]
)
def test_missing_panels_are_never_read(new, batch, batches, rows):
    solver = trained(new, batches)
    panels, missing = panels_of(batch, 3), missing_of(rows)
    spoiled = panels.clone()
    spoiled[missing] = float("nan")
    first = tensors(predict(solver, panels, missing))
    second = tensors(predict(solver, spoiled, missing))
    for name, value in first.items():
        assert torch.isfinite(value).all()
        assert torch.equal(value, second[name]), name


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_positions_may_be_missing_and_problems_do_not_mix(new, batch, batches, number):
    solver = trained(new, batches)
    solver.set_step(0, 1)
    places = torch.rand(5, 9, generator=torch.Generator().manual_seed(0)).argsort(1)[:, :number]
    panels, missing = panels_of(batch, 5), missing_of(places.tolist())
    together = tensors(predict(solver, panels, missing))
    answers = {name: value for name, value in together.items() if name != "rules"}
    assert answers
    assert all(value.shape[:2] == (5, number) for value in answers.values())
    if "images" in together:
        assert together["images"].shape == (5, number, 1, SIZE, SIZE)
    others = panels.clone()
    others[1:] = others[1:].flip(0)
    again = tensors(predict(solver, others, missing))
    for name, value in together.items():
        torch.testing.assert_close(value[:1], again[name][:1], msg=name)
        assert not torch.equal(value[1:], again[name][1:]), f"{name} ignores the context"


@pytest.mark.parametrize("rows", [[[0], [4], [8]], [[0, 1], [2, 7], [5, 8]]])
def test_codes_of_missing_panels_are_never_read(new, batch, batches, rows):
    solver = trained(new, batches).eval()
    panels, missing = panels_of(batch, 3), missing_of(rows)
    with torch.no_grad():
        codes = solver.encode(panels)
        codes[missing] = float("nan")
        given = solver.predict_encoded(codes, missing, torch.Generator().manual_seed(0))
        wanted = tensors(solver.predict(panels, missing, torch.Generator().manual_seed(0)))
    found = tensors(given)
    assert found
    for name, value in found.items():
        torch.testing.assert_close(value, wanted[name], msg=name)


def test_codes_do_not_depend_on_the_panels_beside(new, batch, batches):
    solver, panels = trained(new, batches).eval(), panels_of(batch, 4)
    with torch.no_grad():
        together, alone = solver.encode(panels), solver.encode(panels[2:3, 5:6])
    assert together.shape[:2] == (4, 9)
    torch.testing.assert_close(together[2:3, 5:6], alone)


def test_masks_together_predict_as_one_after_another(new, batch, batches):
    """Masks that repeat, that differ between problems, and that hide one to three panels."""
    solver, panels = trained(new, batches).eval(), panels_of(batch, 3)
    solver.set_step(0, 1)
    rows = [
        [[4]] * 3, [[0], [4], [8]], [[4], [4], [5]], [[0, 1], [0, 8], [5, 8]],
        [[3, 4], [0, 1], [5, 8]], [[0, 1, 2], [0, 4, 8], [1, 4, 7]],
    ]  # fmt: skip
    missing = torch.stack([missing_of(each) for each in rows])
    one, other = (torch.Generator().manual_seed(0) for _ in range(2))
    with torch.no_grad():
        codes = solver.encode(panels)
        together = solver.predict_masks(codes, missing, one)
        for mask, prediction in zip(missing, together, strict=True):
            wanted = tensors(solver.predict_encoded(codes, mask, other))
            found = tensors(prediction)
            assert found.keys() == wanted.keys()
            for name, value in found.items():
                torch.testing.assert_close(value, wanted[name], msg=name)


def test_solvers_that_decode_draw_what_they_predict(new, batch, batches):
    solver, panels = trained(new, batches).eval(), panels_of(batch, 3)
    prediction = predict(solver, panels, missing_of([[1, 8]] * 3))
    if "decode" not in solver.supports:
        with pytest.raises(UnsupportedProtocol, match="draws no panels"):
            solver.decode(torch.zeros(3, 2, 4))
        return
    with torch.no_grad():
        images = solver.decode(prediction.latents)
    assert images.shape == (3, 2, 1, SIZE, SIZE)
    torch.testing.assert_close(images, prediction.images)
    if solver.num_concepts is not None:
        assert prediction.latents.shape[2] % solver.num_concepts == 0
        latents = solver.latents_of(solver.encode(panels))
        assert latents.shape == (3, 9, prediction.latents.shape[2])


def test_state_round_trip_predicts_the_same_bits(new, batch, batches):
    solver = trained(new, batches)
    buffer = io.BytesIO()
    torch.save(solver.state_dict(), buffer)
    buffer.seek(0)
    other = new(1)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    panels, missing = panels_of(batch, 4), missing_of([[3], [8], [0], [5]])
    first, second = (tensors(predict(s, panels, missing)) for s in (solver, other))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_scores_rank_each_problems_own_candidates(new, batch, batches):
    solver = trained(new, batches)
    panels, missing = panels_of(batch, 3), missing_of([[8]] * 3)
    candidates = panels_of(batch, 3)[:, :5, None]
    prediction = predict(solver, panels, missing)
    for space in ("latent", "pixel"):
        if space not in solver.supports:
            continue
        with torch.no_grad():
            scores = solver.score(prediction, candidates, space)
            turned = solver.score(prediction, candidates.flip(1), space)
        assert scores.shape == (3, 5)
        torch.testing.assert_close(scores.flip(1), turned)
        if space == "pixel" and "latent" in solver.supports:
            continue
        with torch.no_grad():
            codes = solver.encode(candidates.flatten(1, 2)).unflatten(1, (5, 1))
            of_codes = solver.score_encoded(prediction, codes, space)
        torch.testing.assert_close(of_codes, scores)


def test_unsupported_spaces_are_refused(new, batch):
    solver = new(0)
    prediction = predict(solver, panels_of(batch, 2), missing_of([[8]] * 2))
    for space in {"latent", "pixel", "sound"} - solver.supports:
        with pytest.raises(UnsupportedProtocol, match=space):
            solver.score(prediction, panels_of(batch, 2)[:, :3, None], space)


def test_schedules_are_pure_functions_of_the_step(new):
    first, second = new(0), new(0)
    for step in range(5):
        first.set_step(step, 10)
    assert first.set_step(5, 10) == second.set_step(5, 10)
    states = first.state_dict(), second.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
