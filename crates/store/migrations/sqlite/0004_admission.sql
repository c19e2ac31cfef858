-- Who may run: keys that limits and turns go by, what is unique while it lasts, and rules.

-- Where a job waits beside those that have its key: a number made of tenant and key, 0 without one.
ALTER TABLE jobs ADD COLUMN lane INTEGER NOT NULL DEFAULT 0;
-- What no other job has that is not at its end.
ALTER TABLE jobs ADD COLUMN unique_key TEXT;

CREATE UNIQUE INDEX jobs_unique ON jobs (tenant, unique_key)
    WHERE unique_key IS NOT NULL AND NOT (
        state = 'succeeded' OR state = 'partial' OR state = 'failed' OR state = 'cancelled');

-- Serves claims: the jobs of a group that can be claimed, best first, with their lanes. In the order in which they are
-- taken: a claim that takes a job of each of many lanes changes few pages.
DROP INDEX jobs_ready;
CREATE INDEX jobs_ready ON jobs (group_id, rank, lane) WHERE state = 'queued' OR state = 'interrupted';
-- Serves claims: the retries of a lane, by the time they are due.
DROP INDEX jobs_retry;
CREATE INDEX jobs_retry ON jobs (group_id, lane, next_retry_at) WHERE next_retry_at IS NOT NULL;

-- What people say about who may run.
CREATE TABLE rules (
    name TEXT PRIMARY KEY,
    rule TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What rules remember: of all that they cover, or of each part.
CREATE TABLE rule_states (
    rule      TEXT    NOT NULL REFERENCES rules (name) ON DELETE CASCADE,
    part      TEXT    NOT NULL,
    state     TEXT    NOT NULL,
    -- From when on it is the same as knowing nothing.
    forget_at INTEGER,
    PRIMARY KEY (rule, part)
) STRICT, WITHOUT ROWID;

-- What a worker listens to, if it said so (queues, kinds and tenant), and when it last did.
ALTER TABLE sessions ADD COLUMN listens TEXT;
ALTER TABLE sessions ADD COLUMN listened_at INTEGER;
