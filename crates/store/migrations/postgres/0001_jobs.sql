-- Jobs, their history, their dead letters, and who holds them.
--
-- What belongs to Windlass itself (a key or a task that the caller did not name, a trace that we made) is
-- kept as the 16 bytes it is made from, or not at all; what a caller named is text. So the usual row is
-- small. Whatever is written with each commit is only ever inserted: a table whose rows are updated again
-- and again grows slow while somebody's old snapshot keeps the dead versions.

CREATE TABLE meta (
    name  text PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO meta (name, value) VALUES ('store_id', gen_random_uuid()::text), ('incarnation', '0'), ('feed_from', '1');

-- Which jobs are offered to workers together. The isolated ones are claimed alone.
CREATE TABLE job_groups (
    id       integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    queue    text    NOT NULL,
    tenant   text    NOT NULL,
    kind     text    NOT NULL,
    isolated boolean NOT NULL,
    UNIQUE (queue, tenant, kind, isolated)
);

-- Worker sessions: one row whose renewal renews all its leases.
CREATE TABLE sessions (
    id         integer     PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    worker     text        NOT NULL UNIQUE,
    -- Until when the last renewal keeps every lease of the session; the epoch before the first.
    until      timestamptz NOT NULL,
    renewals   bigint      NOT NULL,
    -- By this the last of its leases has run out, renewed or not; the epoch while it had none. It is moved on
    -- by more than it has to be, so that it is not written with every claim.
    lapses_at  timestamptz NOT NULL,
    started_at timestamptz NOT NULL,
    -- Does a process that is connected to us run the worker? Then it holds an advisory lock while it lives.
    vouched    boolean     NOT NULL DEFAULT false
);

-- Serves recovery: sessions whose leases have run out.
CREATE INDEX sessions_lapsed ON sessions (lapses_at);

-- A row is written three times in the life of a usual job, so it is narrow and has few indexes: what follows
-- from another column is not kept, and what Windlass alone reads is packed.
CREATE TABLE jobs (
    -- Its place among the jobs of its group: when it was due, and a minute later for each step of priority.
    rank              bigint      NOT NULL,
    version           bigint      NOT NULL CHECK (version >= 1),
    epoch             bigint      NOT NULL CHECK (epoch >= 0),
    created_at        timestamptz NOT NULL,
    -- The last change. A job that is at its end does not change: then it is when it finished.
    updated_at        timestamptz NOT NULL,
    started_at        timestamptz,
    next_retry_at     timestamptz,
    -- The next alarm of the job itself; leases ring with their session.
    timer_at          timestamptz,
    -- Its queue and its kind, and whether it is claimed alone.
    group_id          integer     NOT NULL,
    lease_session     integer,
    attempt           integer     NOT NULL CHECK (attempt >= 1),
    retry_count       integer     NOT NULL,
    max_retries       integer     NOT NULL,
    id                uuid        PRIMARY KEY,
    -- The chance that our own trace was made from; null where a caller gave one.
    trace_made        uuid,
    dlq_id            uuid,
    state             text        NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'dispatched', 'scheduled',
        'waiting', 'retry_scheduled', 'interrupted', 'partial', 'failed', 'cancelled')),
    tenant            text        NOT NULL,
    payload_digest    bytea       NOT NULL CHECK (length(payload_digest) = 32),
    -- The last claim (16 bytes) and the count of leases (8); while it is held also until when (8), the last
    -- sign of life (8), the renewals of the session that are counted (8), and whether it is held alone (1).
    lease             bytea,
    -- The head of its chain of hashes (32 bytes), then the log rows that speak of it (8 each); the older ones
    -- move to job_log.
    history           bytea       NOT NULL CHECK (length(history) >= 40),
    -- The names that a caller gave; null where the job's own id stands for them.
    task_id           text,
    idempotency_scope text,
    idempotency_key   text,
    trace_id          text,
    -- What is rarely asked for and what rarely happens, as JSON; null if all is as usual.
    options           text,
    rest              text,
    -- A large one is kept apart by the database, so that an update need not copy it.
    payload           text        NOT NULL,
    CONSTRAINT jobs_retries CHECK (retry_count BETWEEN 0 AND max_retries),
    CONSTRAINT jobs_started CHECK (started_at IS NOT NULL OR state NOT IN ('running', 'succeeded', 'partial')),
    CONSTRAINT jobs_next_retry CHECK ((next_retry_at IS NOT NULL) = (state = 'retry_scheduled')),
    CONSTRAINT jobs_session CHECK ((lease_session IS NOT NULL) = (state IN ('running', 'dispatched'))),
    CONSTRAINT jobs_lease CHECK (length(lease) = CASE WHEN lease_session IS NULL THEN 24 ELSE 49 END),
    CONSTRAINT jobs_held CHECK (lease IS NOT NULL OR lease_session IS NULL),
    CONSTRAINT jobs_key_whole CHECK ((idempotency_scope IS NULL) = (idempotency_key IS NULL)),
    CONSTRAINT jobs_trace CHECK ((trace_made IS NULL) = (trace_id IS NOT NULL)),
    CONSTRAINT jobs_letter CHECK ((dlq_id IS NOT NULL) = (state = 'failed'))
);

