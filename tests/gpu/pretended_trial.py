"""A process of `doctor --gpu` on a pretended GPU; started by test_trial.py in place of the module."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pretended import pretended_gpus

if __name__ == "__main__":
    from pcfg_artifact.workers import gpu_trial

    with pretended_gpus():
        code = gpu_trial.main(sys.argv[1:])
    sys.exit(code)
