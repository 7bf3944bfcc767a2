// The section "Look into a sentence": a chart to point at, trees side by side, and the layers of the constructed
// transformer one by one.  Everything it shows is in the JSON beside it; nothing is fetched.
(() => {
  'use strict';
  const sentences = JSON.parse(document.getElementById('explored').textContent);
  const root = document.getElementById('look');
  const make = (tag, attributes = {}, ...children) => {
    const svg = ['svg', 'path', 'text'].includes(tag);
    const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const key = (i, j) => `${i}:${j}`;
  const percent = value => `${(100 * value).toFixed(1)}%`;
  const log = value => value === null ? 'impossible' : value.toFixed(3);

  // What is shown: a sentence, a span of it, a layer of the probe and of the constructed transformer.
  let sentence, cells, buttons, span, step;

  const choose = make('select', {id: 'look-sentence'});
  sentences.forEach((one, s) => choose.append(make('option', {value: s}, one.words.join(' '))));
  const triangle = make('div', {class: 'triangle', role: 'grid', 'aria-label': 'chart: spans by their width'});
  const about = make('div', {class: 'about', 'aria-live': 'polite'});
  const trees = make('div', {class: 'trees'});
  const layer = make('input', {type: 'range', id: 'look-layer', min: 0, value: 0});
  const said = make('output', {for: 'look-layer'});
  const legend = make('p', {class: 'legend', hidden: ''}, ...Object.entries({
    inside: 'inside, by this layer', outside: 'outside, by this layer', held: 'inside, before', both: 'both, before',
    empty: 'not yet'}).map(([state, what]) => make('span', {}, make('i', {class: 'cell', 'data-state': state}), what)));
  root.append(
    make('p', {}, make('label', {for: 'look-sentence'}, 'Sentence '), choose),
    make('p', {class: 'lead'}, 'Point at a span, or go through the chart with the arrow keys. Darker is more likely.'),
    make('div', {class: 'sides'}, make('div', {class: 'chart'}, make('div', {class: 'scroll'}, triangle),
      make('p', {}, make('label', {for: 'look-layer'}, 'Layers of the constructed transformer '), layer, ' ', said), legend),
      about),
    make('h3', {}, 'Trees'), trees);

  function showSentence(s) {
    sentence = sentences[s];
    cells = new Map(sentence.cells.map(cell => [key(cell[0], cell[1]), cell]));
    const n = sentence.words.length;
    triangle.replaceChildren();
    triangle.style.setProperty('--words', n);
    buttons = new Map();
    for (let width = n; width >= 1; width--) {
      const row = make('div', {class: 'row', role: 'row'});
      for (let i = 0; i + width <= n; i++) {
        const [, , label, , , marginal] = cells.get(key(i, i + width));
        const words = sentence.words.slice(i, i + width).join(' ');
        const button = make('button', {
          type: 'button', class: 'cell', role: 'gridcell', tabindex: -1, 'data-i': i, 'data-j': i + width,
          'aria-label': `${words}: ${label === null ? 'impossible' : `${label}, ${percent(marginal)}`}`});
        button.style.setProperty('--likely', label === null ? 0 : (0.06 + 0.94 * marginal).toFixed(4));
        button.addEventListener('mouseenter', () => showSpan(i, i + width));
        button.addEventListener('focus', () => showSpan(i, i + width));
        buttons.set(key(i, i + width), button);
        row.append(button);
      }
      triangle.append(row);
    }
    triangle.append(make('div', {class: 'row words'}, ...sentence.words.map(word => make('span', {title: word}, word))));
    layer.max = sentence.layers.length;
    layer.value = 0;
    showStep();
    showTrees();
    showSpan(0, n);
  }

  function showSpan(i, j) {
    span = [i, j];
    for (const [name, button] of buttons) {
      button.tabIndex = name === key(i, j) ? 0 : -1;
      button.classList.toggle('chosen', name === key(i, j));
    }
    const [, , label, inside, outside, marginal] = cells.get(key(i, j));
    const facts = make('dl');
    const fact = (name, value) => facts.append(make('dt', {}, name), make('dd', {}, value));
    fact('best label', label === null ? 'none is possible' : label);
    if (label !== null) {
      fact('log inside', log(inside));
      fact('log outside', log(outside));
      fact('marginal', percent(marginal));
    }
    const has = spans => spans.some(([a, b]) => a === i && b === j);
    fact('in the tree of', [['Inside-Outside', sentence.parse], ['the treebank', sentence.gold]]
      .filter(([, spans]) => has(spans)).map(([name]) => name).join(' and ') || 'neither Inside-Outside nor the treebank');
    about.replaceChildren(make('h3', {}, sentence.words.slice(i, j).join(' ')), facts);
    if (sentence.probe) {
      const yes = sentence.probe.layers.map((spans, l) => has(spans) ? l : null).filter(l => l !== null);
      about.append(make('p', {}, make('b', {}, `Probe of ${sentence.probe.model}: `),
        yes.length ? `a constituent in layer ${yes.join(', ')}` : 'a constituent in no layer',
        ` (layers 0 to ${sentence.probe.layers.length - 1}).`));
    }
    if (sentence.attention) about.append(lookedAt(i, j));
  }

  function lookedAt(i, j) {
    // From the words of the span, the mean over them: where each layer looks, the three words it looks at most.
    const list = make('ol', {class: 'attention'});
    for (const rows of sentence.attention.layers) {
      const mean = sentence.words.map((_, to) => {
        let total = 0;
        for (let from = i; from < j; from++) total += rows[from][to];
        return total / (j - i);
      });
      const most = mean.map((share, to) => [share, to]).sort((a, b) => b[0] - a[0]).slice(0, 3);
      list.append(make('li', {}, most.map(([share, to]) => `${sentence.words[to]} ${percent(share)}`).join(', ')));
    }
    return make('div', {}, make('p', {}, make('b', {}, `Attention of ${sentence.attention.model}`),
      ', from these words, by layer:'), list);
  }

  function showStep() {
    // Cells that the layers up to this one have filled; before the first, all cells are as exact inference has them.
    step = Number(layer.value);
    legend.hidden = step === 0;
    const state = new Map();
    sentence.words.forEach((_, i) => state.set(key(i, i + 1), 'held'));
    for (const {layer: number, phase, cells: filled} of sentence.layers.slice(0, step)) {
      for (const [i, j] of filled) {
        const now = phase === 'inside' ? 'inside' : 'outside';
        state.set(key(i, j), number === step ? now : now === 'inside' ? 'held' : 'both');
      }
    }
    for (const [name, button] of buttons) button.dataset.state = step === 0 ? 'exact' : state.get(name) || 'empty';
    const current = sentence.layers[step - 1];
    said.textContent = step === 0 ? 'all: the exact chart' : `${step} of ${sentence.layers.length}: ${current.phase}, `
      + (current.cells.length ? `spans of ${current.width} word${current.width === 1 ? '' : 's'}` : 'the sentence is shorter');
  }

  function showTrees() {
    const shown = [['Inside-Outside', sentence.parse]];
    if (sentence.probe) {
      const best = sentence.probe.best;
      shown.push([`probe of ${sentence.probe.model}, layer ${best}`, sentence.probe.layers[best]]);
    }
    shown.push(['treebank', sentence.gold]);
    const gold = new Set(sentence.gold.map(([i, j]) => key(i, j)));
    trees.replaceChildren(...shown.map(([name, spans]) => make('div', {class: 'tree'},
      make('p', {class: 'lead'}, name), make('div', {class: 'scroll'}, drawing(spans, gold)))));
  }

  function drawing(spans, gold) {
    // Brackets over the words: a node over the middle of its span, as high as the tree below it.
    const n = sentence.words.length, wide = 58, high = 22;
    const nodes = new Map(spans.map(([i, j]) => [key(i, j), [i, j]]));
    for (let i = 0; i < n; i++) nodes.set(key(i, i + 1), [i, i + 1]);
    nodes.set(key(0, n), [0, n]);
    const order = [...nodes.values()].sort((a, b) => (a[1] - a[0]) - (b[1] - b[0]));
    const level = new Map();
    for (const [i, j] of order) {
      const below = order.filter(([a, b]) => i <= a && b <= j && level.has(key(a, b))).map(([a, b]) => level.get(key(a, b)));
      level.set(key(i, j), j - i === 1 ? 0 : 1 + Math.max(0, ...below));
    }
    const top = level.get(key(0, n)), x = ([i, j]) => (i + j) / 2 * wide, y = at => (top - at) * high + 8;
    const svg = make('svg', {viewBox: `0 0 ${n * wide} ${y(0) + 24}`, width: n * wide, height: y(0) + 24, role: 'img',
      'aria-label': order.filter(([i, j]) => j - i > 1).map(([i, j]) => sentence.words.slice(i, j).join(' ')).join('; ')});
    for (const node of order) {
      const parent = order.find(other => other !== node && other[0] <= node[0] && node[1] <= other[1]);
      if (!parent) continue;
      const own = y(level.get(key(...node))), above = y(level.get(key(...parent)));
      svg.append(make('path', {d: `M${x(node)} ${own}V${above}H${x(parent)}`,
        class: node[1] - node[0] === 1 || gold.has(key(...node)) ? 'known' : 'strange'}));
    }
    sentence.words.forEach((word, i) => svg.append(make('text', {x: (i + .5) * wide, y: y(0) + 18}, word)));
    return svg;
  }

  triangle.addEventListener('keydown', event => {
    const [i, j] = span, n = sentence.words.length;
    const target = {ArrowLeft: [i - 1, j - 1], ArrowRight: [i + 1, j + 1], ArrowUp: j < n ? [i, j + 1] : [i - 1, j],
      ArrowDown: [i, j - 1], Home: [0, j - i], End: [n - (j - i), n]}[event.key];
    if (!target || !buttons.has(key(...target))) return;
    event.preventDefault();
    buttons.get(key(...target)).focus();
  });
  choose.addEventListener('change', () => showSentence(Number(choose.value)));
  layer.addEventListener('input', showStep);
  showSentence(0);
  root.hidden = false;
  document.getElementById('plain').hidden = true;
})();
