"""The folder expected_results/: read for verify, and written by `record`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from pcfg_artifact import cells, storage
from pcfg_artifact.artifacts import Folder, Manifest, Metric, read_csv
from pcfg_artifact.cells import Cell
from pcfg_artifact.errors import ConfigError, StageError
from pcfg_artifact.roles import find_roles
from pcfg_artifact.verification.comparison import Run
from pcfg_artifact.verification.derived import derive
from pcfg_artifact.verification.expectations import Expected, Record, add_drift, parse_paper, parse_record
from pcfg_artifact.verification.families import DERIVED_STAGES
from pcfg_artifact.verification.measured import Value, collect
from pcfg_artifact.verification.relations import Relation, parse_relations

# A wheel carries the folder inside the package; in the repository it lies beside it.
INSTALLED = Path(__file__).parent / "expected_results"
EXPECTED = INSTALLED if INSTALLED.is_dir() else Path(__file__).parents[1] / "expected_results"
CELLS, DRIFT, OUTCOMES, RELATIONS = "expected.csv", "drift.csv", "outcomes.csv", "relations.yaml"
NEAR_ZERO = 0.1  # a normalised marginal below it is called near zero


def expected_hash(folder: Path = EXPECTED) -> str:
    """A hash of everything verify compares with."""
    if not (folder / RELATIONS).is_file():
        raise StageError(f"{folder / RELATIONS} not found; verify needs the folder expected_results of the repository "
                         f"beside the package")
    return storage.fingerprint({path.relative_to(folder).as_posix(): storage.sha256(path)
                                  for path in sorted(folder.rglob("*")) if path.suffix in (".csv", ".yaml")})


def load_paper(folder: Path = EXPECTED) -> dict[Cell, Expected]:
    found: dict[Cell, Expected] = {}
    for path in sorted((folder / "paper").glob("*.csv")):
        if path.name in (CELLS, DRIFT, OUTCOMES):  # a recorded run of the paper profile, not the transcription
            continue
        rows = parse_paper(read_csv(path), path.name)
        if twice := found.keys() & rows.keys():
            raise ConfigError(f"{path}: {min(twice)} is in another file already; keep one")
        found |= rows
    return found


def load_relations(folder: Path = EXPECTED) -> list[Relation]:
    try:
        return parse_relations(yaml.safe_load((folder / RELATIONS).read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise ConfigError(f"{folder / RELATIONS} is not valid YAML: {error}") from error


def load_record(profile: str, folder: Path = EXPECTED) -> Record | None:
    """The recorded results of a profile, or None where there are none yet."""
    cells, drift, outcomes = (folder / profile / name for name in (CELLS, DRIFT, OUTCOMES))
    if not cells.is_file():
        return None
    record = parse_record(profile, cells.read_text(encoding="utf-8"), read_csv(cells),
                          read_csv(outcomes) if outcomes.is_file() else [])
    return add_drift(record, drift.read_text(encoding="utf-8"), read_csv(drift)) if drift.is_file() else record


def write_record(record: Record, folder: Path = EXPECTED) -> None:
    """Write expected.csv, drift.csv and outcomes.csv; the headers say what was run."""
    command = f"./run_all.sh record --profile {record.profile}"
    cells = sorted(record.units, key=lambda c: (c.table, c.row, c.column))
    _write(folder / record.profile / CELLS,
           [f"Recorded by `{command}`; do not edit.  How a run is judged by it: docs/CLAIMS.md",
            f"treebank: {record.treebank}", f"config: {record.config}", *record.notes],
           ["table", "row", "column", "unit", "stage", *(f"seed_{seed}" for seed in record.seeds)],
           ([*cell, record.units[cell], record.stages[cell], *(_number(record.by_seed[s], cell) for s in record.seeds)]
            for cell in cells))
    moved = [[*cell, *(_number(values, cell) for values in record.drift.values())] for cell in cells
             if any(_number(values, cell) != _number(record.by_seed[rerun.seed], cell)
                    for rerun, values in record.drift.items())]
    if record.drift:
        _write(folder / record.profile / DRIFT,
               [f"Recorded seeds run again under other arithmetic by `{command} --arithmetic NAME`; do not edit.",
                "Cells that none of them moved are left out.", *record.drift_notes],
               ["table", "row", "column", *(f"seed_{r.seed} {r.arithmetic}" for r in record.drift)], moved)
    else:
        (folder / record.profile / DRIFT).unlink(missing_ok=True)
    _write(folder / record.profile / OUTCOMES,
           ["What the recorded runs found of each relation; `explanation` is written by hand, and kept."],
           ["relation", "outcome", "by_seed", "figures", "explanation"],
           ([o.relation, o.outcome, o.by_seed, o.figures, o.explanation] for o in record.outcomes.values()))


def _number(values: Mapping[Cell, float], cell: Cell) -> str:
    return f"{values[cell]:.10g}" if cell in values else ""


def _write(path: Path, header: Iterable[str], columns: list[str], rows: Iterable[list[str]]) -> None:
    buffer = io.StringIO()
    buffer.writelines(f"# {line}\n" for line in header)
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    storage.write_text(path, buffer.getvalue())


# ---- what a run measured --------------------------------------------------------------------------------------------


def settings_hash(configs: Mapping[str, Mapping[str, Any]]) -> str:
    """Of the config of every stage; the seed is left out, since a record has several."""
    return storage.fingerprint({stage: {key: value for key, value in config.items() if key != "seed"}
                                for stage, config in configs.items()})


def read_run(profile: str, folders: Mapping[str, Folder]) -> tuple[Run, dict[Cell, Value], dict[str, Manifest]]:
    """What was run, every cell it measured (derived ones included), and its manifests; `folders`: stage -> folder."""
    manifests: dict[str, Manifest] = {}
    metrics: list[Metric] = []
    owners: dict[tuple[str, str, str, int], str] = {}
    for stage, folder in folders.items():
        manifest = Manifest.read(folder.root)
        if manifest is None:
            raise StageError(f"stage {stage!r} is not done in {folder.root.parent}; run it first")
        manifests[stage] = manifest
        for metric in folder.metrics():
            if owners.setdefault(metric.key, stage) != stage:
                raise StageError(f"the cell {metric.key} is written by the stages {owners[metric.key]} and {stage}; "
                                 f"each number has one source")
            metrics.append(metric)
    measured = collect(metrics)
    stages = {Cell(*key[:3]): stage for key, stage in owners.items()}
    derived = derived_values(measured, folders)
    stages |= {cell: DERIVED_STAGES[cell.table] for cell in derived}
    settings = settings_hash({stage: manifest.config for stage, manifest in manifests.items()})
    run = Run(profile, manifests["grammar"].inputs["treebank"], settings, manifests["grammar"].config.get("seed"),
              stages)
    return run, measured | derived, manifests


def derived_values(measured: Mapping[Cell, Value], folders: Mapping[str, Folder]) -> dict[Cell, Value]:
    """What follows from the numbers of a run, and from what its stages kept for the figures."""
    return {**derive(measured, find_roles(measured)), **near_zero(folders)}


def near_zero(folders: Mapping[str, Folder]) -> dict[Cell, Value]:
    """Share of the drawn spans whose normalised marginal is below NEAR_ZERO, by span length."""
    if "probe" not in folders or not folders["probe"].has("scatter.json"):
        return {}
    lengths = folders["probe"].json("scatter")["lengths"]
    return {cells.near_zero(length, NEAR_ZERO):
            Value(sum(number < NEAR_ZERO for number in points["true"]) / len(points["true"]), "fraction")
            for length, points in lengths.items()}
