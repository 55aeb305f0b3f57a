'use strict';
// What all parts use. Everything that comes from a tool or a model goes in as text, never as markup.
const $ = id => document.getElementById(id);
const put = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  for (const child of children.flat(3)) if (child != null && child !== false && child !== '') node.append(child);
  return node;
};
const el = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  put(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
const button = (text, onclick, kind) => el('button', { type: 'button', class: kind, onclick }, text);
const pill = (text, kind) => el('span', { class: 'pill ' + (kind || '') }, text);

// Words for values.
const show = value => (typeof value === 'string' ? value : JSON.stringify(value, null, 2));
const list = value => (Array.isArray(value) ? value : value == null ? [] : [value]);
const short = (text, most = 160) => {
  const line = String(text).replace(/\s+/g, ' ').trim();
  return line.length > most ? line.slice(0, most - 1) + '…' : line;
};
const number = value => Number(value || 0).toLocaleString('en');
const some = (count, one, more) => number(count) + ' ' + (count === 1 ? one : more || one + 's');
const bytes = count =>
  count < 1024
    ? count + ' B'
    : count < 1 << 20
      ? (count / 1024).toFixed(1) + ' KiB'
      : (count / (1 << 20)).toFixed(1) + ' MiB';
const money = value => (value ? '$' + (value < 0.01 ? value.toFixed(4) : value.toFixed(2)) : '');
const lasted = ms => {
  if (ms == null) return '';
  if (ms < 1000) return (ms < 10 ? ms.toFixed(1) : Math.round(ms)) + ' ms';
  if (ms < 60000) return (ms / 1000).toFixed(1) + ' s';
  const [count, unit, rest, less] = ms < 3600000 ? [60000, ' min', 1000, ' s'] : [3600000, ' h', 60000, ' min'];
  const over = Math.floor((ms % count) / rest);
  return Math.floor(ms / count) + unit + (over ? ' ' + over + less : '');
};
const clock = text => new Date(text).toLocaleTimeString('en-GB');
const distance = text => {
  const seconds = (Date.now() - new Date(text)) / 1000,
    far = Math.abs(seconds);
  if (Number.isNaN(seconds)) return '';
  const [count, unit] =
    far < 60 ? [far, 's'] : far < 3600 ? [far / 60, 'min'] : far < 172800 ? [far / 3600, 'h'] : [far / 86400, 'days'];
  if (far < 5) return 'now';
  const words = Math.floor(count) + ' ' + unit;
  return seconds >= 0 ? words + ' ago' : 'in ' + words;
};
const when = text =>
  text ? el('time', { datetime: text, title: new Date(text).toLocaleString() }, distance(text)) : null;
setInterval(() => {
  for (const it of document.querySelectorAll('time[datetime]')) it.textContent = distance(it.dateTime);
}, 5000);
/// Parts of a line, without those that say nothing.
const line = (...parts) =>
  el(
    'p',
    { class: 'line' },
    parts
      .filter(it => it != null && it !== '' && it !== false)
      .map(it => (typeof it === 'string' ? el('span', {}, it) : it)),
  );

// The server.
const ask = async (path, method, body) => {
  const options = { method: method || 'GET', headers: {} };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers['Content-Type'] = 'application/json';
  }
  let reply;
  try {
    reply = await fetch(path, options);
  } catch {
    throw Object.assign(new Error('The server cannot be reached. Is `helve serve` still running?'), { status: 0 });
  }
  const told = await reply.json().catch(() => ({}));
  if (reply.ok) return told;
  throw Object.assign(new Error(told.error || reply.statusText || 'status ' + reply.status), {
    status: reply.status,
    code: told.code,
  });
};
const at = (...steps) => '/api/' + steps.map(encodeURIComponent).join('/');

// Boxes that are filled: bones at first, what was there while it is read again, and a word when it fails.
const bones = count => Array.from({ length: count }, () => el('div', { class: 'bone' }));
const empty = (head, text, ...acts) =>
  el(
    'div',
    { class: 'empty' },
    el('b', {}, head),
    el('p', {}, text),
    acts.length ? el('div', { class: 'acts' }, acts) : null,
  );
const link = (text, href) => el('a', { class: 'button', href }, text);
const trouble = (error, again) =>
  error.status === 404 && error.code === 'not_found' && again
    ? empty('Not in this version', 'This server does not offer that part yet. A newer helve does.')
    : el(
        'div',
        { class: 'note bad', role: 'alert' },
        el('b', {}, 'That did not work.'),
        el('p', { class: 'words' }, error.message),
        again ? el('div', { class: 'acts' }, button('Try again', again, 'small')) : null,
      );
