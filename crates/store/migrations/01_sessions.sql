-- Conversations, their messages, and the slates of a session.
-- A parent need not be kept itself (a server's session is not), so it is no foreign key.
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
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
    updated INTEGER NOT NULL
) STRICT;
-- One index a way of listing; each ends in the order of the list, so that a page of it is read and no more.
CREATE INDEX sessions_by_use ON sessions (updated DESC, id);
CREATE INDEX sessions_by_user ON sessions (user, updated DESC, id);
CREATE INDEX sessions_by_place ON sessions (workspace, updated DESC, id);
CREATE INDEX sessions_by_parent ON sessions (parent, updated DESC, id);
-- Rows are long, so they lie in a table of their own and the key is a small index beside it.
CREATE TABLE messages (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    role TEXT NOT NULL,
    parts TEXT NOT NULL,
    created INTEGER NOT NULL,
    UNIQUE (session, seq)
) STRICT;
CREATE TABLE slates (
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    updated INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
