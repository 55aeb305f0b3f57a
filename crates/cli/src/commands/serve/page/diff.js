// Differences, and what a call says of itself.
const EDITS = [
  ['old_string', 'new_string'],
  ['old_text', 'new_text'],
  ['oldStr', 'newStr'],
  ['old_str', 'new_str'],
];
const Diff = {
  /// Coloured lines; the signs stay, for those who see no colours.
  view(text) {
    const kind = it =>
      /^(\+\+\+|---|diff |index |\*\*\* )/.test(it)
        ? 'file'
        : it.startsWith('@@')
          ? 'at'
          : it.startsWith('+')
            ? 'add'
            : it.startsWith('-')
              ? 'del'
              : '';
    const lines = String(text).replace(/\n$/, '').split('\n');
    return el(
      'pre',
      { class: 'diff', tabindex: 0, 'aria-label': 'Difference' },
      lines.map(it => el('span', { class: kind(it) }, it || ' ')),
    );
  },
  /// What changes from one text to another: the equal beginning and end are left out but for a few lines.
  between(before, after) {
    const one = before === '' ? [] : before.split('\n'),
      two = after === '' ? [] : after.split('\n');
    let head = 0,
      tail = 0;
    while (head < Math.min(one.length, two.length) && one[head] === two[head]) head++;
    while (tail < Math.min(one.length, two.length) - head && one[one.length - 1 - tail] === two[two.length - 1 - tail])
      tail++;
    return [
      ...one.slice(Math.max(0, head - 3), head).map(it => ' ' + it),
      ...one.slice(head, one.length - tail).map(it => '-' + it),
      ...two.slice(head, two.length - tail).map(it => '+' + it),
      ...one
        .slice(one.length - tail)
        .slice(0, 3)
        .map(it => ' ' + it),
    ].join('\n');
  },
  /// The difference in a call, wherever it is; null where there is none.
  of(args, result) {
    for (const it of [result && result.diff, result && result.patch, typeof result === 'string' ? result : null]) {
      if (typeof it === 'string' && (/^@@ /m.test(it) || /^diff --git /m.test(it))) return it;
    }
    if (!args || typeof args !== 'object') return null;
    for (const it of Object.values(args))
      if (typeof it === 'string' && (it.includes('*** Begin Patch') || (/^@@ /m.test(it) && /^\+\+\+ /m.test(it))))
        return it;
    for (const [one, two] of EDITS) {
      if (typeof args[one] === 'string' && typeof args[two] === 'string') return Diff.between(args[one], args[two]);
    }
    return null;
  },
};
const Said = {
  /// The argument that says most about a call.
  gist(args) {
    if (!args || typeof args !== 'object') return short(args ?? '');
    for (const name of [
      'command',
      'file_path',
      'path',
      'pattern',
      'query',
      'url',
      'goal',
      'prompt',
      'message',
      'text',
    ]) {
      if (typeof args[name] === 'string') return short(args[name]);
    }
    const first = Object.values(args).find(it => typeof it === 'string');
    return first === undefined ? short(JSON.stringify(args) === '{}' ? '' : JSON.stringify(args)) : short(first);
  },
  /// The same of arguments as a model wrote them.
  written(text) {
    try {
      return Said.gist(JSON.parse(text));
    } catch {
      return short(text);
    }
  },
  /// Arguments: a command as a terminal shows it, the rest by name.
  args(args, diff) {
    if (!args || typeof args !== 'object' || Array.isArray(args)) return el('pre', { tabindex: 0 }, show(args ?? ''));
    // What the difference shows is not said twice.
    const twice = diff ? EDITS.flat().concat('patch') : [];
    const rest = Object.entries(args).filter(
      ([name, it]) => !(name === 'command' && typeof it === 'string') && !twice.includes(name),
    );
    return el(
      'div',
      { class: 'stack' },
      typeof args.command === 'string' ? el('pre', { class: 'term', tabindex: 0 }, '$ ' + args.command) : null,
      rest.length
        ? el(
            'dl',
            { class: 'args' },
            rest.map(([name, it]) => [el('dt', {}, name), el('dd', {}, show(it))]),
          )
        : null,
      !Object.keys(args).length ? el('p', { class: 'dim' }, 'None.') : null,
    );
  },
  /// A reply: what a command wrote looks like a terminal.
  reply(result, isCommand) {
    const text = show(result ?? '');
    if (text === '') return el('p', { class: 'dim' }, 'It said nothing.');
    return el('pre', { class: isCommand && typeof result === 'string' ? 'term' : '', tabindex: 0 }, text);
  },
};
