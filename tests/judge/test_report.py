"""The report: two verdicts, claims with their values and links, and in a real browser nothing wider than a phone."""

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from pcfg_artifact.judge import summary
from pcfg_artifact.judge.judge import Judgement, Run, Verdict, judge
from pcfg_artifact.judge.report import Page, explored_sentences, render, shown_claims, subtitle, trees_of
from pcfg_artifact.judge.tables import lay_out
from pcfg_artifact.run.expected import load_claims, load_paper

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PHONE, DESK = 390, 1200
FACTS = {"kind": "treebank", "source": "embedded", "subtitle": "A run.", "left_out": [], "seed": 0, "stages": [],
         "time": "1 s", "memory": "1 MB", "versions": {}, "record": ""}
COMPLAINT = re.compile(r".*(?:CONSOLE|ERR_|Failed to load).*")

# Appended to the page for the test alone: what the browser itself says of the layout, as text in the document.
PROBE = """
<pre id="measured"></pre>
<script>
const box = element => element.getBoundingClientRect();
const rows = [...document.querySelectorAll('figure')].map(figure => {
  const picture = box(figure.querySelector('svg'));
  const shapes = figure.querySelectorAll('svg path, svg use').length;
  return {name: figure.id, width: picture.width, height: picture.height, shapes: shapes,
          caption: figure.querySelector('figcaption').innerText.length};
});
const outside = [...document.querySelectorAll('body *')].filter(element => !element.closest('.scroll')
  && !element.closest('svg') && box(element).right > window.innerWidth + 1).map(element => element.tagName);
const narrowest = Math.min(...[...document.querySelectorAll('.claims td:first-child')].map(cell => box(cell).width));
document.getElementById('measured').textContent = JSON.stringify({
  figures: rows, claim: narrowest, outside: outside, planted: window.planted ?? null,
  scroll: document.documentElement.scrollWidth, window: window.innerWidth,
  ink: getComputedStyle(document.body).color, paper: getComputedStyle(document.body).backgroundColor,
  line: getComputedStyle(document.querySelector('figure svg path[style*="--c1"]') || document.body).stroke});
</script>
"""


# Headless windows have a least width; a frame of the phone's width is laid out as a phone would lay it out.
FRAME = """<!doctype html><body style="margin:0">
<iframe src="{page}" width="{width}" height="900" style="border:0"></iframe>
<pre id="copy"></pre><script>
onload = () => document.getElementById("copy").textContent = frames[0].document.getElementById("measured").textContent;
</script>"""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--allow-file-access-from-files",
         "--enable-logging=stderr", "--virtual-time-budget=3000"]


