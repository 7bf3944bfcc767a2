import sys

from pcfg_artifact.cli import main

sys.exit(main())
