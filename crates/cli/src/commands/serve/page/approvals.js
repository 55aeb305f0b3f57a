// Approvals: what waits for a person, and what was decided.
{
  const pending = new Map();
  let decided = [];
  const count = () => {
    const here = pending.size,
      first = pending.values().next().value;
    $('badge').hidden = !here;
    $('badge').textContent = here;
    $('badge').setAttribute('aria-label', some(here, 'question waits', 'questions wait'));
    document.title = (here ? '(' + here + ') ' : '') + 'Helve';
    const elsewhere = here && $('approvals').hidden;
    $('waiting').hidden = !elsewhere;
    if (elsewhere) {
      $('waiting').replaceChildren(
        el(
          'span',
          {},
          el('b', {}, here === 1 ? 'A call waits for you' : here + ' calls wait for you'),
          short(first.it.summary || first.it.tool || '', 90),
        ),
        link('Look', '#approvals'),
      );
    }
  };
  const gone = id => {
    const card = pending.get(id);
    if (!card) return;
    pending.delete(id);
    const had = card.node.contains(document.activeElement);
    card.node.remove();
    if (had) {
      const next = $('approvals-pending').querySelector('button, input');
      if (next) next.focus();
      else $('main').focus();
    }
    draw();
  };
  const answer = async (card, body, done) => {
    for (const it of card.querySelectorAll('button, input, textarea')) it.disabled = true;
    const id = card.dataset.id;
    try {
      await ask(at('approvals', id), 'POST', body);
      toast(done);
      gone(id);
    } catch (error) {
      toast(error.message, 'bad');
      for (const it of card.querySelectorAll('button, input, textarea')) it.disabled = false;
      if (error.status === 404 || error.status === 409) gone(id);
    }
    past();
  };
  const head = it => [
    el(
      'header',
      {},
      el('h3', {}, it.tool || 'Question'),
      ...list(it.effects).map(effect => pill(effect, effect === 'destroys' ? 'bad' : '')),
      el('span', { class: 'push dim' }, when(it.at)),
    ),
    line(
      it.dialect,
      it.agent ? 'agent ' + it.agent : '',
      it.session ? 'session ' + it.session : '',
      it.folder ? 'in ' + it.folder : '',
    ),
  ];
  // Long text is shown in part; the rest is one press away, and its length is said.
  const MOST_LINES = 60,
    LONGEST_LINE = 400;
  const clipped = (text, draw) => {
    const lines = String(text).split('\n');
    const shown = lines
      .slice(0, MOST_LINES)
      .map(line =>
        line.length > LONGEST_LINE
          ? line.slice(0, LONGEST_LINE) + '… ' + number(line.length - LONGEST_LINE) + ' more characters'
          : line,
      )
      .join('\n');
    const more = lines.slice(MOST_LINES);
    if (!more.length && lines.every(line => line.length <= LONGEST_LINE)) return draw(text);
    const kept = lines.slice(0, MOST_LINES).map(line => line.slice(0, LONGEST_LINE));
    const rest = number(lines.join('\n').length - kept.join('\n').length);
    const where = more.length ? ' in ' + some(lines.length, 'line') : '';
    const box = el('div', {}, draw(shown));
    box.append(button('Show all: ' + rest + ' more characters' + where, () => box.replaceChildren(draw(text))));
    return box;
  };
  const consent = it => {
    const reason = el('textarea', {
      rows: 2,
      id: 'why-' + it.id,
      placeholder: 'The model reads this: say what to do instead.',
    });
    const no = el(
      'form',
      {
        class: 'reason',
        hidden: true,
        onsubmit: event => {
          event.preventDefault();
          const body = { answer: 'deny' };
          if (reason.value.trim()) body.reason = reason.value.trim();
          answer(card, body, 'Denied.');
        },
      },
      el('label', { for: 'why-' + it.id }, 'Why not? ', el('small', {}, '(may stay empty)')),
      reason,
      el(
        'div',
        { class: 'acts' },
        el('button', { class: 'no' }, 'Deny it'),
        button(
          'Back',
          () => {
            no.hidden = true;
            choices.hidden = false;
            choices.querySelector('.no').focus();
          },
          'quiet',
        ),
      ),
    );
    const grant = el(
      'small',
      { id: 'grant-' + it.id },
      '“For the session” allows, until the session ends: ' + (it.grant || 'this and its like'),
    );
    const choices = el(
      'div',
      { class: 'choices' },
      button('Allow once', () => answer(card, { answer: 'once' }, 'Allowed once.'), 'main'),
      el(
        'button',
        {
          type: 'button',
          'aria-describedby': 'grant-' + it.id,
          onclick: () => answer(card, { answer: 'session' }, 'Allowed for the session.'),
        },
        'Allow for the session',
      ),
      button(
        'Deny …',
        () => {
          choices.hidden = true;
          no.hidden = false;
          reason.focus();
        },
        'no',
      ),
      grant,
    );
    // What is in the commands already is not said twice.
    const commands = list(it.commands),
      summary = it.summary && !(commands.length && commands.includes(it.summary)) ? it.summary : '';
    const card = el(
      'article',
      { class: 'card ask', 'data-id': it.id },
      head(it),
      summary && !it.diff
        ? clipped(summary, text => el('pre', { class: commands.length ? '' : 'words', tabindex: 0 }, text))
        : summary
          ? clipped(summary, text => el('p', { class: 'words' }, text))
          : null,
      commands.length
        ? el(
            'div',
            { class: 'cmd' },
            el('h4', {}, commands.length > 1 ? 'Commands, decoded' : 'Command, decoded'),
            commands.map(command => clipped('$ ' + command, text => el('pre', { class: 'term', tabindex: 0 }, text))),
          )
        : null,
      list(it.arguments).map(argument =>
        el(
          'div',
          { class: 'argument' },
          el('h4', {}, argument.name),
          clipped(argument.text, text => el('pre', { class: 'words', tabindex: 0 }, text)),
        ),
      ),
      it.diff ? clipped(it.diff, text => Diff.view(text)) : null,
      list(it.paths).length
        ? el(
            'p',
            { class: 'line' },
            'Files: ',
            it.paths.map(path => el('code', {}, path)),
          )
        : null,
      it.why ? el('p', {}, el('b', {}, 'Why it asks: '), it.why) : null,
      list(it.rules).length
        ? el(
            'p',
            { class: 'dim' },
            'To allow it from now on, add to approval.allow: ',
            it.rules.map(rule => el('code', {}, rule)),
            it.broader ? ' ' + it.broader : '',
          )
        : null,
      choices,
      no,
    );
    return card;
  };
  const question = it => {
    const read = [];
    const fields = list(it.questions).map((asked, index) => {
      const name = 'q-' + it.id + '-' + index,
        kind = asked.multi || asked.multiSelect ? 'checkbox' : 'radio';
      const options = list(asked.options).map((option, place) =>
        el(
          'label',
          { class: 'option' },
          el('input', { type: kind, name, value: place }),
          el(
            'span',
            {},
            el('span', {}, option.label ?? String(option)),
            option.description ? el('small', {}, option.description) : null,
          ),
        ),
      );
      const free = el('input', {
        type: 'text',
        'aria-label': 'Another answer',
        placeholder: options.length ? 'Another answer' : 'Your answer',
      });
      const box = el(
        'fieldset',
        { class: 'question' },
        el('legend', {}, asked.header ? pill(asked.header) : null, asked.header ? ' ' : null, asked.question),
        options,
        free,
      );
      read.push(() => {
        const chosen = [...box.querySelectorAll(':checked')].map(mark => {
          const option = asked.options[mark.value];
          return option.label ?? String(option);
        });
        if (free.value.trim()) {
          if (kind === 'radio') chosen.length = 0;
          chosen.push(free.value.trim());
        }
        return chosen;
      });
      return box;
    });
    const card = el(
      'form',
      {
        class: 'card ask',
        'data-id': it.id,
        onsubmit: event => {
          event.preventDefault();
          const answers = read.map(one => one());
          if (answers.some(one => !one.length)) return toast('Every question needs an answer.', 'bad');
          answer(card, { answers }, 'Answered.');
        },
      },
      head(it),
      it.plan ? el('pre', { tabindex: 0 }, it.plan) : null,
      it.summary && list(it.questions).every(one => one.question !== it.summary)
        ? el('pre', { tabindex: 0 }, it.summary)
        : null,
      fields,
      el(
        'div',
        { class: 'acts' },
        el('button', { class: 'main' }, 'Answer'),
        button('Leave it unanswered', () => answer(card, { answer: 'deny' }, 'Left unanswered.'), 'quiet'),
      ),
    );
    return card;
  };
  const add = it => {
    if (!it || !it.id || pending.has(it.id)) return;
    const node = it.kind === 'question' ? question(it) : consent(it);
    pending.set(it.id, { it, node });
    const box = $('approvals-pending');
    for (const other of box.querySelectorAll(':scope > :not(.ask)')) other.remove();
    box.append(node);
    draw();
  };
  const draw = () => {
    if (!pending.size)
      $('approvals-pending').replaceChildren(
        empty(
          'Nothing waits for you',
          'When an agent wants to do what its rules do not allow by themselves, the question comes here. To see one, try a tool with “Ask first”.',
          link('Try a tool', '#tools'),
        ),
      );
    count();
  };
  const words = {
    once: ['allowed once', 'good mark-ok'],
    session: ['for the session', 'good mark-ok'],
    deny: ['denied', 'bad mark-no'],
    timeout: ['too late', 'weak mark-warn'],
    gone: ['gone', 'mark-wait'],
    answered: ['answered', 'good mark-ok'],
  };
  const past = soon(
    () =>
      fill(
        $('approvals-decided'),
        async () => {
          const told = await ask('/api/approvals');
          decided = told.decided || [];
          for (const it of told.pending || []) add(it);
          for (const id of [...pending.keys()]) if (!(told.pending || []).some(it => it.id === id)) gone(id);
          draw();
          if (!decided.length) return el('p', { class: 'dim' }, 'Nothing was decided in this process yet.');
          const sorted = [...decided].sort((one, two) =>
            String(two.decided_at || two.at).localeCompare(String(one.decided_at || one.at)),
          );
          return sorted.map(it => {
            const [text, kind] = words[it.answer] || [it.answer, ''];
            return el(
              'div',
              { class: 'past' },
              el('span', {}, pill(text, kind)),
              el(
                'span',
                {},
                el('b', { class: 'mono' }, it.tool || ''),
                ' ',
                short(it.summary || '', 140),
                it.reason ? el('small', {}, ' — ' + it.reason) : null,
              ),
              el('small', {}, when(it.decided_at || it.at)),
            );
          });
        },
        1,
      ),
    60,
  );
  parts.approvals = {
    open() {
      draw();
      past();
    },
    leave() {
      setTimeout(count);
    },
    hear(event) {
      if (event.type === 'approval.asked') {
        if (event.data) past();
      }
      if (event.type === 'approval.decided') past();
    },
  };
  past();
}
