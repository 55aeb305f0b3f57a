-- Schedules and their runs.
CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
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
    skipped INTEGER NOT NULL
) STRICT;
CREATE INDEX schedules_by_user ON schedules (user, created DESC);
CREATE INDEX schedules_due ON schedules (next) WHERE status = 'active' AND next IS NOT NULL;
CREATE TABLE schedule_runs (
    id TEXT PRIMARY KEY,
    schedule TEXT NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
    due INTEGER NOT NULL,
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
    -- One occurrence is claimed once.
    UNIQUE (schedule, due)
) STRICT;
CREATE INDEX schedule_runs_held ON schedule_runs (until) WHERE status = 'running';
