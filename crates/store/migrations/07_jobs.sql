-- Jobs: queued work, claimed with a lease. The epoch grows with every claim and never falls.
CREATE TABLE jobs (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    -- The idempotency key.
    key TEXT,
    user TEXT NOT NULL,
    session TEXT,
    workspace TEXT,
    parent TEXT,
    payload TEXT NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT,
    until INTEGER,
    is_cancel_requested INTEGER NOT NULL,
    result TEXT,
    error TEXT,
    created INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    -- The process that has claimed it, so that others on this machine see whether it still lives.
    host TEXT NOT NULL DEFAULT '',
    pid_namespace TEXT NOT NULL DEFAULT '',
    pid INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE UNIQUE INDEX jobs_by_key ON jobs (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_queued ON jobs (tenant, priority DESC, run_at, id) WHERE state = 'queued';
CREATE INDEX jobs_running ON jobs (tenant, until) WHERE state = 'running';
CREATE INDEX jobs_by_parent ON jobs (tenant, parent) WHERE parent IS NOT NULL;
CREATE INDEX jobs_by_time ON jobs (tenant, created DESC, id DESC);
CREATE INDEX jobs_ended ON jobs (tenant, ended) WHERE ended IS NOT NULL;
