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

CREATE TABLE claims (
    hour INTEGER NOT NULL,
    id   BLOB    NOT NULL CHECK (length(id) = 16),
    PRIMARY KEY (hour, id)
) STRICT, WITHOUT ROWID;

CREATE VIEW contract_jobs AS
SELECT job_id,
       tenant_id,
       job_type,
       CASE
           WHEN state IN ('queued', 'dispatched') THEN CASE WHEN started_at IS NULL THEN 'queued' ELSE 'running' END
           WHEN state = 'scheduled' THEN 'queued'
           WHEN state = 'waiting' THEN 'running'
           WHEN state = 'interrupted' THEN 'running'
           WHEN state = 'retry_scheduled' THEN 'retrying'
           WHEN state = 'partial' THEN 'succeeded'
           ELSE state
       END AS status,
       retry_count,
       idempotency_key,
       trace_id,
       error_code,
       payload_json,
       created_at,
       updated_at,
       dlq_id,
       requeued_from_dlq_id
FROM jobs_by_name;

CREATE TABLE dlq_items (
    id         BLOB    PRIMARY KEY CHECK (length(id) = 16),
    tenant     TEXT    NOT NULL,
    job_id     BLOB    NOT NULL UNIQUE,
    state      TEXT    NOT NULL CHECK (state = 'open' OR state = 'discard_requested' OR state = 'discarded' OR state = 'requeued'),
    code       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    requeued_as BLOB   CHECK ((requeued_as IS NOT NULL) = (state = 'requeued')),
    closed_at  INTEGER CHECK ((closed_at IS NOT NULL) = (state = 'discarded' OR state = 'requeued')),
    letter     TEXT    NOT NULL, cause TEXT,
    -- What a failed job refers to.
    UNIQUE (job_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX dlq_items_all ON dlq_items (state, created_at);

CREATE INDEX dlq_items_causes ON dlq_items (tenant, state, code, cause, created_at);

CREATE INDEX dlq_items_code ON dlq_items (tenant, code, created_at);

CREATE INDEX dlq_items_list ON dlq_items (tenant, state, created_at);

CREATE INDEX dlq_items_no_cause ON dlq_items (id) WHERE cause IS NULL;

CREATE TABLE effects (
    seq     INTEGER NOT NULL,
    key     TEXT    NOT NULL,
    epoch   INTEGER NOT NULL CHECK (epoch >= 1),
    at      INTEGER NOT NULL,
    failed  INTEGER NOT NULL CHECK (failed IN (0, 1)),
    outcome TEXT    NOT NULL,
    PRIMARY KEY (seq, key)
) STRICT, WITHOUT ROWID;

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
       coalesce(line.value ->> 10, line.value ->> 'trace_id', (
           SELECT iif(typeof(jobs.trace_id) = 'text', jobs.trace_id,
               'trace-run-job_' || (line.value ->> 0) || '-' || lower(substr(hex(jobs.trace_id), 1, 8) || '-' || substr(hex(jobs.trace_id), 9, 4) || '-' || substr(hex(jobs.trace_id), 13, 4) || '-' || substr(hex(jobs.trace_id), 17, 4) || '-' || substr(hex(jobs.trace_id), 21)))
           FROM jobs, (SELECT x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff' AS all_256) AS bytes
           WHERE jobs.id = CAST(substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 1, 1)) - 1) << 5) + (instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 2, 1)) - 1)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 3, 1)) - 1) << 3) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 4, 1)) - 1) >> 2)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 4, 1)) - 1) << 6) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 5, 1)) - 1) << 1) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 6, 1)) - 1) >> 4)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 6, 1)) - 1) << 4) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 7, 1)) - 1) >> 1)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 7, 1)) - 1) << 7) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 8, 1)) - 1) << 2) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 9, 1)) - 1) >> 3)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 9, 1)) - 1) << 5) + (instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 10, 1)) - 1)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 11, 1)) - 1) << 3) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 12, 1)) - 1) >> 2)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 12, 1)) - 1) << 6) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 13, 1)) - 1) << 1) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 14, 1)) - 1) >> 4)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 14, 1)) - 1) << 4) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 15, 1)) - 1) >> 1)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 15, 1)) - 1) << 7) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 16, 1)) - 1) << 2) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 17, 1)) - 1) >> 3)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 17, 1)) - 1) << 5) + (instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 18, 1)) - 1)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 19, 1)) - 1) << 3) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 20, 1)) - 1) >> 2)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 20, 1)) - 1) << 6) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 21, 1)) - 1) << 1) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 22, 1)) - 1) >> 4)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 22, 1)) - 1) << 4) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 23, 1)) - 1) >> 1)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 23, 1)) - 1) << 7) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 24, 1)) - 1) << 2) + ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 25, 1)) - 1) >> 3)) & 255), 1) ||
               substr(bytes.all_256, 1 + ((((instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 25, 1)) - 1) << 5) + (instr('0123456789abcdefghjkmnpqrstvwxyz', substr((line.value ->> 0), 26, 1)) - 1)) & 255), 1) AS BLOB))) AS trace_id,
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

