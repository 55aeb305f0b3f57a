// Sessions: conversations, what was said in one, and a word to it.
{
  let known = [],
    current = null,
    latest = null;
  const plans = new Map();
  const tokens = it =>
    it.tokens || { input: (it.spent || {}).prompt_tokens || 0, output: (it.spent || {}).completion_tokens || 0 };
  const cost = it => it.cost ?? (it.spent || {}).cost ?? 0;
  const title = it => it.title || it.id;
  const rows = () => {
    const words = $('sessions-filter').value.trim().toLowerCase();
    const fit = known.filter(it => [it.title, it.id, it.dialect, it.agent].join(' ').toLowerCase().includes(words));
    if (!known.length) return el('p', { class: 'dim' }, 'No conversations yet; “New” starts one.');
    if (!fit.length) return el('p', { class: 'dim' }, 'None fits the filter.');
    return fit.map(it => {
      const sum = tokens(it);
      return el(
        'a',
        {
          class: 'talk',
          href: '#sessions/' + encodeURIComponent(it.id),
          'aria-current': it.id === current ? 'page' : null,
        },
        el('b', {}, title(it)),
        el(
          'small',
          {},
          it.running ? [el('span', { class: 'weak' }, 'running'), ' · '] : null,
          when(it.updated),
          ' · ' + [it.dialect, number(sum.input + sum.output) + ' tokens', money(cost(it))].filter(Boolean).join(' · '),
        ),
      );
    });
  };
  const redraw = () => $('sessions-list').replaceChildren(...[rows()].flat());
  const read = () =>
    fill(
      $('sessions-list'),
      async () => {
        known = (await ask('/api/sessions')).sessions || [];
        return rows();
      },
      4,
    );
  const noModel = () =>
    el(
      'div',
      { class: 'note weak', role: 'alert' },
      el('b', {}, 'There is no model that could answer.'),
      el(
        'p',
        {},
        'Tools, approvals, memory and MCP work without one. To have conversations, do one of these and start helve serve again:',
      ),
      el(
        'ul',
        { class: 'tight dots' },
        el(
          'li',
          {},
          'set a key in the environment, such as ',
          el('code', {}, 'OPENROUTER_API_KEY'),
          ', ',
          el('code', {}, 'OPENAI_API_KEY'),
          ' or ',
          el('code', {}, 'ANTHROPIC_API_KEY'),
        ),
        el('li', {}, 'start a model server on this machine, such as Ollama'),
        el(
          'li',
          {},
          'name any other with ',
          el('code', {}, 'HELVE_MODEL_BASE_URL'),
          ' and ',
          el('code', {}, 'HELVE_MODEL_NAME'),
        ),
      ),
    );

  // What was said.
  const used = (call, answer) =>
    fold(
      [
        el('code', {}, call.name),
        el('span', { class: 'line' }, Said.written(call.input)),
        answer
          ? pill(answer.is_error ? 'failed' : 'ok', answer.is_error ? 'bad mark-no' : 'good mark-ok')
          : pill('no reply yet', 'mark-wait'),
      ],
      () => {
        let args = call.input;
        try {
          args = JSON.parse(call.input);
        } catch {
          /* As the model wrote it. */
        }
        const diff = Diff.of(args, answer && answer.content);
        return [
          block('Arguments', Said.args(args, diff), call.input),
          diff ? block('Difference', Diff.view(diff), diff) : null,
          answer && answer.content !== diff
            ? block('Reply', Said.reply(answer.content, args && typeof args.command === 'string'), answer.content)
            : null,
        ];
      },
      'used',
    );
  const piece = (it, answers) => {
    const file = it.type === 'text' && /^\[Text of the attached file (.+?), as data:/.exec(it.text);
    if (file) return fold('Text of ' + file[1], () => el('p', { class: 'words' }, it.text));
    if (it.type === 'text') return it.text ? el('p', { class: 'words' }, it.text) : null;
    if (it.type === 'tool_call') return used(it, answers.get(it.id));
    if (it.type === 'reasoning')
      return it.thinking ? fold('Thought', () => el('p', { class: 'words dim' }, it.thinking)) : null;
    if (it.type === 'binary')
      return it.mime_type.startsWith('image/') && it.data
        ? picture(it.mime_type, it.data)
        : el('p', { class: 'dim' }, it.mime_type + ' ' + it.path);
    if (it.type === 'finish' && !['end_turn', 'tool_use', 'stop'].includes(it.reason))
      return pill('ended: ' + it.reason.replace(/_/g, ' '), 'weak');
    return null;
  };
  const messages = all => {
    const answers = new Map(),
      asked = new Set();
    for (const it of all)
      for (const one of it.parts || []) {
        if (one.type === 'tool_result') answers.set(one.tool_call_id, one);
        if (one.type === 'tool_call') asked.add(one.id);
      }
    const stray = one => one.type === 'tool_result' && !asked.has(one.tool_call_id);
    return all.map(it => {
      const told = (it.parts || [])
        .map(one => (stray(one) ? used({ name: one.name, input: '' }, one) : piece(one, answers)))
        .filter(Boolean);
      return told.length
        ? el(
            'article',
            { class: 'said ' + it.role, 'data-seq': it.seq },
            el(
              'header',
              {},
              el('b', {}, { user: 'you', assistant: 'agent', system: 'helve' }[it.role] || it.role),
              el('small', {}, when(it.created)),
            ),
            told,
          )
        : null;
    });
  };
  const branch = it =>
    el(
      'li',
      {},
      el(
        'div',
        {},
        el('a', { href: '#sessions/' + encodeURIComponent(it.id) }, short(title(it), 70)),
        it.agent ? pill(it.agent) : null,
        it.running ? pill('running', 'go mark-run') : null,
        el('small', { class: 'num' }, number(tokens(it).input + tokens(it).output) + ' tokens'),
      ),
      list(it.children).length ? el('ul', {}, it.children.map(branch)) : null,
    );

  const MAX_FILES = 16,
    MAX_BYTES = 20 * 1024 * 1024;
  const encode = file =>
    new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve({ name: file.name, data: reader.result.slice(reader.result.indexOf(',') + 1) });
      reader.onerror = () => reject(new Error('The browser cannot read ' + file.name + '.'));
      reader.readAsDataURL(file);
    });
  /// The files of a message that is being written: a button, a list, and whatever is dropped or pasted on the form.
  const attachments = chosen => {
    const files = [...chosen];
    const shown = el('ul', { class: 'files', 'aria-label': 'Attached files' });
    const input = el('input', { type: 'file', id: 'attach', multiple: true, hidden: true });
    const add = more => {
      const all = [...files, ...more];
      if (all.length > MAX_FILES) return toast('One message takes ' + MAX_FILES + ' files at most.', 'bad');
      if (all.reduce((sum, it) => sum + it.size, 0) > MAX_BYTES)
        return toast('The files of one message have ' + bytes(MAX_BYTES) + ' at most.', 'bad');
      files.push(...more);
      draw();
    };
    const draw = () =>
      shown.replaceChildren(
        ...files.map((it, index) =>
          el(
            'li',
            {},
            it.name + ' ',
            el('small', {}, bytes(it.size)),
            el(
              'button',
              {
                type: 'button',
                class: 'quiet small',
                'aria-label': 'Remove ' + it.name,
                onclick: () => {
                  files.splice(index, 1);
                  draw();
                },
              },
              '×',
            ),
          ),
        ),
      );
    input.addEventListener('change', () => {
      add([...input.files]);
      input.value = '';
    });
    const listen = form => {
      const carries = event => [...((event.dataTransfer || {}).types || [])].includes('Files');
      for (const kind of ['dragenter', 'dragover'])
        form.addEventListener(kind, event => {
          if (!carries(event)) return;
          event.preventDefault();
          form.classList.add('drop');
        });
      form.addEventListener('dragleave', event => {
        if (!form.contains(event.relatedTarget)) form.classList.remove('drop');
      });
      form.addEventListener('drop', event => {
        if (!carries(event)) return;
        event.preventDefault();
        form.classList.remove('drop');
        add([...event.dataTransfer.files]);
      });
      form.addEventListener('paste', event => {
        const pasted = [...((event.clipboardData || {}).files || [])];
        if (pasted.length) event.preventDefault();
        if (pasted.length) add(pasted);
      });
    };
    draw();
    return {
      files,
      shown,
      listen,
      act: [input, button('Attach', () => input.click(), 'small')],
      encoded: () => Promise.all(files.map(encode)),
      clear: () => {
        files.length = 0;
        draw();
      },
    };
  };

  /// Where one writes: Enter sends, with Shift it is a new line.
  const composer = (send, stop, hint, chosen = []) => {
    const text = el('textarea', { id: 'say', rows: 2, 'aria-label': 'Message', placeholder: hint });
    const go = el('button', { class: 'main' }, 'Send'),
      says = el('div'),
      attached = attachments(chosen);
    const form = el(
      'form',
      {
        class: 'composer',
        onsubmit: async event => {
          event.preventDefault();
          const words = text.value.trim();
          if (!words && !attached.files.length) return text.focus();
          go.disabled = true;
          try {
            const body = { message: words };
            if (attached.files.length) body.attachments = await attached.encoded();
            await send(body);
            text.value = '';
            attached.clear();
            says.replaceChildren();
          } catch (error) {
            says.replaceChildren(
              error.code === 'no_model' || (error.status === 503 && /model/.test(error.message))
                ? noModel()
                : trouble(error),
            );
          }
          go.disabled = false;
        },
      },
      says,
      text,
      attached.shown,
      el(
        'div',
        { class: 'acts' },
        go,
        attached.act,
        stop,
        el('small', { class: 'push' }, 'Enter sends, Shift+Enter is a new line'),
      ),
    );
    attached.listen(form);
    form.chosen = attached.files;
    text.addEventListener('keydown', event => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    return form;
  };
  const back = () => el('a', { class: 'button back', href: '#sessions' }, '← All conversations');
  const fresh = async () => {
    const names = await parts.tools.names().catch(() => []);
    const dialect = el(
      'select',
      { 'aria-label': 'Dialect' },
      el('option', { value: '' }, 'the usual dialect'),
      names.map(it => el('option', {}, it)),
    );
    const send = async body => {
      if (dialect.value) body.dialect = dialect.value;
      const told = await ask('/api/sessions', 'POST', body);
      location.hash = '#sessions/' + encodeURIComponent(told.session);
    };
    const form = composer(send, dialect, 'What is to be done?');
    $('sessions-main').replaceChildren(
      back(),
      el('h3', {}, 'A new conversation'),
      el(
        'p',
        { class: 'dim' },
        'An agent works in the workspace with the tools of a dialect. What it may not do by itself, it asks under Approvals.',
      ),
      form,
    );
    form.querySelector('textarea').focus();
  };
  const page = (it, told, children) => {
    const sum = tokens(it),
      stop = it.running
        ? sure({
            text: 'Stop',
            really: 'Really stop it?',
            to: at('sessions', it.id, 'stop'),
            body: {},
            next: () => reread(),
            kind: 'no',
          })
        : null;
    const turns = list(told.usage || it.usage);
    return {
      top: [
        back(),
        el(
          'div',
          { class: 'tight' },
          el('header', { class: 'acts' }, el('h3', {}, title(it)), it.running ? pill('running', 'go mark-run') : null),
          line(
            it.dialect,
            it.model,
            it.agent ? 'agent ' + it.agent : '',
            some(it.messages || 0, 'message'),
            number(sum.input) + ' tokens in, ' + number(sum.output) + ' out',
            money(cost(it)),
            it.parent
              ? el('a', { href: '#sessions/' + encodeURIComponent(it.parent) }, 'started by another conversation')
              : null,
          ),
        ),
        turns.length
          ? el(
              'details',
              { class: 'fold', open: innerWidth > 899 },
              el('summary', {}, 'Tokens and cost over time'),
              Drawing.usage(turns),
            )
          : null,
        children.length
          ? el('div', { class: 'tree' }, el('h4', {}, 'Agents it started'), el('ul', {}, children.map(branch)))
          : null,
      ],
      stop,
    };
  };
  const todos = id =>
    plans.has(id)
      ? el(
          'div',
          { class: 'card' },
          el('h4', {}, 'To do'),
          el(
            'ul',
            { class: 'tight' },
            plans
              .get(id)
              .map(it =>
                el(
                  'li',
                  { class: it.status === 'completed' ? 'dim' : '' },
                  ({ completed: '✓ ', in_progress: '▶ ' }[it.status] || '○ ') + it.content,
                ),
              ),
          ),
        )
      : null;
  const open = async (id, first) => {
    const box = $('sessions-main');
    if (first) box.replaceChildren(...bones(4));
    let told;
    try {
      told = await ask(at('sessions', id));
    } catch (error) {
      if (current !== id || !first) return;
      return box.replaceChildren(
        back(),
        error.status === 404
          ? empty('No such conversation', 'It may be in another state folder.')
          : trouble(error, () => open(id, true)),
      );
    }
    const it = told.session || told;
    const children = list(told.children);
    // Each knows its own children only.
    for (const child of children)
      child.children =
        (await ask('/api/sessions?parent=' + encodeURIComponent(child.id)).catch(() => ({}))).sessions || [];
    if (!first) await unpressed();
    if (current !== id) return;
    const { top, stop } = page(it, told, children);
    const all = messages(told.messages || []),
      had = box.querySelector('#said');
    const was = latest;
    latest = JSON.stringify([told.messages, it.running, children, told.usage, plans.get(id)]);
    if (!first && was === latest && had) return;
    const low = innerHeight + scrollY > document.body.scrollHeight - 160;
    const unfolded = first ? [] : [...box.querySelectorAll('.said details')].map(one => one.open);
    const old = first ? null : box.querySelector('.composer textarea'),
      words = old ? old.value : '',
      chosen = old ? old.form.chosen : [],
      focused = old && document.activeElement === old;
    const send = async body => {
      await ask(at('sessions', id, 'messages'), 'POST', body);
      reread();
    };
    const form = it.parent
      ? el(
          'div',
          { class: 'note' },
          el(
            'span',
            {},
            'Another conversation started this one. ',
            el('a', { href: '#sessions/' + encodeURIComponent(it.parent) }, 'Write there'),
            '.',
          ),
          stop,
        )
      : composer(send, stop, it.running ? 'Say something while it works' : 'Go on from here', chosen);
    box.replaceChildren(
      ...[
        ...top,
        el('div', { id: 'said', class: 'stack', 'aria-live': 'polite' }, all.filter(Boolean)),
        todos(id),
        it.running ? el('p', { class: 'acts dim' }, pill('working', 'go mark-run')) : null,
        form,
      ]
        .flat()
        .filter(Boolean),
    );
    [...box.querySelectorAll('.said details')].forEach((one, index) => {
      if (unfolded[index]) one.open = true;
    });
    const field = form.querySelector('textarea');
    if (field) field.value = words;
    if (field && focused) field.focus();
    if (first) box.focus({ preventScroll: true });
    else if (low) scrollTo(0, document.body.scrollHeight);
  };
  const reread = soon(() => {
    if (current && current !== 'new') open(current, false);
  }, 120);
  const relist = soon(read, 400);
  $('sessions-filter').addEventListener('input', redraw);
  $('sessions-new').addEventListener('click', () => {
    location.hash = '#sessions/new';
  });
  parts.sessions = {
    open(rest) {
      const id = rest[0] || null,
        same = id === current;
      current = id;
      $('sessions-two').classList.toggle('opened', Boolean(id));
      read();
      if (id === 'new') return fresh();
      if (id) return open(id, !same);
      $('sessions-main').replaceChildren(
        empty(
          'No conversation is open',
          'Choose one from the list, or start a new one. `helve chat` and `helve run` leave theirs here too.',
          link('New conversation', '#sessions/new'),
        ),
      );
    },
    leave() {
      current = null;
    },
    hear(event) {
      if (event.type === 'session.todos') plans.set(event.data.session, list(event.data.todos));
      if ($('sessions').hidden) return;
      if (event.type.startsWith('session.')) {
        relist();
        const data = event.data || {};
        if (!data.session || data.session === current) reread();
      } else if (event.type.startsWith('tool.') && current) reread();
    },
  };
}
