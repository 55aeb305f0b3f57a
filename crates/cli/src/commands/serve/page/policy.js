// Policy and sandbox: rules in force, what was refused, and what the machine can enforce.
{
  const flat = value =>
    value == null
      ? 'none'
      : typeof value === 'object'
        ? Array.isArray(value)
          ? value.map(flat).join(', ') || 'none'
          : Object.entries(value)
              .map(([name, it]) => name.replace(/_/g, ' ') + ': ' + flat(it))
              .join(', ')
        : value === true
          ? 'yes'
          : value === false
            ? 'no'
            : String(value);
  const facts = value =>
    el(
      'dl',
      { class: 'facts' },
      Object.entries(value || {}).map(([name, it]) => [el('dt', {}, name.replace(/_/g, ' ')), el('dd', {}, flat(it))]),
    );
  const verdict = text =>
    pill(text, /deny|refuse/.test(text) ? 'bad mark-no' : /allow/.test(text) ? 'good mark-ok' : 'weak mark-warn');
  const card = (head, about, ...inside) =>
    el(
      'article',
      { class: 'card' },
      el('header', {}, el('h3', {}, head), about ? el('small', {}, about) : null),
      inside,
    );
  const table = (heads, rows) =>
    el(
      'div',
      { class: 'wide' },
      el(
        'table',
        { class: 'lines' },
        el(
          'thead',
          {},
          el(
            'tr',
            {},
            heads.map(it => el('th', { scope: 'col' }, it)),
          ),
        ),
        el('tbody', {}, rows),
      ),
    );
  const rules = () =>
    fill($('policy-rules'), async () => {
      const told = await ask('/api/policy'),
        denied = list(told.denied),
        all = list(told.rules),
        hidden = list(told.protected);
      const names = Object.entries(told.dialects || {});
      return [
        card(
          'Refused',
          'the last 100 of this process',
          denied.length
            ? table(
                ['When', 'Call', 'Why'],
                denied.map(it =>
                  el(
                    'tr',
                    { class: 'denied' },
                    el('td', {}, when(it.at)),
                    el(
                      'td',
                      {},
                      el('b', { class: 'mono' }, it.tool || ''),
                      el('div', { class: 'mono dim' }, Said.written(it.summary || '')),
                      el('small', {}, it.dialect || ''),
                    ),
                    el('td', { class: 'words' }, it.why || ''),
                  ),
                ),
              )
            : el('p', { class: 'dim' }, 'Nothing was refused yet.'),
        ),
        el(
          'div',
          { class: 'pair' },
          card(
            'Sandbox',
            'for commands',
            facts(told.sandbox),
            told.patience_secs
              ? el(
                  'p',
                  { class: 'dim' },
                  'A question waits ' + lasted(told.patience_secs * 1000) + ' for an answer; then the call is denied.',
                )
              : null,
          ),
          card(
            'Modes',
            'of each dialect',
            el(
              'dl',
              { class: 'facts' },
              names.map(([name, it]) => [
                el('dt', {}, name),
                el('dd', {}, [
                  it.mode,
                  it.configured ? el('small', {}, ' as your settings say') : el('small', {}, ' as the dialect has it'),
                ]),
              ]),
            ),
          ),
        ),
        card(
          'Rules in force',
          'a rule that denies wins over one that allows',
          all.length
            ? table(
                ['Verdict', 'Rule', 'From'],
                all.map(it =>
                  el(
                    'tr',
                    {},
                    el('td', {}, verdict(String(it.verdict))),
                    el('td', {}, el('code', {}, show(it.rule))),
                    el('td', { class: 'dim' }, it.from || ''),
                  ),
                ),
              )
            : el(
                'p',
                { class: 'dim' },
                'There are no rules of your own. Rules go into helve.toml: allow, ask or deny, each a list such as ["Bash(git status)"].',
              ),
        ),
        told.paths || told.programs
          ? card(
              'Paths and programs',
              'what settings allow and deny',
              facts({
                ...told.paths,
                ...Object.fromEntries(
                  Object.entries(told.programs || {}).map(([name, it]) => ['programs ' + name, it]),
                ),
              }),
            )
          : null,
        card(
          'Protected',
          some(hidden.length, 'name') + ' that no tool writes',
          hidden.length
            ? fold('Show them', () =>
                el(
                  'p',
                  { class: 'acts' },
                  hidden.map(it => el('code', {}, show(it))),
                ),
              )
            : el('p', { class: 'dim' }, 'None.'),
        ),
      ];
    });
  const words = {
    good: ['works', 'good mark-ok'],
    weak: ['less', 'weak mark-warn'],
    broken: ['broken', 'bad mark-no'],
  };
  const checks = () =>
    fill(
      $('policy-checks'),
      async () => {
        const found = (await ask('/api/doctor')).checks || [],
          order = { broken: 0, weak: 1, good: 2 };
        return el(
          'div',
          { class: 'checks' },
          [...found]
            .sort((one, two) => order[one.state] - order[two.state])
            .map(it =>
              el(
                'div',
                { class: 'checkup' },
                el('span', {}, pill(...(words[it.state] || [it.state, '']))),
                el('div', {}, el('b', {}, it.name), el('span', {}, it.text), it.next ? el('small', {}, it.next) : null),
              ),
            ),
        );
      },
      4,
    );
  const explained = it => {
    const rules = list(it.rules),
      row = (name, ...value) => [el('dt', {}, name), el('dd', {}, value)];
    return [
      el('p', {}, verdict(it.outcome), ' ', el('span', { class: 'words' }, it.why || '')),
      el(
        'dl',
        { class: 'facts' },
        rules.length
          ? rules.map(rule =>
              row('rule', el('code', {}, rule.rule), el('small', {}, ' ' + rule.setting + ', from ' + rule.from)),
            )
          : row('rule', 'none'),
        row('tool', it.tool + ' (' + it.dialect + ')'),
        row('mode', it.mode, el('small', {}, ' from ' + it.mode_from)),
        it.sandbox ? row('sandbox', it.sandbox.level, el('small', {}, ' from ' + it.sandbox.from)) : null,
        list(it.commands).map(command =>
          row(
            'command',
            el('code', {}, command.text),
            el('small', {}, ' ' + command.role + (command.allowed_by ? ', allowed by ' + command.allowed_by : '')),
          ),
        ),
        list(it.unclear).map(why => row('unclear', why)),
        list(it.paths).map(path =>
          row(path.access, el('code', {}, path.path), path.refused ? el('small', {}, ' refused: ' + path.refused) : null),
        ),
        it.host ? row('host', it.host) : null,
        list(it.suggested_rules).length
          ? row('allow with', list(it.suggested_rules).map(rule => el('code', {}, rule)))
          : null,
        it.question && it.question.broader ? row('broader', it.question.broader) : null,
      ),
    ];
  };
  $('policy-ask').addEventListener('submit', event => {
    event.preventDefault();
    const text = $('policy-call').value,
      tool = $('policy-tool').value.trim(),
      body = {};
    if ($('policy-dialect').value) body.dialect = $('policy-dialect').value;
    if ($('policy-mode').value) body.mode = $('policy-mode').value;
    act(event.submitter || event.target.querySelector('button'), async () => {
      if (tool) {
        body.tool = tool;
        body.args = JSON.parse(text);
      } else body.command = text;
      $('policy-answer').replaceChildren(...explained(await ask('/api/policy/explain', 'POST', body)));
    });
  });
  const dialects = async () => {
    if ($('policy-dialect').children.length) return;
    const names = Object.keys((await ask('/api/policy')).dialects || {});
    $('policy-dialect').replaceChildren(
      el('option', { value: '' }, 'as configured'),
      ...names.map(name => el('option', {}, name)),
    );
  };
  let looked = false;
  $('policy-again').addEventListener('click', event => act(event.currentTarget, checks));
  const fresh = soon(() => {
    if (!$('policy').hidden) rules();
  }, 300);
  parts.policy = {
    open() {
      rules();
      dialects().catch(error => toast(error.message, 'bad'));
      if (!looked) {
        looked = true;
        checks();
      }
    },
    hear(event) {
      if (event.type === 'tool.result' || event.type === 'approval.decided') fresh();
    },
  };
}
