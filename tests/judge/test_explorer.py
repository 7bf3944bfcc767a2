"""The section to look into: put together from what stages kept, readable without script; test_report.py uses it."""

import json

from pcfg_artifact.judge.explorer import explored_sentences, trees_of


def test_the_section_can_be_read_without_script(finished):
    page = finished.text("report.html")
    plain = page[page.index('<div id="plain">'):page.index('<script type="application/json"')]
    assert "((the (old bank)) ((approved (the (new plan))) .))" in plain
    assert "probe of A12L12, layer 1" in plain
    assert "&lt;/script&gt; &amp; &lt;b&gt;" in plain
    assert '<div id="look" hidden>' in page


def test_stages_that_show_other_sentences_are_left_out():
    constructed = [{"words": ["a", "b"], "gold": [[0, 2]], "parse": [[0, 2]], "cells": [], "layers": []}]
    probed = {"model": "A1L1", "best": 0, "words": [["a", "c"]], "layers": [[[[0, 2]]]]}
    (sentence,) = explored_sentences(constructed, probed, None)
    assert sentence["probe"] is None
    assert trees_of(sentence) == {"Inside-Outside": "(a b)", "treebank": "(a b)"}
    (sentence,) = explored_sentences(constructed, probed | {"words": [["a", "b"]]}, None)
    assert sentence["probe"]["layers"] == [[[0, 2]]]


def test_json_in_the_page_cannot_end_its_script(finished):
    page = finished.text("report.html")
    data = page[page.index('<script type="application/json"'):]
    data = data[data.index(">") + 1:data.index("</script>")]
    assert json.loads(data)[1]["words"] == ["</script>", "&", "<b>"]
