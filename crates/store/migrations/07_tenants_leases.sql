-- Tenant and user in every key, UUIDs as keys of sessions, leases, inboxes, and who wrote the file.
-- `session_ids (old, new)` is filled by the program before this runs. Foreign keys are off meanwhile and checked after.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
DROP TRIGGER passages_added;
DROP TRIGGER passages_gone;
DROP TRIGGER passages_read_anew;
DROP TRIGGER messages_unsaid;

-- A parent need not have a record, so it is no foreign key.
CREATE TABLE new_sessions (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    label TEXT,
    parent TEXT,
    user TEXT NOT NULL,
    agent TEXT NOT NULL,
    title TEXT NOT NULL,
    dialect TEXT NOT NULL,
    model TEXT NOT NULL,
    workspace TEXT NOT NULL,
    messages INTEGER NOT NULL DEFAULT 0,
    prompt_tokens INTEGER NOT NULL DEFAULT 0,
    completion_tokens INTEGER NOT NULL DEFAULT 0,
    cost REAL NOT NULL DEFAULT 0,
    view_from INTEGER,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;
INSERT INTO new_sessions
SELECT 'default', m.new, CASE WHEN m.new <> s.id THEN s.id END, p.new, s.user, s.agent, s.title, s.dialect, s.model,
       s.workspace, s.messages, s.prompt_tokens, s.completion_tokens, s.cost, s.view_from, s.created, s.updated
FROM sessions s JOIN session_ids m ON m.old = s.id LEFT JOIN session_ids p ON p.old = s.parent ORDER BY s.rowid;

CREATE TABLE new_messages (
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    seq INTEGER NOT NULL,
    role TEXT NOT NULL,
    parts TEXT NOT NULL,
    created INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL DEFAULT 0,
    completion_tokens INTEGER NOT NULL DEFAULT 0,
    cost REAL NOT NULL DEFAULT 0,
    UNIQUE (tenant, session, seq),
    FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE
) STRICT;
INSERT INTO new_messages
SELECT 'default', m.new, s.seq, s.role, s.parts, s.created, s.prompt_tokens, s.completion_tokens, s.cost
FROM messages s JOIN session_ids m ON m.old = s.session ORDER BY s.rowid;

CREATE TABLE new_slates (
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    updated INTEGER NOT NULL,
    PRIMARY KEY (tenant, session, name)
) STRICT, WITHOUT ROWID;
INSERT INTO new_slates
SELECT 'default', m.new, s.name, s.value, s.updated FROM slates s JOIN session_ids m ON m.old = s.session;

CREATE TABLE new_notes (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    id TEXT NOT NULL,
    text TEXT NOT NULL,
    tags TEXT NOT NULL,
    origin TEXT NOT NULL,
    held INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    PRIMARY KEY (tenant, user, id)
) STRICT;
INSERT INTO new_notes
SELECT 'default', user, id, text, tags, origin, held, created, updated FROM notes ORDER BY rowid;
CREATE TABLE new_note_tags (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    tag TEXT NOT NULL,
    note TEXT NOT NULL,
    PRIMARY KEY (tenant, user, tag, note),
    FOREIGN KEY (tenant, user, note) REFERENCES notes (tenant, user, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
INSERT INTO new_note_tags SELECT 'default', n.user, t.tag, t.note FROM note_tags t JOIN notes n ON n.id = t.note;

-- Files had one index for all users of a place. It goes to the default user; others read the files again.
CREATE TABLE new_memory_files (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    place TEXT NOT NULL,
    path TEXT NOT NULL,
    mark TEXT NOT NULL,
    PRIMARY KEY (tenant, user, place, path)
) STRICT, WITHOUT ROWID;
INSERT INTO new_memory_files SELECT 'default', 'user', place, path, mark FROM memory_files;

CREATE TABLE new_heard (
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    upto INTEGER NOT NULL,
    PRIMARY KEY (tenant, session),
    FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
INSERT INTO new_heard SELECT 'default', m.new, h.upto FROM heard h JOIN session_ids m ON m.old = h.session;

CREATE TABLE new_shelves (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    kind TEXT NOT NULL,
    place TEXT NOT NULL,
    added INTEGER NOT NULL DEFAULT (random() / 4),
    changed INTEGER NOT NULL DEFAULT (random() / 4),
    UNIQUE (tenant, user, kind, place)
) STRICT;
INSERT INTO new_shelves
SELECT id, 'default', CASE kind WHEN 'files' THEN 'user' ELSE name END, kind, CASE kind WHEN 'files' THEN name ELSE '' END,
       added, changed
FROM shelves;
UPDATE passages SET source = (SELECT new FROM session_ids WHERE old = source)
WHERE shelf IN (SELECT id FROM shelves WHERE kind = 'talk') AND source IN (SELECT old FROM session_ids);

CREATE TABLE new_schedules (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    user TEXT NOT NULL,
    name TEXT,
    goal TEXT NOT NULL,
    cadence TEXT NOT NULL,
    kind TEXT NOT NULL,
    notification TEXT NOT NULL,
    status TEXT NOT NULL,
    session TEXT,
    channel TEXT,
    workspace TEXT,
    dialect TEXT,
    missed TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    next INTEGER,
    last_run INTEGER,
    last_status TEXT,
    failures INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    origin TEXT,
    PRIMARY KEY (tenant, id)
) STRICT;
INSERT INTO new_schedules
SELECT 'default', s.id, s.user, s.name, s.goal, s.cadence, s.kind, s.notification, s.status, m.new, s.channel,
       s.workspace, s.dialect, s.missed, s.created, s.updated, s.next, s.last_run, s.last_status, s.failures, s.skipped,
       o.new
FROM schedules s LEFT JOIN session_ids m ON m.old = s.session LEFT JOIN session_ids o ON o.old = s.origin
ORDER BY s.rowid;

CREATE TABLE new_schedule_runs (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    schedule TEXT NOT NULL,
    due INTEGER NOT NULL,
    -- The number of the claim, which is the epoch of its lease.
    attempt INTEGER NOT NULL,
    owner TEXT NOT NULL,
    until INTEGER NOT NULL,
    started INTEGER NOT NULL,
    finished INTEGER,
    status TEXT NOT NULL,
    summary TEXT NOT NULL,
    output TEXT NOT NULL,
    turns INTEGER NOT NULL,
    cost REAL NOT NULL,
    notified INTEGER NOT NULL,
    PRIMARY KEY (tenant, id),
    -- One occurrence is claimed once.
    UNIQUE (tenant, schedule, due),
    FOREIGN KEY (tenant, schedule) REFERENCES schedules (tenant, id) ON DELETE CASCADE
) STRICT;
INSERT INTO new_schedule_runs
SELECT 'default', id, schedule, due, attempt, owner, until, started, finished, status, summary, output, turns, cost,
       notified
FROM schedule_runs ORDER BY rowid;

DROP TABLE note_tags;
DROP TABLE notes;
DROP TABLE memory_files;
DROP TABLE heard;
DROP TABLE messages;
DROP TABLE slates;
DROP TABLE schedule_runs;
DROP TABLE schedules;
DROP TABLE sessions;
DROP TABLE shelves;
DROP TABLE session_ids;
ALTER TABLE new_sessions RENAME TO sessions;
ALTER TABLE new_messages RENAME TO messages;
ALTER TABLE new_slates RENAME TO slates;
ALTER TABLE new_notes RENAME TO notes;
ALTER TABLE new_note_tags RENAME TO note_tags;
ALTER TABLE new_memory_files RENAME TO memory_files;
ALTER TABLE new_heard RENAME TO heard;
ALTER TABLE new_shelves RENAME TO shelves;
ALTER TABLE new_schedules RENAME TO schedules;
ALTER TABLE new_schedule_runs RENAME TO schedule_runs;

-- Tokens of a provider's cache and of reasoning, which earlier files did not count.
ALTER TABLE sessions ADD COLUMN cache_read_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cache_write_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN reasoning_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN cache_read_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN cache_write_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN reasoning_tokens INTEGER NOT NULL DEFAULT 0;

-- One index a way of listing; each ends in the order of the list, so that a page of it is read and no more.
CREATE INDEX sessions_by_use ON sessions (tenant, updated DESC, id);
CREATE INDEX sessions_by_user ON sessions (tenant, user, updated DESC, id);
CREATE INDEX sessions_by_place ON sessions (tenant, workspace, updated DESC, id);
CREATE INDEX sessions_by_parent ON sessions (tenant, parent, updated DESC, id);
CREATE INDEX sessions_by_label ON sessions (tenant, label, updated DESC, id);
CREATE INDEX notes_by_user ON notes (tenant, user, updated DESC, id);
CREATE INDEX note_tags_by_note ON note_tags (tenant, user, note);
CREATE INDEX schedules_by_user ON schedules (tenant, user, created DESC);
CREATE INDEX schedules_due ON schedules (tenant, next) WHERE status = 'active' AND next IS NOT NULL;
CREATE INDEX schedule_runs_held ON schedule_runs (tenant, until) WHERE status = 'running';

CREATE TRIGGER passages_added AFTER INSERT ON passages BEGIN
    INSERT INTO passages_fts (rowid, text, shelf) VALUES (new.id, new.text, new.shelf);
    UPDATE shelves SET added = added + 1 WHERE id = new.shelf;
END;
CREATE TRIGGER passages_gone AFTER DELETE ON passages BEGIN
    INSERT INTO passages_fts (passages_fts, rowid, text, shelf) VALUES ('delete', old.id, old.text, old.shelf);
    UPDATE shelves SET changed = changed + 1 WHERE id = old.shelf;
END;
CREATE TRIGGER passages_read_anew AFTER UPDATE OF model, tokens, vector ON passages BEGIN
    UPDATE shelves SET changed = changed + 1 WHERE id = new.shelf;
END;
CREATE TRIGGER messages_unsaid AFTER DELETE ON messages BEGIN
    DELETE FROM passages WHERE source = old.session AND first = old.seq
        AND shelf IN (SELECT id FROM shelves WHERE tenant = old.tenant AND kind = 'talk');
    UPDATE heard SET upto = min(upto, old.seq - 1) WHERE tenant = old.tenant AND session = old.session;
END;

-- Who may write to a session. A row outlives its lease, so that epochs only grow.
CREATE TABLE leases (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    -- Empty: nobody.
    owner TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    until INTEGER NOT NULL,
    since INTEGER NOT NULL,
    host TEXT NOT NULL,
    -- In which the process has its number.
    pid_namespace TEXT NOT NULL,
    pid INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
-- What waits for the holder of a session.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    item TEXT NOT NULL,
    created INTEGER NOT NULL,
    FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX inbox_by_session ON inbox (tenant, session, id);
