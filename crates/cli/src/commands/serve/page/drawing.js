// Drawings: tokens over time, and a graph of tasks in layers.
const Drawing = {
  /// Bars of tokens a turn, and a line of what it all cost so far.
  usage(turns) {
    const W = 640,
      H = 150,
      left = 46,
      right = 54,
      top = 10,
      bottom = 22,
      wide = W - left - right,
      high = H - top - bottom;
    const most = Math.max(1, ...turns.map(it => (it.input || 0) + (it.output || 0)));
    const step = wide / turns.length,
      thick = Math.max(2, Math.min(36, step * 0.7)),
      tall = count => (count / most) * high;
    let sum = 0;
    const sums = turns.map(it => {
      sum += it.cost || 0;
      return sum;
    });
    const bars = turns.map((it, index) => {
      const x = left + step * (index + 0.5) - thick / 2,
        up = tall(it.input || 0),
        more = tall(it.output || 0);
      return svg(
        'g',
        {},
        svg(
          'title',
          {},
          'Turn ' +
            (index + 1) +
            ': ' +
            number(it.input) +
            ' in, ' +
            number(it.output) +
            ' out' +
            (it.cost ? ', ' + money(it.cost) : ''),
        ),
        svg('rect', { class: 'bar-in', x, y: top + high - up, width: thick, height: Math.max(up, 0.5) }),
        svg('rect', { class: 'bar-out', x, y: top + high - up - more, width: thick, height: Math.max(more, 0.5) }),
      );
    });
    const points = sums
      .map(
        (it, index) =>
          (left + step * (index + 0.5)).toFixed(1) + ',' + (top + high - (it / (sum || 1)) * high).toFixed(1),
      )
      .join(' ');
    const label = (x, y, text, anchor) => svg('text', { x, y, 'text-anchor': anchor }, text);
    const total = turns.reduce((all, it) => [all[0] + (it.input || 0), all[1] + (it.output || 0)], [0, 0]);
    const words =
      some(turns.length, 'turn') +
      ': ' +
      number(total[0]) +
      ' tokens in, ' +
      number(total[1]) +
      ' out' +
      (sum ? ', ' + money(sum) : '');
    const sign = (name, shape) =>
      el('span', {}, svg('svg', { viewBox: '0 0 14 14', 'aria-hidden': 'true', class: 'chart' }, shape), name);
    return el(
      'figure',
      { class: 'tight' },
      svg(
        'svg',
        { class: 'chart', viewBox: '0 0 ' + W + ' ' + H, role: 'img', 'aria-label': words },
        [0, 0.5, 1].map(it =>
          svg('line', { class: 'rule', x1: left, x2: W - right, y1: top + high * it, y2: top + high * it }),
        ),
        label(left - 6, top + 8, number(most), 'end'),
        label(left - 6, top + high, '0', 'end'),
        bars,
        sum ? svg('polyline', { class: 'cost', points }) : null,
        sum ? label(W - right + 6, top + 8, money(sum), 'start') : null,
        label(left, H - 6, 'turn 1', 'start'),
        turns.length > 1 ? label(W - right, H - 6, 'turn ' + turns.length, 'end') : null,
      ),
      el(
        'figcaption',
        { class: 'legend' },
        sign('tokens in', svg('rect', { class: 'bar-in', x: 1, y: 1, width: 12, height: 12 })),
        sign('tokens out', svg('rect', { class: 'bar-out', x: 1, y: 4, width: 12, height: 6 })),
        sum ? sign('cost so far', svg('path', { class: 'cost', d: 'M1 12 13 2' })) : null,
        el('span', { class: 'push num' }, words),
      ),
    );
  },

  signs: { pending: '○', running: '▶', done: '✓', merge_ready: '⇥', merged: '✔', failed: '✕', stale: '?' },
  state: task => String(task.state || 'pending').toLowerCase(),
  words: state => state.replace(/_/g, ' '),

  /// How far a task is from the beginning: one more than the farthest that it waits for.
  layers(tasks) {
    const byId = new Map(tasks.map(it => [it.id, it])),
      depth = new Map(),
      open = new Set();
    const of = id => {
      if (depth.has(id)) return depth.get(id);
      // A circle is no plan, but no reason to hang either.
      if (open.has(id)) return 0;
      open.add(id);
      const before = (byId.get(id).deps || []).filter(it => byId.has(it)).map(of);
      depth.set(id, before.length ? Math.max(...before) + 1 : 0);
      return depth.get(id);
    };
    const layers = [];
    for (const it of tasks) (layers[of(it.id)] = layers[of(it.id)] || []).push(it);
    return Array.from(layers, it => it || []);
  },
  graph(tasks, choose) {
    const W = 148,
      H = 52,
      across = 56,
      down = 16,
      pad = 12;
    const layers = Drawing.layers(tasks),
      column = new Map(layers.flatMap((layer, at) => layer.map(it => [it.id, at]))),
      spot = new Map();
    // An edge over several layers gets a place of its own in each, so that it passes beside the tasks there.
    const edges = tasks.flatMap(it => (it.deps || []).filter(from => column.has(from)).map(from => [from, it.id, []]));
    for (const edge of edges) {
      for (let at = column.get(edge[0]) + 1; at < column.get(edge[1]); at++) {
        edge[2].push(edge.slice(0, 2).join(' ') + ' ' + at);
        layers[at].push({ id: edge[2].at(-1) });
      }
    }
    const rows = Math.max(1, ...layers.map(it => it.length)),
      height = rows * (H + down) - down + 2 * pad,
      width = layers.length * (W + across) - across + 2 * pad;
    layers.forEach((layer, at) => {
      const taken = layer.length * (H + down) - down;
      layer.forEach((it, row) =>
        spot.set(it.id, [pad + at * (W + across), (height - taken) / 2 + row * (H + down) + H / 2]),
      );
    });
    const paths = edges.map(([from, to, over]) => {
      let [x, y] = spot.get(from),
        d = 'M' + [(x += W), y];
      for (const next of [...over, to]) {
        const [right, middle] = spot.get(next),
          half = (x + right) / 2;
        d += 'C' + [half, y] + ' ' + [half, middle] + ' ' + [right, middle];
        [x, y] = [right, middle];
        if (next !== to) d += 'H' + (x += W);
      }
      return svg('path', { class: 'edge', d });
    });
    const nodes = tasks.map(it => {
      const [x, middle] = spot.get(it.id),
        y = middle - H / 2,
        state = Drawing.state(it),
        title = it.title || it.id;
      const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + '…' : text);
      const press = event => {
        if (event.type === 'click' || event.key === 'Enter' || event.key === ' ') {
          event.preventDefault();
          choose(it.id);
        }
      };
      return svg(
        'g',
        {
          class: 'node is-' + state,
          tabindex: 0,
          role: 'button',
          'data-task': it.id,
          onclick: press,
          onkeydown: press,
          'aria-label': it.id + ', ' + title + ': ' + Drawing.words(state),
        },
        svg('title', {}, title + ' (' + Drawing.words(state) + ')'),
        svg('rect', { x, y, width: W, height: H, rx: it.kind === 'refinery' ? 26 : 6 }),
        svg('text', { class: 'sign', x: x + 16, y: y + 22 }, Drawing.signs[state] || '•'),
        svg(
          'text',
          { x: x + 34, y: y + 22 },
          cut(it.title && it.title !== it.id ? it.id + '  ' + it.title : it.id, 14),
        ),
        svg(
          'text',
          { class: 'sub', x: x + 34, y: y + 39 },
          cut(Drawing.words(state) + (it.attempt > 1 ? ', try ' + it.attempt : ''), 20),
        ),
      );
    });
    return el(
      'div',
      { class: 'graph', tabindex: 0, role: 'group', 'aria-label': 'Graph of ' + some(tasks.length, 'task') },
      svg('svg', { width, height, viewBox: '0 0 ' + width + ' ' + height }, paths, nodes),
    );
  },
  legend(tasks) {
    const there = [...new Set(tasks.map(Drawing.state))];
    const shape = round =>
      svg(
        'svg',
        { viewBox: '0 0 14 14', 'aria-hidden': 'true' },
        svg('rect', { x: 1, y: 3, width: 12, height: 8, rx: round ? 4 : 1, fill: 'none', stroke: 'currentColor' }),
      );
    return el(
      'p',
      { class: 'legend' },
      there.map(it => el('span', {}, (Drawing.signs[it] || '•') + ' ' + Drawing.words(it))),
      el('span', {}, shape(false), 'task'),
      tasks.some(it => it.kind === 'refinery') ? el('span', {}, shape(true), 'refinery: merges') : null,
    );
  },
};
