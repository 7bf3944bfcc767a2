"""Tables in the paper's layout: what was measured beside what the paper prints, deviations marked."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from pcfg_artifact import cells
from pcfg_artifact.cells import Cell, natural
from pcfg_artifact.owners import OWNERS
from pcfg_artifact.roles import Roles, rename_models
from pcfg_artifact.verification.comparison import FAILING, Judgement, Verdict
from pcfg_artifact.verification.expectations import Expected
from pcfg_artifact.verification.measured import Measured, Value, format_number

PAPER_MODELS = {"base": "A12L12", "fewest_layers": "A12L1", "fewest_heads": "A3L12"}


@dataclass(frozen=True)
class Entry:
    """One number of a table: measured, the paper's (of the model in the same role), and its verdict."""

    measured: Value | None
    paper: Expected | None
    judgement: Judgement | None

    @property
    def is_deviation(self) -> bool:
        return self.judgement is not None and self.judgement.verdict in (*FAILING, Verdict.AS_RECORDED)


@dataclass(frozen=True)
class Table:
    """A table as the report shows it."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    entries: dict[tuple[str, str], Entry]
    computed_by: Mapping[str, str] = field(default_factory=dict)  # stage -> the function behind its numbers
    note: str = ""

    @property
    def is_paper(self) -> bool:
        """One of the paper's, or a table that its text is about."""
        return any(entry.paper is not None for entry in self.entries.values())


def counterparts(roles: Roles) -> dict[str, str]:
    """Model of this run -> the paper's model in the same role; at paper scale every model is its own."""
    if "A12L12" in roles.models:
        return {model: model for model in roles.models}
    return {getattr(roles, role): name for role, name in PAPER_MODELS.items() if getattr(roles, role) is not None}


def lay_out(measured: Measured, paper: Mapping[Cell, Expected], judgements: Iterable[Judgement],
            roles: Roles) -> list[Table]:
    """All tables that have a measured or a printed number, rows and columns in the paper's order first."""
    known = counterparts(roles)
    # The paper's verdicts come last and win where they apply, which is at paper scale.
    judged: dict[Cell, Judgement] = {}
    for judgement in judgements:
        if judgement.cell is not None and judgement.verdict != Verdict.NOT_APPLICABLE:
            judged[judgement.cell] = judgement
    named = [name for name, owner in OWNERS.items() if not owner.is_figure]
    others = sorted({cell.table for cell in measured} - set(OWNERS))
    tables = [_table(name, measured, paper, judged, known) for name in (*named, *others)]
    return [table for table in tables if table is not None]


def _table(name: str, measured: Measured, paper: Mapping[Cell, Expected], judged: Mapping[Cell, Judgement],
           known: Mapping[str, str]) -> Table | None:
    """One table, or None where it has no number; known: model of this run -> the paper's in its role."""
    printed = [cell for cell in paper if cell.table == name]
    present = [cell for cell in measured if cell.table == name] or printed
    if not present:
        return None
    inverse = {theirs: ours for ours, theirs in known.items()}
    row_order = _order([rename_models(c.row, inverse) for c in printed], [c.row for c in present])
    column_order = _order([rename_models(c.column, inverse) for c in printed], [c.column for c in present])
    entries = {}
    for row, column in itertools.product(row_order, column_order):
        cell = Cell(name, row, column)
        theirs = paper.get(Cell(name, rename_models(row, known), rename_models(column, known)))
        if cell in measured or theirs is not None:
            entries[(row, column)] = Entry(measured.get(cell), theirs, judged.get(cell))
    owner = OWNERS.get(name)
    return Table(name, name.replace("_", " ") if owner is None else owner.title, tuple(column_order), tuple(row_order),
                 entries, {} if owner is None else owner.computed_by, _note(name, measured))


def _note(name: str, measured: Measured) -> str:
    """What the best cells of Table 4 are the best of: the layer of every model."""
    if name != "table4":
        return ""
    parts = []
    for probe, setting in itertools.product(cells.probes_in(measured), cells.SETTINGS):
        found = {cell.column: measured.get(cells.best_layer(cell.column, probe, setting.name)) for cell in measured
                 if cell == cells.best_f1(probe, setting.name, cells.SENTENCE_F1, cell.column)}
        layers = [f"{model} {cells.LAYER(int(layer.number))}" for model, layer in found.items() if layer is not None]
        if layers:
            parts.append(f"{probe} {setting.name}: {', '.join(layers)}")
    return f"Best layers: {'; '.join(parts)}." if parts else ""


def _order(first: Sequence[str], present: Sequence[str]) -> list[str]:
    """Names that are present, those of the paper first and in its order, the rest in natural order of first words."""
    available = dict.fromkeys(present)
    leading = [name for name in dict.fromkeys(first) if name in available]
    rest = [name for name in available if name not in leading]
    return leading + (sorted(rest, key=natural) if leading else rest)


def to_frame(table: Table) -> pd.DataFrame:
    """The table as text: per column what was measured, what the paper prints, and their difference with the mark."""
    lines = []
    for row in table.rows:
        line = [row]
        for column in table.columns:
            entry = table.entries.get((row, column))
            line += ["", "", ""] if entry is None else [_shown(entry), _printed(entry), _difference(entry)]
        lines.append(line)
    heads = [f"{column}{suffix}" for column in table.columns for suffix in ("", " (paper)", " (difference)")]
    return pd.DataFrame(lines, columns=["row", *heads], dtype=object)


def to_csv(table: Table) -> str:
    return to_frame(table).to_csv(index=False, lineterminator="\n")


def to_markdown(table: Table) -> str:
    """The frame without the columns that are empty, under the table's title and source."""
    frame = to_frame(table)
    filled = frame.loc[:, [name == "row" or bool(frame[name].astype(bool).any()) for name in frame.columns]]
    sources = [f"Stage `{stage}`, computed by `{function}`." for stage, function in table.computed_by.items()]
    head = [f"# {table.title}", " ".join([*sources, table.note]).strip()]
    return "\n\n".join([*filter(None, head), filled.to_markdown(index=False, disable_numparse=True)]) + "\n"


def _shown(entry: Entry) -> str:
    return "" if entry.measured is None else format_number(entry.measured.number, entry.measured.unit).replace(",", "")


def _printed(entry: Entry) -> str:
    return "" if entry.paper is None else f"{entry.paper.value:g}"


def _difference(entry: Entry) -> str:
    mark = "*" if entry.is_deviation else ""
    if entry.measured is None or entry.paper is None:
        return mark
    return f"{entry.measured.number - entry.paper.value:+.4g}{mark}"
