"""One type for a number: its key, its text and its frame."""

import ast
import math
import re
from pathlib import Path

import pytest

import pcfg_artifact
from pcfg_artifact.errors import CorruptArtifact, StageError
from pcfg_artifact.metrics.schema import (
    COLUMNS,
    DIMENSIONS,
    KEY,
    Metric,
    from_rows,
    mean_over_seeds,
    name_of,
    to_csv,
    to_frame,
)

ROOT = Path(pcfg_artifact.__file__).parent


def number(**fields):
    return Metric(**{"table": "parsing", "metric": "sentence_f1", "value": 1.0, "n": 3, "unit": "percent", **fields})


def read(text):
    lines = text.splitlines()
    columns = lines[0].split(",")
    return from_rows([dict(zip(columns, line.split(","), strict=True)) for line in lines[1:]], "metrics.csv")


def test_every_dimension_is_documented_once_and_is_a_column():
    assert set(DIMENSIONS) == set(KEY)
    assert set(KEY) | {"seed", "value", "error", "n", "unit"} == set(COLUMNS)
    assert all(DIMENSIONS.values())


@pytest.mark.parametrize("metric", [
    number(model="A4L3", layer=0, probe="a probe with spaces", setting="ood", seed=2),
    number(value=math.inf, error=0.5), number(value=0.1 + 0.2, width=3, index=0, step=7)])
def test_a_number_survives_its_text(metric):
    assert read(to_csv([metric])) == [metric]


def test_an_undefined_number_is_written_as_it_is():
    [found] = read(to_csv([number(value=math.nan)]))
    assert math.isnan(found.value)


def test_a_number_measured_twice_is_refused():
    with pytest.raises(StageError, match=r"parsing, A4L3, layer 0, sentence_f1, seed 0, was measured twice"):
        to_csv([number(model="A4L3", layer=0), number(model="A4L3", layer=0, value=2.0)])
    to_csv([number(seed=0), number(seed=1)])


def test_a_damaged_row_is_refused():
    with pytest.raises(CorruptArtifact, match="not a table of metrics"):
        from_rows([{"table": "t"}], "metrics.csv")


def test_seeds_of_one_number_are_averaged_and_nan_stays_nan():
    found = mean_over_seeds([number(value=1.0), number(value=2.0, seed=1), number(value=math.nan, layer=1),
                             number(value=2.0, layer=1, seed=1)])
    assert found[0].value == 1.5
    assert math.isnan(found[1].value)


def test_the_frame_has_the_columns_of_the_file():
    frame = to_frame([number(layer=3), number(model="exact")])
    assert tuple(frame.columns) == COLUMNS
    assert frame["layer"].tolist()[0] == 3
    assert frame["layer"].isna().tolist() == [False, True]


def test_a_name_leaves_out_what_is_blank():
    assert name_of(vars(number(model="A4L3", layer=0, setting="ood"))) == "parsing, A4L3, layer 0, ood, sentence_f1"


# What takes a text apart: no dimension of a number may be its operand.
TAKE_APART = {"split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix", "startswith", "endswith",
              "match", "fullmatch", "search", "findall"}


def taken_apart(tree: ast.AST) -> list[int]:
    """Lines on which a dimension of a metric (m.model, row["metric"], ...) is split or matched."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKE_APART:
            for operand in (node.func.value, *node.args):
                of_attribute = (isinstance(operand, ast.Attribute)
                                and operand.attr in ("table", "model", "probe", "metric"))
                of_row = (isinstance(operand, ast.Subscript) and isinstance(operand.slice, ast.Constant)
                          and operand.slice.value in KEY)
                if of_attribute or of_row:
                    found.append(node.lineno)
    return found


@pytest.mark.parametrize("line", ['m.model.split("L")', 'metric.table.startswith("x")', 're.match("A", m.model)',
                                  'row["metric"].removesuffix("_x")'])
def test_taking_a_name_apart_is_seen(line):
    assert taken_apart(ast.parse(line))


def test_no_name_of_a_number_is_taken_apart_anywhere():
    for path in sorted(ROOT.rglob("*.py")):
        assert not taken_apart(ast.parse(path.read_text())), path
    models = (ROOT / "metrics" / "models.py").read_text()
    patterns = [path for path in ROOT.rglob("*.py") if re.search(r"\[AC\]|A\(?\\d|C\(?\\d|\\d\+L", path.read_text())]
    assert patterns == []
    assert "fullmatch" in models  # the one parser of model names