@pytest.fixture(scope="module")
def browse(finished, tmp_path_factory):
    """(width, *flags) -> (what the page measured of itself in a frame of that width, the browser's complaints)."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    root = tmp_path_factory.mktemp("browser")

    def function(width, *flags, planted=""):
        page, frame = root / "report.html", root / "frame.html"
        page.write_text(finished.text("report.html").replace("</body>", planted + PROBE + "</body>"), encoding="utf-8")
        frame.write_text(FRAME.format(page=page.name, width=width))
        done = subprocess.run([CHROMIUM, *FLAGS, f"--user-data-dir={root / 'profile'}",
                               f"--window-size={max(width, 800)},900", *flags, "--dump-dom", frame.as_uri()],
                              capture_output=True, text=True, timeout=120, check=True,
                              env={**os.environ, "HOME": str(root)})
        copied = re.search(r'<pre id="copy">(.+?)</pre>', done.stdout, re.DOTALL)
        assert copied is not None, done.stdout[-500:] + done.stderr[-500:]
        return json.loads(html.unescape(copied.group(1))), COMPLAINT.findall(done.stderr)
    return function


@pytest.mark.browser
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_every_figure_is_visible_and_nothing_overflows(browse, finished, width):
    seen, complaints = browse(width)
    assert seen["window"] == width
    drawn = {name.split("/")[1].removesuffix(".png") for name in finished.files() if name.startswith("figures/")}
    assert {figure["name"].removeprefix("figure-") for figure in seen["figures"]} == drawn
    for figure in seen["figures"]:
        assert figure["width"] > 0.6 * min(width, 700), figure
        assert figure["height"] > 100, figure
        assert figure["shapes"] > 5, figure
        assert figure["caption"] > 40, figure
    assert seen["claim"] > (0.8 if width == PHONE else 0.2) * width  # a phone gives a claim its whole line
    assert seen["scroll"] <= width
    assert seen["outside"] == []
    assert complaints == []


@pytest.mark.browser
def test_the_browser_would_see_an_error_and_an_overflow(browse):
    planted = '<p style="width: 2000px; max-width: none">wide</p><script>console.error("planted")</script>'
    seen, complaints = browse(PHONE, planted=planted)
    assert seen["outside"] == ["P"]
    assert any("planted" in complaint for complaint in complaints)


# What a reader does with the keyboard alone: down the chart to shorter spans, through the layers of the transformer.
KEYS = """<script>
const about = () => document.querySelector('#look .about h3').innerText;
const press = key => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: key, bubbles: true}));
const states = () => [...document.querySelectorAll('#look .triangle button')].map(cell => cell.dataset.state);
document.querySelector('#look .triangle .chosen').focus();
window.planted = {whole: about()};
press('ArrowDown');
window.planted.shorter = about();
press('ArrowRight');
window.planted.right = about();
press('ArrowRight');
window.planted.beyond = about();
const layer = document.getElementById('look-layer');
layer.value = 1;
layer.dispatchEvent(new Event('input'));
Object.assign(window.planted, {facts: document.querySelector('#look .about').innerText, states: states(),
  said: document.querySelector('#look output').innerText, trees: document.querySelectorAll('#look .tree svg').length,
  hidden: document.getElementById('plain').hidden});
