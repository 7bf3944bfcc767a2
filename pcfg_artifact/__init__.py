"""Do transformers parse while predicting the masked word? The paper's reproduction, as software."""

__version__ = "0.1.0"
