"""Where numba keeps compiled functions: a folder per state of the sources.

Numba compares a compiled function with the file it stands in, and not with the files whose functions it calls.  After
an update of one of those it would go on running the old ones: wrong numbers without a word.
"""

import os
import zlib
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
COMPILED = ("parsing", "grammar", "approximation")  # rooms with compiled functions
VARIABLE = "NUMBA_CACHE_DIR"


def choose_folder(package: Path = PACKAGE) -> None:
    """Before numba is imported.  Where the user names a folder, or may not write to ours, numba's own rules stay."""
    cache = package / "__pycache__"
    if VARIABLE not in os.environ and os.access(cache if cache.is_dir() else package, os.W_OK):
        os.environ[VARIABLE] = str(cache / f"numba-{state(package):08x}")


def state(package: Path) -> int:
    """Of the sources that may be compiled: names, sizes and times, as numba itself compares them."""
    files = [path for room in COMPILED for path in sorted((package / room).rglob("*.py"))]
    facts = [(path.name, (stat := path.stat()).st_size, stat.st_mtime_ns) for path in files]
    return zlib.crc32(repr(facts).encode())
