-- Who may run: keys that limits and turns go by, what is unique while it lasts, and rules.
--
-- A program that does not know these columns makes jobs without a key, obeys no rule, and claims by group: what it does
-- is right but for the rules, so let it serve beside newer ones only as long as an upgrade takes.

ALTER TABLE jobs
    -- Where a job waits beside those that have its key: a number made of tenant and key, 0 without one.
    ADD COLUMN lane bigint NOT NULL DEFAULT 0,
    -- What no other job has that is not at its end.
    ADD COLUMN unique_key text;

-- One unique key, one job that is not at its end. Serves the look-up of such a key.
CREATE UNIQUE INDEX jobs_unique ON jobs (tenant, unique_key)
    WHERE unique_key IS NOT NULL AND NOT (
        state = 'succeeded' OR state = 'partial' OR state = 'failed' OR state = 'cancelled');

-- Serves claims: the jobs of a lane that can be claimed, best first; and which lanes have some.
DROP INDEX jobs_ready;
CREATE INDEX jobs_ready ON jobs (group_id, lane, rank) WHERE state = 'queued' OR state = 'interrupted';
-- Serves claims: the retries of a lane, by the time they are due; and which lanes have some.
DROP INDEX jobs_retry;
CREATE INDEX jobs_retry ON jobs (group_id, lane, next_retry_at) WHERE next_retry_at IS NOT NULL;
-- Serves limits: how many jobs of a key are held. Jobs without one are not in it, and cost nothing.
CREATE INDEX jobs_held_keys ON jobs (group_id, lane) WHERE lease_session IS NOT NULL AND lane <> 0;

-- What people say about who may run. A claim that shares a limit locks its row.
CREATE TABLE rules (
    name text PRIMARY KEY,
    rule text NOT NULL
);

-- Grows with each change of a rule: a node that remembers rules compares it.
INSERT INTO meta (name, value) VALUES ('rules_version', '0');

-- What rules remember: of all that they cover, or of each part.
CREATE TABLE rule_states (
    rule      text NOT NULL REFERENCES rules (name) ON DELETE CASCADE,
    part      text NOT NULL,
    state     text NOT NULL,
    -- From when on it is the same as knowing nothing.
    forget_at timestamptz,
    PRIMARY KEY (rule, part)
);

ALTER TABLE sessions
    -- What a worker listens to, if it said so (queues, kinds and tenant), and when it last did.
    ADD COLUMN listens text,
    ADD COLUMN listened_at timestamptz;

-- The first thing that a commit does which only makes jobs, for a client that knows which rules it goes by. If they
-- have changed, it has to look at them first.
CREATE FUNCTION begin_at_once(
    commit_id uuid, now_at timestamptz, is_our_clock boolean, rules_version bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT value::bigint FROM meta WHERE name = 'rules_version') <> begin_at_once.rules_version THEN
        RAISE EXCEPTION 'rules have changed' USING ERRCODE = 'WL001';
    END IF;
    RETURN begin_at_once(commit_id, now_at, is_our_clock);
END $$;

-- The same function with two more arguments takes the place of the old one: two would make a call ambiguous.
DROP FUNCTION enqueue(text, json, text, text, integer, timestamptz, text, text, integer, bigint, text[], text);

-- Enqueues a job in the transaction of whoever calls it, from any language, and gives back its id. The job is
-- made right after the commit. A limit key is what it has in common with others; a unique key is what no other job has
-- that is not at its end. A request that the rules refuse makes no job: inbox_results says why.
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
    principal         text        DEFAULT session_user,
    limit_key         text        DEFAULT NULL,
    unique_key        text        DEFAULT NULL
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
        'tags', CASE WHEN cardinality(tags) > 0 THEN to_jsonb(tags) END,
        'limit_key', limit_key,
        'unique_key', unique_key));
    INSERT INTO inbox (job_id, tenant, at, op, payload)
    VALUES (new_id, enqueue.tenant, now_at, request::text, enqueue.payload::text);
    RETURN job_id(new_id);
END $$;