</script>"""


@pytest.mark.browser
def test_the_explorer_is_used_by_keyboard(browse, finished):
    seen, complaints = browse(DESK, planted=KEYS)
    found, words = seen["planted"], json.loads(re.search(r'id="explored">(.+?)</script>', finished.text("report.html"),
                                                         re.DOTALL).group(1))[0]["words"]
    assert found["whole"] == " ".join(words)
    assert found["shorter"] == " ".join(words[:-1])
    assert found["right"] == found["beyond"] == " ".join(words[1:])  # nothing lies beyond the edge
    assert "marginal" in found["facts"]
    assert {"held", "inside", "empty"} >= set(found["states"]) > {"held"}
    assert found["said"].startswith("1 of ")
    assert found["trees"] == 3
    assert found["hidden"]
    assert complaints == []
    assert len(finished.text("report.html")) < 3_000_000


@pytest.mark.browser
def test_dark_and_light_both_have_contrast_and_figures_follow(browse):
    light, _ = browse(DESK, "--blink-settings=preferredColorScheme=1")
    dark, _ = browse(DESK, "--blink-settings=preferredColorScheme=0")

    def brightness(rgb):
        return sum(int(part) for part in re.findall(r"\d+", rgb)[:3]) / 3

    assert brightness(light["paper"]) - brightness(light["ink"]) > 150
    assert brightness(dark["ink"]) - brightness(dark["paper"]) > 150
    assert light["line"] != dark["line"]


# ---- what the page says ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(smoke_numbers) -> Page:
    """A smoke run that nothing was recorded for."""
    paper = load_paper()
    verdicts = judge(Run("smoke", "t" * 64, "c" * 64, 0), smoke_numbers, paper, None, load_claims())
    return Page(FACTS, verdicts, lay_out(smoke_numbers, paper, verdicts.of_numbers), [])


def read(page: Page) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", render(page)))


def test_every_link_leads_to_a_place_of_the_page(finished):
    text = finished.text("report.html")
    links = set(re.findall(r'href="#([^"]+)"', text))
    assert links <= set(re.findall(r'id="([^"]+)"', text))
    assert len([link for link in links if link.startswith("table-")]) > 10


def test_a_claim_links_to_the_first_place_that_shows_its_numbers(page):
    places = {claim.found.claim.id: claim.place for claim in shown_claims(page)}
    assert places["constructions-exact"] == "table-agreement"
    assert places["selectivity-marginals"] in ("table-table6", "table-table8")
    assert places["causal-closes-half"] == "table-next_words"
    assert places["attention-alike"] == ""  # its figure is not drawn here


def test_the_two_verdicts_stand_apart(page):
    text = read(page)
    first, second = text.index("Does this run agree with the recorded runs?"), text.index("What does this run show")
    assert first < text.index(summary.agreement(page.verdicts)) < second < text.index(summary.findings(page.verdicts))
    assert 'class="result none"' in render(page)


def test_the_first_screen_has_five_findings_and_a_bar_of_all_findings_of_the_paper(page):
    text = render(page)
    start, end = text.index('<section id="findings">'), text.index('<section id="tables">')
    findings = text[start:end]
    assert all(claim.headline in findings for claim in load_claims())
    assert findings.count('<td class="mark ') == 5
    parts = re.findall(r'style="flex-grow: (\d+)"', findings)
    assert sum(map(int, parts)) == sum(claim.group == "findings of the paper" for claim in load_claims())
    assert "<details open><summary>What failed" in findings


def test_the_subtitle_says_what_was_run_and_what_it_can_say(smoke_numbers):
    assert subtitle("smoke", "embedded", smoke_numbers.roles, 0, is_given=False) == (
        "Smoke run: generated treebank, models of up to 3 layers, seed 0. It tests the software; it is no evidence "
        "about the paper.")
    assert subtitle("smoke", "zoo:anbn", smoke_numbers.roles, 1, is_given=True) == (
        "Smoke run: grammar zoo:anbn, models of up to 3 layers, seed 1.")


def test_claims_of_another_scale_are_shown_with_what_was_measured(page):
    claims = [claim for claim in shown_claims(page) if claim.is_untestable]
    assert {claim.found.claim.scale for claim in claims} == {"paper"}
    text = read(page)
    for claim in claims:
        worst = claim.found.evaluation.worst
        assert f"{worst.measured} ({worst.expected})" in text, claim.name
        assert claim.found.claim.reason in text, claim.name
    assert any(claim.name.startswith("all other models exceed 70 F1") for claim in claims)


def test_what_is_not_as_recorded_comes_first_and_is_said_in_red(page):
    *claims, last = page.verdicts.claims
    differing = Judgement("mean", "parsing, A4L3", Verdict.DIFFERS, "the same training",
                          page.verdicts.judgements[0].keys, "50.00", "60.00", "± 1.5")
    changed = replace(page, verdicts=replace(page.verdicts, claims=[*claims, replace(last, agrees=False)],
                                             judgements=[differing]))
    assert shown_claims(changed)[0].found.claim.id == last.claim.id
    text = render(changed)
    assert text.count('<span class="verdict bad">not as recorded') == 1
    assert "not as recorded" not in render(page)
    assert 'class="result bad"' in text
    assert "60.00 ± 1.5" in read(changed)


def test_numbers_that_nothing_was_recorded_for_are_counted_and_not_passed(page):
    text = read(page)
    n = len(page.verdicts.judgements)
    assert f"{n:,} numbers are not judged: no runs of the profile smoke are recorded" in text
    assert "No number was judged" in text


def test_pointing_at_a_number_says_all_that_it_is(page):
    assert re.search('title="parsing, A4L3, layer [123], linear, treebank, EOS, PB, sentence_f1"', render(page))


# ---- sentences to look into ------------------------------------------------------------------------------------------


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
