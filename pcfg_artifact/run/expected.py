"""The folder expected_results/ and the numbers of a run, read from disk for the judge; `record` writes the former."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pcfg_artifact.errors import ConfigError, StageError
from pcfg_artifact.judge.claims import Claim, parse_claims
from pcfg_artifact.judge.judge import Run
from pcfg_artifact.judge.paper import Printed, parse_paper
from pcfg_artifact.judge.recorded_runs import Record, claims_csv, numbers_csv, parse_record
from pcfg_artifact.metrics.schema import Metric, name_of
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.run.stage_folder import Folder, Manifest, read_csv
from pcfg_artifact.system import storage

# A wheel carries the folder inside the package; in the repository it lies beside it.
PACKAGE = Path(__file__).parents[1]
INSTALLED = PACKAGE / "expected_results"
EXPECTED = INSTALLED if INSTALLED.is_dir() else PACKAGE.parent / "expected_results"
NUMBERS, CLAIMS_FOUND, CLAIMS = "expected.csv", "claims.csv", "claims.yaml"


def expected_hash(folder: Path = EXPECTED) -> str:
    """A hash of everything verify compares with."""
    if not (folder / CLAIMS).is_file():
        raise StageError(f"{folder / CLAIMS} not found; verify needs the folder expected_results of the repository "
                         f"beside the package")
    return storage.fingerprint({path.relative_to(folder).as_posix(): storage.sha256(path)
                                for path in sorted(folder.rglob("*")) if path.suffix in (".csv", ".yaml")})


def load_paper(folder: Path = EXPECTED) -> list[Printed]:
    """The numbers that the paper prints; a recorded run of the profile paper lies beside them."""
    return [printed for path in sorted((folder / "paper").glob("*.csv")) if path.name not in (NUMBERS, CLAIMS_FOUND)
            for printed in parse_paper(read_csv(path), path.name)]


def load_claims(folder: Path = EXPECTED) -> list[Claim]:
    try:
        return parse_claims(yaml.safe_load((folder / CLAIMS).read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise ConfigError(f"{folder / CLAIMS} is not valid YAML: {error}") from error


def load_record(profile: str, folder: Path = EXPECTED) -> Record | None:
    """The recorded runs of a profile, or None where there are none yet."""
    numbers, claims = (folder / profile / name for name in (NUMBERS, CLAIMS_FOUND))
    if not numbers.is_file():
        return None
    return parse_record(profile, numbers.read_text(encoding="utf-8"),
                        claims.read_text(encoding="utf-8") if claims.is_file() else "")


def write_record(record: Record, folder: Path = EXPECTED) -> None:
    storage.write_text(folder / record.profile / NUMBERS, numbers_csv(record))
    storage.write_text(folder / record.profile / CLAIMS_FOUND, claims_csv(record))


# ---- what a run measured ---------------------------------------------------------------------------------------------


def settings_hash(configs: Mapping[str, Mapping[str, Any]]) -> str:
    """A hash of the configs of all stages without their seeds: a record has several seeds."""
    return storage.fingerprint({stage: {key: value for key, value in config.items() if key != "seed"}
                                for stage, config in configs.items()})


def read_run(profile: str, folders: Mapping[str, Folder]) -> tuple[Run, Numbers, dict[str, Manifest]]:
    """What was run, every number it measured, and its manifests; `folders`: stage -> folder."""
    manifests: dict[str, Manifest] = {}
    metrics: list[Metric] = []
    owners: dict[tuple[object, ...], str] = {}
    for stage, folder in folders.items():
        manifest = Manifest.read(folder.root)
        if manifest is None:
            raise StageError(f"stage {stage!r} is not done in {folder.root.parent}; run it first")
        manifests[stage] = manifest
        for metric in folder.metrics():
            owner = owners.setdefault((*metric.key, metric.seed), stage)
            if owner != stage:
                raise StageError(f"the number {name_of(vars(metric))} is written by the stages {owner} and {stage}; "
                                 f"each number has one source")
            metrics.append(metric)
    settings = settings_hash({stage: manifest.config for stage, manifest in manifests.items()})
    run = Run(profile, manifests["grammar"].inputs["treebank"], settings, manifests["grammar"].config.get("seed"))
    return run, Numbers(metrics), manifests
