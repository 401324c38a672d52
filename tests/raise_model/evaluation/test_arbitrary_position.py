"""Selection at arbitrary positions: a literal implementation, known answers, and the draws."""

import dataclasses
import itertools
from functools import cache

import numpy as np
import pytest
import torch

from raise_model.data.generate import make_problem
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.loader import ProblemSet, resize_panels
from raise_model.data.schema import Manifest
from raise_model.errors import UserError
from raise_model.evaluation import arbitrary_position as protocol
from raise_model.evaluation.arbitrary_position import (
    DISTRACTORS,
    TARGETS,
    arbitrary_position,
    batches,
    draw,
)
from raise_model.models import anp, registry
from raise_model.models.clap.config import smoke as clap_smoke
from raise_model.models.raise_net.config import smoke
from raise_model.models.solver import (
    Needs,
    Prediction,
    Solver,
    UnsupportedProtocol,
    config_to_json,
)

SIZE, PROBLEMS = 20, 48
CPU = torch.device("cpu")


def problem_set(panels):
    """A split of these panels (problems, 9, size, size); the last ones are the right answers."""
    number = len(panels)
    sixteen = np.concatenate([panels, panels[:, :7]], 1)
    manifest = Manifest(
        dataset="raven", configuration="center", split="test", problems=number, digest="",
        files={}, recipe={}, version="0",
    )  # fmt: skip
    return ProblemSet(manifest, sixteen, np.zeros(number, np.int8), [[]] * number)


@cache
def generated(configuration):
    made = [make_problem("raven", configuration, 1234, index) for index in range(PROBLEMS)]
    panels = np.stack([[*p.panels[:8], p.panels[8 + p.target]] for p in made])
    small = resize_panels(panels.reshape(-1, 160, 160), SIZE, "area")
    return problem_set(small.reshape(PROBLEMS, 9, SIZE, SIZE))


def noise(problems=PROBLEMS, seed=0, greys=256):
    generator = np.random.default_rng(seed)
    return problem_set(generator.integers(0, greys, (problems, 9, SIZE, SIZE), dtype=np.uint8))


def panels_of(problems):
    return problems.batch(torch.arange(problems.num_problems), CPU).panels


def identity_of(problems):
    """Numbers of panels by their bytes, one after another."""
    known, numbers = {}, []
    for panel in (panels_of(problems) * 255).round().byte().flatten(0, 2).numpy():
        numbers.append(known.setdefault(panel.tobytes(), len(known)))
    return torch.tensor(numbers).view(-1, 9)


class Untrained(Solver):
    supports = frozenset({"arbitrary_position", "pixel"})
    needs = Needs()

    def optimizers(self):
        return {}

    def set_step(self, step, steps):
        return {}

    def training_steps(self, batches, generator):
        return iter(())


class Oracle(Untrained):
    """Knows the missing panels."""

    def predict_encoded(self, codes, missing, generator):
        images = codes[missing].view(len(codes), -1, 1, SIZE, SIZE)
        return Prediction(images=images)


class Guessing(Untrained):
    """Scores at random, from the generator that predictions are made with."""

    def predict_encoded(self, codes, missing, generator):
        return Prediction(images=torch.rand(len(codes), 16, generator=generator))

    def score_encoded(self, prediction, candidates, space):
        return prediction.images


class Broken(Guessing):
    """All scores are no numbers."""

    def score_encoded(self, prediction, candidates, space):
        return torch.full(candidates.shape[:2], torch.nan)


