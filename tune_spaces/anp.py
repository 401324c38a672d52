"""Search space of the attentive neural process."""

from collections.abc import Mapping

from ray import tune
from ray.tune.search.sample import Domain

from raise_model.models import anp
from raise_model.models.anp import AnpConfig
from tune_spaces.search_space import SearchSpace, log_around, papers


def _domains(around: AnpConfig) -> Mapping[str, Domain]:
    return {
        # The paper's own rates differ by a factor of ten.
        "learning_rate": log_around(around.learning_rate, 10.0),
        "features": tune.choice([around.features, 2 * around.features]),
        "latent_size": tune.choice([around.latent_size, 2 * around.latent_size]),
        "decoder_features": tune.choice([around.decoder_features, 2 * around.decoder_features]),
    }


SPACE = SearchSpace(
    model="anp",
    domains=_domains,
    paper=papers(anp.paper, ("learning_rate", "latent_size", "batch_size")),
)