-- Invariant 5: one key, one job. Serves the look-up of a key. A job's own id is unique already.
CREATE UNIQUE INDEX jobs_key ON jobs (tenant, idempotency_scope, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- Invariant 4: one attempt of a task, one job. Serves the look-up of a task.
CREATE UNIQUE INDEX jobs_task ON jobs (tenant, task_id, attempt) WHERE task_id IS NOT NULL;
-- Serves claims: the jobs of a group that can be claimed, best first.
CREATE INDEX jobs_ready ON jobs (group_id, rank) WHERE state = 'queued' OR state = 'interrupted';
-- Serves claims: the retries of a group, by the time they are due.
CREATE INDEX jobs_retry ON jobs (group_id, next_retry_at) WHERE next_retry_at IS NOT NULL;
-- Serves recovery and renewal: what a session holds; and claims: what of it has to be alone. One index for both,
-- because each one is asked at every update.
CREATE INDEX jobs_leased ON jobs (lease_session, get_byte(lease, 48)) WHERE lease_session IS NOT NULL;
-- Serves timers.
CREATE INDEX jobs_timer ON jobs (timer_at) WHERE timer_at IS NOT NULL;

-- Who was made by whom. Serves retention, for a job has to stay while a child of it is not at its end.
CREATE TABLE children (
    parent uuid NOT NULL,
    id     uuid NOT NULL,
    PRIMARY KEY (parent, id)
);

-- What a handler gave back, where it gave something.
CREATE TABLE outputs (
    id        uuid    NOT NULL,
    attempt   integer NOT NULL,
    result    text,
    remaining text,
    stats     text,
    PRIMARY KEY (id, attempt)
);

-- Commits that went through, by an id that the client made: one whose answer was lost finds itself here.
CREATE TABLE commits (
    id uuid        PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Claims that were granted something, by the id that the worker made: the same again gets the same.
CREATE TABLE claims (
    id uuid        PRIMARY KEY,
    at timestamptz NOT NULL
);

-- Each commit takes a block of numbers for its log rows.
CREATE SEQUENCE log_seq INCREMENT BY 1024 MINVALUE 1024;

-- All events of one commit for one tenant. Partitions are made ahead, and go when nothing in them is needed.
CREATE TABLE log (
    seq    bigint      PRIMARY KEY,
    tenant text        NOT NULL,
    at     timestamptz NOT NULL,
    count  integer     NOT NULL CHECK (count >= 1),
    events text        NOT NULL
) PARTITION BY RANGE (seq);

-- The order of the log: the number of the first event of each row. A commit gets its numbers last, under a
-- lock that it keeps until it is durable, so numbers have no gap and none appears before an earlier one.
CREATE TABLE feed (
    first bigint      PRIMARY KEY,
    seq   bigint      NOT NULL,
    count integer     NOT NULL CHECK (count >= 1),
    at    timestamptz NOT NULL
);
-- Serves the number of an event whose log row is known.
CREATE UNIQUE INDEX feed_seq ON feed (seq);

-- Older log rows of a job that has many.
CREATE TABLE job_log (
    id  uuid   NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (id, seq)
);

-- Jobs that retention has taken, for as long as the log speaks of them.
CREATE TABLE pruned (
    id       uuid        PRIMARY KEY,
    at       timestamptz NOT NULL,
    -- How long before that it had to be at its end.
    least_ms bigint      NOT NULL CHECK (least_ms >= 0),
    -- The number of its last event.
    version  bigint      NOT NULL CHECK (version >= 1),
    -- How many log rows still speak of it.
    rows     integer     NOT NULL CHECK (rows >= 1)
);

-- Tasks that were named. They outlive their jobs.
CREATE TABLE tasks (
    tenant       text    NOT NULL,
    task_id      text    NOT NULL,
    next_attempt integer NOT NULL CHECK (next_attempt >= 2),
    PRIMARY KEY (tenant, task_id)
);

CREATE TABLE dlq_items (
    id          uuid        PRIMARY KEY,
    tenant      text        NOT NULL,
    job_id      uuid        NOT NULL UNIQUE,
    state       text        NOT NULL CHECK (state IN ('open', 'discard_requested', 'discarded', 'requeued')),
    code        text        NOT NULL,
    created_at  timestamptz NOT NULL,
    requeued_as uuid,
    closed_at   timestamptz,
    letter      text        NOT NULL,
    -- What a failed job refers to.
    UNIQUE (job_id, id),
    CONSTRAINT dlq_requeued CHECK ((requeued_as IS NOT NULL) = (state = 'requeued')),
    CONSTRAINT dlq_closed CHECK ((closed_at IS NOT NULL) = (state IN ('discarded', 'requeued')))
);

-- Serves the list of dead letters, newest first.
CREATE INDEX dlq_items_list ON dlq_items (tenant, created_at, id);

-- A failed job has its letter.
ALTER TABLE jobs ADD CONSTRAINT jobs_has_letter
    FOREIGN KEY (id, dlq_id) REFERENCES dlq_items (job_id, id) DEFERRABLE INITIALLY DEFERRED;

CREATE TABLE approvals (
    dlq_id    uuid        NOT NULL REFERENCES dlq_items (id) ON DELETE CASCADE,
    step      text        NOT NULL CHECK (step IN ('requested', 'approved')),
    principal text        NOT NULL,
    reason    text        NOT NULL CHECK (trim(reason) <> ''),
    at        timestamptz NOT NULL,
    PRIMARY KEY (dlq_id, step),
    -- Two people: the same one cannot ask and approve.
    UNIQUE (dlq_id, principal)
);

-- What follows for other jobs, until it is carried out.
CREATE TABLE follow_ups (
    id     bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    tenant text   NOT NULL,
    what   text   NOT NULL
);

-- Enqueues that users wrote in their own transactions, until a node promotes them. Without a unique key but
-- its own number, so that no user's transaction fails because of another's.
CREATE TABLE inbox (
    seq     bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    job_id  uuid        NOT NULL,
    tenant  text        NOT NULL,
    at      timestamptz NOT NULL,
    op      text        NOT NULL,
    payload text        NOT NULL
);

-- What became of those that made no job: the id that the user was given leads here.
CREATE TABLE inbox_results (
    -- The log row that tells it, and its place there.
    seq      bigint      NOT NULL,
    place    integer     NOT NULL,
    job_id   uuid        NOT NULL,
    tenant   text        NOT NULL,
    asked_at timestamptz NOT NULL,
    at       timestamptz NOT NULL,
    outcome  text        NOT NULL CHECK (outcome IN ('hit', 'conflict', 'refused')),
    -- The job that stands in the way.
    existing uuid,
    code     text,
    why      text,
    -- What was asked for, as it stood in the inbox. Of a hit the existing job has it.
    op       text,
    payload  text,
    PRIMARY KEY (seq, place),
    CONSTRAINT inbox_existing CHECK (existing IS NOT NULL OR outcome = 'refused'),
    CONSTRAINT inbox_hit CHECK ((outcome = 'hit') = ALL (ARRAY[code IS NULL, why IS NULL, op IS NULL, payload IS NULL]))
);

-- Serves the look-up by the id that was given.
CREATE INDEX inbox_results_job ON inbox_results (job_id);
-- Serves retention: the oldest first.
CREATE INDEX inbox_results_at ON inbox_results (at, seq);

-- Rows of the inbox that could not be promoted, as they were. Somebody has to look at them.
CREATE TABLE inbox_set_aside (
    id       bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    found_at timestamptz NOT NULL,
    why      text        NOT NULL,
    job_id   uuid,
    tenant   text,
    at       timestamptz,
    op       text,
    payload  text
);

-- Ends a transaction in which something was not as the client remembered it: the client tries again with
-- what is stored. It lets the client send COMMIT together with what comes before it.
CREATE FUNCTION expect(counted bigint, wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF counted <> wanted THEN
        RAISE EXCEPTION 'expected % rows, found %', wanted, counted USING ERRCODE = 'WL001';
    END IF;
END $$;

-- The first thing that a commit does which only makes jobs. Its client has asked nothing before: what time it is
-- it knows from the last answers that it got. If that is not the time here, if it is before the last commit, or if
-- something waits in the inbox, which goes first, the client tries again in the usual way.
CREATE FUNCTION begin_at_once(commit_id uuid, now_at timestamptz, is_our_clock boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO commits (id) VALUES (commit_id);
    IF EXISTS (SELECT FROM inbox)
        OR now_at < (SELECT at FROM feed ORDER BY first DESC LIMIT 1)
        OR is_our_clock AND now_at NOT BETWEEN clock_timestamp() - interval '1 second'
            AND clock_timestamp() + interval '10 milliseconds'
    THEN
        RAISE EXCEPTION 'this has to be looked at first' USING ERRCODE = 'WL001';
    END IF;
    -- After the insert, so that the transaction has its id.
    RETURN nextval('log_seq');
END $$;

-- The last thing that a commit does: its log rows, and their places in the feed. In one call, because each
-- statement of its own would be one more message that two processes are woken for. It is told how many rows of
-- jobs were written and how many should have been, which has them written before, and what to add to each number.
CREATE FUNCTION finish(
    written bigint, wanted bigint, first_seq bigint,
    new_seqs bigint[], new_tenants text[], new_counts integer[], new_events text[], now_at timestamptz,
    new_claims uuid[], new_jobs uuid[], lock_class integer, lock_id integer
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM expect(written, wanted);
    INSERT INTO claims (id, at) SELECT v.id, now_at FROM unnest(new_claims) AS v (id);
    INSERT INTO log (seq, tenant, at, count, events)
    SELECT first_seq + v.seq, v.tenant, now_at, v.count, v.events
    FROM unnest(new_seqs, new_tenants, new_counts, new_events) AS v (seq, tenant, count, events);
    -- Held until the commit is durable: whoever comes next sees what was numbered before.
    PERFORM pg_advisory_xact_lock(lock_class, lock_id);
    -- An insert may have waited for retention to forget a job of the same id, while the log still speaks of it.
    PERFORM expect(count(*), 0) FROM pruned WHERE id = ANY(new_jobs);
    INSERT INTO feed (first, seq, count, at)
    SELECT coalesce((SELECT f.first + f.count FROM feed f ORDER BY f.first DESC LIMIT 1), 1)
            + sum(v.count) OVER (ORDER BY v.place) - v.count, first_seq + v.seq, v.count, now_at
    FROM unnest(new_seqs, new_counts) WITH ORDINALITY AS v (seq, count, place);
END $$;

-- Greets the server that a new connection leads to. If it is not the one that was met before (another cluster,
-- or another timeline of it: a backup was restored, or a standby took over), or if this table is not the one that
-- it was (a dump was restored, or the database was copied), a new incarnation begins, so that no epoch is granted
-- that some worker may already hold.
CREATE FUNCTION meet_server() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    met   text;
    known text;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a standby, which cannot be written to' USING ERRCODE = '25006';
    END IF;
    met := (SELECT system_identifier FROM pg_control_system())
        || '/' || substring(pg_walfile_name(pg_current_wal_lsn()) FOR 8)
        || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
        || '/' || 'meta'::regclass::oid;
    IF (SELECT value FROM meta WHERE name = 'server') = met THEN
        RETURN;
    END IF;
    LOCK TABLE meta IN SHARE ROW EXCLUSIVE MODE;
    known := (SELECT value FROM meta WHERE name = 'server');
    IF known IS NULL THEN
        INSERT INTO meta (name, value) VALUES ('server', met);
    ELSIF known <> met THEN
        UPDATE meta SET value = met WHERE name = 'server';
        UPDATE meta SET value = value::bigint + 1 WHERE name = 'incarnation';
    END IF;
END $$;

-- The text of a job's id: what programs see of the 16 bytes.
CREATE FUNCTION job_id(id uuid) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 'job_' || string_agg(
        substr('0123456789abcdefghjkmnpqrstvwxyz', digit.value::integer + 1, 1), '' ORDER BY place)
    FROM (SELECT ('x' || replace(id::text, '-', ''))::bit(128) AS bits) AS whole,
        generate_series(0, 25) AS place,
        -- 26 digits of 5 bits are two bits more than there are.
        LATERAL (SELECT (substring(B'00' || bits FROM place * 5 + 1 FOR 5))::bit(5)::integer AS value) AS digit
$$;

-- Enqueues a job in the transaction of whoever calls it, from any language, and gives back its id. The job is
-- made right after the commit. A request that the rules refuse makes no job: inbox_results says why.
CREATE FUNCTION enqueue(
    kind              text,
    payload           json        DEFAULT 'null',
    queue             text        DEFAULT 'default',
    tenant            text        DEFAULT 'default',
    priority          integer     DEFAULT 0,
    scheduled_at      timestamptz DEFAULT NULL,
    idempotency_key   text        DEFAULT NULL,
    idempotency_scope text        DEFAULT NULL,
    max_retries       integer     DEFAULT 3,
    timeout_ms        bigint      DEFAULT NULL,
    tags              text[]      DEFAULT '{}',
    principal         text        DEFAULT session_user
) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    now_at  timestamptz := clock_timestamp();
    micros  bigint      := (extract(epoch FROM now_at) * 1000000)::bigint;
    chance  text        := replace(gen_random_uuid()::text, '-', '');
    new_id  uuid;
    request jsonb;
BEGIN
    IF octet_length(payload::text) > 1048576 THEN
        RAISE EXCEPTION 'the payload has % bytes, and 1048576 is the most', octet_length(payload::text)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Store it elsewhere, and enqueue where it is.';
    END IF;
    IF kind = '' OR queue = '' OR tenant = '' OR enqueue.principal = '' THEN
        RAISE EXCEPTION 'kind, queue, tenant and principal must not be empty'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF idempotency_scope IS NOT NULL AND idempotency_key IS NULL THEN
        RAISE EXCEPTION 'a scope without a key says nothing'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give idempotency_key too.';
    END IF;
    -- A version 7 UUID: milliseconds, where in the millisecond, and chance.
    new_id := (lpad(to_hex(micros / 1000), 12, '0')
        || '7' || lpad(to_hex(micros % 1000 * 4096 / 1000), 3, '0')
        || substr('89ab', 1 + get_byte(decode(chance, 'hex'), 0) % 4, 1) || substr(chance, 18, 15))::uuid;
    request := jsonb_strip_nulls(jsonb_build_object(
        'by', 'user:' || enqueue.principal,
        'random', replace(gen_random_uuid()::text, '-', ''),
        'kind', kind,
        'queue', queue,
        'priority', priority,
        'max_retries', max_retries,
        'scheduled_at', to_char(scheduled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'timeout_ms', timeout_ms,
        'idempotency', CASE WHEN idempotency_key IS NOT NULL THEN jsonb_build_object('key',
            jsonb_build_object('scope', coalesce(idempotency_scope, 'default'), 'key', idempotency_key)) END,
        'tags', CASE WHEN cardinality(tags) > 0 THEN to_jsonb(tags) END));
    INSERT INTO inbox (job_id, tenant, at, op, payload)
    VALUES (new_id, enqueue.tenant, now_at, request::text, enqueue.payload::text);
    RETURN job_id(new_id);
END $$;

-- Single events, as people query them. What became of an enqueue that made no job is one of them.
CREATE VIEW events AS
SELECT feed.first + line.place - 1          AS number,
       log.tenant                           AS tenant,
       coalesce('job_' || (line.value ->> 0), line.value ->> 'job_id') AS job_id,
       (line.value ->> 1)::bigint           AS job_number,
       log.at                               AS at,
       coalesce(line.value ->> 2, 'inbox_' || (line.value ->> 'inbox')) AS cause,
       line.value ->> 3                     AS from_state,
       line.value ->> 4                     AS to_state,
       (line.value ->> 5)::integer          AS attempt,
       (line.value ->> 6)::integer          AS retry_count,
       (line.value ->> 7)::bigint           AS epoch,
       coalesce(line.value ->> 9, line.value ->> 'actor')     AS actor,
       coalesce(line.value ->> 10, line.value ->> 'trace_id') AS trace_id,
       CASE json_typeof(line.value) WHEN 'object' THEN line.value ELSE line.value -> 11 END AS fact
FROM feed JOIN log ON log.seq = feed.seq,
    json_array_elements(log.events::json) WITH ORDINALITY AS line (value, place)
-- A line that retention took leaves null.
WHERE json_typeof(line.value) <> 'null';
