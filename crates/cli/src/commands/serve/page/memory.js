// Memory: notes, their provenance, and passages of files and conversations that fit a question.
{
  const origin = it => {
    const from = it.source || {};
    if (from.file) return 'file ' + from.file + (from.first ? ', lines ' + from.first + ' to ' + from.last : '');
    if (from.session)
      return el('a', { href: '#sessions/' + encodeURIComponent(from.session) }, 'a conversation, message ' + from.seq);
    const by = it.origin;
    if (by === 'user') return 'a note of yours';
    return by === 'agent' || !by ? 'a note of an agent' : 'a note of an agent, after the words of a ' + show(by);
  };
  const split = text =>
    text
      .split(',')
      .map(it => it.trim())
      .filter(Boolean);
  const editor = (note, save, leave) => {
    const id = 'note-' + (note.id || 'new'),
      text = el('textarea', { id, rows: 4 }),
      tags = el('input', {
        id: id + '-tags',
        type: 'text',
        value: list(note.tags).join(', '),
        placeholder: 'tag, another tag',
      });
    text.value = note.text || '';
    const go = el('button', { class: 'main' }, 'Save');
    const form = el(
      'form',
      {
        class: 'card',
        onsubmit: event => {
          event.preventDefault();
          if (!text.value.trim()) return text.focus();
          act(go, () => save({ text: text.value.trim(), tags: split(tags.value) }));
        },
      },
      el('div', { class: 'field' }, el('label', { for: id }, 'Note'), text),
      el(
        'div',
        { class: 'field' },
        el('label', { for: id + '-tags' }, 'Tags ', el('small', {}, 'with commas between them')),
        tags,
      ),
      el('div', { class: 'acts' }, go, button('Cancel', leave, 'quiet')),
    );
    setTimeout(() => text.focus());
    return form;
  };
  const card = it => {
    const id = (it.source || {}).note;
    const acts = id
      ? el(
          'div',
          { class: 'acts' },
          button(
            'Edit',
            () => {
              const form = editor(
                { ...it, id },
                async body => {
                  await ask(at('memory', id), 'PUT', body);
                  toast('Saved.');
                  await read();
                },
                () => form.replaceWith(node),
              );
              node.replaceWith(form);
            },
            'small',
          ),
          sure({
            text: 'Delete',
            really: 'Really delete it?',
            to: at('memory', id),
            method: 'DELETE',
            next: () => {
              toast('Deleted.');
              return read();
            },
          }),
        )
      : null;
    const held =
      it.held && id
        ? el(
            'div',
            { class: 'note weak' },
            el('b', {}, 'Held back'),
            el(
              'p',
              {},
              'Somebody else’s words had come in when it was written. Agents do not find it until you let it go.',
            ),
            el(
              'div',
              { class: 'acts' },
              button(
                'Let it go',
                event =>
                  act(
                    event.currentTarget,
                    () => ask(at('memory', id, 'release'), 'POST').then(read),
                    'Agents find it now.',
                  ),
                'small',
              ),
            ),
          )
        : null;
    const node = el(
      'article',
      { class: 'card', 'data-note': id },
      el('p', { class: 'words' }, it.text),
      held,
      list(it.tags).length
        ? el(
            'p',
            { class: 'acts' },
            it.tags.map(tag => pill(tag)),
          )
        : null,
      el(
        'div',
        { class: 'acts' },
        el(
          'div',
          {},
          line(
            origin(it),
            when(it.updated || it.created),
            it.score == null ? '' : 'fits ' + Math.round(Math.min(1, it.score) * 100) + ' %',
          ),
        ),
        acts ? el('div', { class: 'push' }, acts) : null,
      ),
    );
    return node;
  };
  const read = () =>
    fill($('memory-list'), async () => {
      const q = $('memory-q').value.trim(),
        told = await ask('/api/memory?q=' + encodeURIComponent(q)),
        found = told.found || [];
      if (!found.length)
        return q
          ? empty('Nothing fits', 'Try other words, or fewer of them.')
          : empty(
              'No notes yet',
              'Agents keep notes with their memory tools, and you can add one: it is found again when it fits.',
              button('Add a note', () => toggle(true), 'main'),
            );
      return [
        el(
          'p',
          { class: 'dim' },
          q
            ? some(found.length, 'passage') + ', the best first'
            : found.length < told.total
              ? 'The newest ' + found.length + ' of ' + number(told.total) + ' notes; search finds the others.'
              : some(found.length, 'note') + ', the newest first',
        ),
        found.map(card),
      ];
    });
  const toggle = open => {
    $('memory-new').setAttribute('aria-expanded', open);
    $('memory-form').replaceChildren(
      ...(open
        ? [
            editor(
              {},
              async body => {
                await ask('/api/memory', 'POST', body);
                toast('Added.');
                toggle(false);
                $('memory-q').value = '';
                await read();
              },
              () => {
                toggle(false);
                $('memory-new').focus();
              },
            ),
          ]
        : []),
    );
  };
  $('memory-new').addEventListener('click', () => toggle($('memory-new').getAttribute('aria-expanded') !== 'true'));
  $('memory-ask').addEventListener('submit', event => {
    event.preventDefault();
    read();
  });
  parts.memory = { open: read };
}
