// Schedules: what runs by itself, and how it went.
{
  let all = [];
  const cadence = it => {
    const how = it.cadence || {};
    if (how.type === 'once') return 'once, ' + new Date(how.at).toLocaleString();
    if (how.type === 'cron') return 'cron ' + how.expression + (how.timezone ? ' (' + how.timezone + ')' : '');
    const seconds = how.every_secs;
    return how.type === 'interval' && seconds ? 'every ' + span(seconds) : short(JSON.stringify(how));
  };
  const span = seconds =>
    seconds % 86400 === 0
      ? some(seconds / 86400, 'day')
      : seconds % 3600 === 0
        ? some(seconds / 3600, 'hour')
        : seconds % 60 === 0
          ? some(seconds / 60, 'minute')
          : some(seconds, 'second');
  const STATES = { active: 'good', paused: 'weak', completed: '', disabled: '', failed: 'bad', cancelled: '' };
  const runs = id => {
    const box = el('div', { class: 'wide' });
    fill(
      box,
      async () => {
        const told = await ask(at('schedules', id, 'runs')),
          past = told.runs || [];
        if (!past.length) return el('p', { class: 'dim' }, 'It has not run yet.');
        return el(
          'table',
          { class: 'lines' },
          el(
            'thead',
            {},
            el(
              'tr',
              {},
              ['When', 'How', 'Took', 'What came of it'].map(it => el('th', { scope: 'col' }, it)),
            ),
          ),
          el(
            'tbody',
            {},
            past.map(it => {
              const how = String(it.status).toLowerCase(),
                took = it.finished ? new Date(it.finished) - new Date(it.started) : null;
              return el(
                'tr',
                {},
                el('td', {}, when(it.started)),
                el(
                  'td',
                  {},
                  pill(
                    how,
                    /fail|error|timeout/.test(how)
                      ? 'bad mark-no'
                      : /success|ok|complete/.test(how)
                        ? 'good mark-ok'
                        : 'go',
                  ),
                ),
                el('td', { class: 'num' }, lasted(took)),
                el(
                  'td',
                  { class: 'words' },
                  [it.summary || '', it.attempt > 1 ? '(try ' + it.attempt + ')' : '', money(it.cost)]
                    .filter(Boolean)
                    .join(' '),
                ),
              );
            }),
          ),
        );
      },
      2,
    );
    return box;
  };
  const card = it => {
    const id = it.schedule_id || it.id,
      state = String(it.status || '').toLowerCase();
    const does = (action, text, done) =>
      button(
        text,
        event => act(event.currentTarget, () => ask(at('schedules', id), 'POST', { action }).then(read), done),
        'small',
      );
    return el(
      'article',
      { class: 'card' },
      el('header', {}, el('h3', {}, it.name || id), pill(state || 'unknown', STATES[state] || '')),
      el('p', { class: 'words' }, it.goal),
      el(
        'dl',
        { class: 'facts' },
        el('dt', {}, 'When'),
        el('dd', {}, cadence(it)),
        el('dt', {}, 'Next'),
        el(
          'dd',
          {},
          it.next_run_at
            ? [when(it.next_run_at), ' (' + new Date(it.next_run_at).toLocaleString() + ')']
            : 'not planned',
        ),
        el('dt', {}, 'Last'),
        el(
          'dd',
          {},
          it.last_run_at
            ? [
                when(it.last_run_at),
                it.last_run_status ? ', ' + it.last_run_status : '',
                it.consecutive_failures ? ', ' + some(it.consecutive_failures, 'failure') + ' in a row' : '',
              ]
            : 'never',
        ),
      ),
      el(
        'div',
        { class: 'acts' },
        state === 'paused'
          ? does('resume', 'Resume', 'It goes on.')
          : state === 'active'
            ? does('pause', 'Pause', 'It is paused.')
            : null,
        does('run', 'Run now', 'It is due now.'),
        sure({
          text: 'Delete',
          really: 'Really delete it?',
          to: at('schedules', id),
          body: { action: 'delete' },
          next: read,
        }),
      ),
      fold('History', () => runs(id)),
    );
  };
  const draw = () => {
    const words = $('schedules-filter').value.trim().toLowerCase(),
      fit = all.filter(it => (it.name + ' ' + it.goal).toLowerCase().includes(words));
    if (!all.length)
      return empty(
        'No schedules',
        'Agents make them with their own tools. Ask one to do something every morning, for example; it needs a dialect with schedules, such as oxydra or solo.',
        link('Start a conversation', '#sessions/new'),
      );
    return fit.length
      ? fit.map(card)
      : empty('None fits the filter', some(all.length, 'schedule is', 'schedules are') + ' hidden.');
  };
  const read = () =>
    fill($('schedules-list'), async () => {
      all = (await ask('/api/schedules')).schedules || [];
      return draw();
    });
  $('schedules-filter').addEventListener('input', () => $('schedules-list').replaceChildren(...[draw()].flat()));
  $('schedules-again').addEventListener('click', read);
  parts.schedules = { open: read };
}
