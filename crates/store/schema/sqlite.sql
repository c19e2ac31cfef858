-- The schema, as its migrations make it. Written by a test; `make bless` renews it.

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

CREATE TABLE dlq_items (
    id         BLOB    PRIMARY KEY CHECK (length(id) = 16),
    tenant     TEXT    NOT NULL,
    job_id     BLOB    NOT NULL UNIQUE,
    state      TEXT    NOT NULL CHECK (state = 'open' OR state = 'discard_requested' OR state = 'discarded' OR state = 'requeued'),
    code       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    requeued_as BLOB   CHECK ((requeued_as IS NOT NULL) = (state = 'requeued')),
    closed_at  INTEGER CHECK ((closed_at IS NOT NULL) = (state = 'discarded' OR state = 'requeued')),
    letter     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX dlq_items_list ON dlq_items (tenant, state, created_at);

CREATE VIEW events AS
SELECT log.id + line.key                  AS number,
       log.tenant                         AS tenant,
       'job_' || (line.value ->> 0)       AS job_id,
       line.value ->> 1                   AS job_number,
       log.at                             AS at,
       line.value ->> 2                   AS cause,
       line.value ->> 3                   AS from_state,
       line.value ->> 4                   AS to_state,
       line.value ->> 5                   AS attempt,
       line.value ->> 6                   AS retry_count,
       line.value ->> 7                   AS epoch,
       line.value ->> 9                   AS actor,
       line.value ->> 10                  AS trace_id,
       line.value -> 11                   AS fact
FROM log, json_each(log.events) AS line;

CREATE TABLE follow_ups (
    id     INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    what   TEXT NOT NULL
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
    seq                  INTEGER PRIMARY KEY,
    id                   BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant               TEXT    NOT NULL,
    queue                TEXT    NOT NULL,
    kind                 TEXT    NOT NULL,
    group_id             INTEGER NOT NULL,
    state                TEXT    NOT NULL CHECK (
        state = 'queued' OR state = 'running' OR state = 'succeeded' OR state = 'dispatched'
        OR state = 'scheduled' OR state = 'waiting' OR state = 'retry_scheduled'
        OR state = 'interrupted' OR state = 'partial' OR state = 'failed' OR state = 'cancelled'),
    -- Its place among the jobs that can be claimed now; null if it cannot.
    ready_rank           INTEGER CHECK (
        (ready_rank IS NOT NULL) = (state = 'queued' OR state = 'interrupted')),
    priority             INTEGER NOT NULL,
    version              INTEGER NOT NULL CHECK (version >= 1),
    attempt              INTEGER NOT NULL CHECK (attempt >= 1),
    retry_count          INTEGER NOT NULL CHECK (retry_count BETWEEN 0 AND max_retries),
    max_retries          INTEGER NOT NULL,
    epoch                INTEGER NOT NULL CHECK (epoch >= 0),
    claim_id             BLOB,
    interruptions        INTEGER NOT NULL CHECK (interruptions >= 0),

    created_at           INTEGER NOT NULL,
    due_at               INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    started_at           INTEGER,
    attempt_started_at   INTEGER,
    execution_started_at INTEGER,
    finished_at          INTEGER CHECK ((finished_at IS NOT NULL) = (
        state = 'succeeded' OR state = 'failed' OR state = 'cancelled' OR state = 'partial')),
    next_retry_at        INTEGER CHECK ((next_retry_at IS NOT NULL) = (state = 'retry_scheduled')),
    -- The next alarm of the job itself; leases ring with their session.
    timer_at             INTEGER,

    lease_session        INTEGER CHECK (
        (lease_session IS NOT NULL) = (state = 'running' OR state = 'dispatched')),
    lease_until          INTEGER,
    lease_alone          INTEGER,
    lease_beat_at        INTEGER,
    -- Renewals of the session that are already part of lease_count.
    lease_seen           INTEGER,
    lease_count          INTEGER NOT NULL,

    task_id              ANY     NOT NULL,
    task_given           INTEGER NOT NULL CHECK (task_given = 0 OR task_given = 1),
    idempotency_scope    TEXT    NOT NULL,
    idempotency_key      ANY     NOT NULL,
    payload_digest       BLOB    NOT NULL,
    trace_id             ANY     NOT NULL,
    dlq_id               BLOB    REFERENCES dlq_items (id) DEFERRABLE INITIALLY DEFERRED
        CHECK ((dlq_id IS NOT NULL) = (state = 'failed')),
    -- The identity of the settle that ended it well.
    settle               BLOB,
    -- What is rarely asked for and what rarely happens, as JSON; null if all is as usual.
    options              TEXT,
    rest                 TEXT,
    -- The log rows that speak of this job, eight bytes each; the older ones move to job_log.
    log_ids              BLOB    NOT NULL,
    chain                BLOB    NOT NULL CHECK (length(chain) = 32),
    -- A small payload; a large one stands in payloads, so that an update need not copy it.
    payload              TEXT,

    CHECK (task_given = 1 OR task_id = id),
    CHECK (idempotency_scope <> '_job' OR idempotency_key = id)
) STRICT;

CREATE UNIQUE INDEX jobs_key ON jobs (tenant, idempotency_scope, idempotency_key)
    WHERE idempotency_scope <> '_job';

CREATE INDEX jobs_leased ON jobs (lease_session) WHERE lease_session IS NOT NULL;

CREATE INDEX jobs_ready ON jobs (group_id, ready_rank) WHERE ready_rank IS NOT NULL;

CREATE INDEX jobs_retry ON jobs (group_id, next_retry_at) WHERE next_retry_at IS NOT NULL;

CREATE UNIQUE INDEX jobs_task ON jobs (tenant, task_id, attempt) WHERE task_given = 1;

CREATE INDEX jobs_timer ON jobs (timer_at) WHERE timer_at IS NOT NULL;

CREATE TABLE log (
    id     INTEGER PRIMARY KEY,
    tenant TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    count  INTEGER NOT NULL CHECK (count >= 1),
    events TEXT    NOT NULL
) STRICT;

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

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

CREATE TABLE sessions (
    id         INTEGER PRIMARY KEY,
    worker     TEXT    NOT NULL UNIQUE,
    -- Until when the last renewal keeps every lease of the session; 0 before the first.
    until      INTEGER NOT NULL,
    renewals   INTEGER NOT NULL,
    -- When the last of its leases runs out, renewed or not.
    lapses_at  INTEGER NOT NULL,
    started_at INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_lapsed ON sessions (lapses_at);

CREATE TABLE tasks (
    tenant       TEXT    NOT NULL,
    task_id      ANY     NOT NULL,
    next_attempt INTEGER NOT NULL CHECK (next_attempt >= 2),
    PRIMARY KEY (tenant, task_id)
) STRICT, WITHOUT ROWID;
