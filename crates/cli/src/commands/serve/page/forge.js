// Forge: runs, their graph of tasks, what agents told, and what they ask to change.
{
  let current = null,
    seen = '',
    timer = 0,
    // Readings that were begun, the last that was drawn, and whether what is drawn next is drawn though it is the same.
    begun = 0,
    drawn = 0,
    forced = false,
    chosen = null,
    // Whether changes of a plan wait for the person at the page.
    asks = false;
  // How executions in this process ended, by run.
  const ends = new Map();
  const kinds = {
    completed: 'good mark-ok',
    executing: 'go mark-run',
    failed: 'bad mark-no',
    paused: 'weak mark-warn',
  };
  const state = it =>
    pill(
      String(it.state || 'unknown')
        .toLowerCase()
        .replace(/_/g, ' '),
      kinds[String(it.state).toLowerCase()] || 'mark-wait',
    );
  const tally = it =>
    it.tasks && it.tasks.total != null
      ? it.tasks.merged +
        ' of ' +
        it.tasks.total +
        ' merged' +
        (it.tasks.running ? ', ' + it.tasks.running + ' at work' : '') +
        (it.tasks.failed ? ', ' + it.tasks.failed + ' failed' : '')
      : '';
  const task = (it, walks) => {
    const told = walks.filter(one => one.task === it.id),
      how = Drawing.state(it);
    return el(
      'tr',
      { id: 'task-' + it.id, tabindex: -1 },
      el('td', {}, el('b', { class: 'mono' }, it.id), it.title && it.title !== it.id ? el('div', {}, it.title) : null),
      el(
        'td',
        {},
        pill(
          (Drawing.signs[how] || '') + ' ' + Drawing.words(how),
          /merge|done/.test(how)
            ? 'good'
            : how === 'failed'
              ? 'bad'
              : how === 'running'
                ? 'go'
                : how === 'stale'
                  ? 'weak'
                  : '',
        ),
      ),
      el('td', {}, [it.kind, it.attempt > 1 ? 'try ' + it.attempt : '', it.agent].filter(Boolean).join(', ')),
      el(
        'td',
        { class: 'num' },
        it.started && it.ended ? lasted(new Date(it.ended) - new Date(it.started)) : it.started ? when(it.started) : '',
      ),
      el(
        'td',
        {},
        it.error
          ? el('div', { class: 'bad words' }, short(it.error, 300))
          : it.last_line
            ? el('span', { class: 'dim' }, short(it.last_line, 140))
            : null,
        told.map(walkthrough),
      ),
    );
  };
  const walkthrough = it =>
    fold('Walkthrough' + (it.attempt > 1 ? ' of try ' + it.attempt : ''), () => [
      el('p', { class: 'words' }, it.summary || ''),
      el(
        'dl',
        { class: 'facts' },
        it.confidence == null
          ? null
          : [
              el('dt', {}, 'Confidence'),
              el(
                'dd',
                {},
                typeof it.confidence === 'number' ? Math.round(it.confidence * 100) + ' %' : show(it.confidence),
              ),
            ],
        list(it.risks).length
          ? [
              el('dt', {}, 'Risks'),
              el(
                'dd',
                {},
                list(it.risks).map(one => el('div', {}, show(one))),
              ),
            ]
          : null,
        list(it.files).length
          ? [
              el('dt', {}, 'Files'),
              el(
                'dd',
                {},
                list(it.files).map(one =>
                  el('div', { class: 'mono' }, typeof one === 'string' ? one : one.path || show(one)),
                ),
              ),
            ]
          : null,
      ),
    ]);
  /// A document with its headings; what comes before the first one has none.
  const sections = text =>
    text.split(/^## +/m).map((one, index) => {
      const [head, ...rest] = index ? one.split('\n') : ['', one];
      const words = rest.join('\n').trim();
      return words
        ? el('div', { class: 'tight' }, head ? el('h4', {}, head) : null, el('p', { class: 'words' }, words))
        : null;
    });
  const request = (run, it) => {
    const open = ['pending', 'open', 'proposed', 'emitted'].includes(String(it.status).toLowerCase());
    const give = (answer, text, done, kind) =>
      button(
        text,
        event =>
          act(
            event.currentTarget,
            () => ask(at('forge', run, 'requests', it.id), 'POST', { answer }).then(() => read(true)),
            done,
          ),
        kind,
      );
    return el(
      'article',
      { class: 'card' },
      el(
        'header',
        {},
        el('h3', {}, it.summary || it.title || it.id),
        pill(String(it.status).toLowerCase().replace(/_/g, ' '), open ? 'weak' : ''),
        el('small', { class: 'push mono' }, it.id),
      ),
      sections(show(it.body || '')),
      open
        ? el(
            'div',
            { class: 'acts' },
            give('approve', 'Approve', 'Approved: the next run changes the plan.', 'main'),
            give('reject', 'Reject', 'Rejected.', 'no'),
          )
        : null,
    );
  };
  const choose = id => {
    chosen = id;
    for (const it of document.querySelectorAll('.node')) {
      if (it.dataset.task === id) it.setAttribute('aria-current', 'true');
      else it.removeAttribute('aria-current');
    }
    const row = $('task-' + id);
    if (row) {
      row.scrollIntoView({ block: 'center', behavior: 'smooth' });
      row.focus({ preventScroll: true });
    }
  };
  const remarks = ended => {
    const told = ended ? [ended.error, ...list(ended.remarks)].filter(Boolean) : [];
    return told.length
      ? el(
          'div',
          { class: 'note ' + (ended.error ? 'bad' : 'weak') },
          told.map(it => el('p', { class: 'words' }, it)),
        )
      : null;
  };
  const asking = () =>
    el(
      'label',
      { class: 'check' },
      el('input', {
        type: 'checkbox',
        checked: asks,
        onchange: event => {
          asks = event.currentTarget.checked;
        },
      }),
      'Ask me before the plan changes',
    );
  const whole = it => {
    const tasks = list(it.tasks),
      walks = list(it.walkthroughs),
      requests = list(it.requests),
      isOn = Boolean(it.here);
    const merged = tasks.filter(one => Drawing.state(one) === 'merged').length;
    const isOver = it.state === 'completed',
      isElsewhere = it.state === 'executing' && !isOn;
    return [
      el(
        'div',
        { class: 'acts' },
        el('h3', {}, it.title || it.id),
        state(it),
        el('span', { class: 'dim num' }, merged + ' of ' + tasks.length + ' merged'),
        el(
          'span',
          { class: 'push acts' },
          isOver || isOn
            ? null
            : [
                asking(),
                button(
                  'Run',
                  event =>
                    act(
                      event.currentTarget,
                      () => ask(at('forge', it.id, 'run'), 'POST', { ask_about_changes: asks }).then(() => read(true)),
                      'It runs.',
                    ),
                  'main',
                ),
              ],
          !isOn && !isElsewhere
            ? null
            : sure({
                text: 'Cancel',
                really: 'Really cancel it?',
                to: at('forge', it.id, 'cancel'),
                body: {},
                next: () => read(true),
                kind: 'no',
              }),
        ),
      ),
      remarks(ends.get(it.id)),
      tasks.length ? Drawing.graph(tasks, choose) : empty('No tasks yet', 'The plan of this run is not written yet.'),
      tasks.length ? Drawing.legend(tasks) : null,
      requests.length
        ? [
            el('h3', {}, 'Change requests'),
            el(
              'div',
              { class: 'stack' },
              requests.map(one => request(it.id, one)),
            ),
          ]
        : null,
      tasks.length
        ? el(
            'div',
            { class: 'card wide' },
            el(
              'table',
              { class: 'lines' },
              el(
                'thead',
                {},
                el(
                  'tr',
                  {},
                  ['Task', 'State', 'Kind', 'Took', 'What it said'].map(one => el('th', { scope: 'col' }, one)),
                ),
              ),
              el(
                'tbody',
                {},
                tasks.map(one => task(one, walks)),
              ),
            ),
          )
        : null,
    ];
  };
  const read = async force => {
    clearTimeout(timer);
    const turn = ++begun;
    forced ||= Boolean(force);
    await fill(
      $('forge-runs'),
      async () => {
        const runs = (await ask('/api/forge')).runs || [];
        if (!runs.length) {
          current = null;
          return empty(
            'No runs',
            'Forge carries out a plan with several agents in a git repository. Begin one there with: helve forge plan "what is to be done"',
          );
        }
        if (!current || !runs.some(it => it.id === current)) current = runs[0].id;
        return el(
          'nav',
          { class: 'runs', 'aria-label': 'Runs' },
          runs.map(it =>
            el(
              'a',
              { href: '#forge/' + encodeURIComponent(it.id), 'aria-current': it.id === current ? 'true' : null },
              el('span', { class: 'acts' }, el('b', {}, it.title || it.id), state(it)),
              el(
                'small',
                { class: 'num' },
                [tally(it), it.updated ? distance(it.updated) : ''].filter(Boolean).join(' · '),
              ),
            ),
          ),
        );
      },
      1,
    );
    if (!current) {
      $('forge-one').replaceChildren();
      return again();
    }
    const id = current,
      box = $('forge-one');
    let told;
    try {
      told = await ask(at('forge', id));
    } catch (error) {
      if (!seen) box.replaceChildren(trouble(error, () => read(true)));
      return again();
    }
    await unpressed();
    const now = JSON.stringify(told);
    // What was read earlier and comes later is old.
    if (id === current && turn > drawn && (forced || now !== seen)) {
      [seen, drawn, forced] = [now, turn, false];
      // What is open and where one was stays when something new is drawn.
      const open = [...box.querySelectorAll('details')].map(it => it.open),
        graph = box.querySelector('.graph'),
        left = graph ? graph.scrollLeft : 0;
      const focused =
        document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.task : null;
      box.replaceChildren(...whole(told).flat(2).filter(Boolean));
      [...box.querySelectorAll('details')].forEach((it, index) => {
        if (open[index]) it.open = true;
      });
      if (box.querySelector('.graph')) box.querySelector('.graph').scrollLeft = left;
      const node = focused ? [...box.querySelectorAll('.node')].find(it => it.dataset.task === focused) : null;
      if (node) node.focus({ preventScroll: true });
      if (chosen)
        for (const it of box.querySelectorAll('.node'))
          if (it.dataset.task === chosen) it.setAttribute('aria-current', 'true');
    }
    again();
  };
  const again = () => {
    clearTimeout(timer);
    if (!$('forge').hidden) timer = setTimeout(read, 2000);
  };
  parts.forge = {
    open(rest) {
      if (rest[0] && rest[0] !== current) {
        seen = '';
        chosen = null;
        $('forge-one').replaceChildren(...bones(3));
      }
      current = rest[0] || current;
      return read(false);
    },
    leave() {
      clearTimeout(timer);
    },
    hear(event) {
      const data = event.data || {};
      if (event.type === 'forge.started') ends.delete(data.run);
      if (event.type === 'forge.ended') ends.set(data.run, data);
      if (!$('forge').hidden && event.type.startsWith('forge.')) read(true);
    },
  };
}
