"""Write docs/reference/cli.md from what --help says: `python scripts/write_cli_page.py`."""

import argparse
from pathlib import Path

from pcfg_artifact import cli

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
TOP = """\
# Command line

Written by `scripts/write_cli_page.py` from what `--help` says. After `pip install .`, `pcfg-artifact` stands for
`./run_all.sh`. Exit codes: 0 done, or the run agrees with the recorded ones; 1 a verdict or a stage failed; 2 refused,
with one message that says why; 128 + n ended by signal n.

`pip install .` alone brings learn, zoo, sample, parse, mask, next and surprisal, without torch. The extra `'.[models]'`
brings the tools that train or read models, `'.[report]'` figures and reports, `'.[all]'` the pipeline too. A command
that lacks a package says which of them to install.

Tools that take text take it alike: a sentence in the command, a text file with one sentence a line, a folder that
`save_to_disk` of the library datasets wrote, or `-` for standard input. `--json` prints one line of JSON a sentence.

| command | what it does |
|---|---|
"""


def page() -> str:
    """The pipeline, then every tool: what it does, an example, its arguments."""
    commands = {"": ("run the pipeline", cli.pipeline_parser()),
                **{tool: (what, cli.tool_parser(tool)) for tool, what in cli.TOOLS.items()}}
    rows = "".join(f"| [{name or 'pipeline'}](#{name or 'pipeline'}) | {what} |\n"
                   for name, (what, _) in commands.items())
    return TOP + rows + "".join(section(name or "pipeline", parser) for name, (_, parser) in commands.items())


def section(name: str, parser: argparse.ArgumentParser) -> str:
    # The pipeline's epilogue lists stages and tools too; every one ends with an example.
    example = (parser.epilog or "").rpartition("example: ")[2]
    rows = "".join(f"| {written(action)} | {cell(action)} |\n" for action in parser._actions if action.dest != "help")
    return (f"\n## {name}\n\n```text\n{(parser.description or '').strip()}\n```\n\n```\n./{example}\n```\n"
            + (f"\n| argument | what it is |\n|---|---|\n{rows}" if rows else ""))


def written(action: argparse.Action) -> str:
    """The options of an argument with the values that they take."""
    values = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    values = values if isinstance(values, str) else " ".join(values)
    if not action.option_strings:
        return f"`{values}`"
    shown = ", ".join(f"`{option}`" for option in action.option_strings)
    return shown if action.nargs == 0 else f"{shown} `{values}`".replace("|", "\\|")


def cell(action: argparse.Action) -> str:
    text = (action.help or "").replace("|", "\\|")
    return f"{text} (required)" if action.required and action.option_strings else text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
