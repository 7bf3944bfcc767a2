"""Grammars and trees of NLTK, both ways."""

from __future__ import annotations

from typing import Any

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.normal_form import normal_form
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.written import MASS_TOLERANCE, ROOT, Production, Word, WrittenGrammar, mass_by_head
from pcfg_artifact.treebank.tree import Tree


def grammar_from_nltk(grammar: Any) -> PCFG:
    """The normal form of an nltk.PCFG, which gives every sentence the same probability."""
    from nltk.grammar import Nonterminal

    names: dict[str, Any] = {}

    def item(x: Any) -> str | Word:
        if not isinstance(x, Nonterminal):
            if not isinstance(x, str):
                raise GrammarError(f"the terminal {x!r} of the NLTK grammar is no string; words must be strings")
            return Word(x)
        name = str(x.symbol())
        if names.setdefault(name, x) != x:
            raise GrammarError(f"two symbols of the NLTK grammar are both written {name!r}; rename one of them")
        return name

    productions = []
    for rule in grammar.productions():
        head = item(rule.lhs())
        if isinstance(head, Word) or not hasattr(rule, "prob"):
            raise GrammarError(f"`{rule}` is no rule of an nltk.PCFG, which have probabilities; see nltk.induce_pcfg")
        productions.append(Production(head, tuple(map(item, rule.rhs())), float(rule.prob())))
    start = str(grammar.start().symbol())
    above = {rule.items[0]: rule.prob for rule in productions if rule.head == start and len(rule.items) == 1}
    is_used = any(start in rule.items for rule in productions)
    is_proper = all(abs(mass - 1.0) <= MASS_TOLERANCE for mass in mass_by_head(productions).values())
    # A start symbol that only chooses another one is a root distribution: no symbol of ours.
    if not is_used and len(above) == sum(rule.head == start for rule in productions) \
            and all(isinstance(name, str) for name in above):
        root = {str(name): p for name, p in above.items()}
        rest = [rule for rule in productions if rule.head != start]
        written = WrittenGrammar.of(root, rest, start, is_proper=is_proper)
    else:
        written = WrittenGrammar.of({start: 1.0}, productions, is_proper=is_proper)
    return normal_form(written).grammar


def grammar_to_nltk(grammar: PCFG) -> Any:
    """An nltk.PCFG with the same sentences, probabilities and trees; one that came as written goes as it came."""
    from nltk.grammar import PCFG as NltkPCFG
    from nltk.grammar import Nonterminal, ProbabilisticProduction

    if grammar.written is not None:
        rules: list[Production] = list(grammar.written.productions)
        root, start = dict(grammar.written.root), grammar.written.start
    else:
        names, words = grammar.nonterminals, grammar.words
        rules = [Production(names[a], (names[b], names[c]), p)
                 for (a, b, c), p in zip(grammar.binary.tolist(), grammar.binary_prob.tolist(), strict=True)]
        rules += [Production(names[a], (Word(words[w]),), p)
                  for (a, w), p in zip(grammar.lexical.tolist(), grammar.lexical_prob.tolist(), strict=True)]
        root, start = {name: p for name, p in zip(names, grammar.root.tolist(), strict=True) if p > 0}, None
    if start is None and list(root.values()) != [1.0]:
        start = ROOT
        while start in grammar.nonterminal_index:
            start += "_"
    if start is not None:
        rules = [Production(start, (name,), p) for name, p in root.items()] + rules
    productions = [
        ProbabilisticProduction(Nonterminal(head), [x.text if isinstance(x, Word) else Nonterminal(x) for x in items],
                                prob=p) for head, items, p in rules]
    try:
        return NltkPCFG(Nonterminal(start if start is not None else next(iter(root))), productions)
    except ValueError as error:
        raise GrammarError(f"NLTK refuses the grammar ({error}); it takes grammars whose rules sum to 1") from error


def nltk_tree(tree: Tree) -> Any:
    """The tree as an nltk.Tree; a leaf without a label is a bare word among its siblings."""
    from nltk.tree import Tree as NltkTree

    done: list[Any] = []
    for node in reversed(list(tree.preorder())):  # from the right, children are complete before their parent
        if node.word is not None:
            done.append(NltkTree(node.label, [node.word]) if node.label else node.word)
        else:
            done.append(NltkTree(node.label, [done.pop() for _ in node.children]))
    return done[0]
