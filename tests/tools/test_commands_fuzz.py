"""Hostile command lines: exit code 0, or one clear message and exit code 2 (1 for a damaged artifact), no traceback."""

import io

import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.grammar.rulefile import from_text

RULES = "ROOT -> S 1\nS -> A B 0.7\nS -> A S 0.3\nA -> 'hello' 0.5\nA -> 'UNK' 0.5\nB -> 'world' 1\n"
TREE = "(S (NP-SBJ (DT the) (NN cat)) (VP (VBZ sees) (NP (DT the) (NN {}))) (. .))\n"
NUMBERS = ["-1", "0", "1", "2", "7", "-0", "nan", "1e3", "", "x", "0x10", "１", "9" * 30, "-" + "9" * 30, "1.5", "--"]
# Work that is asked for is done: counts of sentences stay small.
SMALL = [number for number in NUMBERS if not number.startswith("99")]
PREFIXES = ["", "hello", "hello world", "world", "é", "hello [END]", "hello " * 60, "\t", "-n", "\udcff", "\0"]
SETTINGS = ["seed", "grammar.cutoff", "grammar.variant", "sample.max_length", "sample.n_validation", "pretrain.models",
            "construct.lengths", "machine.device", "cost", "cost.grammar", "grammar", "a.b.c.d", "", ".", "verify.seed"]
