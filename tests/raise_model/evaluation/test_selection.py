"""Bottom-right selection: known answers, a literal implementation, and what must not matter."""

import dataclasses

import pytest
import torch

from raise_model.evaluation.selection import bottom_right, rule_accuracy
from raise_model.models import registry
from raise_model.models.raise_net.config import smoke
from raise_model.models.solver import (
    Needs,
    Prediction,
    Solver,
    UnsupportedProtocol,
    config_to_json,
)
from raise_model.problem import Batch

SIZE, PROBLEMS, ATTRIBUTES = 20, 23, 3
CPU = torch.device("cpu")


class Problems:
    """Random problems held in memory, with the part of ProblemSet that evaluation reads."""

    def __init__(self, *, constant_matrices=False):
        generator = torch.Generator().manual_seed(0)
        self.panels = torch.rand(PROBLEMS, 9, 1, SIZE, SIZE, generator=generator)
        self.candidates = torch.rand(PROBLEMS, 8, 1, SIZE, SIZE, generator=generator)
        if constant_matrices:
            self.panels[:] = self.panels[:, :1]
        self.answer = torch.randint(8, (PROBLEMS,), generator=generator)
        self.candidates[torch.arange(PROBLEMS), self.answer] = self.panels[:, 8]
        self.labels = torch.randint(4, (PROBLEMS, ATTRIBUTES), generator=generator)

    @property
    def num_problems(self):
        return PROBLEMS

    def rule_labels(self, label_map):
        assert label_map == "official"
        return self.labels.numpy()

    def batch(self, rows, device, labels=None, candidates=False):
        return Batch(
            index=rows, panels=self.panels[rows], rule_labels=torch.zeros(len(rows), 0).long(),
            candidates=self.candidates[rows] if candidates else None, answer=self.answer[rows],
        )  # fmt: skip


class MeanPanel(Solver):
    """Answers with the mean of the visible panels: right on matrices of nine equal panels."""

    supports = frozenset({"bottom_right", "pixel"})
    needs = Needs()
    sign = -1.0

    def optimizers(self):
        return {}

    def set_step(self, step, steps):
        return {}

    def training_steps(self, batches, generator):
        return iter(())

    def predict_encoded(self, codes, missing, generator):
        visible = codes[~missing].view(len(codes), -1, 1, SIZE, SIZE)
        return Prediction(images=visible.mean(1, keepdim=True))

    def score(self, prediction, candidates, space):
        return self.sign * (candidates - prediction.images[:, None]).square().flatten(2).sum(2)


class Indifferent(MeanPanel):
    """Gives every candidate the same score."""

    sign = 0.0


class Guessing(MeanPanel):
    """Scores at random, from the generator that predictions are made with."""

    def predict_encoded(self, codes, missing, generator):
        return Prediction(images=torch.rand(len(codes), 8, generator=generator))

    def score(self, prediction, candidates, space):
        return prediction.images


