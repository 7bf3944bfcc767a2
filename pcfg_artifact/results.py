"""Every number of a run as one tidy data frame: `load(run)`; and what the judge said of its claims: `claims(run)`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from pcfg_artifact.errors import UsageError
from pcfg_artifact.judge.judge import Verdict
from pcfg_artifact.metrics.schema import Key, to_frame, typed_key
from pcfg_artifact.run.pipeline import NAMES
from pcfg_artifact.run.stage_folder import MANIFEST, METRICS, Folder, Manifest, read_csv

JUDGE = "verify"  # the stage that judges
NUMBERS, VERDICTS = "numbers.csv", "verdicts.csv"


def load(run: str | Path) -> pd.DataFrame:
    """One row per number of the finished stages of a run: its stage, the columns of metrics.csv, and its verdict.

    `verdict` is missing where the run was not judged; numbers that are judged by their mean have its verdict.
    """
    root = Path(run)
    manifests = finished(root)
    found = [(stage, metric) for stage, manifest in manifests.items() for metric in _folder(root, manifest).metrics()]
    frame = to_frame(metric for _, metric in found)
    frame.insert(0, "stage", pd.Series([stage for stage, _ in found], dtype="str"))
    verdicts = _verdicts_of_numbers(root, manifests) if JUDGE in manifests else {}
    return frame.assign(verdict=pd.Series([verdicts.get(metric.key) for _, metric in found], dtype="str"))


def claims(run: str | Path) -> pd.DataFrame:
    """One row per claim of a judged run: name, verdict, measured, expected, as_recorded; empty if it was not judged."""
    root = Path(run)
    manifests = finished(root)
    columns = {"name": "name", "verdict": "verdict", "measured": "measured", "expected": "expected",
               "reason": "as_recorded"}
    if JUDGE not in manifests:
        return pd.DataFrame(columns=list(columns.values()), dtype="str")
    verdicts = pd.read_csv(_judged(root, manifests, VERDICTS), dtype="str", keep_default_na=False)
    return verdicts.loc[verdicts["against"] == "claim", list(columns)].rename(columns=columns).reset_index(drop=True)


def is_judged(verdict: pd.Series) -> pd.Series:
    """Where a number was judged."""
    return verdict.notna() & (verdict != Verdict.NOT_JUDGED.value)


def finished(root: Path) -> dict[str, Manifest]:
    """Stage -> manifest of the finished stages of a run, in the order of the pipeline; refused if there are none."""
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
    rank = {stage: n for n, stage in enumerate(NAMES)}
    return {stage: found[stage] for stage in sorted(found, key=lambda stage: rank.get(stage, len(rank)))}


def _folder(root: Path, manifest: Manifest) -> Folder:
    """The folder of a finished stage, its numbers checked against their recorded hash."""
    folder = Folder(root / manifest.stage)
    manifest.verify(folder.root, (METRICS,))
    return folder


def _judged(root: Path, manifests: Mapping[str, Manifest], name: str) -> Path:
    """A file of the judge; refused if a stage ran again after it was judged."""
    judge = manifests[JUDGE]
    other = [stage for stage, manifest in manifests.items()
             if stage in judge.inputs and judge.inputs[stage] != manifest.output_hash]
    if other:
        raise UsageError(f"{root / JUDGE} judged other outputs than those in {', '.join(other)} now; "
                         f"run the stage {JUDGE} again with --only {JUDGE} --out {root}")
    judge.verify(root / JUDGE, (name,))
    return root / JUDGE / name


def _verdicts_of_numbers(root: Path, manifests: Mapping[str, Manifest]) -> dict[Key, str]:
    return {tuple(typed_key(row).values()): row["verdict"] for row in read_csv(_judged(root, manifests, NUMBERS))}
