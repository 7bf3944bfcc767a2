"""Damaged treebanks: every tree that the damage does not touch is kept, or its lines are listed as left out."""

from pcfg_artifact.errors import TreebankError
from pcfg_artifact.treebank.brackets import parse_trees
from pcfg_artifact.treebank.cleaning import LEAF_FORMATS, NON_WORDS, TRACE, WORD_LEMMA, leaves_of
from pcfg_artifact.treebank.reading import _decode, _read
from pcfg_artifact.treebank.tree import Tree

LABELS = ["S", "NP", "VP", "NP-SBJ", "``", "''", "-LRB-", "X|Y", "#", "é"]
NOT_WORDS = ["ID", "CODE", "METADATA", "-NONE-"]  # labels of leaves that cleaning takes out, and says so
LAYOUTS = ["one a line", "outer bracket", "indented", "first column", "closing line", "several a line"]
# Where a layout says nothing about where trees begin, two damages can cancel out and nobody could tell.
IS_CLEAR = {"one a line", "outer bracket", "indented"}
INSERTED = [b"(", b")", b"((", b"))", b"\xe9", b"\0", b" ", b"\n", b"x", b"()", b"(X", b"\xff\xfe", b"\r", b"\xc2\x85"]
STRAY = [b")\n", b"junk\n", b"(\n", b"\xe9\n", b"()\n", b"\0\0\0\n", b"# a comment\n", b"(X y\n", b")))\n", b"\n\n"]


def name_of(number):
    return 3 * chr(ord("a") + number)  # one damage does not turn it into another


def random_tree(rng, name, labels=LABELS, depth=0):
    """A tree whose words all begin with `name`, so that it is known again wherever its parts end up."""
    if depth > 3 or (depth and rng.random() < 0.4):
        lemma = rng.choice(["", "-x", "-"]) if labels is not LABELS else ""
        return Tree(rng.choice(labels), (), f"{name}.{rng.randrange(1000)}{lemma}")
    label = "S" if not depth else rng.choice(labels)
    return Tree(label, tuple(random_tree(rng, name, labels, depth + 1) for _ in range(rng.randint(1, 3))))


def written(tree, layout, level=0):
    if layout in ("one a line", "several a line", "closing line") or tree.is_preterminal:
        return str(tree)[:-1] + "\n)" if layout == "closing line" and not tree.is_preterminal else str(tree)
    if layout == "outer bracket":
        return f"( {tree} )"
    indent = "" if layout == "first column" else "  " * (level + 1)
    return f"({tree.label}" + "".join(f"\n{indent}{written(t, layout, level + 1)}" for t in tree.children) + ")"


