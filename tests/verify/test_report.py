"""The report in a real browser: no error, every figure visible, nothing wider than a phone."""

import html
import json
import os
import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PHONE, DESK = 390, 1200
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
  figures: rows, claim: narrowest, outside: outside, scroll: document.documentElement.scrollWidth,
  window: window.innerWidth,
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


@pytest.mark.browser
def test_dark_and_light_both_have_contrast_and_figures_follow(browse):
    light, _ = browse(DESK, "--blink-settings=preferredColorScheme=1")
    dark, _ = browse(DESK, "--blink-settings=preferredColorScheme=0")

    def brightness(rgb):
        return sum(int(part) for part in re.findall(r"\d+", rgb)[:3]) / 3

    assert brightness(light["paper"]) - brightness(light["ink"]) > 150
    assert brightness(dark["ink"]) - brightness(dark["paper"]) > 150
    assert light["line"] != dark["line"]


# Appended to the page for the test alone: what a reader does with keys, and what the page then shows.
ACTS = """
<pre id="acted"></pre>
<script>
const look = document.getElementById('look'), seen = {};
const shown = () => look.querySelector('.about').innerText.replace(/\\s+/g, ' ').trim();
const press = key => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: key, bubbles: true}));
const states = () => [...look.querySelectorAll('.cell')].map(cell => cell.dataset.state);
seen.hidden = [look.hidden, document.getElementById('plain').hidden];
seen.cells = look.querySelectorAll('.cell').length;
seen.tabbable = look.querySelectorAll('.cell[tabindex="0"]').length;
seen.whole = shown();
look.querySelector('.cell[tabindex="0"]').focus();
press('ArrowDown'); press('ArrowDown'); press('ArrowRight');
seen.moved = [document.activeElement.dataset.i, document.activeElement.dataset.j, shown()];
press('Home'); press('ArrowLeft');
seen.home = [document.activeElement.dataset.i, document.activeElement.dataset.j];
look.querySelector('.cell[data-i="0"][data-j="2"]').dispatchEvent(new MouseEvent('mouseenter'));
seen.pointed = shown();
seen.trees = [...look.querySelectorAll('.tree')].map(tree => tree.innerText.split('\\n')[0]);
const layer = document.getElementById('look-layer');
const step = value => { layer.value = value; layer.dispatchEvent(new Event('input')); };
const count = wanted => states().filter(state => state === wanted).length;
step(2); seen.second = [count('inside'), count('held'), look.querySelector('output').textContent];
step(15); seen.last = new Set(states()).size;
const choose = document.getElementById('look-sentence');
choose.value = 1; choose.dispatchEvent(new Event('change'));
seen.other = [look.querySelectorAll('.cell').length, shown()];
document.getElementById('acted').textContent = JSON.stringify(seen);
</script>
"""


@pytest.mark.browser
def test_a_reader_with_a_keyboard_can_look_into_every_span(finished, tmp_path):
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    page = tmp_path / "report.html"
    page.write_text(finished.text("report.html").replace("</body>", ACTS + "</body>"), encoding="utf-8")
    done = subprocess.run([CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()],
                          capture_output=True, text=True, timeout=120, check=True,
                          env={**os.environ, "HOME": str(tmp_path)})
    copied = re.search(r'<pre id="acted">(.+?)</pre>', done.stdout, re.DOTALL)
    assert copied is not None, done.stdout[-500:] + done.stderr[-800:]
    seen = json.loads(html.unescape(copied.group(1)))
    assert seen["hidden"] == [False, True]
    assert (seen["cells"], seen["tabbable"]) == (8 * 9 // 2, 1)
    assert "the old bank approved the new plan ." in seen["whole"]
    assert "marginal 12.5%" in seen["whole"]
    # From the whole sentence down two widths and one to the right: words 1 to 6
    assert seen["moved"][:2] == ["1", "7"]
    assert "log inside -9.000" in seen["moved"][2]
    assert "log outside -2.250" in seen["moved"][2]
    assert seen["home"] == ["0", "6"]  # and no step to the left of it
    assert "a constituent in layer 0 (layers 0 to 1)" in seen["pointed"]
    assert "neither Inside-Outside nor the treebank" in seen["pointed"]
    assert "old 50.0%, bank 50.0%" in seen["pointed"]  # the mean of two words that look at their right neighbours
    assert "the 75.0%" in seen["pointed"]
    assert seen["trees"] == ["Inside-Outside", "probe of A12L12, layer 1", "treebank"]
    assert seen["second"] == [6, 8 + 7, "2 of 15: inside, spans of 3 words"]
    assert seen["last"] >= 2
    assert seen["other"][0] == 6
    assert "</script> & <b>" in seen["other"][1]
    assert COMPLAINT.findall(done.stderr) == []
