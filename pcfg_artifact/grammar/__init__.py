"""The PCFG: its value type, estimation from trees, unknown words, expectations, sampling."""

from typing import TYPE_CHECKING

from pcfg_artifact.lazy import lazy_exports

if TYPE_CHECKING:
    from pcfg_artifact.grammar.latent import LatentPCFG
    from pcfg_artifact.grammar.learning import learn_pcfg
    from pcfg_artifact.grammar.pcfg import PCFG
    from pcfg_artifact.grammar.sampling import SampledTrees, Sampler, sample_trees
    from pcfg_artifact.grammar.spectral import learn_spectral

MODULE_OF = {
    "LatentPCFG": "latent",
    "PCFG": "pcfg",
    "SampledTrees": "sampling",
    "Sampler": "sampling",
    "learn_pcfg": "learning",
    "learn_spectral": "spectral",
    "sample_trees": "sampling",
}
__all__ = ["PCFG", "LatentPCFG", "SampledTrees", "Sampler", "learn_pcfg", "learn_spectral", "sample_trees"]
__getattr__, __dir__ = lazy_exports(__name__, MODULE_OF)
