"""Write docs/reference/api.md from the list of public names: `python scripts/write_api_page.py`."""

import inspect
from pathlib import Path

import pcfg_artifact as pa

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api.md"


def page() -> str:
    """Every public name with the arguments that it needs, and what it is."""
    lines = ["# Public names", "", "`import pcfg_artifact as pa`. Written by `scripts/write_api_page.py` from the list "
             "in `pcfg_artifact/__init__.py`; all other modules are private. `...`: options, see `help(pa.NAME)`."]
    room = ""
    for module, names in pa.PUBLIC.items():
        if module.split(".")[0] != room:
            room = module.split(".")[0]
            lines += ["", f"## {room}", ""]
        lines += [f"* `pa.{name}{signature(getattr(pa, name))}`: {words}" for name, words in names.items()]
    lines += ["", "## Modules", "", *(f"* `pa.{name}`: {words}" for name, words in pa.MODULES.items())]
    return "\n".join(lines) + "\n"


def signature(value: object) -> str:
    """The arguments that must be given, where there are any to pass."""
    if not callable(value):
        return ""
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return ""
    needed = [name for name, p in parameters.items()
              if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return f"({', '.join(needed if len(needed) == len(parameters) else [*needed, '...'])})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
