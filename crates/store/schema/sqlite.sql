-- The schema, as its migrations make it. Written by a test; `make bless` renews it.

CREATE TABLE acts (
    -- The number of its event.
    event  INTEGER PRIMARY KEY,
    tenant TEXT    NOT NULL
) STRICT;

CREATE INDEX acts_tenant ON acts (tenant, event);

CREATE TABLE approvals (
    dlq_id    BLOB    NOT NULL REFERENCES dlq_items (id) ON DELETE CASCADE,
    step      TEXT    NOT NULL CHECK (step = 'requested' OR step = 'approved'),
    principal TEXT    NOT NULL,
    reason    TEXT    NOT NULL CHECK (trim(reason) <> ''),
    at        INTEGER NOT NULL,
    PRIMARY KEY (dlq_id, step),
    -- Two people: the same one cannot ask and approve.
    UNIQUE (dlq_id, principal)
) STRICT, WITHOUT ROWID;

CREATE TABLE children (
    parent BLOB    NOT NULL CHECK (length(parent) = 16),
    seq    INTEGER NOT NULL,
    PRIMARY KEY (parent, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE dlq_items (
    id         BLOB    PRIMARY KEY CHECK (length(id) = 16),
    tenant     TEXT    NOT NULL,
    job_id     BLOB    NOT NULL UNIQUE,
    state      TEXT    NOT NULL CHECK (state = 'open' OR state = 'discard_requested' OR state = 'discarded' OR state = 'requeued'),
    code       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    requeued_as BLOB   CHECK ((requeued_as IS NOT NULL) = (state = 'requeued')),
    closed_at  INTEGER CHECK ((closed_at IS NOT NULL) = (state = 'discarded' OR state = 'requeued')),
    letter     TEXT    NOT NULL,
    -- What a failed job refers to.
    UNIQUE (job_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX dlq_items_all ON dlq_items (state, created_at);

CREATE INDEX dlq_items_list ON dlq_items (tenant, state, created_at);

CREATE VIEW events AS
SELECT log.id + line.key                  AS number,
       log.tenant                         AS tenant,
       coalesce('job_' || (line.value ->> 0), line.value ->> 'job_id') AS job_id,
       line.value ->> 1                   AS job_number,
       log.at                             AS at,
       coalesce(line.value ->> 2, 'inbox_' || (line.value ->> 'inbox'),
           (line.value ->> 'about') || '_' || (line.value ->> 'what')) AS cause,
       line.value ->> 3                   AS from_state,
       line.value ->> 4                   AS to_state,
       line.value ->> 5                   AS attempt,
       line.value ->> 6                   AS retry_count,
       line.value ->> 7                   AS epoch,
       coalesce(line.value ->> 9, line.value ->> 'actor')     AS actor,
       coalesce(line.value ->> 10, line.value ->> 'trace_id') AS trace_id,
       iif(line.type = 'object', line.value, line.value -> 11) AS fact
FROM log, json_each(log.events) AS line
-- A line that retention took leaves null.
WHERE line.type <> 'null';

CREATE TABLE "follow_ups" (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    what   TEXT NOT NULL
) STRICT;

CREATE TABLE inbox (
    seq     INTEGER PRIMARY KEY,
    job_id  BLOB    NOT NULL CHECK (length(job_id) = 16),
    tenant  TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    op      TEXT    NOT NULL,
    payload TEXT    NOT NULL
) STRICT;

CREATE TABLE inbox_results (
    -- The number of the event that tells it.
    event    INTEGER PRIMARY KEY,
    job_id   BLOB    NOT NULL CHECK (length(job_id) = 16),
    tenant   TEXT    NOT NULL,
    asked_at INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    outcome  TEXT    NOT NULL CHECK (outcome = 'hit' OR outcome = 'conflict' OR outcome = 'refused'),
    -- The job that stands in the way.
    existing BLOB    CHECK (length(existing) = 16)
        CHECK (existing IS NOT NULL OR outcome = 'refused'),
    code     TEXT    CHECK ((code IS NULL) = (outcome = 'hit')),
    why      TEXT    CHECK ((why IS NULL) = (outcome = 'hit')),
    -- What was asked for, as it stood in the inbox. Of a hit the existing job has it.
    op       TEXT    CHECK ((op IS NULL) = (outcome = 'hit')),
    payload  TEXT    CHECK ((payload IS NULL) = (outcome = 'hit'))
) STRICT;

CREATE INDEX inbox_results_job ON inbox_results (job_id);

CREATE TABLE inbox_set_aside (
    id       INTEGER PRIMARY KEY,
    found_at INTEGER NOT NULL,
    why      TEXT    NOT NULL,
    job_id   ANY,
    tenant   ANY,
    at       ANY,
    op       ANY,
    payload  ANY
) STRICT;

CREATE TABLE job_groups (
    id       INTEGER PRIMARY KEY,
    queue    TEXT    NOT NULL,
    tenant   TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    isolated INTEGER NOT NULL CHECK (isolated = 0 OR isolated = 1),
    UNIQUE (queue, tenant, kind, isolated)
) STRICT;

CREATE TABLE job_log (
    seq    INTEGER NOT NULL,
    log_id INTEGER NOT NULL,
    PRIMARY KEY (seq, log_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    seq               INTEGER PRIMARY KEY,
    id                BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant            TEXT    NOT NULL,
    -- Its queue and its kind, and whether it is claimed alone.
    group_id          INTEGER NOT NULL,
    state             TEXT    NOT NULL CHECK (
        state = 'queued' OR state = 'running' OR state = 'succeeded' OR state = 'dispatched'
        OR state = 'scheduled' OR state = 'waiting' OR state = 'retry_scheduled'
        OR state = 'interrupted' OR state = 'partial' OR state = 'failed' OR state = 'cancelled'),
    -- Its place among the jobs of its group: when it was due, and a minute later for each step of priority.
    rank              INTEGER NOT NULL,
    version           INTEGER NOT NULL CHECK (version >= 1),
    attempt           INTEGER NOT NULL CHECK (attempt >= 1),
    retry_count       INTEGER NOT NULL CHECK (retry_count BETWEEN 0 AND max_retries),
    max_retries       INTEGER NOT NULL,
    epoch             INTEGER NOT NULL CHECK (epoch >= 0),

    created_at        INTEGER NOT NULL,
    -- The last change. A job that is at its end does not change: then it is when it finished.
    updated_at        INTEGER NOT NULL,
    started_at        INTEGER CHECK (started_at IS NOT NULL OR NOT (
        state = 'running' OR state = 'succeeded' OR state = 'partial')),
    next_retry_at     INTEGER CHECK ((next_retry_at IS NOT NULL) = (state = 'retry_scheduled')),
    -- The next alarm of the job itself; leases ring with their session.
    timer_at          INTEGER,

    lease_session     INTEGER CHECK (
        (lease_session IS NOT NULL) = (state = 'running' OR state = 'dispatched')),
    -- The last claim (16 bytes) and the count of leases (8); while it is held also until when (8), the last
    -- sign of life (8), the renewals of the session that are counted (8), and whether it is held alone (1).
    lease             BLOB    CHECK (length(lease) = iif(lease_session IS NULL, 24, 49)),

    -- The names that a caller gave; null where the job's own id stands for them.
    task_id           ANY,
    idempotency_scope TEXT    CHECK ((idempotency_scope IS NULL) = (idempotency_key IS NULL)),
    idempotency_key   TEXT,
    payload_digest    BLOB    NOT NULL CHECK (length(payload_digest) = 32),
    trace_id          ANY     NOT NULL,
    dlq_id            BLOB    CHECK ((dlq_id IS NOT NULL) = (state = 'failed')),
    -- What is rarely asked for and what rarely happens, as JSON; null if all is as usual.
    options           TEXT,
    rest              TEXT,
    -- The head of its chain of hashes (32 bytes), then the log rows that speak of it (8 each); the older ones
    -- move to job_log.
    history           BLOB    NOT NULL CHECK (length(history) >= 40),
    -- A small payload; a large one stands in payloads, so that an update need not copy it.
    payload           TEXT, lane INTEGER NOT NULL DEFAULT 0, unique_key TEXT,
    -- A failed job has its letter. With the job's id in it, so that whoever deletes a letter finds the job by
    -- the index of ids: one on dlq_id would be opened by every insert.
    FOREIGN KEY (id, dlq_id) REFERENCES dlq_items (job_id, id) DEFERRABLE INITIALLY DEFERRED
) STRICT;

CREATE UNIQUE INDEX jobs_key ON jobs (tenant, idempotency_scope, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE INDEX jobs_leased ON jobs (lease_session) WHERE lease_session IS NOT NULL;

CREATE INDEX jobs_ready ON jobs (group_id, rank, lane) WHERE state = 'queued' OR state = 'interrupted';

CREATE INDEX jobs_retry ON jobs (group_id, lane, next_retry_at) WHERE next_retry_at IS NOT NULL;

CREATE INDEX jobs_retry_at ON jobs (next_retry_at) WHERE next_retry_at IS NOT NULL;

CREATE UNIQUE INDEX jobs_task ON jobs (tenant, task_id, attempt) WHERE task_id IS NOT NULL;

CREATE INDEX jobs_timer ON jobs (timer_at) WHERE timer_at IS NOT NULL;

CREATE UNIQUE INDEX jobs_unique ON jobs (tenant, unique_key)
    WHERE unique_key IS NOT NULL AND NOT (
        state = 'succeeded' OR state = 'partial' OR state = 'failed' OR state = 'cancelled');

CREATE TABLE log (
    id     INTEGER PRIMARY KEY,
    tenant TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    count  INTEGER NOT NULL CHECK (count >= 1),
    events TEXT    NOT NULL
) STRICT;

CREATE TABLE marks (
    name   TEXT    PRIMARY KEY,
    number INTEGER NOT NULL CHECK (number >= 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE notes (
    -- The number of its event.
    event  INTEGER PRIMARY KEY,
    tenant TEXT    NOT NULL,
    about  TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    at     INTEGER NOT NULL
) STRICT;

CREATE INDEX notes_about ON notes (tenant, about, name, event);

CREATE TABLE outputs (
    seq       INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    result    TEXT,
    remaining TEXT,
    stats     TEXT,
    PRIMARY KEY (seq, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE payloads (
    seq     INTEGER PRIMARY KEY,
    payload TEXT NOT NULL
) STRICT;

CREATE TABLE progress (
    seq   INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL CHECK (epoch >= 1),
    at    INTEGER NOT NULL,
    value TEXT    NOT NULL
) STRICT;

CREATE TABLE pruned (
    id       BLOB    PRIMARY KEY CHECK (length(id) = 16),
    at       INTEGER NOT NULL,
    -- How long before that it had to be at its end.
    least_ms INTEGER NOT NULL CHECK (least_ms >= 0),
    -- The number of its last event.
    version  INTEGER NOT NULL CHECK (version >= 1),
    -- How many log rows still speak of it.
    rows     INTEGER NOT NULL CHECK (rows >= 1)
) STRICT, WITHOUT ROWID;

CREATE TABLE rule_states (
    rule      TEXT    NOT NULL REFERENCES rules (name) ON DELETE CASCADE,
    part      TEXT    NOT NULL,
    state     TEXT    NOT NULL,
    -- From when on it is the same as knowing nothing.
    forget_at INTEGER,
    PRIMARY KEY (rule, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE rules (
    name TEXT PRIMARY KEY,
    rule TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE schedules (
    tenant     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    -- It grows with every change, so that a timer acts on what it saw.
    version    INTEGER NOT NULL CHECK (version >= 1),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- What was asked for, as JSON, and the payload of its jobs, byte for byte.
    spec       TEXT    NOT NULL,
    payload    TEXT    NOT NULL,
    -- Who paused it, when and why, as JSON; null while it is not.
    pause      TEXT,
    -- The next slot; null when no other comes.
    next_at    INTEGER,
    -- When a timer has to look at it; null while there is nothing to wait for.
    fires_at   INTEGER CHECK (fires_at IS NULL OR (next_at IS NOT NULL AND pause IS NULL)),
    -- When a timer last found that the next slot has to wait for the job of the one before.
    seen_at    INTEGER,
    -- The last slot that was fired, and the last job that was made.
    last_slot  INTEGER,
    last_job   BLOB    CHECK (length(last_job) = 16),
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_due ON schedules (fires_at) WHERE fires_at IS NOT NULL;

CREATE TABLE sessions (
    id         INTEGER PRIMARY KEY,
    worker     TEXT    NOT NULL UNIQUE,
    -- Until when the last renewal keeps every lease of the session; 0 before the first.
    until      INTEGER NOT NULL,
    renewals   INTEGER NOT NULL,
    -- When the last of its leases runs out, renewed or not.
    lapses_at  INTEGER NOT NULL,
    started_at INTEGER NOT NULL
, vouched INTEGER NOT NULL DEFAULT 0 CHECK (vouched = 0 OR vouched = 1), listens TEXT, listened_at INTEGER) STRICT;

CREATE INDEX sessions_lapsed ON sessions (lapses_at);

CREATE INDEX sessions_vouched ON sessions (worker) WHERE vouched = 1;

CREATE TABLE sqlite_sequence(name,seq);

CREATE TABLE tasks (
    tenant       TEXT    NOT NULL,
    task_id      ANY     NOT NULL,
    next_attempt INTEGER NOT NULL CHECK (next_attempt >= 2),
    PRIMARY KEY (tenant, task_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
    id         BLOB    PRIMARY KEY CHECK (length(id) = 16),
    -- The SHA-256 of its secret, which is nowhere here.
    digest     BLOB    NOT NULL CHECK (length(digest) = 32),
    -- Whose things it opens; '*' for those of every tenant.
    tenant     TEXT    NOT NULL,
    principal  TEXT    NOT NULL,
    role       TEXT    NOT NULL CHECK (role = 'viewer' OR role = 'worker' OR role = 'operator' OR role = 'admin'),
    label      TEXT,
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    expires_at INTEGER CHECK (expires_at > created_at),
    revoked_at INTEGER CHECK (revoked_at >= created_at),
    revoked_by TEXT    CHECK ((revoked_by IS NULL) = (revoked_at IS NULL))
) STRICT, WITHOUT ROWID;
