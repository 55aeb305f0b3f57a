// Live: calls as they happen, and what runs in the background.
{
  const MOST = 500,
    rows = new Map();
  let paused = false,
    waiting = [];
  const fits = row => {
    const words = $('live-filter').value.trim().toLowerCase().split(/\s+/);
    const outcome = $('live-outcome').value,
      dialect = $('live-dialect').value;
    return (
      words.every(it => row.words.includes(it)) &&
      (!outcome || row.outcome === outcome) &&
      (!dialect || row.dialect === dialect)
    );
  };
  const said = () => {
    const any = [...rows.values()].some(it => !it.node.hidden),
      none = $('live-none');
    if (any) return none.replaceChildren();
    if (rows.size) {
      return none.replaceChildren(
        empty(
          'No call fits the filter',
          some(rows.size, 'call is', 'calls are') + ' hidden.',
          button('Show all', () => {
            for (const id of ['live-filter', 'live-outcome', 'live-dialect']) $(id).value = '';
            sift();
          }),
        ),
      );
    }
    none.replaceChildren(
      empty(
        'No calls yet',
        'Calls show up here the moment they are made. Try a tool by hand, start a conversation, or connect an MCP client to ' +
          location.origin +
          '/mcp.',
        link('Try a tool', '#tools'),
        link('Start a conversation', '#sessions/new'),
      ),
    );
  };
  const sift = () => {
    for (const row of rows.values()) row.node.hidden = !fits(row);
    said();
  };
  const dress = row => {
    const { began, ended } = row,
      data = { ...began, ...ended },
      args = began && began.args;
    const told = [];
    const diff = Diff.of(args, ended && ended.result);
    if (began) told.push(block('Arguments', Said.args(args, diff), show(args)));
    // A reply that is the difference is shown once.
    const isReply = ended && diff === ended.result;
    if (diff) told.push(block(isReply ? 'Reply' : 'Difference', Diff.view(diff), diff));
    if (ended && !isReply) {
      const command = args && typeof args.command === 'string';
      told.push(
        block(
          ended.denied ? 'Denied' : ended.isError ? 'Failed' : command ? 'Output' : 'Reply',
          Said.reply(ended.result, command),
          show(ended.result),
        ),
      );
    } else if (!ended) told.push(el('p', { class: 'dim' }, 'It is still at work.'));
    if (list(data.notes).length)
      told.push(
        block(
          'Notes',
          el(
            'ul',
            { class: 'tight' },
            list(data.notes).map(it => el('li', { class: 'words' }, it)),
          ),
        ),
      );
    told.push(
      line(
        row.dialect,
        data.agentId ? 'agent ' + data.agentId : '',
        'call ' + (data.callId || '?'),
        data.wall ? 'sandbox ' + data.wall : '',
        data.exit == null ? '' : 'exit code ' + data.exit,
        data.spill ? 'the whole output is in ' + show(data.spill) : '',
      ),
    );
    row.inside.replaceChildren(...told);
  };
  const make = (event, data) => {
    const state = el('span', { class: 'state' }),
      took = el('span', { class: 'took' }),
      wall = el('span', { class: 'wall dim' });
    const inside = el('div', { class: 'inside' }),
      gist = Said.gist(data.args);
    const node = el(
      'details',
      { class: 'row' },
      el(
        'summary',
        {},
        el('span', { class: 'when' }, clock(event.timestamp)),
        state,
        el('span', { class: 'what', title: gist }, el('b', {}, data.tool || '?'), el('span', {}, gist)),
        el('span', { class: 'of dim' }, event.dialect || ''),
        el('span', { class: 'who dim', title: data.agentId }, data.agentId || ''),
        wall,
        took,
      ),
      inside,
    );
    const row = {
      node,
      state,
      took,
      wall,
      inside,
      words: '',
      outcome: 'run',
      dialect: event.dialect || '',
      began: null,
      ended: null,
    };
    node.addEventListener('toggle', () => {
      if (node.open) dress(row);
      else inside.replaceChildren();
    });
    return row;
  };
  const hear = event => {
    if (event.type !== 'tool.call' && event.type !== 'tool.result') return;
    const data = event.data || {},
      key = [event.runId, data.callId, data.tool].join(' ');
    let row = rows.get(key);
    if (!row || event.type === 'tool.call') {
      row = make(event, data);
      rows.delete(key);
      rows.set(key, row);
      $('live-calls').prepend(row.node);
      if (rows.size > MOST) {
        const [old, first] = rows.entries().next().value;
        first.node.remove();
        rows.delete(old);
      }
      if (row.dialect && ![...$('live-dialect').options].some(it => it.value === row.dialect))
        $('live-dialect').append(el('option', {}, row.dialect));
    }
    if (event.type === 'tool.call') row.began = data;
    else row.ended = data;
    row.outcome = !row.ended ? 'run' : row.ended.isError ? 'no' : 'ok';
    row.state.replaceChildren(
      {
        run: pill('running', 'go mark-run'),
        ok: pill('ok', 'good mark-ok'),
        no: data.denied ? pill('denied', 'weak mark-warn') : pill('failed', 'bad mark-no'),
      }[row.outcome],
    );
    if (row.ended) {
      row.took.textContent = lasted(data.durationMs || 0);
      row.wall.textContent = data.wall || '';
    }
    row.words += JSON.stringify([data, event.dialect]).toLowerCase();
    row.node.hidden = !fits(row);
    if (row.node.open) dress(row);
  };
  const after = soon(said, 50);
  const pause = () => {
    paused = !paused;
    if (!paused) {
      waiting.forEach(hear);
      waiting = [];
      said();
    }
    tell();
  };
  const tell = () => {
    $('live-pause').setAttribute('aria-pressed', paused);
    $('live-pause').textContent = paused
      ? 'Go on' + (waiting.length ? ' (' + waiting.filter(it => it.type === 'tool.call').length + ' new)' : '')
      : 'Pause';
  };

  // What goes on in the background.
  const tasks = new Map();
  let timer = 0;
  const follow = async (id, box) => {
    const task = tasks.get(id);
    if (!task || !box.isConnected) return;
    const told = await ask('/api/tasks/' + encodeURIComponent(id) + '?after=' + (task.next || 0)).catch(error => ({
      text: '',
      next: task.next,
      state: error.message,
    }));
    if (told.text) {
      const low = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
      box.append(told.text);
      if (low) box.scrollTop = box.scrollHeight;
    }
    task.next = told.next;
    if (told.state === 'running') setTimeout(() => follow(id, box), 1000);
  };
  const entry = it => {
    const isOn = it.state === 'running',
      what = it.command || it.id;
    const folded = fold(
      [
        pill(it.state, isOn ? 'go mark-run' : it.exit || it.state !== 'ended' ? 'weak mark-warn' : 'good mark-ok'),
        el('span', { class: 'mono' }, short(what, 90)),
        el('span', { class: 'push' }, bytes(it.bytes || 0)),
      ],
      () => {
        const box = el('pre', { class: 'term', tabindex: 0, 'aria-label': 'Output' });
        tasks.get(it.id).next = 0;
        setTimeout(() => follow(it.id, box));
        return [
          box,
          el(
            'div',
            { class: 'acts' },
            isOn
              ? sure({
                  text: 'Stop',
                  really: 'Really stop it?',
                  to: at('tasks', it.id, 'stop'),
                  body: {},
                  next: look,
                })
              : null,
          ),
        ];
      },
      'used',
    );
    return { ...it, node: folded };
  };
  const look = async () => {
    clearTimeout(timer);
    const told = await ask('/api/tasks').catch(() => ({ tasks: [] }));
    await unpressed();
    // What the server has forgotten is over.
    for (const id of [...tasks.keys()]) if (!list(told.tasks).some(it => it.id === id)) tasks.delete(id);
    for (const it of list(told.tasks)) {
      const old = tasks.get(it.id);
      if (old && old.state === it.state) continue;
      const fresh = entry(it),
        open = old && old.node.open;
      tasks.set(it.id, fresh);
      if (open) fresh.node.open = true;
    }
    const all = [...tasks.values()].reverse().slice(0, 20);
    $('live-tasks').replaceChildren(
      ...(all.length
        ? [
            el(
              'div',
              { class: 'tight' },
              el('h3', {}, 'In the background'),
              all.map(it => it.node),
            ),
          ]
        : []),
    );
    if (all.some(it => it.state === 'running') && location.hash.replace('#', '').startsWith('live'))
      timer = setTimeout(look, 3000);
  };
  const glance = soon(look, 800);
  parts.live = {
    open() {
      said();
      look();
    },
    pause,
    hear(event) {
      if (event.type === 'tool.result') glance();
      if (!paused) {
        hear(event);
        return after();
      }
      waiting.push(event);
      if (waiting.length > 2 * MOST) waiting.shift();
      tell();
    },
  };
  for (const id of ['live-filter', 'live-outcome', 'live-dialect']) $(id).addEventListener('input', sift);
  $('live-pause').addEventListener('click', pause);
}
