"""Search space of LGPP."""

from collections.abc import Mapping

from ray import tune
from ray.tune.search.sample import Domain

from raise_model.models.lgpp import config
from raise_model.models.lgpp.config import LgppConfig
from tune_spaces.search_space import SearchSpace, log_around, papers


def _domains(around: LgppConfig) -> Mapping[str, Domain]:
    return {
        "learning_rate": log_around(around.learning_rate, 4.0),
        "beta": log_around(around.beta, 10.0),
        "num_concepts": tune.choice([around.num_concepts, 2 * around.num_concepts]),
        "kernel_noise": log_around(around.kernel_noise, 4.0),
    }


SPACE = SearchSpace(
    model="lgpp",
    domains=_domains,
    paper=papers(
        config.paper,
        (
            "learning_rate",
            "batch_size",
            "axis_latent_size",
            "axis_representation_size",
            "kernel_inputs",
            "axis_network_hidden",
            "kernel_network_hidden",
            "beta",
            "num_concepts",
        ),
    ),
)
