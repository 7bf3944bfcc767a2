"""The generator of the embedded treebank: scripts/write_embedded_treebank.py writes what the package ships."""
