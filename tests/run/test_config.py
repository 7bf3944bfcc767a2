import dataclasses
import math

import pytest

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.run import config, pipeline
from pcfg_artifact.run.sections import as_json


@pytest.mark.parametrize("name", config.profile_names())
def test_every_profile_loads_and_prices_every_stage(name):
    profile = config.load_profile(name)
    for stage in pipeline.STAGES:
        assert dataclasses.is_dataclass(profile.stage(stage.name))
        seconds, megabytes = profile.cost[stage.name]
        assert seconds >= 0
        assert megabytes >= 0


def test_the_seed_reaches_every_section_and_zero_is_a_seed():
    assert config.load_profile("smoke").sample.seed == 0
    assert config.load_profile("smoke", ["seed=3"]).sample.seed == 3
    assert config.load_profile("smoke", ["seed=3", "sample.seed=4"]).sample.seed == 4


def test_settings_override_the_profile_and_numbers_stay_typed():
    profile = config.load_profile("smoke", ["sample.n_validation=7", "sample.max_length=null"], treebank="elsewhere")
    assert profile.sample.n_validation == 7
    assert profile.sample.max_length is None
    assert profile.treebank == "elsewhere"


@pytest.mark.parametrize(("setting", "message"), [
    ("sample.n_validaton=7", "unknown key 'sample.n_validaton' .did you mean 'n_validation'"),
    ("smaple.n_validation=7", "unknown key 'smaple' .did you mean 'sample'"),
    ("sample.n_validation=many", "'sample.n_validation' is 'many' .str., expected int"),
    ("sample.n_validation=1.5", "expected int"),
    ("sample.n_validation=true", "expected int"),
    ("sample.n_validation=0", "'sample.n_validation' is 0, expected more than 0"),
    ("construct.lengths=[4, -8]", r"'construct.lengths\[1\]' is -8, expected more than 0"),
    ("pretrain.dropout=1.5", "'pretrain.dropout' is 1.5, expected at most 1"),
    ("pretrain.learning_rate=.nan", "'pretrain.learning_rate' is nan, expected a finite number"),
    ("pretrain.max_length=40", "'probe.max_length' is 126, expected at most 40"),
    ("pretrain.packing=129", "'pretrain.packing' is 129, expected at most 128: a block must fit"),
    ("pretrain.hold_steps=1_000_000", "'pretrain.hold_steps' are .* expected less than pretrain.schedule_steps"),
    ("pretrain.optimiser=best", "expected one of adamw, muon"),
    ("grammar.variant=hm", "expected one of vm, novm"),
    ("pretrain.models=[]", "'pretrain.models' is .* expected at least one"),
    ("pretrain.models=[A4L1, A4L3, A4L1]", "expected each name once, not A4L1 again"),
    ("pretrain.models=[A4L1, C4L3]", "'pretrain.models' names C4L3, expected names that begin with A"),
    ("pretrain.causal_models=[A4L3]", "'pretrain.causal_models' names A4L3, expected names that begin with C"),
    ("sample=3", "expected a section"),
    ("seed.x=3", "'seed' is a value, not a section"),
    ("sample.n_validation", "not of the form key=value"),
    ("sample.n_validation=[1", "not valid YAML"),
])
def test_a_wrong_setting_is_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        config.load_profile("smoke", [setting])


def test_an_unknown_profile_is_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'smoke'"):
        config.load_profile("smok")


@pytest.mark.parametrize(("text", "value"), [
    ("2e-3", 0.002), (".5", 0.5), ("1_000", 1000), ("010", 10), ("+3", 3), ("-2.5E+4", -25000.0), ("1.", 1.0),
    (".inf", math.inf), ("true", True), ("[1, 2e2]", [1, 200]), ("5e", "5e"), ("1:30", "1:30"), ("1.2.3", "1.2.3")])
def test_numbers_are_read_as_a_person_types_them(text, value):
    found = config.read_yaml(text)
    assert found == value
    assert type(found) is type(value)


def test_a_number_with_an_exponent_can_be_set():
    profile = config.load_profile("smoke", ["pretrain.learning_rate=2e-3", "sample.n_validation=1e2"])
    assert profile.pretrain.learning_rate == 0.002
    assert profile.sample.n_validation == 100


def test_a_setting_that_came_after_the_records_changes_their_settings_only_where_it_is_used():
    off = as_json(config.load_profile("smoke", ["construct.merged_smoothing=null"]).construct)
    on = as_json(config.load_profile("smoke", ["construct.merged_smoothing=0.01"]).construct)
    assert "merged_smoothing" not in off
    assert on == {**off, "merged_smoothing": 0.01}
