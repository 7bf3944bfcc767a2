"""A stage is made again when code that it reaches changed, and only then."""

import shutil
from pathlib import Path

import pytest

from pcfg_artifact import freshness, pipeline, storage
from pcfg_artifact.artifacts import Manifest
from pcfg_artifact.config import load_profile


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """A copy of the package's sources that a test may change."""
    copy = tmp_path_factory.mktemp("copy") / "pcfg_artifact"
    shutil.copytree(freshness.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def stages_reaching(package: Path, file: str) -> set[str]:
    """The stages whose code differs after one line of `file` was added."""
    def code():
        freshness.code_of.cache_clear()
        freshness._tree.cache_clear()
        return {stage.name: freshness.code_of((f"pcfg_artifact.stages.{stage.name}",), package)
                for stage in pipeline.STAGES}

    before, text = code(), (package / file).read_text()
    (package / file).write_text(text + "\n")
    after = code()
    (package / file).write_text(text)
    changed = {stage for stage in before if before[stage] != after[stage]}
    assert all({name for name in before[stage] if before[stage][name] != after[stage][name]} == {file}
               for stage in changed)
    return changed


@pytest.mark.parametrize(("file", "stages"), [
    ("judge/report.html", {"verify"}),
    ("judge/claims.py", {"verify"}),
    ("treebank/embedded.yaml", {"grammar"}),
    ("workers/trainer.py", {"pretrain"}),
    ("mlm/training.py", {"pretrain", "intervene", "dynamics"}),
    ("constructions/relative.py", {"construct", "intervene"}),
    ("seeding.py", {stage.name for stage in pipeline.STAGES}),
    ("config.py", set()),
    ("tools/doctor.py", set()),
])
def test_a_changed_file_concerns_the_stages_that_reach_it_and_no_other(package, file, stages):
    assert stages_reaching(package, file) == stages


def test_one_name_of_a_package_does_not_reach_all_of_it(package):
    (package / "stages" / "toy.py").write_text("from pcfg_artifact.grammar import PCFG\n")
    freshness.code_of.cache_clear()
    code = freshness.code_of(("pcfg_artifact.stages.toy",), package)
    assert "grammar/pcfg.py" in code
    assert "grammar/learning.py" not in code


def test_a_change_of_the_report_or_of_the_disk_layer_trains_no_model_again():
    code = freshness.weights_code()
    assert {"mlm/training.py", "mlm/data.py", "mlm/model.py", "parsing/masks.py", "seeding.py"} <= set(code)
    assert not [name for name in code if name.startswith(("judge", "workers", "stages", "probing"))]
    assert "artifacts.py" not in code


def test_the_reason_names_the_file_that_changed(tmp_path):
    section, code = load_profile("smoke").sample, {"grammar/sampling.py": "1", "seeding.py": "2"}
    inputs = {"grammar": "g"}
    manifest = Manifest("sample", "", freshness.config.as_json(section), inputs, {}, code=code)
    assert freshness.why_run(manifest, tmp_path, section, inputs, code) is None
    assert freshness.why_run(manifest, tmp_path, section, inputs, {**code, "seeding.py": "3"}) == \
        "code changed: seeding.py"
    assert freshness.why_run(manifest, tmp_path, section, {"grammar": "h"}, code) == "input changed: grammar"
    assert freshness.why_run(None, tmp_path, section, inputs, code) == "not done yet"
    marks = {freshness.fingerprint(section, inputs, {"a": digest}) for digest in "xyx"}
    assert len(marks) == 2


def test_every_reached_file_exists_with_the_hash_that_is_said():
    for stage in pipeline.STAGES:
        code = freshness.stage_code(stage.name)
        assert f"stages/{stage.name}.py" in code
        assert all(storage.sha256(freshness.PACKAGE / name) == digest for name, digest in code.items())