CREATE TABLE job_tags (
    tenant TEXT    NOT NULL,
    tag    TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (tenant, tag, seq)
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

CREATE INDEX jobs_code ON jobs (rest ->> '$.error.code') WHERE instr(rest, 'error') > 0;

CREATE UNIQUE INDEX jobs_key ON jobs (tenant, idempotency_scope, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE INDEX jobs_leased ON jobs (lease_session) WHERE lease_session IS NOT NULL;

CREATE INDEX jobs_limit_key ON jobs (lane) WHERE lane <> 0;

CREATE INDEX jobs_listed ON jobs (group_id, state) WHERE
    state = 'succeeded' OR state = 'scheduled' OR state = 'waiting' OR state = 'partial'
    OR state = 'failed' OR state = 'cancelled';

CREATE INDEX jobs_ready ON jobs (group_id, rank, lane) WHERE state = 'queued' OR state = 'interrupted';

CREATE INDEX jobs_retry ON jobs (group_id, lane, next_retry_at) WHERE next_retry_at IS NOT NULL;

CREATE INDEX jobs_retry_at ON jobs (next_retry_at) WHERE next_retry_at IS NOT NULL;

CREATE UNIQUE INDEX jobs_task ON jobs (tenant, task_id, attempt) WHERE task_id IS NOT NULL;

CREATE INDEX jobs_timer ON jobs (timer_at) WHERE timer_at IS NOT NULL;

CREATE UNIQUE INDEX jobs_unique ON jobs (tenant, unique_key)
    WHERE unique_key IS NOT NULL AND NOT (
        state = 'succeeded' OR state = 'partial' OR state = 'failed' OR state = 'cancelled');

CREATE VIEW jobs_by_name AS
SELECT 'job_' || id_text AS job_id,
       tenant AS tenant_id,
       kind AS job_type,
       state,
       attempt,
       retry_count,
       max_retries,
       coalesce(idempotency_key, 'job_' || id_text) AS idempotency_key,
       iif(typeof(task) = 'text', task, 'job_' || substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (instr('123456789ABCDEF', substr(task_hex, 1, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 1, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(task_hex, 2, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 3, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(task_hex, 4, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 4, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(task_hex, 5, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 5, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(task_hex, 6, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 6, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(task_hex, 7, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 8, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(task_hex, 9, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 9, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(task_hex, 10, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 10, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(task_hex, 11, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 11, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(task_hex, 12, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 13, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(task_hex, 14, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 14, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(task_hex, 15, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 15, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(task_hex, 16, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 16, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(task_hex, 17, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 18, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(task_hex, 19, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 19, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(task_hex, 20, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 20, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(task_hex, 21, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 21, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(task_hex, 22, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 23, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(task_hex, 24, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 24, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(task_hex, 25, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 25, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(task_hex, 26, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 26, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(task_hex, 27, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 28, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(task_hex, 29, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 29, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(task_hex, 30, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 30, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(task_hex, 31, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(task_hex, 31, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(task_hex, 32, 1)), 1)) AS task_id,
       -- As the index jobs_task has it.
       task AS task_key,
       iif(trace_hex IS NULL, trace, 'trace-run-job_' || id_text || '-' || lower(substr(trace_hex, 1, 8) || '-' || substr(trace_hex, 9, 4) || '-' || substr(trace_hex, 13, 4) || '-' || substr(trace_hex, 17, 4) || '-' || substr(trace_hex, 21))) AS trace_id,
       rest ->> '$.error.code' AS error_code,
       rest ->> '$.error.message' AS error_message,
       rest ->> '$.ended_by' AS ended_by,
       coalesce(options ->> '$.schedule_type', 'at') AS schedule_type,
       options ->> '$.timeout_ms' AS timeout_ms,
       coalesce(payload, (SELECT payloads.payload FROM payloads WHERE payloads.seq = named.seq)) AS payload_json,
       strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at,
       strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06dZ', updated_at % 1000000) AS updated_at,
       strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000) AS started_at,
       iif(state IN ('succeeded', 'partial', 'failed', 'cancelled'),
           strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06dZ', updated_at % 1000000), NULL) AS finished_at,
       strftime('%Y-%m-%dT%H:%M:%S', next_retry_at / 1000000, 'unixepoch') || printf('.%06dZ', next_retry_at % 1000000) AS next_retry_at,
       iif(dlq_id IS NULL, NULL, 'dlq_' || id_text) AS dlq_id,
       options ->> '$.origin.requeued' AS requeued_from_dlq_id
FROM (
    SELECT jobs.*, job_groups.kind AS kind,
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (instr('123456789ABCDEF', substr(hex(jobs.id), 1, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 1, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(hex(jobs.id), 2, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 3, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 4, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 4, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 5, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 5, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 6, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 6, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(hex(jobs.id), 7, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 8, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 9, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 9, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 10, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 10, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 11, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 11, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(hex(jobs.id), 12, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 13, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 14, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 14, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 15, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 15, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 16, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 16, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(hex(jobs.id), 17, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 18, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 19, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 19, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 20, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 20, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 21, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 21, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(hex(jobs.id), 22, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 23, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 24, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 24, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 25, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 25, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 26, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 26, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(hex(jobs.id), 27, 1)), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 28, 1)) << 1) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 29, 1)) >> 3), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 29, 1)) << 2) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 30, 1)) >> 2), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 30, 1)) << 3) & 31) + (instr('123456789ABCDEF', substr(hex(jobs.id), 31, 1)) >> 1), 1) ||
           substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + ((instr('123456789ABCDEF', substr(hex(jobs.id), 31, 1)) << 4) & 31) + instr('123456789ABCDEF', substr(hex(jobs.id), 32, 1)), 1) AS id_text,
           coalesce(jobs.task_id, jobs.id) AS task,
           hex(coalesce(jobs.task_id, jobs.id)) AS task_hex,
           jobs.trace_id AS trace,
           iif(typeof(jobs.trace_id) = 'blob', hex(jobs.trace_id), NULL) AS trace_hex
    FROM jobs JOIN job_groups ON job_groups.id = jobs.group_id
) AS named;

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

CREATE VIEW scheduler_tasks AS
SELECT task_id,
       schedule_type,
       CASE
           WHEN state IN ('queued', 'dispatched') THEN CASE WHEN started_at IS NULL THEN 'ready' ELSE 'running' END
           WHEN state = 'scheduled' THEN 'pending'
           WHEN state = 'waiting' THEN 'running'
           WHEN state = 'interrupted' THEN 'running'
           WHEN state = 'retry_scheduled' THEN 'ready'
           WHEN state = 'partial' THEN 'succeeded'
           ELSE state
       END AS state,
       attempt,
       max_retries,
       timeout_ms,
       idempotency_key,
       CASE
           WHEN error_code IS NULL THEN NULL
           WHEN ended_by = 'retries_exhausted' THEN 'TASK_RETRY_EXHAUSTED'
           WHEN error_code = 'TASK_TIMEOUT' THEN 'TASK_TIMEOUT'
           ELSE 'TASK_EXECUTION_FAILED'
       END AS last_error_code,
       CASE WHEN error_code = 'TASK_TIMEOUT' THEN '' ELSE error_code || ': ' END || error_message
           || CASE WHEN ended_by = 'retries_exhausted' THEN ' exhausted retries' ELSE '' END AS last_error_reason,
       created_at,
       updated_at,
       started_at,
       finished_at,
       tenant_id
FROM jobs_by_name
WHERE NOT EXISTS (SELECT 1 FROM jobs AS later
    WHERE later.tenant = jobs_by_name.tenant_id AND later.task_id = jobs_by_name.task_key
        AND later.attempt > jobs_by_name.attempt);

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

CREATE TABLE signals (
    seq     INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    number  INTEGER NOT NULL CHECK (number >= 1),
    at      INTEGER NOT NULL,
    sender  TEXT    NOT NULL,
    sort    TEXT    NOT NULL CHECK (sort IN ('payload', 'rejected', 'ended')),
    content TEXT    NOT NULL,
    taken   INTEGER NOT NULL CHECK (taken IN (0, 1)),
    PRIMARY KEY (seq, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE sqlite_sequence(name,seq);

CREATE TABLE steps (
    seq    INTEGER NOT NULL,
    key    TEXT    NOT NULL,
    number INTEGER CHECK (number >= 1),
    step   TEXT    NOT NULL,
    output TEXT,
    PRIMARY KEY (seq, key),
    CHECK ((number IS NULL) = (output IS NULL))
) STRICT, WITHOUT ROWID;

CREATE VIEW task_runs AS
SELECT job_id AS run_id,
       task_id,
       CASE
           WHEN state IN ('queued', 'dispatched') THEN CASE WHEN started_at IS NULL THEN 'queued' ELSE 'running' END
           WHEN state = 'scheduled' THEN 'queued'
           WHEN state = 'waiting' THEN 'running'
           WHEN state = 'partial' THEN 'succeeded'
           ELSE state
       END AS run_status,
       attempt,
       idempotency_key,
       next_retry_at,
       error_code,
       trace_id,
       created_at,
       updated_at,
       tenant_id
FROM jobs_by_name;

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
