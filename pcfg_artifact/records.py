"""The folder expected_results/: read for verify, and written by `record`."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pcfg_artifact import storage
from pcfg_artifact.artifacts import Folder, Manifest, Metric, read_csv
from pcfg_artifact.cells import Cell, find_roles
from pcfg_artifact.errors import ConfigError, StageError
from pcfg_artifact.verification.comparison import Run
from pcfg_artifact.verification.derived import derive
from pcfg_artifact.verification.expectations import (
    FLOOR,
    N_DEVIATIONS,
    SETTLED_FLOORS,
    SETTLED_SEEDS,
    Expected,
    Record,
    parse_paper,
    parse_record,
)
from pcfg_artifact.verification.measured import Value, collect
from pcfg_artifact.verification.relations import Relation, parse_relations

EXPECTED = Path(__file__).parents[1] / "expected_results"
CELLS, OUTCOMES, RELATIONS = "expected.csv", "outcomes.csv", "relations.yaml"


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
        if path.name in (CELLS, OUTCOMES):  # a recorded run of the paper profile, not the transcription
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
    path = folder / profile / CELLS
    if not path.is_file():
        return None
    outcomes = folder / profile / OUTCOMES
    return parse_record(profile, path.read_text(encoding="utf-8"), read_csv(path),
                        read_csv(outcomes) if outcomes.is_file() else [])


def write_record(record: Record, folder: Path = EXPECTED) -> None:
    """Write expected.csv and outcomes.csv; the header says what was run, and by which rule tolerances were set."""
    floors = ", ".join(f"{unit} {floor:g}" for unit, floor in FLOOR.items())
    header = [f"Recorded by `./run_all.sh record --profile {record.profile}`; do not edit.",
              f"treebank: {record.treebank}", f"config: {record.config}",
              f"value: mean over the seeds; tolerance: {N_DEVIATIONS:g} standard deviations (the larger of the cell's "
              f"own and the root mean square over its column)",
              f"plus a floor for rounding by unit ({floors}); {SETTLED_FLOORS} floors where {SETTLED_SEEDS} seeds or "
              f"more agree.", *record.notes]
    buffer = io.StringIO()
    buffer.writelines(f"# {line}\n" for line in header)
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["table", "row", "column", "unit", "value", "tolerance", *(f"seed_{s}" for s in record.seeds)])
    for cell in sorted(record.cells, key=lambda c: (c.table, c.row, c.column)):
        expected = record.cells[cell]
        writer.writerow([*cell, record.units[cell], f"{expected.value:.10g}", f"{expected.tolerance:.3g}",
                         *(f"{values[cell]:.10g}" if cell in (values := record.by_seed[s]) else ""
                           for s in record.seeds)])
    storage.write_text(folder / record.profile / CELLS, buffer.getvalue())

    buffer = io.StringIO()
    buffer.write("# What the recorded seeds found of each relation; `explanation` is written by hand, and kept.\n")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["relation", "outcome", "by_seed", "figures", "explanation"])
    writer.writerows([o.relation, o.outcome, o.by_seed, o.figures, o.explanation] for o in record.outcomes.values())
    storage.write_text(folder / record.profile / OUTCOMES, buffer.getvalue())


# ---- what a run measured --------------------------------------------------------------------------------------------


def settings_hash(configs: Mapping[str, Mapping[str, Any]]) -> str:
    """Of the config of every stage; the seed is left out, since a record has several."""
    return storage.fingerprint({stage: {key: value for key, value in config.items() if key != "seed"}
                                for stage, config in configs.items()})


def read_run(profile: str, folders: Mapping[str, Folder]) -> tuple[Run, dict[Cell, Value], dict[str, Manifest]]:
    """What was run, every cell it measured (derived ones included), and its manifests; `folders`: stage -> folder."""
    manifests: dict[str, Manifest] = {}
    metrics: list[Metric] = []
    owners: dict[tuple, str] = {}
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
    measured |= derive(measured, find_roles(measured))
    settings = settings_hash({stage: manifest.config for stage, manifest in manifests.items()})
    run = Run(profile, manifests["grammar"].inputs["treebank"], settings)
    return run, measured, manifests
