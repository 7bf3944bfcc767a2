"""Every number of a run as one tidy data frame: `load(run)`; and what the judge said of its claims: `claims(run)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from pcfg_artifact.artifacts import MANIFEST, METRICS, Folder, Manifest
from pcfg_artifact.errors import UsageError
from pcfg_artifact.records import derived_values
from pcfg_artifact.verification.comparison import Verdict
from pcfg_artifact.verification.measured import collect

JUDGE = "verify"  # the stage that judges; numbers that follow from measured ones are its own
VERDICTS = "verdicts.csv"
CELL = ["table", "row", "column"]
COLUMNS = {"stage": "str", "table": "str", "row": "str", "column": "str", "seed": "Int64", "value": "float64",
           "n": "Int64", "unit": "str", "verdict": "str"}


def load(run: str | Path) -> pd.DataFrame:
    """One row per number of a run, with the columns of COLUMNS.

    Of the stages that are done.  Derived numbers have the stage `verify` and no `n`.  `verdict` is missing where the
    run was not judged; where both the record and the paper apply, it is the paper's, as in the report.
    """
    root = Path(run)
    manifests = finished(root)
    metrics = [(stage, metric) for stage, manifest in manifests.items() for metric in _folder(root, manifest).metrics()]
    rows = [{"stage": stage, **asdict(metric)} for stage, metric in metrics]
    verdicts: dict[str, str] = {}
    if JUDGE in manifests:
        measured = collect(metric for _, metric in metrics)
        seeds = {metric.seed for _, metric in metrics}
        seed = min(seeds) if len(seeds) == 1 else None  # a mean over several has none
        derived = derived_values(measured, {stage: Folder(root / stage) for stage in manifests})
        rows += [{"stage": JUDGE, **cell._asdict(), "seed": seed, "value": value.number, "unit": value.unit}
                 for cell, value in derived.items()]
        verdicts = _verdict_of_number(_verdicts(root, manifests))
    for row in rows:
        row["verdict"] = verdicts.get(" / ".join(row[name] for name in CELL))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(COLUMNS)


def claims(run: str | Path) -> pd.DataFrame:
    """One row per claim that a run was judged by: name, verdict, measured, expected, claim; empty if it was not."""
    root = Path(run)
    manifests = finished(root)
    columns = ["name", "verdict", "measured", "expected", "claim"]
    if JUDGE not in manifests:
        return pd.DataFrame(columns=columns, dtype="str")
    verdicts = _verdicts(root, manifests)
    return verdicts.loc[verdicts["against"] == "relation", columns].reset_index(drop=True)


def is_judged(verdict: pd.Series) -> pd.Series:
    """Whether each verdict is one: there, and neither `not applicable` nor `not judged`."""
    return verdict.notna() & ~verdict.isin([Verdict.NOT_APPLICABLE.value, Verdict.NOT_JUDGED.value])


def finished(root: Path) -> dict[str, Manifest]:
    """Stage -> manifest of the stages of a run that are done; a folder without any is refused."""
    if not root.is_dir():
        raise UsageError(f"no folder at {root}; expected the output folder of a run, e.g. runs/smoke")
    found = {}
    for path in sorted(root.glob(f"*/{MANIFEST}")):
        manifest = Manifest.read(path.parent)
        if manifest is not None and manifest.stage == path.parent.name:
            found[manifest.stage] = manifest
    if not found:
        raise UsageError(f"{root} is no run: none of its folders holds the {MANIFEST} of a finished stage "
                         f"(looked for {root}/STAGE/{MANIFEST}, e.g. of the stage grammar); give the folder that was "
                         f"--out of a run, e.g. runs/smoke")
    return {stage: found[stage] for stage in _in_order(found)}


def _in_order(manifests: Mapping[str, Manifest]) -> list[str]:
    """Stages after those that they read, so that rows come in the order of the pipeline."""
    ordered: list[str] = []
    left = dict(manifests)
    while left:
        ready = [stage for stage, manifest in left.items() if not set(manifest.inputs) & set(left) - {stage}]
        for stage in ready or list(left):
            ordered.append(stage)
            del left[stage]
    return ordered


def _folder(root: Path, manifest: Manifest) -> Folder:
    """The folder of a finished stage, its numbers checked against their recorded hash."""
    folder = Folder(root / manifest.stage)
    manifest.verify(folder.root, (METRICS,))
    return folder


def _verdicts(root: Path, manifests: Mapping[str, Manifest]) -> pd.DataFrame:
    """verdicts.csv as text; verdicts on other numbers than those that are there now are refused."""
    judge = manifests[JUDGE]
    other = [stage for stage, manifest in manifests.items()
             if stage in judge.inputs and judge.inputs[stage] != manifest.output_hash]
    if other:
        raise UsageError(f"{root / JUDGE} judged other outputs than those in {', '.join(other)} now; "
                         f"run the stage {JUDGE} again with --only {JUDGE} --out {root}")
    judge.verify(root / JUDGE, (VERDICTS,))
    return pd.read_csv(root / JUDGE / VERDICTS, dtype="str", keep_default_na=False)


def _verdict_of_number(verdicts: pd.DataFrame) -> dict[str, str]:
    """Name of a cell -> its verdict.  The paper's come last and win where they apply, as in the report's tables."""
    numbers = verdicts[verdicts["against"] != "relation"]
    found: dict[str, str] = {}
    for name, verdict in zip(numbers["name"], numbers["verdict"], strict=True):
        if verdict != Verdict.NOT_APPLICABLE.value or name not in found:
            found[name] = verdict
    return found
