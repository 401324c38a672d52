"""Operations against counts by hand; every product that the models make is counted."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from raise_model.models import cost, registry
from raise_model.models.common.attention import AttentionBlock
from raise_model.models.cost import RandomBatches, measure
from raise_model.models.solver import Loss, Needs, Prediction, Solver, config_to_json
from raise_model.presets import training_preset

SIZE, CODE = 4, 5


class Linear(Solver):
    """A code of every panel; the mean code, drawn; and a product that has nothing to do with it."""

    needs = Needs()
    supports = frozenset({"bottom_right"})

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(SIZE**2, CODE, bias=False)
        self.decoder = nn.Linear(CODE, SIZE**2, bias=False)
        self.fixed = nn.Parameter(torch.rand(7, 7))

    def optimizers(self):
        raise NotImplementedError

    def set_step(self, step, steps):
        return {}

    def encode(self, panels):
        return self.encoder(panels.flatten(2))

    def training_steps(self, batches, generator):
        panels = batches.draw("all", 100).panels
        drawn = self.decoder(self.encode(panels).mean(1))
        yield Loss(optimizer="all", total=drawn.sum() + (self.fixed @ self.fixed).sum(), terms={})

    def predict_encoded(self, codes, missing, generator):
        self.fixed @ self.fixed
        known = codes[~missing].unflatten(0, (len(codes), -1))
        return Prediction(images=self.decoder(known.mean(1)).view(-1, 1, 1, SIZE, SIZE))


def test_a_cost_is_that_of_a_problem_without_what_every_batch_costs():
    found = measure(Linear(), SIZE, attributes=3)
    weights = SIZE**2 * CODE
    assert found.parameters == 2 * weights + 49
    # Encoder: forwards, and its weights' gradient, of nine panels.  Decoder: forwards, and both
    # gradients, of one.
    assert found.training == 2 * weights * (9 * 2 + 3)
    # Eight panels are read, one is drawn.
    assert found.prediction == 2 * weights * (8 + 1)


def test_attention_on_a_cpu_is_counted_forwards_and_backwards():
    n, tokens, size, hidden = 3, 9, 8, 6
    block = AttentionBlock(size, 2, hidden, 0.0)
    panels = torch.rand(n, tokens, size, requires_grad=True)
    projections = 2 * n * tokens * (4 * size * size + 2 * size * hidden)
    attention = 2 * n * (2 * tokens * tokens * size)
    with FlopCounterMode(display=False, custom_mapping=cost._FORMULAS) as counter:
        out = block(panels, torch.Generator()).sum()
    assert counter.get_total_flops() == projections + attention
    with FlopCounterMode(display=False, custom_mapping=cost._FORMULAS) as counter:
        out.backward()
    # The scores are computed again.
    assert counter.get_total_flops() == 2 * projections + 5 * attention / 2


class Products(TorchDispatchMode):
    """Notes every operation that its name says is a product."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        name = str(operation._overloadpacket)
        if any(word in name for word in ("mm", "mv", "conv", "attention", "linear", "dot")):
            self.found.add(operation._overloadpacket)
        return operation(*arguments, **(options or {}))


@pytest.mark.parametrize("model", registry._OWN)
def test_every_product_of_a_model_is_counted(model):
    setting = training_preset(model, "lite" if model == "raise_plus" else "smoke", "center", 0.05)
    config, size = config_to_json(setting.config), setting.image_size
    with Products() as products:
        found = measure(registry.build(model, config, size, 0), size, attributes=3)
    assert products.found
    assert products.found <= set(flop_registry) | set(cost._FORMULAS)
    # A step does at least the work of a prediction, and its backward pass.
    assert found.training > 2 * found.prediction > 0


def test_random_batches_are_the_same_for_the_same_request():
    batches = RandomBatches(SIZE, 3, problems=5, labelled=2)
    first, again = batches.draw("all", 4), batches.draw("all", 4)
    assert torch.equal(first.panels, again.panels)
    assert batches.drawn == 8
    assert len(batches.draw("labelled", 4)) == 2
    assert (batches.draw("labelled", 4).rule_labels >= 0).all()
    assert (batches.draw("all", 9).rule_labels == -1).all()
