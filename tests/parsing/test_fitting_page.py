"""docs/guides/gradients.md, run as printed: both fits recover the grammar."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "gradients.md"


def test_the_page_recovers_its_grammar_by_em_and_by_gradient():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found = {}
    exec(code, found)
    for name, truth in (("binary", found["truth"].binary_prob), ("lexical", found["truth"].lexical_prob)):
        np.testing.assert_allclose(getattr(found["by_em"], f"{name}_prob"), truth, atol=0.04)
        np.testing.assert_allclose(getattr(found["by_gradient"], name).detach(), truth, atol=0.04)
    assert found["likelihood"] > found["best"] - 1e-3  # as likely as the truth, or more
