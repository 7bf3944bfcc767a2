"""Damaged rule files: a grammar, which is written and read back the same, or a GrammarError that names the file."""

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.rulefile import from_text, to_text

NAMES = ["S", "NP", "VP", "NP^S", "''", "``", "#", '"', "S'", "ROOT", "->", "0.5", "a b", "é", "\\", "X|<Y>", "\u2028"]
WORDS = ["she", "'", "''", "\\", "don't", "#", "->", "a b", "\n", '"', "x" * 60, "木", "\\n", "1.0", "\x85", "()", "\0"]
INSERTED = ["'", '"', "\\", "#", " ", "\n", "->", "1", "-", "e9", "nan", "\0", "\ufeff", "\r", "\u2028", "'x'"]
NUMBERS = ["0", "1", "-1", "2", "nan", "inf", "1e-400", "0x1", "1_0", "", "½", "١", "0.3333333333333333"]


def random_grammar(rng):
    """A few symbols over a few words, among them one of probability zero."""
    names = rng.sample(NAMES, rng.randint(2, 6))
    n_inner = rng.randint(0, len(names) - 1)
    inner, outer = names[:n_inner], names[n_inner:]
    binary, lexical = [], []
    for a in inner:
        pairs = list({(rng.choice(names), rng.choice(names)) for _ in range(rng.randint(1, 4))})
        binary += [(a, *pair, p) for pair, p in zip(pairs, shares(rng, len(pairs)), strict=True)]
    for a in outer:
        words = rng.sample(WORDS, rng.randint(1, 4))
        lexical += [(a, word, p) for word, p in zip(words, shares(rng, len(words)), strict=True)]
    return PCFG.from_rules(dict(zip(names, shares(rng, len(names)), strict=True)), binary, lexical)


def shares(rng, n):
    weights = [rng.random() for _ in range(n)]
    if n > 1 and rng.random() < 0.3:
        weights[0] = 0.0
    return [weight / sum(weights) for weight in weights]


def same(one, other):
    """Whether two grammars are the same in all that a rule file says."""
    return sorted(to_text(one).splitlines()) == sorted(to_text(other).splitlines()) \
        and set(one.words) == set(other.words) and set(one.nonterminals) == set(other.nonterminals)


def damaged(rng, text):
    for _ in range(rng.randint(1, 3)):
        lines = text.split("\n")
        n, kind, at = rng.randrange(len(lines)), rng.randrange(7), rng.randrange(len(text) + 1)
        if kind == 0:
            text = text[:at] + text[at + 1:]
        elif kind == 1:
            text = text[:at] + rng.choice(INSERTED) + text[at:]
        elif kind == 2:
            text = text[:at]
        elif kind == 3:
            lines.insert(n, lines[rng.randrange(len(lines))])
        elif kind == 4:
            del lines[n]
        elif kind == 5:
            lines[n] = " ".join([*lines[n].split(" ")[:-1], rng.choice(NUMBERS)])
        else:
            lines[n] = " ".join(rng.sample(lines[n].split(" "), len(lines[n].split(" "))))
        text = "\n".join(lines) if kind in (3, 4, 5, 6) else text
    return text


def stated_rules(text):
    """How many lines of a text state a rule: all but comments and empty ones."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines)


def check_rule_files(rng, counts):
    grammar = random_grammar(rng)
    text = to_text(grammar)
    assert same(from_text(text), grammar), f"not read back:\n{text}"
    for _ in range(5):
        check_damaged(damaged(rng, text), counts)


def check_damaged(text, counts):
    counts["rule files"] += 1
    try:
        found = from_text(text, "f.txt")
    except GrammarError as error:
        counts["refused"] += 1
        message = str(error)
        assert message.startswith("f.txt"), f"no file in {message!r}:\n{text}"
        assert "\n" not in message, f"more than one line: {message!r}:\n{text}"
    else:
        assert same(from_text(to_text(found)), found), f"not read back once read:\n{text}"
        if found.written is not None and found.written.notes:
            counts["with empty rules"] += 1
            return
        n_rules = len(found.binary) + len(found.lexical) if found.written is None else len(found.written.productions)
        n_rules += int((found.root > 0).sum()) if found.written is None else sum(map(bool, found.written.root.values()))
        n_zero_roots = stated_rules(text) - n_rules
        assert 0 <= n_zero_roots <= found.n_nonterminals, f"a rule was lost or made up:\n{text}"


def test_damaged_rule_files_are_read_whole_or_refused(campaign):
    campaign.run(check_rule_files)
