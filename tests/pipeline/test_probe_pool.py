"""Jobs in worker processes: every one is done once, an error arrives, a death is reported."""

import os

import pytest

from pcfg_artifact.errors import StageError
from pcfg_artifact.stages.pool import run_jobs


def work(context, job):
    if job == "die":
        os._exit(3)
    if job == "fail":
        raise StageError("job fail failed")
    return context + job


def test_every_job_is_done_once_with_the_shared_context():
    assert sorted(run_jobs(work, [1, 2, 3, 4, 5], 10, 2)) == [11, 12, 13, 14, 15]
    assert list(run_jobs(work, [], 10, 2)) == []


def test_an_error_in_a_worker_arrives_as_it_is():
    with pytest.raises(StageError, match="job fail failed"):
        list(run_jobs(work, ["fail"], 10, 2))


def test_a_worker_that_dies_is_an_error_that_says_what_to_do():
    with pytest.raises(StageError, match="a worker process died.*n_workers=1"):
        list(run_jobs(work, ["die"], None, 1))