def raise_solver(**changes):
    config = dataclasses.replace(smoke(), **changes)
    solver = registry.build("raise", config_to_json(config), SIZE, seed=3)
    generator = torch.Generator().manual_seed(0)
    for module in solver.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.uniform_(-0.5, 0.5, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
    with torch.no_grad():  # rules that differ, so that it matters which one is chosen
        solver.networks.executors.last.bias.normal_(0, 0.3, generator=generator)
    return solver


def run(solver, problems, *, space="pixel", rounds=1, seed=0, **options):
    return bottom_right(
        solver, problems, space=space, rounds=rounds, seed=seed, device=CPU, **options
    )


def test_a_solver_that_knows_the_answer_is_always_right():
    result = run(MeanPanel(), Problems(constant_matrices=True))
    assert result == {
        "problems": PROBLEMS, "accuracy": [1.0], "correct": ["1" * PROBLEMS],
        "rule_accuracy": None,
    }  # fmt: skip


def test_a_solver_that_chooses_the_farthest_candidate_is_never_right():
    solver = MeanPanel()
    solver.sign = 1.0
    assert run(solver, Problems(constant_matrices=True))["accuracy"] == [0.0]


def test_first_of_equal_candidates_is_chosen():
    problems = Problems()
    wanted = "".join("1" if answer == 0 else "0" for answer in problems.answer.tolist())
    assert 0 < wanted.count("1") < PROBLEMS
    assert run(Indifferent(), problems)["correct"] == [wanted]


def test_guesses_are_right_one_time_in_eight():
    rounds = 300
    accuracy = run(Guessing(), Problems(), rounds=rounds)["accuracy"]
    assert len(accuracy) == rounds
    deviation = (0.125 * 0.875 / (rounds * PROBLEMS)) ** 0.5
    assert sum(accuracy) / rounds == pytest.approx(0.125, abs=3 * deviation)


@pytest.mark.parametrize("space", ["latent", "pixel"])
def test_raise_selects_as_a_literal_loop_does(space):
    solver, problems = raise_solver(test_rule="argmax"), Problems()
    found = run(solver, problems, space=space, batch_size=4)["correct"][0]
    solver.eval()
    missing = torch.zeros(1, 9, dtype=torch.bool)
    missing[0, 8] = True
    networks, wanted = solver.networks, ""
    with torch.no_grad():
        for n in range(PROBLEMS):
            prediction = solver.predict(problems.panels[n : n + 1], missing, torch.Generator())
            distances = []
            for candidate in problems.candidates[n]:
                if space == "latent":
                    difference = networks.encoder(candidate[None])[0] - prediction.latents[0, 0]
                else:
                    difference = candidate - prediction.images[0, 0]
                distances.append(float((difference**2).sum()))
            wanted += "1" if distances.index(min(distances)) == problems.answer[n] else "0"
    assert found == wanted
    assert len(set(found)) == 2, "both outcomes occur"


def test_bottom_right_panel_is_never_read():
    problems, spoiled = Problems(), Problems()
    spoiled.panels[:, 8] = float("nan")
    solver = raise_solver(test_rule="sample")
    for space in ("latent", "pixel"):
        assert run(solver, problems, space=space) == run(solver, spoiled, space=space)


@pytest.mark.parametrize("space", ["latent", "pixel"])
def test_size_of_the_batches_does_not_matter(space):
    solver, problems = raise_solver(test_rule="argmax"), Problems()
    results = [run(solver, problems, space=space, batch_size=size) for size in (1, 4, PROBLEMS)]
    assert results[0] == results[1] == results[2]


def test_solver_is_evaluated_with_running_statistics_and_left_as_it_was():
    solver, problems = raise_solver(test_rule="argmax"), Problems()
    wanted = run(solver.eval(), problems, space="latent")
    assert not solver.training
    solver.train()
    before = {name: value.clone() for name, value in solver.state_dict().items()}
    assert run(solver, problems, space="latent", batch_size=4) == wanted
    assert solver.training
    assert all(torch.equal(before[name], value) for name, value in solver.state_dict().items())


def test_rounds_differ_only_where_rules_are_sampled():
    problems = Problems()
    likeliest = run(raise_solver(test_rule="argmax"), problems, space="latent", rounds=8)
    assert len(set(likeliest["correct"])) == 1
    sampling = raise_solver(test_rule="sample")
    sampled = run(sampling, problems, space="latent", rounds=8)
    assert len(set(sampled["correct"])) > 1
    assert run(sampling, problems, space="latent", rounds=8) == sampled
    assert run(sampling, problems, space="latent", rounds=8, seed=1) != sampled


def test_limit_takes_the_first_problems():
    solver, problems = raise_solver(test_rule="argmax"), Problems()
    whole = run(solver, problems, space="latent")
    part = run(solver, problems, space="latent", limit=7)
    assert part["problems"] == 7
    assert part["correct"] == [whole["correct"][0][:7]]
    assert run(solver, problems, space="latent", limit=500) == whole


def test_unsupported_space_is_refused():
    with pytest.raises(UnsupportedProtocol, match="MeanPanel does not support latent"):
        run(MeanPanel(), Problems(), space="latent")


def test_rule_accuracy_by_hand():
    """Attribute 0 lives in concept 2, attribute 1 in concept 0; one of four rules is wrong."""
    sure = torch.eye(4) * 0.9 + 0.025
    rules = torch.stack([
        torch.stack([sure[1], sure[0], sure[3]]),
        torch.stack([sure[2], sure[0], sure[0]]),
    ])  # fmt: skip
    labels = torch.tensor([[3, 1], [0, 1]])
    assert rule_accuracy(rules, labels) == 0.75
    assert rule_accuracy(rules, torch.tensor([[3, 1], [0, 2]])) == 1.0
    assert rule_accuracy(rules, torch.tensor([[-1, 1], [0, 3]])) == 2 / 3  # -1 is not asked


def test_rule_accuracy_is_given_where_labels_are_asked_for():
    solver, problems = raise_solver(test_rule="argmax"), Problems()
    result = run(solver, problems, space="latent", label_map="official", limit=9, batch_size=4)
    missing = torch.zeros(9, 9, dtype=torch.bool)
    missing[:, 8] = True
    solver.eval()
    rules = solver.predict(problems.panels[:9], missing, torch.Generator()).rules.detach()
    assert result["rule_accuracy"] == rule_accuracy(rules, problems.labels[:9])
    assert run(MeanPanel(), problems, label_map="official")["rule_accuracy"] is None