VALUES = [*NUMBERS, "2026-13-45", "[" * 2000, "{a: 1}", "[1, 2]", "null", "~", "!!int x", "*a", "&a [*a]", "vm", "cpu",
          "true", "- 1", "'", '"', "a: b: c", "\t", "!!python/object:os.system x", "1:30", "0o17", ".inf"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Files, folders and devices, by what they are offered as."""
    root = tmp_path_factory.mktemp("world")
    from_text(RULES).save(root / "grammar")
    from_text(RULES).save(root / "cut")
    (root / "cut" / "grammar.npz").write_bytes(b"PK")
    (root / "rules.txt").write_text(RULES)
    (root / "odd.txt").write_text("ROOT -> \"A B\" 1\n\"A B\" -> 'New York' 1\n")
    (root / "endless.txt").write_text("ROOT -> S 1\nS -> S S 1\nA -> 'x' 1\n")
    (root / "binary").write_bytes(bytes(range(256)) * 8)
    (root / "empty").touch()
    (root / "trees.mrg").write_text("".join(TREE.format(word) for word in ("dog", "cat") * 20))
    (root / "bad.mrg").write_text("".join(TREE.format(word) for word in ("dog)", "cat(", "x", "\0") * 10))
    (root / "bank").mkdir()
    (root / "bank" / "a.mrg").write_text(TREE.format("dog") * 30)
    (root / "bank" / "loop").symlink_to(root / "bank")
    (root / "model").mkdir()
    (root / "model" / "config.json").write_text("[]")
    (root / "run" / "grammar").mkdir(parents=True)
    (root / "run" / "grammar" / "manifest.json").write_text('{"stage": "grammar"}')
    (root / "sentences").write_text("the cat sees the dog .\n\nhello ( world )\n" + "x " * 90 + "\n")
    others = ["", ".", "/dev/null", "/dev/null/x", "x" * 300, "-", "~", root / "nowhere", root / "é\udcff"]
    return root, [str(path) for path in (*root.iterdir(), *others)]


def options_of(rng, tool, root, paths):
    """Every option of a tool, with a value to offer."""
    # Half of the values make sense, so that not every command ends at its first argument.
    grammar = rng.choice([str(root / "grammar"), str(root / "rules.txt"), str(root / "odd.txt"), rng.choice(paths)])
    treebank = rng.choice([str(root / "trees.mrg"), str(root / "bank"), str(root / "bad.mrg"), rng.choice(paths)])
    number, small = (rng.choice([rng.choice(numbers), str(rng.randint(1, 20))]) for numbers in (NUMBERS, SMALL))
    out = rng.choice([str(root / "out" / str(rng.randrange(5))), rng.choice(paths)])
    table = {
        "learn": [["--treebank", treebank], ["--out", out], ["--split", rng.choice(["all", "train", "x"])],
                  ["--variant", rng.choice(["vm", "novm", ""])], ["--cutoff", number], ["--skip-bad-trees"],
                  ["--leaf-format", rng.choice(["plain", "word-lemma", ""])]],
        "sample": [["--grammar", grammar], ["-n", small], ["--seed", number], ["--trees"], ["--max-length", number],
                   ["--out", out], ["--shard-size", number], ["--workers", rng.choice(["1", "2", "0", "-1", "x"])]],
        "parse": [["--grammar", grammar], [rng.choice(paths)], ["--unbinarise"],
                  ["--decode", rng.choice(["recall", "viterbi", "latent"])], ["--treebank", treebank],
                  ["--split", rng.choice(["all", "train", "test"])],
                  ["--max-length", number], ["--limit", number], ["--conventions", rng.choice(["PB", "KIM", "x"])],
                  ["--skip-bad-trees"], ["--seed", number], ["--backend", rng.choice(["cpu", "reference", "x"])],
                  ["--json"], ["--labelled"], ["--evalb", out], ["--leaf-format", rng.choice(["auto", "word-lemma"])],
                  ["--punctuation", rng.choice(["auto", "penn", "form", "x"])]],
        "mask": [["--grammar", grammar], ["-n", number], ["--json"],
                 [rng.choice(["hello [MASK]", "[MASK]", "", "[MASK] " * 3, "é [MASK]", "hello " * 60 + "[MASK]"])]],
        "next": [["--grammar", grammar], [rng.choice(PREFIXES)], ["-n", number], ["--json"]],
        "surprisal": [["--grammar", grammar], [rng.choice([*paths, *PREFIXES])], ["--model", rng.choice(paths)],
                      ["--json"]],
        "compare": [[rng.choice(paths)], [rng.choice(paths)], ["--out", out], ["-n", number], ["--all"],
                    ["--least", number]],
        "export": [["--run", rng.choice(paths)], ["--out", out], ["--licence", rng.choice(["cc0", "", "\n- x: y"])],
                   ["--splits", rng.choice(["validation", "probe_test", "x", ""])]],
        "": [["--treebank", treebank], ["--set", f"{rng.choice(SETTINGS)}={rng.choice(VALUES)}"], ["--out", out],
             ["--profile", rng.choice(["smoke", "paper", "x"])], ["--only", rng.choice(["grammar", "sample", ""])],
             ["--to", rng.choice(["grammar", "verify", "x"])], ["--force"], ["--skip-bad-trees"]],
    }
    return table[tool]


def test_hostile_commands_end_with_an_answer_or_one_clear_message(campaign, world, capsys, monkeypatch, tmp_path):
    root, paths = world
    monkeypatch.chdir(tmp_path)

    def check(rng, counts):
        tool = rng.choice(["learn", "sample", "parse", "mask", "next", "surprisal", "compare", "export", ""])
        options = options_of(rng, tool, root, paths)
        # The first two are what the tool needs, and mostly given; without --dry-run the pipeline would run.
        chosen = [option for i, option in enumerate(options) if rng.random() < (0.95 if i < 2 else 0.3)]
        if not tool:
            chosen.append(["--dry-run"])
        rng.shuffle(chosen)
        arguments = [part for option in ([[tool]] if tool else []) + chosen for part in option]
        monkeypatch.setattr("sys.stdin", io.StringIO("hello world\nx\n"))
        try:
            code = main(arguments)
        except BaseException as error:
            error.add_note(f"the command was {arguments!r}")
            raise
        said = capsys.readouterr().err
        counts[f"exit code {code}"] += 1
        assert code in (0, 1, 2), arguments
        assert "Traceback" not in said, arguments
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        assert len(errors) == (code != 0), (arguments, said)

    campaign.run(check)
