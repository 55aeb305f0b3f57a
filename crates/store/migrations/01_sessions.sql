CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    parent TEXT REFERENCES sessions (id) ON DELETE CASCADE,
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
    updated INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_use ON sessions (updated DESC);
CREATE INDEX sessions_by_parent ON sessions (parent);
CREATE TABLE messages (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    role TEXT NOT NULL,
    parts TEXT NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE slates (
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    updated INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
