"""On PYTHONPATH, every process of a run begins on a pretended machine, those of training and of the pools too.

PRETENDED_DRIVER: a file like the one in which NVIDIA's kernel driver says its version.  Beside it, `fits` lists the
device of every fit of a probe.
"""

import functools
import os
import sys
from pathlib import Path


def noted(fit, file):
    @functools.wraps(fit)
    def with_note(self, *args, device="cpu", **options):
        with open(file, "a") as fits:
            fits.write(f"{device}\n")
        return fit(self, *args, device=device, **options)

    return with_note


if "PRETENDED_DRIVER" in os.environ:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import pretended

    from pcfg_artifact.probing.linear_probe import LinearProbe
    from pcfg_artifact.probing.two_layer_probe import TwoLayerProbe
    from pcfg_artifact.system import machine

    machine.DRIVER = Path(os.environ["PRETENDED_DRIVER"])
    for probe in (LinearProbe, TwoLayerProbe):
        probe.fit = noted(probe.fit, machine.DRIVER.with_name("fits"))
    keep = pretended.pretended_gpus()  # until the process ends
    keep.__enter__()
