"""Write the embedded treebank that the package ships: `python scripts/write_embedded_treebank.py`."""

import gzip
from pathlib import Path

from embedded_treebank.generator import generate_treebank

TREES = Path(__file__).parents[1] / "pcfg_artifact" / "treebank" / "embedded_trees.txt.gz"


if __name__ == "__main__":
    text = "\n".join(map(str, generate_treebank()))
    TREES.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))  # no time: the same bytes every time
