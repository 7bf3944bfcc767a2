"""Measure every grammar of the zoo and write what `run_all.sh zoo` shows: python scripts/write_zoo_floors.py [NAME ...]

Some 10 minutes on one core, most of them for the cfg3 grammars, whose sentences have hundreds of words.
"""

import json
import sys
from pathlib import Path

from pcfg_artifact.grammar import zoo_grammars
from pcfg_artifact.system import storage
from pcfg_artifact.tools.zoo import STORED, measured, stored

N_LONG, N_SHORT = 200, 2_000  # sentences of cfg3 grammars, and of all others


def main(names: list[str]) -> None:
    path = Path(zoo_grammars.__file__).with_name(STORED)
    found = stored() if path.is_file() else {}
    for name in names or zoo_grammars.KINDS:
        found[name] = measured(zoo_grammars.zoo(name), N_LONG if name.startswith("cfg3") else N_SHORT)
        ordered = {kind: found[kind] for kind in zoo_grammars.KINDS if kind in found}
        lines = ",\n".join(f"{json.dumps(kind)}: {json.dumps(card)}" for kind, card in ordered.items())
        storage.write_text(path, "{" + lines + "}\n")
        print(name, found[name]["numbers"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
