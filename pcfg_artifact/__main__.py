import os
import sys

from pcfg_artifact import first_process

if os.getpid() == 1:
    first_process.stay_behind()

from pcfg_artifact.cli import main

sys.exit(main())
