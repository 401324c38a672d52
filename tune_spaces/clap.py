"""Search space of CLAP."""

from collections.abc import Mapping

from ray import tune
from ray.tune.search.sample import Domain

from raise_model.models.clap import config
from raise_model.models.clap.config import ClapConfig
from tune_spaces.search_space import SearchSpace, log_around, papers


def _domains(around: ClapConfig) -> Mapping[str, Domain]:
    return {
        "learning_rate": log_around(around.learning_rate, 4.0),
        "beta_target": log_around(around.beta_target, 4.0),
        "beta_function": log_around(around.beta_function, 4.0),
        "beta_total_correlation": log_around(around.beta_total_correlation, 4.0),
        # From the paper's table.
        "sigma_z": tune.choice([0.1, 0.3, 0.4]),
        "num_concepts": tune.choice([around.num_concepts, around.num_concepts + 2]),
    }


SPACE = SearchSpace(
    model="clap",
    domains=_domains,
    paper=papers(
        config.paper,
        (
            "learning_rate",
            "batch_size",
            "concept_size",
            "num_concepts",
            "beta_target",
            "beta_function",
            "beta_total_correlation",
            "sigma_z",
        ),
    ),
)
