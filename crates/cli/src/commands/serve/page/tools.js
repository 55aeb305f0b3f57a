// Tools: all dialects side by side, one definition, and a form to try it.
{
  let dialects = null,
    chosen = null;
  const KINDS = [
    [
      'Reads',
      it =>
        it.includes('reads') &&
        !it.some(one => ['writes', 'executes', 'network', 'spawns', 'destroys', 'blocks'].includes(one)),
    ],
    [
      'Changes',
      it => it.includes('writes') && !it.includes('executes') && !it.includes('spawns') && !it.includes('network'),
    ],
    ['Runs', it => it.includes('executes')],
    ['Network', it => it.includes('network') && !it.includes('executes') && !it.includes('spawns')],
    ['Agents', it => it.includes('spawns') && !it.includes('executes')],
    ['Other', () => true],
  ];
  const kind = tool => KINDS.find(([, fits]) => fits(list(tool.effects)))[0];
  const fits = tool =>
    $('tools-filter')
      .value.trim()
      .toLowerCase()
      .split(/\s+/)
      .every(it => (tool.name + ' ' + tool.description).toLowerCase().includes(it));
  const draw = () => {
    const one = $('tools-dialect').value,
      most = Math.max(...dialects.map(it => it.tokens));
    const matrix = el('div', { class: 'matrix' });
    matrix.style.setProperty('--columns', dialects.length);
    const meter = it =>
      svg(
        'svg',
        { class: 'meter', viewBox: '0 0 100 4', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
        svg('rect', { width: (it.tokens / most) * 100, height: 4 }),
      );
    matrix.append(
      el('div', { class: 'first head-cell' }),
      ...dialects.map(it =>
        el(
          'div',
          { class: 'of head-cell' },
          it.dialect,
          el('small', { class: 'num' }, number(it.tokens) + ' tokens'),
          meter(it),
          el('small', {}, some(it.tools.length, 'tool')),
        ),
      ),
    );
    const full = KINDS.map(([name]) => name).filter(name =>
      dialects.some(it => it.tools.some(tool => kind(tool) === name && fits(tool))),
    );
    full.forEach((name, row) => {
      const last = row === full.length - 1 ? ' last' : '',
        here = dialects.find(it => it.dialect === one);
      const bare = here && !here.tools.some(tool => kind(tool) === name && fits(tool));
      matrix.append(el('div', { class: 'first' + last + (bare ? ' away' : '') }, name));
      for (const it of dialects) {
        const tools = it.tools.filter(tool => kind(tool) === name && fits(tool));
        matrix.append(
          el(
            'div',
            { class: (it.dialect === one ? '' : 'away') + (it.dialect === one && !tools.length ? ' away' : '') + last },
            tools.map(tool =>
              el(
                'button',
                {
                  type: 'button',
                  class: 'tool',
                  title: tool.name + ', ' + tool.tokens + ' tokens',
                  'aria-current': chosen && chosen[0] === it.dialect && chosen[1] === tool.name ? 'true' : null,
                  onclick: () => {
                    location.hash = '#tools/' + it.dialect + '/' + encodeURIComponent(tool.name);
                  },
                },
                el('span', {}, tool.name),
                el('span', {}, String(tool.tokens)),
              ),
            ),
          ),
        );
      }
    });
    const here = dialects.find(it => it.dialect === one);
    return full.length
      ? matrix
      : empty(
          'No tool fits the filter',
          'Clear it to see the ' + some(here.tools.length, 'tool') + ' of ' + one + ' and those of the other dialects.',
        );
  };
  const result = (tool, reply) => [
    el(
      'p',
      { class: 'acts' },
      pill(reply.is_error ? 'failed' : 'ok', reply.is_error ? 'bad mark-no' : 'good mark-ok'),
      reply.wall ? pill('sandbox ' + reply.wall) : null,
      reply.exit == null ? null : pill('exit code ' + reply.exit),
    ),
    Diff.of(null, reply.data) ? Diff.view(Diff.of(null, reply.data)) : null,
    Said.reply(reply.text || reply.data, list(tool.effects).includes('executes')),
    list(reply.media).map(it =>
      it.mime.startsWith('image/') ? picture(it.mime, it.base64) : el('small', {}, it.mime + ', ' + bytes(it.bytes)),
    ),
    list(reply.notes).map(it => el('div', { class: 'note' }, it)),
  ];
  const trial = (dialect, tool) => {
    const form = Form.of(tool.parameters || {}, 'try'),
      out = el('div', { class: 'stack', 'aria-live': 'polite', id: 'try-out' });
    const first = el('input', { type: 'checkbox', id: 'try-ask' }),
      send = el('button', { class: 'main' }, 'Call ' + tool.name);
    const submit = async event => {
      event.preventDefault();
      const args = form.read();
      if (!args) return;
      const body = { dialect, tool: tool.name, args };
      if (first.checked) body.ask = true;
      send.disabled = true;
      out.replaceChildren(
        first.checked
          ? el(
              'p',
              { class: 'note weak' },
              el(
                'span',
                {},
                'If its rules want consent, the question is under ',
                el('a', { href: '#approvals' }, 'Approvals'),
                '; the reply comes here.',
              ),
            )
          : bones(1)[0],
      );
      try {
        const reply = await ask('/api/call', 'POST', body);
        out.replaceChildren(...result(tool, reply).flat().filter(Boolean));
      } catch (error) {
        out.replaceChildren(trouble(error));
      }
      send.disabled = false;
    };
    return el(
      'form',
      { class: 'card', onsubmit: submit, novalidate: true },
      el('h3', {}, 'Try it'),
      form.node,
      el(
        'div',
        { class: 'tight' },
        el('label', { class: 'check' }, first, 'Ask first'),
        el(
          'small',
          {},
          'A call is made for real, in the workspace. Pressing the button is consent, unless you have it asked first.',
        ),
      ),
      el('div', { class: 'acts' }, send),
      out,
    );
  };
  const one = (dialect, tool) => [
    el(
      'div',
      { class: 'head' },
      el('h3', { class: 'mono' }, tool.name),
      el('p', {}, dialect),
      button(
        'Back to all tools',
        () => {
          $('tools').scrollIntoView({ block: 'start', behavior: 'smooth' });
          $('tools-filter').focus({ preventScroll: true });
        },
        'small',
      ),
    ),
    el(
      'div',
      { class: 'pair' },
      el(
        'div',
        { class: 'card' },
        el(
          'header',
          {},
          el('h3', {}, 'What a model sees'),
          el('span', { class: 'push' }, pill(number(tool.tokens) + ' tokens', 'go')),
        ),
        el('p', { class: 'words' }, tool.description),
        el(
          'p',
          { class: 'acts' },
          list(tool.effects).length
            ? list(tool.effects).map(it => pill(it, it === 'destroys' ? 'bad' : ''))
            : pill('no effects'),
          tool.tier ? pill(String(tool.tier).replace(/_/g, ' ')) : null,
          tool.timeout_secs ? pill('at most ' + tool.timeout_secs + ' s') : null,
        ),
        list(tool.aliases).length ? el('p', { class: 'dim' }, 'Also called ' + tool.aliases.join(', ')) : null,
        block(
          'Parameters',
          el('pre', { tabindex: 0 }, show(tool.parameters)),
          show({ name: tool.name, description: tool.description, parameters: tool.parameters }),
        ),
        tool.output ? fold('What comes back', () => el('pre', { tabindex: 0 }, show(tool.output))) : null,
      ),
      trial(dialect, tool),
    ),
  ];
  const choose = () => {
    const [dialect, name] = chosen || [],
      there = dialects.find(it => it.dialect === dialect),
      tool = there && there.tools.find(it => it.name === name);
    if (chosen && !tool) return $('tools-one').replaceChildren(empty('No such tool', 'Choose one above.'));
    $('tools-one').replaceChildren(...(tool ? one(dialect, tool) : []));
    if (tool) {
      $('tools-one').scrollIntoView({ block: 'start', behavior: 'smooth' });
      $('tools-one').focus({ preventScroll: true });
    }
  };
  const redraw = () => {
    if (dialects) $('tools-matrix').replaceChildren(draw());
  };
  const load = async () => {
    if (dialects) return;
    const all = await ask('/api/tools');
    dialects = all.dialects;
    $('tools-dialect').replaceChildren(
      ...dialects.map(it =>
        el(
          'option',
          { value: it.dialect, selected: it.dialect === all.default },
          it.dialect + ' (' + it.tools.length + ' tools, ' + number(it.tokens) + ' tokens)',
        ),
      ),
    );
  };
  $('tools-filter').addEventListener('input', redraw);
  $('tools-dialect').addEventListener('change', redraw);
  parts.tools = {
    async open(rest) {
      const next = rest.length >= 2 ? rest : null,
        same = dialects && JSON.stringify(next) === JSON.stringify(chosen);
      chosen = next;
      if (same) return;
      await fill(
        $('tools-matrix'),
        async () => {
          await load();
          if (chosen) $('tools-dialect').value = chosen[0];
          return draw();
        },
        6,
      );
      if (dialects) choose();
    },
    names: async () => {
      await load();
      return dialects.map(it => it.dialect);
    },
  };
}
