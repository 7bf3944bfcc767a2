"""Do transformers parse while predicting the masked word? The paper's reproduction, as software."""

from pcfg_artifact.compiled_cache import choose_folder

__version__ = "1.0.0"

choose_folder()
