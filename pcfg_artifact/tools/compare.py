"""Say what differs between two runs, largest first.

A number differs if the two runs do not have the same value of it, to the last digit (NaN equals NaN); where a run
measured it with several seeds, their mean counts.  The size of a difference is a share: of 100 for percentages; the
difference itself for fractions and relative errors; for everything else (perplexities, counts, nats, lengths) the
difference over the larger of the two values.  A number that is undefined in one run comes first.  Numbers in one run
only are listed and counted.

Exit code: 0 if nothing differs, 1 if something does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from pcfg_artifact import results
from pcfg_artifact.errors import UsageError
from pcfg_artifact.metrics.schema import KEY, format_number, name_of
from pcfg_artifact.system import storage

EXAMPLE = "run_all.sh compare runs/smoke runs/other --out differences.csv"
SHARES = {"percent": 100.0, "fraction": 1.0, "relative_error": 1.0}  # unit -> what its share is of
IN = {"left_only": "A", "right_only": "B", "both": "both"}  # pandas' own words for where a row was found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_a", type=Path, metavar="RUN_A", help="output folder of a run")
    parser.add_argument("run_b", type=Path, metavar="RUN_B", help="output folder of another")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every difference to this CSV file")
    parser.add_argument("-n", type=int, default=20, help="differences to print (20)")
    parser.add_argument("--all", action="store_true", help="print all of them")
    parser.add_argument("--least", type=float, default=0.0, metavar="SIZE",
                        help="differences of at most this size are none (0: every digit counts)")


def run(args: argparse.Namespace) -> int:
    for name, value in (("-n", args.n), ("--least", args.least)):
        if not value >= 0:
            raise UsageError(f"{name} is {value}, expected 0 or more")
    if args.out is not None and args.out.is_dir():
        raise UsageError(f"--out {args.out} is a folder; give the name of a CSV file")
    a, b = results.load(args.run_a), results.load(args.run_b)
    found = differences(a, b, args.least)
    claims = compare_claims(results.claims(args.run_a), results.claims(args.run_b))
    if args.out is not None:
        storage.write_text(args.out, found.to_csv(index=False))
    for name, folder, frame in (("A", args.run_a, a), ("B", args.run_b, b)):
        judged = f"{int(results.is_judged(frame['verdict']).sum()):,} judged"
        print(f"{name}: {folder}, {len(frame):,} numbers, {judged if frame['verdict'].notna().any() else 'not judged'}")
    for name, here, there in (("A", a, b), ("B", b, a)):
        if alone := [stage for stage in here["stage"].unique() if stage not in set(there["stage"])]:
            print(f"only {name} has numbers of {', '.join(alone)}")
    print_differences(found, claims, None if args.all else args.n)
    return 1 if len(found) or len(claims) else 0


def differences(a: pd.DataFrame, b: pd.DataFrame, least: float = 0.0) -> pd.DataFrame:
    """The numbers that two runs (frames of results.load) do not share, largest first, those in one run only last.

    Columns: the dimensions, unit, a, b, difference, in (A, B or both), verdict_a, verdict_b.
    """
    both = one_per_number(a).merge(one_per_number(b), how="outer", on=list(KEY), suffixes=("_a", "_b"), indicator="in")
    both["unit"] = both["unit_a"].fillna(both["unit_b"])
    both = both.rename(columns={"value_a": "a", "value_b": "b"})
    both["in"] = both["in"].astype("str").map(IN)
    both["difference"] = sizes(both["a"], both["b"], both["unit"]).where(both["in"] == "both")
    differs = (both["in"] != "both") | (both["difference"] > least)
    columns = [*KEY, "unit", "a", "b", "difference", "in", "verdict_a", "verdict_b"]
    return both.loc[differs, columns].sort_values(["difference", *KEY], ascending=[False, *[True] * len(KEY)],
                                                  na_position="last", ignore_index=True)


def one_per_number(frame: pd.DataFrame) -> pd.DataFrame:
    """The dimensions, value, unit and verdict of each number: the mean over its seeds, as the judge takes it."""
    numbers = frame.groupby(list(KEY), sort=False, as_index=False, dropna=False)
    # pandas would leave NaN out of a mean; a number that is undefined for one seed is undefined.
    return numbers.agg(value=("value", lambda values: values.mean(skipna=False)), unit=("unit", "first"),
                       verdict=("verdict", "first"))


def sizes(a: pd.Series, b: pd.Series, unit: pd.Series) -> pd.Series:
    """The size of each difference, as the head of this file says; infinite where one side alone is undefined."""
    x, y = a.to_numpy(np.float64), b.to_numpy(np.float64)
    whole = unit.map(SHARES).to_numpy(np.float64)
    whole = np.where(np.isnan(whole), np.maximum(np.abs(x), np.abs(y)), whole)
    is_equal = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.abs(x - y) / whole
    size[~np.isfinite(x) | ~np.isfinite(y)] = np.inf
    size[is_equal] = 0.0
    return pd.Series(size, index=a.index)


def compare_claims(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """The claims (frames of results.claims) that came out differently in two judged runs."""
    if a.empty or b.empty:  # a run that was not judged says nothing about claims
        return a[:0]
    both = a.merge(b, how="outer", on="name", suffixes=("_a", "_b"))
    return both[both["verdict_a"].fillna("") != both["verdict_b"].fillna("")].reset_index(drop=True)


# ---- printing --------------------------------------------------------------------------------------------------------


def print_differences(found: pd.DataFrame, claims: pd.DataFrame, limit: int | None) -> None:
    if not len(found) and not len(claims):
        print("no difference: both runs have the same numbers and the same claims")
        return
    shared, alone = found[found["in"] == "both"], found[found["in"] != "both"]
    print(f"{len(shared):,} numbers differ")
    if len(shared):
        shown = shared[:limit]
        names = _names(shown)
        width = max(map(len, names))
        table = pd.DataFrame({
            "difference": [f"{size:.2g}" for size in shown["difference"]],
            "number": [f"{name:<{width}}" for name in names], "A": _numbers(shown, "a"), "B": _numbers(shown, "b"),
            "unit": shown["unit"], "verdicts": _verdicts(shown)})
        print(table.to_string(index=False))
        _print_rest(len(shared) - len(shown))
    for run in "AB":
        those = alone[alone["in"] == run]
        if len(those):
            print(f"{len(those):,} numbers are in {run} only")
            shown = those[:limit]
            for name, number, unit in zip(_names(shown), _numbers(shown, run.lower()), shown["unit"], strict=True):
                print(f"  {name}: {number} {unit}")
            _print_rest(len(those) - len(shown))
    if len(claims):
        print(f"{len(claims):,} claims came out differently")
        for claim in claims.fillna("not evaluated").to_dict("records"):
            print(f"  {claim['name']}: A {claim['verdict_a']} ({claim['measured_a']}), "
                  f"B {claim['verdict_b']} ({claim['measured_b']})")


def _print_rest(n: int) -> None:
    if n:
        print(f"  … and {n:,} more (--all prints them, --out writes them)")


def _names(found: pd.DataFrame) -> list[str]:
    return [name_of(dict(zip(KEY, row, strict=True))) for row in found[list(KEY)].itertuples(index=False, name=None)]


def _numbers(found: pd.DataFrame, column: str) -> list[str]:
    return [format_number(value, unit) for value, unit in zip(found[column], found["unit"], strict=True)]


def _verdicts(found: pd.DataFrame) -> list[str]:
    pairs = found[["verdict_a", "verdict_b"]].fillna("not judged").itertuples(index=False, name=None)
    return [a if a == b else f"{a} | {b}" for a, b in pairs]
