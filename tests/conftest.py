"""Fixtures that tests of several kinds share."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from pcfg_artifact.grammar.pcfg import PCFG
from tests.campaign import Campaign

if find_spec("triton") is not None:
    from tests import interpreted  # noqa: F401 - before anything else imports Triton

CRAFT_VARIABLE = "PCFG_ARTIFACT_CRAFT"

# In CI every run tries the same examples, so a red run is the change's own; elsewhere each run looks for new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session")
def craft_zip() -> Path:
    """The CRAFT treebank: unset is a counted skip, set but missing is a failure."""
    path = os.environ.get(CRAFT_VARIABLE)
    if not path:
        pytest.skip(f"{CRAFT_VARIABLE} is not set: it names the CRAFT zip, which is not part of the repository")
    if not Path(path).is_file():
        pytest.fail(f"{CRAFT_VARIABLE} names {path}, which does not exist")
    return Path(path)


@pytest.fixture
def tiny_grammar() -> PCFG:
    """Three binary and five lexical rules, one of them of probability zero; every number can be done by hand."""
    return PCFG.from_rules(
        root={"S": 1.0},
        binary=[("S", "NP", "VP", 1.0), ("VP", "V", "NP", 0.75), ("VP", "V", "VP", 0.25)],
        lexical=[("NP", "she", 0.5), ("NP", "fish", 0.5), ("V", "eats", 0.6), ("V", "fish", 0.4), ("V", "she", 0.0)])


@pytest.fixture(scope="session")
def craft_treebank(craft_zip):
    """CRAFT, read and cleaned once for all tests."""
    from pcfg_artifact.treebank.reading import read_treebank

    return read_treebank(craft_zip)


@pytest.fixture(scope="session")
def craft_grammar(craft_treebank) -> PCFG:
    """The vm grammar of CRAFT's training split."""
    from pcfg_artifact.grammar.learning import learn_pcfg
    from pcfg_artifact.treebank.splits import split

    return learn_pcfg(split(craft_treebank).train)


@pytest.fixture
def campaign(request) -> Campaign:
    return Campaign(request.node.nodeid)
