
'use strict';
// Everything that comes from a tool or a model goes in as text, never as markup.
const $ = id => document.getElementById(id);
const el = (tag, attributes, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  for (const child of children) if (child != null) node.append(child);
  return node;
};
const show = value => typeof value === 'string' ? value : JSON.stringify(value, null, 2);
const time = text => text ? new Date(text).toLocaleString() : '';
const ask = async (path, options) => {
  const reply = await fetch(path, options);
  const body = await reply.json();
  if (!reply.ok) throw new Error(body.error || reply.statusText);
  return body;
};
const fill = async (box, work) => {
  box.setAttribute('aria-busy', 'true');
  try { box.replaceChildren(...[].concat(await work())); }
  catch (error) { box.replaceChildren(el('p', { class: 'bad', role: 'alert' }, String(error.message || error))); }
  box.removeAttribute('aria-busy');
};
const empty = text => el('p', { class: 'dim' }, text);

// Live
const MOST = 500;
const rows = new Map();
let paused = false, waiting = [];
const fits = row => row.words.includes($('filter').value.trim().toLowerCase());
const tell = event => {
  if (event.type !== 'tool.call' && event.type !== 'tool.result') return;
  const data = event.data || {}, key = event.runId + ' ' + data.callId + ' ' + data.tool;
  let row = rows.get(key);
  if (!row || event.type === 'tool.call') {
    const state = el('span', { class: 'dim' }, 'running'), took = el('span', { class: 'dim' });
    const body = el('div');
    const node = el('details', {}, el('summary', {},
      el('span', { class: 'dim' }, new Date(event.timestamp).toLocaleTimeString()),
      el('span', {}, el('b', {}, data.tool || '')), el('span', { class: 'dim' }, event.dialect || ''),
      el('span', { class: 'dim' }, data.agentId || ''), state, took), body);
    row = { node, state, took, body, words: '' };
    rows.delete(key);
    rows.set(key, row);
    $('calls').prepend(node);
    $('none').hidden = true;
    if (rows.size > MOST) { const [old, first] = rows.entries().next().value; first.node.remove(); rows.delete(old); }
  }
  if (event.type === 'tool.call') row.body.append(el('h3', {}, 'Arguments'), el('pre', {}, show(data.args)));
  else {
    row.state.textContent = data.isError ? 'failed' : 'ok';
    row.state.className = data.isError ? 'bad' : 'good';
    row.took.textContent = (data.durationMs || 0).toFixed(1) + ' ms' + (data.wall ? ' · ' + data.wall : '');
    row.body.append(el('h3', {}, 'Reply'), el('pre', {}, show(data.result)));
    if ((data.notes || []).length) row.body.append(el('pre', {}, data.notes.join('\n')));
  }
  row.words += JSON.stringify([data, event.dialect]).toLowerCase();
  row.node.hidden = !fits(row);
};
$('filter').addEventListener('input', () => { for (const row of rows.values()) row.node.hidden = !fits(row); });
$('pause').addEventListener('click', () => {
  paused = !paused;
  $('pause').setAttribute('aria-pressed', paused);
  $('pause').textContent = paused ? 'Go on' : 'Pause';
  if (!paused) { waiting.forEach(tell); waiting = []; }
});
const events = new EventSource('/events');
events.onopen = () => { $('link').textContent = 'connected'; };
events.onerror = () => { $('link').textContent = 'the connection is lost; trying again'; };
events.onmessage = message => {
  const event = JSON.parse(message.data);
  if (!paused) return tell(event);
  waiting.push(event);
  if (waiting.length > 2 * MOST) waiting.shift();
};

