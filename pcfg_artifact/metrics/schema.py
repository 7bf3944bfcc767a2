"""One number, one type: what was measured, of what, and its value.

A Metric is made where a number is computed and is the only form it ever has: a row of metrics.csv, of a record, of
`results.load`, and of the frame that claims and tables select from.  Its dimensions are columns; no name is put
together from several of them or taken apart again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from pcfg_artifact.errors import CorruptArtifact, StageError

# Each dimension, and what it says.  Blank where it does not apply.  A new one is added here and to Metric.
DIMENSIONS = {
    "table": "what was measured: parsing, marginals, perplexity, attention, ...; TABLES of views.py lists all",
    "grammar": "which grammar of the run: vm (labels name their parents) or novm (they do not), given (of --grammar); "
               "blank: the one that text is sampled from",
    "model": "who computed it: a model (A4L3, C4L3), a control of it (A4L3-random, A4L3-shuffled, A4L3-bigram), a "
             "parser (IO, right), a construction (theorem_3.2), an approximation (few, low_rank), exact inference "
             "(exact, exact so far), or the best predictor of a window of words (window_2)",
    "layer": "of the model: 0 holds the embeddings",
    "probe": "what reads the states: linear, 2-layer; in interventions, what the states are moved by",
    "setting": "what a probe is fitted on and tested on: sampled, treebank, ood (fitted on sampled, tested on treebank "
               "text); in `incremental`, tree, posterior or belief",
    "input": "what is shown: to a probe, EOS beside the word, or its window (ADJ, ADJ 2, ADJ 3: so many words on each "
             "side); to a masked model, the kind of masks",
    "convention": "which spans F1 counts: PB, KIM, PBw, KIMw, PN (parsing/scoring.py)",
    "width": "of the spans in question, in words",
    "size": "of an approximation: the in-terminals it keeps, its rank, or its latent states",
    "group": "which part of the cases, or by what they are divided: parsed, validation, depth, entropy, ...",
    "bin": "the part, where `group` says by what the cases are divided: 1-3, first, 14+",
    "index": "a number in an order: of a symbol by frequency, of a head by distance, of words after the end of a span",
    "step": "of training",
    "metric": "in which measure: sentence_f1, pearson, perplexity, ...",
}
WHOLE_NUMBERS = ("layer", "width", "size", "index", "step")
KEY = tuple(DIMENSIONS)
GIVEN = "given"  # the grammar of a run that has no treebank
Key = tuple[str | int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number of one run.  The dimensions and the seed are its key.

    unit: percent, fraction (also of correlations and slopes), perplexity, nats, bits, tokens, words, count, steps,
    ratio or relative_error.  error: standard error, where estimated.  n: how many items the number rests on.
    """

    table: str
    grammar: str = ""
    model: str = ""
    layer: int | None = None
    probe: str = ""
    setting: str = ""
    input: str = ""
    convention: str = ""
    width: int | None = None
    size: int | None = None
    group: str = ""
    bin: str = ""
    index: int | None = None
    step: int | None = None
    metric: str
    seed: int = 0
    value: float
    error: float | None = None
    n: int
    unit: str

    @property
    def key(self) -> Key:
        return tuple(getattr(self, name) for name in KEY)

    def at(self, **dimensions: Any) -> Metric:
        """The same number with further dimensions, or a seed, filled in."""
        return replace(self, **dimensions)


COLUMNS = tuple(f.name for f in fields(Metric))


def metric_of(key: Key, **others: Any) -> Metric:
    """The number of a key, with its seed, value, n and unit."""
    dimensions: dict[str, Any] = dict(zip(KEY, key, strict=True))
    return Metric(**dimensions, **others)


def name_of(row: Mapping[str, Any]) -> str:
    """A key for a reader: its dimensions in order, those that are blank left out."""
    return ", ".join(f"{name} {row[name]}" if name in WHOLE_NUMBERS else str(row[name])
                     for name in KEY if not is_blank(row[name]))


def is_blank(value: Any) -> bool:
    return value is None or value is pd.NA or value == "" or value != value


# ---- text and frames -------------------------------------------------------------------------------------------------


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]], comments: Iterable[str] = ()) -> str:
    """A CSV file: comments, a header, rows; None is blank."""
    buffer = io.StringIO()
    buffer.writelines(f"# {line}\n" for line in comments)
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return buffer.getvalue()


def to_csv(metrics: Iterable[Metric]) -> str:
    """metrics.csv: a repeated key is an error, a NaN is written as it is and never judged a match."""
    rows: dict[tuple, list[object]] = {}
    for metric in metrics:
        key = (*metric.key, metric.seed)
        if key in rows:
            raise StageError(f"the number {name_of(vars(metric))}, seed {metric.seed}, was measured twice; "
                             f"a stage may write each number once")
        row = {**vars(metric), "value": repr(float(metric.value)), "n": int(metric.n),
               "error": None if metric.error is None else repr(float(metric.error))}
        rows[key] = [row[name] for name in COLUMNS]
    return csv_text(COLUMNS, rows.values())


def from_rows(rows: Iterable[Mapping[str, str]], where: str) -> list[Metric]:
    """The metrics of a file's rows, as csv.DictReader gives them."""
    try:
        return [Metric(**typed_key(row), seed=int(row["seed"]), value=float(row["value"]),
                       error=float(row["error"]) if row["error"] else None, n=int(row["n"]), unit=row["unit"])
                for row in rows]
    except (KeyError, ValueError, TypeError) as error:
        raise CorruptArtifact(f"{where}: not a table of metrics ({error!r}); expected the columns "
                              f"{','.join(COLUMNS)}") from error


def typed_key(row: Mapping[str, str]) -> dict[str, Any]:
    """The dimensions of a row of text."""
    return {name: row[name] if name not in WHOLE_NUMBERS else int(row[name]) if row[name] else None for name in KEY}


def mean_over_seeds(metrics: Iterable[Metric]) -> list[Metric]:
    """One metric a key: its mean where a stage measured it with several seeds (NaN in one is NaN in the mean)."""
    by_key: dict[Key, list[Metric]] = {}
    for metric in metrics:
        by_key.setdefault(metric.key, []).append(metric)
    return [found[0] if len(found) == 1 else found[0].at(value=float(np.mean([m.value for m in found])))
            for found in by_key.values()]


def to_frame(metrics: Iterable[Metric]) -> pd.DataFrame:
    """One row a metric, with the columns of COLUMNS; whole numbers may be missing (Int64)."""
    metrics = list(metrics)
    dtypes = {name: "Int64" if name in (*WHOLE_NUMBERS, "seed", "n") else "float64" if name in ("value", "error")
              else "str" for name in COLUMNS}
    return pd.DataFrame({name: pd.Series([getattr(m, name) for m in metrics], dtype=dtype)
                         for name, dtype in dtypes.items()})


# ---- digits ----------------------------------------------------------------------------------------------------------

FORMATS: dict[str, Callable[[float], str]] = {
    "relative_error": "{:.1e}".format, "fraction": "{:.3f}".format, "percent": "{:.2f}".format,
    "perplexity": "{:.2f}".format, "tokens": "{:.2f}".format,
    "count": lambda number: f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}",
}


def format_number(number: float, unit: str = "") -> str:
    """A number as the report prints it: the paper's number of digits for its unit."""
    return FORMATS.get(unit, "{:.4g}".format)(number) if np.isfinite(number) else str(number)