def damaged(rng, trees, layout):
    """Bytes of a text with one to three damages, and the numbers of the trees that none of them touches.

    A damage between two trees touches neither.
    """
    texts = [written(tree, layout).encode() for tree in trees]
    gaps = [b" " if layout == "several a line" and rng.random() < 0.7 else b"\n" for _ in texts]
    untouched = set(range(len(trees)))
    for _ in range(rng.randint(1, 3) if layout in IS_CLEAR else 1):
        t, kind = rng.randrange(len(trees)), rng.randrange(5)
        data = texts[t]
        at = rng.randrange(1, max(2, len(data) - 1))
        if kind == 0:
            texts[t] = data[:at] + data[at + 1:]
        elif kind == 1:
            texts[t] = data[:at] + rng.choice(INSERTED) + data[at:]
        elif kind == 2:
            texts[t] = data[:at]
        elif kind == 3:
            texts[t] = data[:at] + data[at // 2:]
        if kind == 4:
            gaps[t] += rng.choice(STRAY)
        else:
            untouched.discard(t)
    return texts, gaps, untouched


def lines_of(texts, gaps):
    """First and last line of every tree, counted as readers count them."""
    line, found = 1, []
    for text, gap in zip(texts, gaps, strict=True):
        last = line + line_ends(text)
        found.append((line, last))
        line = last + line_ends(gap)
    return found


def line_ends(data):
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")


def check_nothing_is_lost_silently(rng, counts):
    layout = rng.choice(LAYOUTS)
    labels = LABELS if rng.random() < 0.7 else LABELS + NOT_WORDS
    trees = [random_tree(rng, name_of(number), labels) for number in range(rng.randint(5, 14))]
    texts, gaps, untouched = damaged(rng, trees, layout)
    data = b"".join(part for pair in zip(texts, gaps, strict=True) for part in pair)
    context = f"\nlayout {layout}\n{data.decode(errors='backslashreplace')}"
    kept, bad = parse_trees(_decode(data, "f", True), "f", skip_bad_trees=True)
    expected = {number: trees[number] if layout != "outer bracket" else Tree("", (trees[number],))
                for number in untouched}
    kept_set = set(kept)
    listed = {line for b in bad for line in range(b.first_line, b.last_line + 1)}
    for number, (first, last) in enumerate(lines_of(texts, gaps)):
        if number in untouched and expected[number] not in kept_set:
            counts["untouched trees left out and listed"] += 1
            assert listed.issuperset(range(first, last + 1)), \
                f"tree {number} is lost and not listed: {[str(b) for b in bad]}{context}"
    for tree in kept_set - set(expected.values()):
        owners = {word.split(".")[0] for word in tree.words()} & {name_of(number) for number in untouched}
        assert not owners, f"{tree} is made of parts of {owners}{context}"
    counts["trees"] += len(trees)
    counts["untouched trees"] += len(untouched)
    strict = without_skipping(data)
    if isinstance(strict, str):
        assert strict.startswith("f, line ")
        assert bad, f"refused ({strict}), but nothing is listed when bad trees are skipped{context}"
    else:
        assert strict == kept, f"read in two ways{context}"
        assert not bad, f"{bad[0]} is listed, but without skipping all is read{context}"
    if rng.random() < 0.25:  # it takes longer than all of the above
        check_cleaning(data, kept, bad, rng.choice(LEAF_FORMATS), context)


def check_cleaning(data, kept, bad, leaf_format, context):
    """From bytes to cleaned trees: no word of a tree that was read is lost, but for those that are none."""
    expected = [words for tree in kept if (words := words_of(tree, leaves_of(kept, leaf_format), leaf_format))]
    treebank = cleaned(data, leaf_format)
    if isinstance(treebank, str):
        assert treebank.startswith("f holds no usable tree"), f"{treebank}{context}"
        assert not expected, f"{treebank}{context}"
        return
    assert treebank.n_raw == len(kept) == treebank.n_trees + treebank.cleaning["empty_trees"], context
    assert list(treebank.bad_trees) == bad, context
    assert [tree.words() for tree in treebank.trees] == expected, f"{leaf_format}{context}"


def cleaned(data, leaf_format):
    try:
        return _read("f", ["f"], [data], True, leaf_format)
    except TreebankError as error:
        return str(error)


def words_of(tree, leaves, leaf_format):
    """The slow twin of cleaning, for words alone."""
    if tree.label in NON_WORDS or (tree.is_preterminal and tree.label == TRACE):
        return []
    if not tree.is_preterminal:
        return [word for child in tree.children for word in words_of(child, leaves, leaf_format)]
    if leaves.has_empty_words and tree.word in ("0", "*"):
        return []
    assert leaf_format != WORD_LEMMA or leaves.has_lemmas
    return ["_".join(without_lemma(token) if leaves.has_lemmas else token for token in tree.word.split(" "))]


def without_lemma(token):
    """What stands before the last hyphen that has something on both sides."""
    return next((token[:i] for i in range(len(token) - 2, 0, -1) if token[i] == "-"), token)


def without_skipping(data):
    try:
        return parse_trees(_decode(data, "f", False), "f")[0]
    except TreebankError as error:
        return str(error)


def test_damaged_texts_lose_only_what_is_listed(campaign):
    campaign.run(check_nothing_is_lost_silently)
