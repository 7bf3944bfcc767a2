"""The ten claims that the paper's answer rests on: a run names those that it does not show, and its report says why."""

import pytest

from pcfg_artifact.records import load_relations
from pcfg_artifact.verification.comparison import Judgement, Run, Verdict
from pcfg_artifact.verification.report import Facts, Page, render
from pcfg_artifact.verification.summary import OF_A_CLAIM, central, summarise, verdict_words

RUN = Run("reduced", "trees", "config", 0, {})


@pytest.fixture(scope="module")
def relations():
    return load_relations()


def judged(relations, verdicts):
    """Every claim shown but those in `verdicts`."""
    return [Judgement("relation", r.id, verdicts.get(r.id, Verdict.MATCH), "0.2", "at least 0.5", f"why {r.id}")
            for r in relations]


def test_there_are_ten_and_all_are_the_papers(relations):
    assert len([r for r in relations if r.is_central]) == 10
    assert all(r.is_paper and r.scale == "any" for r in relations if r.is_central)


def test_a_run_that_shows_all_says_so(relations):
    assert central(judged(relations, {}), relations) == "10 of 10 central claims shown."


def test_what_is_not_shown_is_named_on_the_screen_and_explained_in_the_report(relations):
    judgements = judged(relations, {"attention-grows": Verdict.AS_RECORDED, "ood-drop": Verdict.VARIES,
                                    "saturates-early": Verdict.NOT_APPLICABLE, "layer-0-low": Verdict.AS_RECORDED})
    said = central(judgements, relations)
    assert said.startswith("7 of 9 central claims shown; not shown, or not for every seed: ")
    assert "attended distance grows with the layer" in said
    assert said in summarise(RUN, judgements, relations)
    page = render(Page(RUN, Facts("trees", 0, (), "1 s", "1 GB", ()), judgements, relations, [], []))
    head = page[:page.index("<main>")]
    assert "why attention-grows" in head
    assert "why ood-drop" in head
    assert "why saturates-early" not in head
    assert "why layer-0-low" not in head


def test_without_central_claims_nothing_is_said(relations):
    assert central(judged([r for r in relations if not r.is_central], {}), relations) == ""


def test_a_claim_that_a_profile_cannot_test_says_why():
    def words(**of):
        return verdict_words(Judgement("relation", "a", Verdict.NOT_APPLICABLE, "", "", "", **of))
    assert words(needs_paper_scale=True) == "needs the full scale"
    assert words() == OF_A_CLAIM[Verdict.NOT_APPLICABLE] == "no such model"
