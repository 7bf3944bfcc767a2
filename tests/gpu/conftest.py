import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def gpus():
    from pretended import pretended_gpus

    with pretended_gpus() as machine:
        yield machine