def own(name, config):
    solver = registry.build(name, config_to_json(config), SIZE, seed=3)
    generator = torch.Generator().manual_seed(0)
    for module in solver.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.uniform_(-0.5, 0.5, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
    return solver


def raise_solver(test_rule):
    return own("raise", dataclasses.replace(smoke(), test_rule=test_rule))


def run(solver, problems, *, space="pixel", masks="batch", duplicates="keep", rounds=2, seed=0):
    return arbitrary_position(
        solver, problems, space=space, masks=masks, duplicates=duplicates, rounds=rounds,
        seed=seed, device=CPU,
    )  # fmt: skip


def accuracies(result):
    return {(s["targets"], s["distractors"]): s["accuracy"] for s in result["settings"]}


def distractors_of(question, round_, problem, number):
    return question.distractors[round_, problem, :number].tolist()


@pytest.mark.parametrize("masks", ["batch", "problem"])
@pytest.mark.parametrize("duplicates", ["keep", "leave_out"])
def test_accuracy_is_that_of_a_literal_implementation(monkeypatch, masks, duplicates):
    """One problem, candidate and panel after another, each encoded alone."""
    monkeypatch.setattr(protocol, "BATCH_SIZE", 25)
    monkeypatch.setattr(protocol, "SCORED_AT_ONCE", 1000)
    problems, solver = noise(PROBLEMS, greys=2), raise_solver("argmax").eval()
    problems.panels[5, :9] = problems.panels[3, :9]  # in the same batch
    options = {"masks": masks, "duplicates": duplicates}
    found = accuracies(run(solver, problems, space="latent", **options))
    draws = draw(identity_of(problems), rounds=2, seed=0, **options)
    panels, wanted = panels_of(problems), {}
    with torch.no_grad():
        alone = [[solver.encode(panel[None, None])[0, 0] for panel in nine] for nine in panels]
        for targets, question in zip(TARGETS, draws, strict=True):
            for round_, problem in itertools.product(range(2), range(PROBLEMS)):
                places = question.positions[round_, problem].tolist()
                missing = torch.zeros(1, 9, dtype=torch.bool)
                missing[0, places] = True
                shown = panels[problem : problem + 1]
                prediction = solver.predict(shown, missing, torch.Generator()).latents[0]
                for number in DISTRACTORS:
                    offered = [*distractors_of(question, round_, problem, number), problem]
                    distances = []
                    for other in offered:
                        codes = torch.stack([alone[other][place] for place in places])
                        distances.append(float((codes - prediction).square().sum()))
                    first = distances.index(min(distances))
                    hits = wanted.setdefault((targets, number), [0, 0])
                    hits[round_] += first == number
    assert found == {key: [n / PROBLEMS for n in hits] for key, hits in wanted.items()}
    assert len({a for each in found.values() for a in each}) > 4, "accuracies differ"


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_oracle_fails_on_exact_duplicates_alone(configuration):
    problems = generated(configuration)
    found = accuracies(run(Oracle(), problems))
    identity = identity_of(problems)
    draws = draw(identity, rounds=2, seed=0, masks="batch", duplicates="keep")
    for targets, question in zip(TARGETS, draws, strict=True):
        for number, round_ in itertools.product(DISTRACTORS, range(2)):
            unique = 0
            for problem in range(PROBLEMS):
                places = question.positions[round_, problem]
                rows = distractors_of(question, round_, problem, number)
                answer = identity[problem, places].tolist()
                unique += answer not in [identity[row, places].tolist() for row in rows]
            assert found[targets, number][round_] == unique / PROBLEMS
    without = run(Oracle(), problems, duplicates="leave_out", masks="problem")
    assert {a for each in accuracies(without).values() for a in each} == {1.0}


def test_exact_duplicates_are_errors():
    """Every second problem has the panels of the one before."""
    problems = noise(40)
    problems.panels[1::2] = problems.panels[::2]
    found = accuracies(run(Oracle(), problems, rounds=40))
    for targets, number in itertools.product(TARGETS, DISTRACTORS):
        rate = 1 - number / 39  # of 39 others one is a duplicate
        error = (rate * (1 - rate) / (40 * 40)) ** 0.5
        assert np.mean(found[targets, number]) == pytest.approx(rate, abs=5 * error)
    without = accuracies(run(Oracle(), problems, duplicates="leave_out"))
    assert {a for each in without.values() for a in each} == {1.0}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_random_answers_are_right_by_chance(configuration):
    rounds = 50
    problems = generated(configuration)
    found = accuracies(run(Guessing(), problems, rounds=rounds, duplicates="leave_out"))
    for (_, number), accuracy in found.items():
        rate = 1 / (number + 1)
        error = (rate * (1 - rate) / (rounds * PROBLEMS)) ** 0.5
        assert np.mean(accuracy) == pytest.approx(rate, abs=4 * error)


def test_scores_that_are_no_numbers_are_errors():
    found = accuracies(run(Broken(), noise()))
    assert {a for each in found.values() for a in each} == {0.0}


@pytest.mark.parametrize(
    ("name", "config", "space"),
    [("raise", smoke(), "latent"), ("anp", anp.smoke(), "pixel")],
)
def test_each_panel_is_encoded_once(name, config, space, monkeypatch):
    monkeypatch.setattr(protocol, "BATCH_SIZE", 20)
    monkeypatch.setattr(protocol, "ENCODED_AT_ONCE", 7)
    solver, problems, shown = own(name, config), noise(), []
    encode = solver.encode
    monkeypatch.setattr(solver, "encode", lambda panels: shown.append(panels) or encode(panels))
    run(solver, problems, space=space, rounds=3, masks="problem")
    assert torch.equal(torch.cat(shown), panels_of(problems))


def test_drawn_predictions_alone_are_encoded_besides(monkeypatch):
    """CLAP compares codes of the panels that it draws."""
    solver, problems, shown = own("clap", clap_smoke("center")), noise(), []
    encode = solver.encode
    monkeypatch.setattr(solver, "encode", lambda panels: shown.append(panels) or encode(panels))
    run(solver, problems, space="latent", rounds=3)
    every = sum(panels.shape[0] * panels.shape[1] for panels in shown)
    assert every == PROBLEMS * (9 + 3 * sum(TARGETS))


def test_rounds_differ_and_come_back_with_the_seed():
    problems, solver = noise(), raise_solver("sample")
    first = run(solver, problems, space="latent", rounds=4)
    assert first == run(solver, problems, space="latent", rounds=4)
    assert first != run(solver, problems, space="latent", rounds=4, seed=1)
    assert any(len(set(a)) > 1 for a in accuracies(first).values())


def test_solver_is_evaluated_with_running_statistics_and_left_as_it_was():
    problems, solver = noise(), raise_solver("argmax").eval()
    wanted = run(solver, problems, space="latent")
    solver.train()
    assert run(solver, problems, space="latent") == wanted
    assert solver.training


def test_result_names_every_setting():
    result = run(Oracle(), noise(), rounds=3)
    assert result["problems"] == PROBLEMS
    settings = [(s["targets"], s["distractors"]) for s in result["settings"]]
    assert settings == [(1, 1), (1, 3), (1, 7), (1, 15), (2, 1), (2, 3), (2, 7), (2, 15)]
    assert all(len(s["accuracy"]) == 3 for s in result["settings"])
    assert all(s["problems"] == PROBLEMS for s in result["settings"])


def test_masks_are_shared_in_a_batch_or_drawn_for_each_problem(monkeypatch):
    monkeypatch.setattr(protocol, "BATCH_SIZE", 20)
    identity = torch.arange(60 * 9).view(60, 9)
    shared = draw(identity, rounds=30, seed=0, masks="batch", duplicates="keep")
    each = draw(identity, rounds=30, seed=0, masks="problem", duplicates="keep")
    for targets, of_batch, of_problem in zip(TARGETS, shared, each, strict=True):
        assert of_batch.positions.shape == of_problem.positions.shape == (30, 60, targets)
        first = of_batch.positions.view(30, 3, 20, targets)
        assert (first == first[:, :, :1]).all()
        assert len(of_batch.positions.unique(dim=0)) > 1
        assert (of_problem.positions != of_problem.positions[:, :1]).any(1).all()
        for positions in (of_batch.positions, of_problem.positions):
            assert (positions.diff() > 0).all(), "ascending, without repetition"
        counts = of_problem.positions.flatten().bincount(minlength=9)
        expected = 30 * 60 * targets / 9
        assert ((counts - expected).abs() < 5 * expected**0.5).all()


def test_distractors_are_other_problems_of_the_batch_all_alike(monkeypatch):
    monkeypatch.setattr(protocol, "BATCH_SIZE", 20)
    identity = torch.arange(60 * 9).view(60, 9)
    (question, _) = draw(identity, rounds=200, seed=0, masks="batch", duplicates="keep")
    rows, problem = question.distractors, torch.arange(60)
    assert rows.shape == (200, 60, 15)
    assert (rows // 20 == problem[:, None] // 20).all()
    assert (rows != problem[:, None]).all()
    assert (rows.sort(2).values.diff() > 0).all(), "without replacement"
    for number in (1, 15):  # settings with few distractors take the first
        counts = rows[:, 7, :number].flatten().bincount(minlength=20)[:20]
        expected = 200 * number / 19
        assert counts[7] == 0
        others = torch.cat([counts[:7], counts[8:]])
        assert ((others - expected).abs() < 5 * expected**0.5).all()


def test_short_rest_joins_the_last_batch():
    sizes = {n: [s.stop - s.start for s in batches(n)] for n in (30, 512, 527, 528, 2000)}
    assert sizes == {
        30: [30], 512: [512], 527: [527], 528: [512, 16], 2000: [512, 512, 512, 464],
    }  # fmt: skip


def test_too_few_problems_are_refused():
    with pytest.raises(UserError, match=r"needs 15 other problems in a batch .* of 15 has 14"):
        run(Oracle(), noise(15))
    run(Oracle(), noise(16))
    problems = noise(20)
    problems.panels[:5] = problems.panels[:1]
    run(Oracle(), problems, duplicates="leave_out")
    problems.panels[:6] = problems.panels[:1]
    with pytest.raises(UserError, match=r"15 problems with other panels .* of 20 has 14"):
        run(Oracle(), problems, duplicates="leave_out")


def test_unsupported_protocol_and_space_are_refused():
    solver = raise_solver("argmax")
    with pytest.raises(UnsupportedProtocol, match="Oracle does not support latent"):
        run(Oracle(), noise(), space="latent")
    with pytest.raises(UnsupportedProtocol, match="codes of Raise hold no pixel values"):
        run(solver, noise(), space="pixel")
