"""On PYTHONPATH, every process of a run begins on a pretended machine, those of training and of the pools too.

PRETENDED_DRIVER: a file like the one in which NVIDIA's kernel driver says its version.
"""

import os
import sys
from pathlib import Path

if "PRETENDED_DRIVER" in os.environ:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import pretended

    from pcfg_artifact.system import machine

    machine.DRIVER = Path(os.environ["PRETENDED_DRIVER"])
    keep = pretended.pretended_gpus()  # until the process ends
    keep.__enter__()
