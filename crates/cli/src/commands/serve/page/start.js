// The start: tabs, keys, light and dark, and the stream of events.
{
  const names = Object.keys(parts).sort((one, two) => tabs().indexOf(one) - tabs().indexOf(two));
  function tabs() {
    return [...document.querySelectorAll('[role=tab]')].map(it => it.hash.slice(1));
  }
  let here = null;
  const go = () => {
    const [first, ...rest] = location.hash
      .slice(1)
      .split('/')
      .map(it => {
        try {
          return decodeURIComponent(it);
        } catch {
          return it;
        }
      });
    const name = parts[first] ? first : 'live';
    if (here && here !== name && parts[here].leave) parts[here].leave();
    for (const it of names) {
      $(it).hidden = it !== name;
      const tab = $('tab-' + it);
      tab.setAttribute('aria-selected', it === name);
      tab.tabIndex = it === name ? 0 : -1;
    }
    if (here !== name) {
      scrollTo(0, 0);
      $('tab-' + name).scrollIntoView({ block: 'nearest', inline: 'center' });
    }
    here = name;
    parts[name].open(rest);
  };
  addEventListener('hashchange', go);
  $('tabs').addEventListener('keydown', event => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const place = names.indexOf(document.activeElement.hash ? document.activeElement.hash.slice(1) : here);
    const next = step
      ? (place + step + names.length) % names.length
      : event.key === 'Home'
        ? 0
        : event.key === 'End'
          ? names.length - 1
          : -1;
    if (next < 0) return;
    event.preventDefault();
    location.hash = '#' + names[next];
    $('tab-' + names[next]).focus();
  });
  $('skip').addEventListener('click', event => {
    event.preventDefault();
    $('main').focus();
  });

  // Light and dark.
  const THEMES = ['auto', 'light', 'dark'];
  const kept = () => {
    try {
      return localStorage.getItem('helve-theme');
    } catch {
      return null;
    }
  };
  const usual = document.documentElement.dataset.usualTheme;
  let theme = [kept(), usual].find(it => THEMES.includes(it)) || 'auto';
  const dress = () => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    $('theme').textContent = theme[0].toUpperCase() + theme.slice(1);
    $('theme').setAttribute('aria-label', 'Colours: ' + theme);
    $('theme').title = 'Colours: ' + theme;
  };
  const turn = () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.setItem('helve-theme', theme);
    } catch {
      /* It holds until the page is left. */
    }
    dress();
  };
  $('theme').addEventListener('click', turn);
  dress();
  // An agent was asked for another one.
  parts.theme = {
    hear(event) {
      const { setting, value } = event.data || {};
      if (event.type !== 'session.setting' || setting !== 'theme' || !THEMES.includes(value)) return;
      theme = value;
      dress();
    },
  };

  // A path may break behind its slashes.
  const place = document.querySelector('.place bdi');
  place.replaceChildren(...place.textContent.split(/(?<=\/)/).flatMap(it => [it, el('wbr')]));

  // Keys.
  $('help').addEventListener('click', () => $('keys').showModal());
  $('keys-close').addEventListener('click', () => $('keys').close());
  addEventListener('keydown', event => {
    const target = event.target,
      writes = target.matches && target.matches('input, textarea, select');
    if (event.key === 'Escape' && writes) return target.blur();
    if (writes || event.ctrlKey || event.metaKey || event.altKey || $('keys').open) return;
    const does =
      {
        '/': () => {
          const field = $(here).querySelector('[data-filter]');
          if (field) field.focus();
        },
        '?': () => $('keys').showModal(),
        p: () => {
          if (here === 'live') parts.live.pause();
        },
        t: turn,
        n: () => {
          location.hash = '#sessions/new';
        },
      }[event.key] ||
      (names[Number(event.key) - 1]
        ? () => {
            location.hash = '#' + names[Number(event.key) - 1];
          }
        : null);
    if (does) {
      event.preventDefault();
      does();
    }
  });

  // Events.
  const say = (state, text) => {
    $('link').dataset.state = state;
    $('link').lastChild.textContent = text;
  };
  const events = new EventSource('/events');
  events.onopen = () => say('on', 'connected');
  events.onerror = () => say('off', 'lost, trying again');
  events.onmessage = message => {
    let event;
    try {
      event = JSON.parse(message.data);
    } catch {
      return;
    }
    for (const it of Object.values(parts)) if (it.hear) it.hear(event);
  };
  addEventListener('pagehide', () => events.close());
  go();
}
