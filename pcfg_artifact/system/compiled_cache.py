"""Where numba keeps compiled functions: a folder per state of the sources.

Numba compares a compiled function with the file it stands in, and not with the files whose functions it calls.  After
an update of one of those it would go on running the old ones: wrong numbers without a word.
"""

import os
import shutil
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
COMPILED = ("parsing", "grammar", "approximation")  # rooms with compiled functions
VARIABLE = "NUMBA_CACHE_DIR"


def choose_folder(package: Path = PACKAGE) -> None:
    """Before numba is imported: below the folder that the user names, else beside the sources, else in a cache of his.

    What is beside sources that cannot be written, as in an image, is taken over.
    """
    name, beside, named = f"numba-{state(package):08x}", package / "__pycache__", os.environ.get(VARIABLE)
    if named and Path(named).name == name:  # chosen by the process that started this one
        return
    if named:
        folder = Path(named) / name
    elif os.access(beside if beside.is_dir() else package, os.W_OK):
        folder = beside / name
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "pcfg_artifact", name)
    os.environ[VARIABLE] = str(folder)
    if (beside / name).is_dir() and not folder.is_dir():
        with suppress(OSError):  # numba compiles again, and where it can write nothing, in every run
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as place:
                os.rename(shutil.copytree(beside / name, Path(place, name)), folder)  # refused if another was first


def state(package: Path) -> int:
    """Of the sources that may be compiled: their names and contents, since times are lost in images."""
    found = 0
    for room in COMPILED:
        for path in sorted((package / room).rglob("*.py")):
            found = zlib.crc32(path.read_bytes(), zlib.crc32(path.name.encode(), found))
    return found