// A press ends on what it began on: what is drawn anew waits until nothing is pressed any more.
let pressed = false;
const afterPress = [];
addEventListener('pointerdown', () => (pressed = true), true);
for (const end of ['pointerup', 'pointercancel', 'dragend', 'blur'])
  addEventListener(
    end,
    () => {
      pressed = false;
      // The click comes right after the end of the press.
      setTimeout(() => afterPress.splice(0).forEach(wake => wake()));
    },
    true,
  );
const unpressed = async () => {
  while (pressed) await new Promise(wake => afterPress.push(wake));
};
const fill = async (box, work, count = 3) => {
  const turn = (box.turn || 0) + 1;
  box.turn = turn;
  box.setAttribute('aria-busy', 'true');
  if (!box.hasChildNodes()) box.append(...bones(count));
  let made;
  try {
    made = [await work()].flat(3).filter(Boolean);
  } catch (error) {
    if (!error.status && error.status !== 0) console.error(error);
    made = [trouble(error, () => fill(box, work, count))];
  }
  await unpressed();
  // A later reading has the last word.
  if (box.turn !== turn) return;
  box.replaceChildren(...made);
  box.removeAttribute('aria-busy');
};

const toast = (text, kind) => {
  const node = el('div', { class: 'toast ' + (kind || '') }, text);
  $('toasts').append(node);
  setTimeout(() => node.remove(), kind === 'bad' ? 8000 : 4000);
};
/// Does something for a button, which waits as long; what goes wrong is told.
const act = async (node, work, done) => {
  node.disabled = true;
  try {
    await work();
    if (done) toast(done);
  } catch (error) {
    toast(error.message, 'bad');
  }
  node.disabled = false;
};
/// Buttons that were pressed once, by the address they ask for.
const half = new Map();
/// A button that wants to be pressed twice. It asks for the address `to`, and then does `next`. When it is drawn anew
/// between the two, it keeps the first press and the focus.
const sure = ({ text, really, to, body, method = 'POST', next, kind = 'small no' }) => {
  const rest = () => {
    clearTimeout((half.get(to) || {}).timer);
    half.delete(to);
    node.textContent = text;
  };
  const wait = () => {
    node.textContent = really;
    half.set(to, { node, timer: setTimeout(rest, 8000) });
  };
  const node = button(
    text,
    () => {
      if (!half.has(to)) return wait();
      rest();
      return act(node, () => ask(to, method, body).then(next));
    },
    kind,
  );
  const old = half.get(to);
  if (old) {
    clearTimeout(old.timer);
    if (document.activeElement === old.node) queueMicrotask(() => node.focus({ preventScroll: true }));
    wait();
  }
  return node;
};
const copy = text =>
  navigator.clipboard
    ? button(
        'Copy',
        event => {
          const node = event.currentTarget;
          navigator.clipboard.writeText(text).then(
            () => {
              node.textContent = 'Copied';
              setTimeout(() => {
                node.textContent = 'Copy';
              }, 1500);
            },
            () => toast('The browser does not allow it.', 'bad'),
          );
        },
        'quiet small',
      )
    : null;
const block = (head, node, text) =>
  el('div', { class: 'part' }, el('header', {}, el('h4', {}, head), text ? copy(text) : null), node);
const fold = (head, make, kind) => {
  const node = el('details', { class: 'fold ' + (kind || '') }, el('summary', {}, head));
  node.addEventListener('toggle', () => {
    if (node.open && node.children.length < 2) node.append(el('div', {}, make()));
  });
  return node;
};
/// Runs a little after the last of several wishes.
const soon = (work, ms = 150) => {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), ms);
  };
};
/// A picture without an address: nothing but bytes is drawn.
const picture = (mime, base64) => {
  const canvas = el('canvas', { class: 'picture', role: 'img', 'aria-label': mime });
  const raw = Uint8Array.from(atob(base64), it => it.charCodeAt(0));
  createImageBitmap(new Blob([raw], { type: mime })).then(
    map => {
      const scale = Math.min(1, 640 / map.width);
      canvas.width = map.width * scale;
      canvas.height = map.height * scale;
      canvas.getContext('2d').drawImage(map, 0, 0, canvas.width, canvas.height);
    },
    () => canvas.replaceWith(el('small', {}, mime + ', ' + bytes(raw.length))),
  );
  return canvas;
};

/// The parts: each may `open(rest)` when it is gone to, `leave()`, and `hear(event)`.
const parts = {};
