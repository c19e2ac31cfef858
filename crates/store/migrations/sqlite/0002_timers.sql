-- What timers and recovery look for.

-- Serves timers: the next retry of all.
CREATE INDEX jobs_retry_at ON jobs (next_retry_at) WHERE next_retry_at IS NOT NULL;

-- Does the process that owns the file run the worker? Whoever finds it set by an earlier process knows that the
-- worker is dead: the file has one owner at a time.
ALTER TABLE sessions ADD COLUMN vouched INTEGER NOT NULL DEFAULT 0 CHECK (vouched = 0 OR vouched = 1);

-- Serves recovery: the few sessions that somebody vouched for.
CREATE INDEX sessions_vouched ON sessions (worker) WHERE vouched = 1;

-- A number is never given twice: whoever says of one that it is carried out must not mean a later one.
CREATE TABLE numbered_follow_ups (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    what   TEXT NOT NULL
) STRICT;
INSERT INTO numbered_follow_ups (id, tenant, what) SELECT id, tenant, what FROM follow_ups;
DROP TABLE follow_ups;
ALTER TABLE numbered_follow_ups RENAME TO follow_ups;