// Tools
let dialects = null;
const field = (name, schema, required) => {
  const kind = [].concat(schema.type || []).find(it => it !== 'null');
  let input;
  if (schema.enum) {
    input = el('select', {}, required ? null : el('option', { value: '' }, ''),
      ...schema.enum.filter(it => it !== null).map(it => el('option', {}, String(it))));
  } else if (kind === 'boolean') input = el('select', {}, ...['', 'true', 'false'].map(it => el('option', {}, it)));
  else if (kind === 'integer' || kind === 'number') input = el('input', { type: 'number', step: kind === 'integer' ? 1 : 'any' });
  else if (kind === 'string') input = el('textarea', { rows: 1 });
  else input = el('textarea', { rows: 2, placeholder: 'JSON' });
  if (required) input.required = kind !== 'string';
  const read = () => {
    if (input.value === '' && !(required && kind === 'string')) return undefined;
    return kind === 'string' || (schema.enum && schema.enum.includes(input.value)) ? input.value : JSON.parse(input.value);
  };
  const label = el('label', { class: 'field' }, name + (required ? ' * ' : ' '),
    el('small', {}, schema.description || ''), el('br'), input);
  return { name, label, read };
};
const form = (dialect, tool) => {
  const schema = tool.parameters || {}, wanted = schema.required || [];
  const fields = Object.entries(schema.properties || {}).map(([name, it]) => field(name, it, wanted.includes(name)));
  const out = el('div', { 'aria-live': 'polite' });
  const send = event => {
    event.preventDefault();
    fill(out, async () => {
      const args = {};
      for (const it of fields) { const value = it.read(); if (value !== undefined) args[it.name] = value; }
      const body = JSON.stringify({ dialect, tool: tool.name, args });
      const reply = await ask('/api/call', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
      return [el('p', { class: reply.is_error ? 'bad' : 'good' }, reply.is_error ? 'failed' : 'ok'),
        el('pre', {}, reply.text || show(reply.data)),
        reply.notes.length ? el('pre', {}, reply.notes.join('\n')) : el('span')];
    });
  };
  return el('form', { onsubmit: send }, ...fields.map(it => it.label),
    el('p', { class: 'dim' }, 'A call is made for real, in the workspace; nothing is asked before it.'),
    el('button', {}, 'Call ' + tool.name), out);
};
const card = (dialect, tool) => {
  const node = el('details', {}, el('summary', {}, el('b', {}, tool.name), ' ',
    el('span', { class: 'dim' }, tool.tokens + ' tokens · ' + (tool.effects.join(', ') || 'no effects'))));
  node.addEventListener('toggle', () => {
    if (!node.open || node.children.length > 1) return;
    node.append(el('pre', {}, tool.description), form(dialect, tool),
      el('details', {}, el('summary', {}, 'Schema'), el('pre', {}, show(tool.parameters))));
  });
  return node;
};
const list = () => {
  const chosen = dialects.find(it => it.dialect === $('dialect').value);
  $('bill').textContent = chosen.tools.length + ' tools, ' + chosen.tokens + ' tokens';
  $('list').replaceChildren(...chosen.tools.map(tool => card(chosen.dialect, tool)));
};
$('dialect').addEventListener('change', list);
const tools = () => fill($('list'), async () => {
  if (!dialects) {
    const all = await ask('/api/tools');
    dialects = all.dialects;
    $('dialect').replaceChildren(...dialects.map(it => el('option', { selected: it.dialect === all.default }, it.dialect)));
  }
  list();
  return [...$('list').children];
});

// Sessions
const part = it => {
  if (it.type === 'text') return el('p', {}, it.text);
  if (it.type === 'tool_call') return el('details', {}, el('summary', {}, 'calls ' + it.name), el('pre', {}, it.input));
  if (it.type === 'tool_result') {
    return el('details', {}, el('summary', { class: it.is_error ? 'bad' : '' }, (it.is_error ? 'failed: ' : 'reply of ') + it.name),
      el('pre', {}, it.content));
  }
  if (it.type === 'reasoning') return el('details', {}, el('summary', {}, 'thought'), el('pre', {}, it.thinking));
  if (it.type === 'binary') return el('p', { class: 'dim' }, '[' + it.mime_type + ' ' + it.path + ']');
  return null;
};
const talk = id => {
  fill($('talk'), async () => {
    const { session, messages } = await ask('/api/sessions/' + encodeURIComponent(id));
    return [el('h3', { tabindex: -1 }, session.title || session.id), ...messages.map(it =>
      el('div', { class: 'card' }, el('p', { class: 'dim' }, it.role + ' · ' + time(it.created)), ...it.parts.map(part)))];
  }).then(() => { const head = $('talk').querySelector('h3'); if (head) head.focus(); });
};
const sessions = () => fill($('talks'), async () => {
  const { sessions, total } = await ask('/api/sessions');
  if (!total) return empty('No conversations yet. `helve chat` or `helve run` begins one.');
  return sessions.map(it => el('div', { class: 'card' },
    el('button', { type: 'button', onclick: () => talk(it.id) }, it.title || it.id),
    el('p', { class: 'dim' }, [time(it.updated), it.messages + ' messages', it.dialect, it.model,
      it.spent.prompt_tokens + it.spent.completion_tokens + ' tokens',
      it.spent.cost ? '$' + it.spent.cost.toFixed(4) : ''].filter(Boolean).join(' · '))));
});

// Schedules, memory, doctor
const schedules = () => fill($('plans'), async () => {
  const { schedules } = await ask('/api/schedules');
  if (!schedules.length) return empty('No schedules. An agent makes them with its tools.');
  return schedules.map(it => el('div', { class: 'card' }, el('p', {}, el('b', {}, it.name || it.schedule_id)), el('p', {}, it.goal),
    el('p', { class: 'dim' }, [it.status, JSON.stringify(it.cadence), it.next_run_at ? 'next ' + time(it.next_run_at) : 'not planned',
      it.last_run_status ? 'last: ' + it.last_run_status : ''].filter(Boolean).join(' · '))));
});
const memory = () => fill($('found'), async () => {
  const { found } = await ask('/api/memory?q=' + encodeURIComponent($('q').value));
  if (!found.length) return empty('Nothing found. Agents keep notes with their memory tools.');
  return found.map(it => el('div', { class: 'card' }, el('p', {}, it.text), el('p', { class: 'dim' },
    [JSON.stringify(it.source), it.score == null ? '' : 'score ' + it.score.toFixed(2), it.tags.join(', '), time(it.updated)]
      .filter(Boolean).join(' · '))));
});
$('ask').addEventListener('submit', event => { event.preventDefault(); memory(); });
const doctor = () => fill($('checks'), async () => {
  const { checks } = await ask('/api/doctor');
  return checks.map(it => el('div', { class: 'card' }, el('p', {}, el('span', { class: it.state === 'broken' ? 'bad' : it.state }, it.state),
    ' ', el('b', {}, it.name), ' ', it.text), it.next ? el('p', { class: 'dim' }, it.next) : null));
});
$('look').addEventListener('click', doctor);

const parts = { live: () => {}, tools, sessions, schedules, memory, doctor };
const go = () => {
  const name = parts[location.hash.slice(1)] ? location.hash.slice(1) : 'live';
  for (const it of Object.keys(parts)) $(it).hidden = it !== name;
  for (const link of document.querySelectorAll('nav a')) {
    if (link.hash === '#' + name) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  parts[name]();
};
addEventListener('hashchange', go);
go();
