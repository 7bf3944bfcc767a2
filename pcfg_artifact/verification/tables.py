"""Tables in the paper's layout: what was measured beside what the paper prints, deviations marked."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pcfg_artifact.verification.cells import Cell, Measured, Roles, Value, format_number, natural
from pcfg_artifact.verification.comparison import FAILING, Judgement, Verdict
from pcfg_artifact.verification.expectations import Expected

TITLES = {
    "table1": "Table 1. Few non-terminals: F1 and masked-word perplexity",
    "table2": "Table 2. Low rank: F1 and masked-word perplexity",
    "table3": "Table 3. Perplexity of the pre-trained models",
    "table4": "Table 4. Parsing by probes, best layer",
    "table5": "Table 5. Marginals: Pearson correlation by span length",
    "table6": "Table 6. Control task of the parsing probe, accuracy by layer",
    "table7": "Table 7. Marginals: Spearman and Pearson correlation",
    "table8": "Table 8. Control task of the marginal probe, by span length",
    "table1_novm": "Table 1 with the coarser grammar (no parent annotation)",
    "table2_novm": "Table 2 with the coarser grammar (no parent annotation)",
    "ablation": "Ablations of the approximations",
    "ablation_novm": "Ablations with the coarser grammar",
    "merged": "Merged symbols instead of dropped ones, exact inference",
    "merged_novm": "Merged symbols with the coarser grammar",
    "percentages": "What the approximations cost, in percent",
    "sensitivity": "Sensitivity and selectivity of the probes",
    "sizes": "Sizes of the constructed transformers",
    "agreement": "Constructed transformers against Inside-Outside, largest relative error",
    "marginals": "Parsing by Inside-Outside and by the trivial baselines",
    "optimum": "Exact masked-word optimum",
    "against_optimum": "Models beside the exact optimum, under the same masks",
    "grammar": "The learned grammar",
    "treebank": "The treebank",
}
# Drawn as figures; as tables they would be long and say less.
FIGURES = ("figure_frequency", "figure_layers", "figure_marginals", "figure_attention", "loss_curve", "f1_by_length")
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
    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    entries: dict[tuple[str, str], Entry]

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
    others = sorted({cell.table for cell in measured} - set(TITLES) - set(FIGURES))
    tables = []
    for name, title in [*TITLES.items(), *((name, name.replace("_", " ")) for name in others)]:
        cells = [cell for cell in measured if cell.table == name]
        if not cells:
            cells = [cell for cell in paper if cell.table == name]
        if not cells:
            continue
        printed = [cell for cell in paper if cell.table == name]
        inverse = {theirs: ours for ours, theirs in known.items()}
        row_order = _order([_rename(c.row, inverse) for c in printed], [c.row for c in cells])
        column_order = _order([_rename(c.column, inverse) for c in printed], [c.column for c in cells])
        entries = {}
        for row in row_order:
            for column in column_order:
                cell = Cell(name, row, column)
                theirs = paper.get(Cell(name, _rename(row, known), _rename(column, known)))
                if cell in measured or theirs is not None:
                    entries[(row, column)] = Entry(measured.get(cell), theirs, judged.get(cell))
        tables.append(Table(name, title, tuple(column_order), tuple(row_order), entries))
    return tables


def _rename(name: str, models: Mapping[str, str]) -> str:
    return re.sub(r"A\d+L\d+", lambda match: models.get(match.group(), match.group()), name)


def _order(first: Sequence[str], present: Sequence[str]) -> list[str]:
    """Names that are present, those of the paper first and in its order, the rest in natural order of first words."""
    available = dict.fromkeys(present)
    leading = [name for name in dict.fromkeys(first) if name in available]
    rest = [name for name in available if name not in leading]
    return leading + (sorted(rest, key=natural) if leading else rest)


def to_csv(table: Table) -> str:
    """The table as CSV: per column the measured value, the paper's, their difference; a star where it was judged so."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["row", *(f"{column}{suffix}" for column in table.columns
                              for suffix in ("", " (paper)", " (difference)"))])
    for row in table.rows:
        line = [row]
        for column in table.columns:
            entry = table.entries.get((row, column))
            line += ["", "", ""] if entry is None else [_shown(entry), _printed(entry), _difference(entry)]
        writer.writerow(line)
    return buffer.getvalue()


def _shown(entry: Entry) -> str:
    return "" if entry.measured is None else format_number(entry.measured.number, entry.measured.unit).replace(",", "")


def _printed(entry: Entry) -> str:
    return "" if entry.paper is None else f"{entry.paper.value:g}"


def _difference(entry: Entry) -> str:
    mark = "*" if entry.is_deviation else ""
    if entry.measured is None or entry.paper is None:
        return mark
    return f"{entry.measured.number - entry.paper.value:+.4g}{mark}"
