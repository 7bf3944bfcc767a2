"""Inside-Outside with fewer symbols or lower rank, and what is lost by it."""

from pcfg_artifact import exports

__getattr__, __dir__ = exports(__name__)
