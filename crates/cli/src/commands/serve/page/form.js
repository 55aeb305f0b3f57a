// A form from a JSON schema: a field for each property.
const Form = {
  kind(schema) {
    if (schema.enum) return 'enum';
    const kinds = list(schema.type).filter(it => it !== 'null');
    if (kinds.length === 1 && kinds[0] !== 'array' && kinds[0] !== 'object') return kinds[0];
    if (kinds[0] === 'array' && list((schema.items || {}).type)[0] === 'string' && !(schema.items || {}).enum)
      return 'strings';
    return 'json';
  },
  limits(schema) {
    const said = [];
    if (schema.minimum != null && schema.maximum != null) said.push(schema.minimum + ' to ' + schema.maximum);
    else if (schema.maximum != null) said.push('at most ' + schema.maximum);
    if (schema.default !== undefined) said.push('else ' + JSON.stringify(schema.default));
    return said.join('; ');
  },
  control(kind, schema, required, id) {
    if (kind === 'enum') {
      return el(
        'select',
        { id },
        required ? null : el('option', { value: '' }, 'not set'),
        schema.enum.filter(it => it !== null).map(it => el('option', { value: JSON.stringify(it) }, String(it))),
      );
    }
    if (kind === 'boolean')
      return el(
        'select',
        { id },
        el('option', { value: '' }, 'not set'),
        ['true', 'false'].map(it => el('option', {}, it)),
      );
    if (kind === 'integer' || kind === 'number') {
      return el('input', {
        id,
        type: 'number',
        step: kind === 'integer' ? 1 : 'any',
        min: schema.minimum,
        max: schema.maximum,
        inputmode: kind === 'integer' ? 'numeric' : 'decimal',
      });
    }
    if (kind === 'string') return el('textarea', { id, rows: 1, spellcheck: 'false', autocapitalize: 'off' });
    const example =
      kind === 'strings' ? 'one a line' : list(schema.type)[0] === 'array' ? '[…] as JSON' : '{…} as JSON';
    return el('textarea', {
      id,
      rows: kind === 'strings' ? 2 : 3,
      class: 'mono',
      spellcheck: 'false',
      autocapitalize: 'off',
      placeholder: example,
    });
  },
  field(name, schema, required, prefix) {
    const kind = Form.kind(schema),
      id = prefix + '-' + name;
    const input = Form.control(kind, schema, required, id);
    const says = el('small', { class: 'bad', id: id + '-why', hidden: true });
    const about = [schema.description, Form.limits(schema)].filter(Boolean).join(' · ');
    const type =
      kind === 'strings' ? 'list of strings' : kind === 'json' ? list(schema.type).join(' or ') || 'any' : kind;
    const node = el(
      'div',
      { class: 'field' },
      el(
        'label',
        { for: id },
        el('code', {}, name),
        required ? el('span', { class: 'must', title: 'required' }, ' * ') : ' ',
        el('small', {}, type + (required ? ', required' : '')),
      ),
      about ? el('small', {}, about) : null,
      input,
      says,
    );
    const wrong = why => {
      node.classList.toggle('wrong', Boolean(why));
      says.textContent = why || '';
      says.hidden = !why;
      if (why) {
        input.setAttribute('aria-invalid', 'true');
        input.setAttribute('aria-describedby', says.id);
      } else input.removeAttribute('aria-invalid');
    };
    // An empty required string is a string; anything else that is empty is left out.
    const read = () => {
      const text = input.value;
      if (text === '') {
        if (!required) return undefined;
        if (kind === 'string') return '';
        throw new Error('this is required');
      }
      if (kind === 'string') return text;
      if (kind === 'strings') return text.split('\n').filter(it => it !== '');
      try {
        return JSON.parse(text);
      } catch {
        throw new Error(kind === 'json' ? 'this is not JSON yet' : 'this is not a ' + kind);
      }
    };
    return {
      name,
      node,
      input,
      read: () => {
        try {
          const value = read();
          wrong('');
          return { value };
        } catch (error) {
          wrong(error.message);
          return { error };
        }
      },
    };
  },
  /// The fields, and what reads them all: null when one is wrong, which then has the focus.
  of(schema, prefix) {
    const wanted = schema.required || [];
    const fields = Object.entries(schema.properties || {}).map(([name, it]) =>
      Form.field(name, it === true ? {} : it, wanted.includes(name), prefix),
    );
    fields.sort((one, two) => wanted.includes(two.name) - wanted.includes(one.name));
    const read = () => {
      const args = {};
      let first = null;
      for (const it of fields) {
        const { value, error } = it.read();
        if (error) first = first || it;
        else if (value !== undefined) args[it.name] = value;
      }
      if (first) first.input.focus();
      return first ? null : args;
    };
    const none = fields.length ? null : el('p', { class: 'dim' }, 'It takes no arguments.');
    return {
      node: el(
        'div',
        { class: 'fields' },
        fields.map(it => it.node),
        none,
      ),
      read,
    };
  },
};
