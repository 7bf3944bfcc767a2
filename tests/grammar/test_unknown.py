import pytest

from pcfg_artifact.grammar.unknown import signature


@pytest.mark.parametrize(("word", "position", "expected"), [
    ("Zapped", 0, "UNK-INITC-ed"),  # sentence-initial, one capital
    ("Running", 0, "UNK-INITC-KNOWNLC-ing"),  # and its lower-case form is known
    ("Zapped", 3, "UNK-CAPS-ed"),
    ("NASA", 0, "UNK-CAPS"),  # more than one capital
    ("zapping", 2, "UNK-LC-ing"),
    ("1990s", 4, "UNK-LC-NUM-s"),
    ("well-being", 1, "UNK-LC-DASH"),  # a hyphen forbids the long suffixes
    ("co-ops", 1, "UNK-LC-DASH-s"),  # but not the plural
    ("glass", 1, "UNK-LC"),  # ss is no plural
    ("x1B", 1, "UNK-LC-NUM"),
    ("3M", 1, "UNK-CAPS-NUM"),
    ("12", 1, "UNK-NUM"),
    ("%", 1, "UNK"),
    ("tiny", 1, "UNK-LC"),  # four letters: too short for -y
    ("really", 1, "UNK-LC-ly"),
])
def test_signature_of(word, position, expected):
    assert signature(word, position, {"running"}) == expected
