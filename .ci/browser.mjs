// The page of `helve serve` as a person uses it: what is asked of it is done with a mouse, keys and a narrow window, and
// what comes of it is looked at on the page and in the workspace. `.ci/browser` starts this.
import { spawn, execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { pathToFileURL } from 'node:url';

const {
  HELVE_TEST_BIN: bin,
  HELVE_TEST_CHROMIUM: executablePath,
  HELVE_TEST_FOLDER: folder,
  HELVE_SHOTS: shots,
} = process.env;
const { chromium } = await import(pathToFileURL(process.env.HELVE_TEST_PLAYWRIGHT).href);
const began = Date.now();
const PATIENCE = 30_000;
const home = path.join(folder, 'home'),
  work = path.join(folder, 'work');

const must = (holds, why) => {
  if (!holds) throw new Error(why);
};
const told = [];
const story = async (name, steps) => {
  const start = Date.now();
  try {
    await steps();
  } catch (error) {
    error.message = `${name}: ${error.message}`;
    throw error;
  }
  told.push(name);
  console.log(`ok  ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
};
/// Waits until something holds.
const until = async (what, holds) => {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const value = await holds();
    if (value) return value;
    must(Date.now() < end, `${what} did not come about`);
    await new Promise(wake => setTimeout(wake, 50));
  }
};

// The workspace: a repository, and plans of tasks with a place where they are merged.
const write = (name, text) => {
  const file = path.join(folder, name);
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, text);
};
const git = (...args) =>
  execFileSync('git', args, { cwd: work, env: { PATH: process.env.PATH, HOME: home }, stdio: 'pipe' }).toString();
const document = (id, kind, needs) =>
  [
    '---',
    `id: ${id}`,
    `title: Part ${id}`,
    `type: ${kind}`,
    `dependencies: ${JSON.stringify(needs)}`,
    'acceptance_criteria:',
    '  - it is there',
    'estimated_complexity: small',
    '---',
    '## Description',
    'Write the part.',
    '## Context',
    'A list of parts.',
    '## Instructions',
    'Write it.',
    '',
  ].join('\n');
const prepare = () => {
  for (const it of [home, work]) fs.mkdirSync(it, { recursive: true });
  write('work/a.txt', 'the first line\n');
  write('work/test.sh', 'test -f parts/t1.txt && test -f parts/t2.txt\n');
  git('init', '--quiet', '--initial-branch=main');
  git('add', '--all');
  git('-c', 'user.name=A', '-c', 'user.email=a@b', 'commit', '--quiet', '-m', 'Begin');
  write('work/.forge/.gitignore', '*\n');
  planned('parts', [
    ['t1', 1, []],
    ['t2', 1, []],
    ['r1', 'refinery', ['t1', 't2']],
  ]);
};
/// A run with these tasks: the name, the kind, and what must be there before.
const planned = (runId, tasks) => {
  const nodes = tasks.map(([id, kind, dependencies]) => ({
    id,
    type: kind === 'refinery' ? kind : 'task',
    agentType: kind,
    dependencies,
    status: 'PENDING',
  }));
  const totalRefineries = nodes.filter(it => it.type === 'refinery').length;
  const totalTasks = nodes.length - totalRefineries;
  const metadata = { createdAt: '2026-01-01T00:00:00Z', createdBy: 'captain', totalTasks, totalRefineries };
  write(`work/.forge/artifacts/${runId}/dag.json`, JSON.stringify({ version: 1, runId, nodes, metadata }));
  for (const [id, kind, needs] of tasks)
    write(`work/.forge/artifacts/${runId}/tasks/${id}.md`, document(id, kind, needs));
};

// What the model says.
const usage = [1200, 80];
const call = (name, args, text = '') => ({ text, usage, calls: [{ name, args }] });
const walkthrough = {
  status: 'completed',
  confidence: 0.9,
  summary: 'Did what was asked.',
  risks: ['the part is short'],
};
const worker = id => ({
  when: `Your task is ${id}.`,
  steps: [
    call(
      'bash',
      {
        command: `mkdir -p parts && echo ${id} > parts/${id}.txt && git add --all && git commit --quiet -m 'Add ${id}'`,
      },
      `I begin ${id}.`,
    ),
    call('emit_walkthrough', { walkthrough }),
    { text: 'Done.', usage, times: 50 },
  ],
});
const refinery = (id, tasks, ...wishes) => ({
  when: `Your task is ${id}: merge`,
  steps: [
    call('merge_branches', { sourceBranches: tasks.map(it => `forge/${it}/1`), targetBranch: `forge/${id}/1` }),
    call('run_tests', { command: 'sh test.sh' }),
    ...wishes,
    call('emit_walkthrough', { walkthrough }),
    { text: 'Merged.', usage, times: 50 },
  ],
});
const silence = { text: 'Let me think about it.', fault: { stall_after: 2 } };
const order = call('Agent', {
  description: 'count',
  prompt: 'Count to three.',
  subagent_type: 'general-purpose',
});
const wish = (title, reason) => call('emit_cr', { title, description: `${title}, please.`, reason });
const script = {
  lanes: [
    worker('t1'),
    worker('t2'),
    refinery('r1', ['t1', 't2']),
    worker('m1'),
    refinery('r2', ['m1'], wish('A third part', 'Nobody wrote it.'), wish('A hundredth part', 'There could be one.')),
    worker('m2'),
    worker('m3'),
    refinery('r3', ['m2', 'm3']),
    {
      when: 'A run is under way',
      steps: [
        {
          text: JSON.stringify({
            addedNodes: [{ id: 'm3', type: 'task', agentType: 1, dependencies: ['r2'] }],
            addedEdges: [{ from: 'm3', to: 'r3' }],
            tasks: { m3: document('m3', 1, ['r2']) },
          }),
          usage,
        },
      ],
    },
    { when: 'Your task is l1.', steps: [silence] },
    { when: 'Count to three', steps: [{ text: 'One, two, three.', usage }] },
    { when: 'Let somebody count', steps: [order, { text: 'It counted.', usage }] },
    { when: 'Read my files', steps: [{ text: 'Both files are read.', usage, expect: 'dropped words' }] },
    { when: 'Think for long', steps: [silence, { text: 'I have stopped.', usage }] },
  ],
  steps: [
    call('Bash', { command: 'echo made > made.txt' }, 'I make it.'),
    { text: 'It is made.', usage },
    call('AskUserQuestion', {
      questions: [
        {
          question: 'Which unit?',
          header: 'Unit',
          multiSelect: false,
          options: [
            { label: 'Metres', description: 'As everywhere' },
            { label: 'Feet', description: 'As nowhere' },
          ],
        },
      ],
    }),
    { text: 'Metres it is.', usage, expect: 'Metres' },
  ],
  then: 'There is nothing more to say.',
};

// The programs.
const started = [];
const start = (program, args, env) => {
  const child = spawn(path.join(bin, program), args, {
    cwd: work,
    env: { PATH: process.env.PATH, HOME: home, LANG: 'C.UTF-8', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  child.said = '';
  for (const pipe of [child.stdout, child.stderr])
    pipe.on('data', text => {
      child.said += text;
    });
  started.push(child);
  return child;
};
const finish = async child => {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise(wake => child.once('exit', wake));
  child.kill('SIGTERM');
  const late = setTimeout(() => child.kill('SIGKILL'), 15_000);
  await ended;
  clearTimeout(late);
};

let browser, server, site, token;
const api = async (way, body, method = body === undefined ? 'GET' : 'POST') => {
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const reply = await fetch(site + way, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return { status: reply.status, body: await reply.json() };
};

// Pages, and what was wrong on them.
const wrong = [];
const open = async (width, height, colorScheme) => {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.on('console', message => {
    if (message.type() === 'error' || message.type() === 'warning')
      wrong.push(`${width}: ${message.text()} ${message.location().url}`);
  });
  page.on('pageerror', error => wrong.push(`${width}: ${error.stack}`));
  await page.goto(`${site}/?token=${token}`);
  await page.locator('#link[data-state=on]').waitFor();
  return page;
};
const go = async (page, where) => {
  await page.evaluate(hash => {
    location.hash = hash;
  }, where);
  await page.locator(`#${where.split('/')[0]}:not([hidden])`).waitFor();
};
const shoot = async (page, name) => {
  if (shots) await page.screenshot({ path: path.join(shots, `${name}.png`), animations: 'disabled' });
};
const text = (page, selector) => page.locator(selector).first().innerText();
const settled = page =>
  page.waitForFunction(
    () => !document.querySelector('main > section:not([hidden]) [aria-busy], main > section:not([hidden]) .bone'),
  );
const PARTS = ['live', 'approvals', 'tools', 'sessions', 'schedules', 'memory', 'forge', 'policy'];

/// What can be pressed can be reached by keys and has a name; nothing sticks out.
const looksRight = async (page, name) => {
  const found = await page.evaluate(() => {
    const seen = node => node.checkVisibility({ checkVisibilityCSS: true });
    const controls = [
      ...document.querySelectorAll('button, input, select, textarea, a[href], summary, [role=button]'),
    ].filter(seen);
    const tell = node => node.outerHTML.slice(0, 120);
    return {
      over: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      unreachable: controls
        .filter(it => it.tabIndex < 0 && it.getAttribute('role') !== 'tab' && !it.disabled)
        .map(tell),
      nameless: controls
        .filter(
          it => !(it.innerText || '').trim() && !it.getAttribute('aria-label') && !(it.labels && it.labels.length),
        )
        .map(tell),
      tiny: controls
        .filter(it => {
          const box = it.getBoundingClientRect();
          return box.height > 0 && box.height < 16;
        })
        .map(tell),
    };
  });
  must(found.over <= 0, `${name} is ${found.over} px too wide`);
  found.faint = (await contrast(page)).faint;
  for (const kind of ['unreachable', 'nameless', 'tiny', 'faint'])
    must(!found[kind].length, `${name}: ${kind}: ${found[kind].join(' ')}`);
};
/// How far text stands out from what is behind it: of the page, and where it is least.
const contrast = page =>
  page.evaluate(() => {
    const numbers = color => color.match(/[\d.]+/g).map(Number);
    const light = color => {
      const [r, g, b] = numbers(color).map(it =>
        it <= 10.31 ? it / 255 / 12.92 : ((it / 255 + 0.055) / 1.055) ** 2.4,
      );
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = node => {
      for (let it = node; it; it = it.parentElement) {
        const color = getComputedStyle(it).backgroundColor;
        if (numbers(color)[3] !== 0) return color;
      }
      return 'rgb(255, 255, 255)';
    };
    const ratio = (one, two) => (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    const told = node => [...node.childNodes].some(it => it.nodeType === Node.TEXT_NODE && it.data.trim());
    const nodes = [...document.querySelectorAll('body *:not(script):not(style):not(svg *)')];
    const faint = nodes
      .filter(it => it.checkVisibility({ checkVisibilityCSS: true }) && told(it) && !it.matches(':disabled, .skip'))
      .filter(it => ratio(light(getComputedStyle(it).color), light(behind(it))) < 4.5)
      .map(it => it.outerHTML.slice(0, 120));
    const body = getComputedStyle(document.body);
    return { dark: light(body.backgroundColor) < light(body.color), faint };
  });

const run = async () => {
  prepare();
  if (shots) fs.mkdirSync(shots, { recursive: true });
  write('script.json', JSON.stringify(script));
  const model = start('helve-script', [path.join(folder, 'script.json')], {
    HELVE_SCRIPT_LOG: path.join(folder, 'model.log'),
  });
  const url = await until('the address of the model', () => model.said.trim());
  server = start('helve', ['serve', '--workspace', work, '--http', '127.0.0.1:0'], {
    HELVE_MODEL_BASE_URL: url,
    HELVE_MODEL_NAME: 'scripted',
  });
  [, site, token] = await until('the address of the page', () =>
    server.said.match(/(http:\/\/[^/\s]+)\/\?token=(\w+)/),
  );
  await until('a model', () => server.said.includes('schedules run with'));
  browser = await chromium.launch({
    executablePath,
    args: [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
  const page = await open(1280, 900, 'light');

  await story('the address with the token leads to the page', async () => {
    must(page.url() === `${site}/`, page.url());
    must((await text(page, '#live-none')).includes('No calls yet'), 'an empty list says what to do');
    await shoot(page, 'live-empty-1280');
  });

  await story('a call arrives live', async () => {
    await api('/api/call', { dialect: 'solo', tool: 'read', args: { path: 'a.txt' } });
    const row = page.locator('.row', { hasText: 'a.txt' });
    await row.locator('.pill.good').waitFor();
    must((await row.innerText()).includes('solo'), 'the dialect is told');
    await row.locator('summary').click();
    await row.locator('pre', { hasText: 'the first line' }).waitFor();
    const edit = { path: 'a.txt', old_text: 'the first line', new_text: '<b>the only line</b>' };
    await api('/api/call', { dialect: 'solo', tool: 'edit', args: edit });
    const edited = page.locator('.row', { hasText: 'edit' });
    await edited.locator('summary').click();
    must(
      (await edited.locator('.diff .add').first().innerText()).includes('+<b>the only line</b>'),
      'markup stays text',
    );
    must((await edited.locator('.diff .del').first().innerText()).includes('-the first line'), 'what went is shown');
    await shoot(page, 'live-1280');
    await page.keyboard.press('/');
    await page.keyboard.type('nothing has this');
    await page.locator('#live-none', { hasText: 'No call fits the filter' }).waitFor();
    await page.locator('#live-none button').click();
    await page.keyboard.press('Escape');
    await page.locator('h2:visible').click();
    await page.keyboard.press('p');
    await api('/api/call', { dialect: 'solo', tool: 'ls', args: {} });
    await page.locator('#live-pause', { hasText: '1 new' }).waitFor();
    must((await page.locator('.row').count()) === 2, 'a paused list stands still');
    await page.keyboard.press('p');
    await page.waitForFunction(() => document.querySelectorAll('.row').length === 3);
  });

  await story('one call is allowed, one denied with a reason', async () => {
    const yes = api('/api/call', {
      dialect: 'claude',
      tool: 'Bash',
      args: { command: 'echo yes > yes.txt' },
      ask: true,
    });
    await page.locator('#badge', { hasText: '1' }).waitFor();
    must((await page.title()) === '(1) Helve', await page.title());
    await page.locator('#waiting a').click();
    const card = page.locator('#approvals .ask');
    must((await card.innerText()).includes('echo yes > yes.txt'), 'the command is in view');
    await shoot(page, 'approvals-1280');
    await card.getByRole('button', { name: 'Allow once' }).click();
    must((await yes).body.is_error === false, JSON.stringify((await yes).body));
    must(fs.readFileSync(path.join(work, 'yes.txt'), 'utf8') === 'yes\n', 'the command ran');
    await page.locator('#badge').waitFor({ state: 'hidden' });
    const no = api('/api/call', { dialect: 'claude', tool: 'Bash', args: { command: 'rm yes.txt' }, ask: true });
    await card.getByRole('button', { name: 'Deny …' }).click();
    await page.keyboard.type('it is still needed');
    await card.getByRole('button', { name: 'Deny it' }).click();
    const denied = (await no).body;
    must(denied.is_error && denied.text.includes('it is still needed'), JSON.stringify(denied));
    must(fs.existsSync(path.join(work, 'yes.txt')), 'nothing was removed');
    await page.locator('#approvals-decided .past', { hasText: 'it is still needed' }).waitFor();
    must((await page.title()) === 'Helve', await page.title());
  });

  await story('a tool is tried from its form', async () => {
    await go(page, 'tools');
    await settled(page);
    must((await page.locator('.matrix .of').count()) >= 5, 'the dialects are side by side');
    await shoot(page, 'tools-1280');
    await page.locator('.tool', { hasText: /^FileRead/ }).click();
    must((await text(page, '#tools-one .card')).includes('tokens'), 'the price is told');
    await page.locator('#try-limit').fill('5');
    await page.locator('#try-file_path').fill(path.join(work, 'a.txt'));
    await page.getByRole('button', { name: 'Call FileRead' }).click();
    await page.locator('#try-out pre', { hasText: 'the only line' }).waitFor();
    await shoot(page, 'tool-1280');
    await page.locator('.tool', { hasText: /^FileWrite/ }).click();
    await page.locator('#try-file_path').fill(path.join(work, 'asked.txt'));
    await page.locator('#try-content').fill('asked\n');
    await page.locator('#try-ask').check();
    await page.getByRole('button', { name: 'Call FileWrite' }).click();
    await page.locator('#waiting a').click();
    must((await text(page, '#approvals .ask')).includes('until the session ends'), 'the grant is told');
    await page.getByRole('button', { name: 'Allow for the session' }).click();
    await until('the file', () => fs.existsSync(path.join(work, 'asked.txt')));
  });

  await story('a conversation: a message, a consent, a question', async () => {
    await page.keyboard.press('n');
    await page.locator('#say').fill('Make a file.');
    await page.keyboard.press('Enter');
    await page.locator('.said.user', { hasText: 'Make a file.' }).waitFor();
    await page.locator('#waiting a').click();
    await page.getByRole('button', { name: 'Allow once' }).click();
    await page.goBack();
    await page.locator('.said.assistant', { hasText: 'It is made.' }).waitFor();
    must(fs.readFileSync(path.join(work, 'made.txt'), 'utf8') === 'made\n', 'the agent wrote it');
    await page.locator('.used', { hasText: 'Bash' }).locator('summary').click();
    await page.locator('svg.chart[role=img]').waitFor();
    await page.locator('#say').fill('Now ask me something.');
    await page.keyboard.press('Enter');
    await page.locator('#waiting a').click();
    await page.getByLabel('Metres').check();
    await shoot(page, 'question-1280');
    await page.getByRole('button', { name: 'Answer', exact: true }).click();
    await page.goBack();
    await page.locator('.said.assistant', { hasText: 'Metres it is.' }).waitFor();
    await page.waitForFunction(() => !document.querySelector('#sessions-main .mark-run'));
    await shoot(page, 'talk-1280');
  });

  await story('files are chosen, dropped, removed and sent', async () => {
    await go(page, 'sessions/new');
    await page.locator('#say').fill('Read my files.');
    const file = (name, words) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(words) });
    await page.locator('#attach').setInputFiles([file('chosen.txt', 'chosen words'), file('wrong.txt', 'not these')]);
    await page.getByRole('button', { name: 'Remove wrong.txt' }).click();
    const carried = await page.evaluateHandle(() => {
      const data = new DataTransfer();
      data.items.add(new File(['dropped words'], 'dropped.txt', { type: 'text/plain' }));
      return data;
    });
    await page.locator('.composer').dispatchEvent('dragover', { dataTransfer: carried });
    await page.locator('.composer.drop').waitFor();
    await page.locator('.composer').dispatchEvent('drop', { dataTransfer: carried });
    await page.locator('.files li', { hasText: 'dropped.txt' }).waitFor();
    must((await page.locator('.files li').count()) === 2, 'two files are attached');
    await page.locator('#say').press('Enter');
    const said = page.locator('.said.user', { hasText: 'dropped.txt (text/plain, 13 bytes)' });
    await said.waitFor();
    must(!(await said.innerText()).includes('wrong.txt'), 'what was removed is not sent');
    await page.locator('.said.assistant', { hasText: 'Both files are read.' }).waitFor();
    must((await page.locator('.files li').count()) === 0, 'the files went with the message');
    await page.evaluate(() => {
      const data = new DataTransfer();
      for (let index = 0; index < 17; index++) data.items.add(new File(['x'], index + '.txt'));
      document.querySelector('.composer').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true }));
    });
    await page.locator('.toast', { hasText: 'One message takes 16 files at most.' }).waitFor();
  });

  await story('a note is added, changed and found', async () => {
    await go(page, 'memory');
    await page.locator('#memory-new').click();
    await page.getByLabel('Note').fill('The mount moves in millimetres.');
    await page.getByLabel('Tags').fill('units, mount');
    await page.getByRole('button', { name: 'Save' }).click();
    const note = page.locator('#memory-list article', { hasText: 'millimetres' });
    await note.getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Note').fill('The mount moves in micrometres.');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.locator('#memory-q').fill('mount');
    await page.keyboard.press('Enter');
    await page.locator('#memory-list article', { hasText: 'micrometres' }).waitFor();
    must((await text(page, '#memory-list article')).includes('yours'), 'where it came from is told');
    await shoot(page, 'memory-1280');
    const { body } = await api('/api/memory?q=');
    must(body.found.length === 1 && body.found[0].text.includes('micrometres'), JSON.stringify(body));
  });

  await story('a note is deleted', async () => {
    await page.locator('#memory-q').fill('');
    await page.locator('#memory-new').click();
    await page.getByLabel('Note').fill('This is soon forgotten.');
    await page.getByRole('button', { name: 'Save' }).click();
    const note = page.locator('#memory-list article', { hasText: 'soon forgotten' });
    await note.getByRole('button', { name: 'Delete' }).click();
    must((await api('/api/memory?q=')).body.found.length === 2, 'one press deletes nothing');
    await note.getByRole('button', { name: 'Really delete it?' }).click();
    await note.waitFor({ state: 'detached' });
    const { body } = await api('/api/memory?q=');
    must(body.found.length === 1 && body.found[0].text.includes('micrometres'), JSON.stringify(body));
  });

  await story('a conversation is stopped, and goes on', async () => {
    await go(page, 'sessions/new');
    await page.locator('#say').fill('Think for long.');
    await page.keyboard.press('Enter');
    await page.locator('#sessions-main .pill', { hasText: 'working' }).waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByRole('button', { name: 'Really stop it?' }).click();
    await page.locator('#sessions-main .mark-run').first().waitFor({ state: 'detached' });
    must((await page.getByRole('button', { name: 'Stop' }).count()) === 0, 'what is over cannot be stopped');
    await page.locator('#say').fill('And now?');
    await page.keyboard.press('Enter');
    await page.locator('.said.assistant', { hasText: 'I have stopped.' }).waitFor();
    await shoot(page, 'stopped-1280');
  });

  await story('agents are found from the conversation that started them', async () => {
    await go(page, 'sessions/new');
    await page.locator('#say').fill('Let somebody count.');
    await page.keyboard.press('Enter');
    await page.locator('#waiting a').click();
    await page.locator('.ask', { hasText: 'Count to three.' }).getByRole('button', { name: 'Allow once' }).click();
    await page.goBack();
    await page.locator('.said.assistant', { hasText: 'It counted.' }).waitFor();
    const top = page.url();
    await shoot(page, 'tree-1280');
    await page.locator('.tree li', { hasText: 'count' }).locator('a').click();
    await page.locator('.said.assistant', { hasText: 'One, two, three.' }).waitFor();
    await page.getByRole('link', { name: 'started by another conversation' }).waitFor();
    must((await page.locator('#say').count()) === 0, 'nobody writes to an agent of another');
    await page.getByRole('link', { name: 'Write there' }).click();
    await page.locator('.said.assistant', { hasText: 'It counted.' }).waitFor();
    must(page.url() === top, page.url());
  });

  await story('a forge run is started and watched to its end', async () => {
    // Forge leaves a branch alone that has changes of somebody else.
    git('add', '--all');
    git('-c', 'user.name=A', '-c', 'user.email=a@b', 'commit', '--quiet', '-m', 'By hand');
    await go(page, 'forge');
    await page.locator('.node.is-pending').first().waitFor();
    must((await page.locator('.node').count()) === 3, 'three tasks are drawn');
    await shoot(page, 'forge-before-1280');
    await page.locator('#forge-one').getByRole('button', { name: 'Run', exact: true }).click();
    await page.waitForFunction(() => document.querySelectorAll('.node.is-merged').length === 3);
    await page.locator('#forge-one .pill.good', { hasText: 'completed' }).waitFor();
    must((await text(page, '#forge .legend')).includes('✔ merged'), 'the legend has signs');
    await page.locator('.node').first().focus();
    await page.keyboard.press('Enter');
    await page.locator('#forge details summary').first().click();
    await page.locator('#forge details', { hasText: 'Did what was asked.' }).first().waitFor();
    await shoot(page, 'forge-1280');
    const both = 'parts/t1.txt\nparts/t2.txt\n';
    await until('main with both parts', () => git('ls-tree', '-r', '--name-only', 'main', '--', 'parts') === both);
  });

  await story('changes of a plan wait for a person', async () => {
    planned('more', [
      ['m1', 1, []],
      ['r2', 'refinery', ['m1']],
      ['m2', 1, ['r2']],
      ['r3', 'refinery', ['m2']],
    ]);
    await go(page, 'forge/more');
    const one = page.locator('#forge-one');
    await one.getByLabel('Ask me before the plan changes').check();
    await one.getByRole('button', { name: 'Run', exact: true }).click();
    const asked = one.locator('article', { hasText: 'A third part' });
    await one.locator('.pill', { hasText: 'paused' }).waitFor();
    // It is paused as soon as there is a request, and can be run again when those who work have ended.
    await one.getByRole('button', { name: 'Run', exact: true }).waitFor();
    await shoot(page, 'requests-1280');
    await asked.getByRole('button', { name: 'Approve' }).click();
    await asked.locator('.pill', { hasText: 'approved' }).waitFor();
    const other = one.locator('article', { hasText: 'A hundredth part' });
    await other.getByRole('button', { name: 'Reject' }).click();
    await other.locator('.pill', { hasText: 'rejected' }).waitFor();
    must((await one.getByLabel('Ask me before the plan changes').isChecked()) === true, 'the wish is remembered');
    await one.getByRole('button', { name: 'Run', exact: true }).click();
    await page.waitForFunction(() => document.querySelectorAll('.node.is-merged').length === 5);
    await asked.locator('.pill', { hasText: 'applied' }).waitFor();
    await one.locator('.pill.good', { hasText: 'completed' }).waitFor();
  });

  await story('a run is cancelled', async () => {
    planned('long', [['l1', 1, []]]);
    await go(page, 'forge/long');
    const one = page.locator('#forge-one');
    // While it is pressed, all is read again.
    await one.getByRole('button', { name: 'Run', exact: true }).hover();
    await page.mouse.down();
    await page.evaluate(() => parts.forge.hear({ type: 'forge.told', data: {} }));
    for (const way of ['', '/long', '', '/long']) await page.evaluate(way => ask('/api/forge' + way), way);
    await page.mouse.up();
    await one.locator('.node.is-running').waitFor();
    await one.getByRole('button', { name: 'Cancel' }).click();
    // Somebody else does something, and all is drawn anew.
    await page.evaluate(() => parts.forge.hear({ type: 'forge.told', data: {} }));
    await until('a new drawing', () => page.evaluate(() => !document.querySelector('#forge [aria-busy]')));
    must(
      (await page.evaluate(() => document.activeElement.textContent)) === 'Really cancel it?',
      'the first press is kept, and the focus',
    );
    await page.keyboard.press('Enter');
    await one.getByRole('button', { name: 'Run', exact: true }).waitFor();
    must((await one.locator('.node.is-running').count()) === 0, 'nobody works on it');
    await shoot(page, 'cancelled-1280');
  });

  await story('what was refused is told, and what the machine can do', async () => {
    await go(page, 'policy');
    await page.locator('tr.denied', { hasText: 'rm yes.txt' }).filter({ hasText: 'it is still needed' }).waitFor();
    await page.locator('.checkup', { hasText: 'sandbox' }).first().waitFor();
    await settled(page);
    await shoot(page, 'policy-1280');
  });

  await story('the rules explain what would happen to a call', async () => {
    await go(page, 'policy');
    await page.locator('#policy-call').fill('rm -rf build');
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.locator('#policy-answer .pill', { hasText: 'ask' }).waitFor();
    await page.locator('#policy-answer dd', { hasText: 'Bash(rm -rf build)' }).waitFor();
    await page.locator('#policy-tool').fill('Write');
    await page.locator('#policy-call').fill('{"file_path":"/etc/passwd","content":"x"}');
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.locator('#policy-answer .pill', { hasText: 'refuse' }).waitFor();
  });

  await story('what runs in the background is followed and stopped', async () => {
    const command = 'for i in 1 2 3 4; do echo line $i; sleep 1; done; sleep 1000';
    await api('/api/call', { dialect: 'claude', tool: 'Bash', args: { command, run_in_background: true } });
    await go(page, 'live');
    const task = page.locator('#live-tasks details', { hasText: 'for i in 1 2 3 4' });
    await task.locator('summary').click();
    await task.locator('pre', { hasText: 'line 2' }).waitFor();
    await shoot(page, 'tasks-1280');
    await task.getByRole('button', { name: 'Stop' }).click();
    await task.getByRole('button', { name: 'Really stop it?' }).click();
    await task.locator('.pill', { hasText: 'stopped' }).waitFor();
    must((await page.locator('#live-tasks details').count()) === 1, 'what is over and forgotten is not shown');
  });

  await story('a schedule is paused, resumed and deleted', async () => {
    const cadence = { cadence_type: 'cron', cadence_value: '0 8 1 1 *', timezone: 'Europe/Berlin' };
    const args = { name: 'New year', goal: 'Say what changed.', ...cadence };
    const made = await api('/api/call', { dialect: 'oxydra', tool: 'schedule_create', args });
    must(made.body.is_error === false, JSON.stringify(made.body));
    await go(page, 'schedules');
    const card = page.locator('#schedules article', { hasText: 'New year' });
    await card.getByRole('button', { name: 'Pause' }).click();
    await card.getByRole('button', { name: 'Resume' }).waitFor();
    await card.locator('summary').click();
    await card.locator('details', { hasText: 'It has not run yet.' }).waitFor();
    await shoot(page, 'schedules-1280');
    await card.getByRole('button', { name: 'Resume' }).click();
    await card.locator('.pill', { hasText: 'active' }).waitFor();
    await card.getByRole('button', { name: 'Delete' }).click();
    await card.getByRole('button', { name: 'Really delete it?' }).click();
    await page.locator('#schedules-list', { hasText: 'No schedules' }).waitFor();
  });

  await story('keys lead everywhere', async () => {
    await page.reload();
    await page.locator('#link[data-state=on]').waitFor();
    await page.keyboard.press('Tab');
    must((await page.evaluate(() => document.activeElement.id)) === 'skip', 'the first stop is the skip link');
    await page.keyboard.press('Enter');
    must((await page.evaluate(() => document.activeElement.id)) === 'main', 'it leads to the content');
    await page.keyboard.press('1');
    await page.locator('#tab-live').focus();
    for (const it of PARTS.slice(1)) {
      await page.keyboard.press('ArrowDown');
      await page.locator(`#${it}:not([hidden])`).waitFor();
      must(
        (await page.evaluate(() => document.activeElement.getAttribute('aria-selected'))) === 'true',
        `the tab of ${it} has the focus`,
      );
    }
    await page.keyboard.press('?');
    await page.locator('#keys[open]').waitFor();
    await page.keyboard.press('Escape');
    await page.locator('#keys[open]').waitFor({ state: 'hidden' });
    must(
      (await page.evaluate(() => {
        const it = document.querySelector('#tab-policy');
        it.focus();
        return getComputedStyle(it).outlineStyle;
      })) !== 'none',
      'the focus is seen',
    );
  });

  for (const [width, scheme] of [
    [1280, 'dark'],
    [360, 'light'],
    [360, 'dark'],
  ]) {
    await story(`every part at ${width} px, ${scheme}`, async () => {
      const other = await open(width, width === 360 ? 740 : 900, scheme);
      must((await contrast(other)).dark === (scheme === 'dark'), 'the colours are those of the system');
      for (const it of PARTS) {
        await go(other, it);
        await settled(other);
        await looksRight(other, `${it} at ${width}`);
        await shoot(other, `${it}-${width}-${scheme}`);
      }
      await go(other, 'tools/claude/Bash');
      await other.locator('#try-command').waitFor();
      await looksRight(other, `a tool at ${width}`);
      await shoot(other, `tool-${width}-${scheme}`);
      const { body } = await api('/api/sessions');
      await go(other, `sessions/${body.sessions[0].id}`);
      await other.locator('.said').first().waitFor();
      await looksRight(other, `a conversation at ${width}`);
      await shoot(other, `talk-${width}-${scheme}`);
      await other.locator('#theme').click();
      must((await contrast(other)).dark === false, 'the switch goes to light');
      await other.locator('#theme').click();
      must((await contrast(other)).dark === true, 'and on to dark');
      await other.context().close();
    });
  }

  await story('a call is allowed on a phone', async () => {
    const phone = await open(360, 740, 'light');
    const asked = api('/api/call', { dialect: 'claude', tool: 'Bash', args: { command: 'rm yes.txt' }, ask: true });
    await phone.locator('#waiting a').click();
    await looksRight(phone, 'a question at 360');
    await shoot(phone, 'approvals-pending-360');
    await phone.getByRole('button', { name: 'Allow once' }).click();
    must((await asked).body.is_error === false, JSON.stringify((await asked).body));
    must(!fs.existsSync(path.join(work, 'yes.txt')), 'it is gone');
    await phone.context().close();
  });

  await story('without a model the page says how to get one', async () => {
    const alone = start('helve', ['serve', '--workspace', work, '--http', '127.0.0.1:0'], {
      HELVE_STATE_DIR: path.join(folder, 'alone'),
      HELVE_MODEL_BASE_URL: 'http://127.0.0.1:1/v1',
    });
    const [, there] = await until('its address', () => alone.said.match(/(http:\/\/\S+token=\w+)/));
    await until('its word', () => alone.said.includes('no model'));
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
    const lonely = await context.newPage();
    lonely.setDefaultTimeout(PATIENCE);
    await lonely.goto(there);
    await go(lonely, 'sessions/new');
    await lonely.locator('#say').fill('Is anybody there?');
    await lonely.keyboard.press('Enter');
    await lonely.locator('.note', { hasText: 'There is no model' }).waitFor();
    must((await lonely.locator('#say').inputValue()) === 'Is anybody there?', 'what was written stays');
    await shoot(lonely, 'no-model-1280');
    await context.close();
    await finish(alone);
  });

  await story('nothing was wrong on the way', async () => {
    must(!wrong.length, wrong.join('\n'));
    const log = fs
      .readFileSync(path.join(folder, 'model.log'), 'utf8')
      .split('\n')
      .filter(it => it.includes('"violation"'));
    must(!log.length, log.join('\n').slice(0, 2000));
  });
};

let failed = null;
try {
  await run();
} catch (error) {
  failed = error;
}
if (failed) {
  console.log(
    `FAILED: ${failed.message}\n${(failed.stack || '')
      .split('\n')
      .filter(it => it.includes('browser.mjs'))
      .slice(0, 3)
      .join('\n')}`,
  );
  if (wrong.length) console.log(`on the page:\n${wrong.slice(0, 10).join('\n')}`);
  if (server)
    console.log(`the server said:\n${server.said.replaceAll(token, 'TOKEN').split('\n').slice(-15).join('\n')}`);
  const pages = browser ? browser.contexts().flatMap(it => it.pages()) : [];
  for (const [index, page] of pages.entries()) {
    await shoot(page, `failed-${index}`).catch(() => {});
    const shown = await text(page, 'main > section:not([hidden])').catch(() => 'nothing that could be read');
    console.log(`page ${index + 1} shows:\n${shown.slice(0, 3000)}`);
  }
}
if (browser) await browser.close().catch(() => {});
for (const child of started.reverse()) await finish(child);
if (!failed) console.log(`passed: ${told.length} stories in a browser, ${((Date.now() - began) / 1000).toFixed(0)} s`);
process.exitCode = failed ? 1 : 0;
