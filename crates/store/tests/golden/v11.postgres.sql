SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA golden;
CREATE TYPE golden.moving_job AS (
	id uuid,
	state text,
	version bigint,
	attempt integer,
	retry_count integer,
	epoch bigint,
	updated_at timestamp with time zone,
	started_at timestamp with time zone,
	next_retry_at timestamp with time zone,
	timer_at timestamp with time zone,
	lease_session integer,
	lease bytea,
	dlq_id uuid,
	rest text,
	history bytea,
	group_id integer,
	written_by xid
);
CREATE TYPE golden.new_job AS (
	id uuid,
	state text,
	version bigint,
	attempt integer,
	retry_count integer,
	epoch bigint,
	updated_at timestamp with time zone,
	started_at timestamp with time zone,
	next_retry_at timestamp with time zone,
	timer_at timestamp with time zone,
	lease_session integer,
	lease bytea,
	dlq_id uuid,
	rest text,
	chain bytea,
	group_id integer,
	tenant text,
	rank bigint,
	max_retries integer,
	created_at timestamp with time zone,
	task_id text,
	scope text,
	key text,
	payload_digest bytea,
	trace_made uuid,
	trace_id text,
	options text,
	payload text,
	payload_of uuid,
	seq bigint,
	lane bigint,
	unique_key text
);
CREATE FUNCTION golden.begin_at_once(commit_id uuid, now_at timestamp with time zone, is_our_clock boolean) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION golden.begin_at_once(commit_id uuid, now_at timestamp with time zone, is_our_clock boolean, rules_version bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF (SELECT value::bigint FROM meta WHERE name = 'rules_version') <> begin_at_once.rules_version THEN
        RAISE EXCEPTION 'rules have changed' USING ERRCODE = 'WL001';
    END IF;
    RETURN begin_at_once(commit_id, now_at, is_our_clock);
END $$;
CREATE FUNCTION golden.enqueue(kind text, payload json DEFAULT 'null'::json, queue text DEFAULT 'default'::text, tenant text DEFAULT 'default'::text, priority integer DEFAULT 0, scheduled_at timestamp with time zone DEFAULT NULL::timestamp with time zone, idempotency_key text DEFAULT NULL::text, idempotency_scope text DEFAULT NULL::text, max_retries integer DEFAULT 3, timeout_ms bigint DEFAULT NULL::bigint, tags text[] DEFAULT '{}'::text[], principal text DEFAULT SESSION_USER, limit_key text DEFAULT NULL::text, unique_key text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'golden'
    AS $$
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
CREATE FUNCTION golden.expect(counted bigint, wanted bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF counted <> wanted THEN
        RAISE EXCEPTION 'expected % rows, found %', wanted, counted USING ERRCODE = 'WL001';
    END IF;
END $$;
CREATE FUNCTION golden.finish(written bigint, wanted bigint, first_seq bigint, new_seqs bigint[], new_tenants text[], new_counts integer[], new_events text[], now_at timestamp with time zone, new_claims uuid[], new_jobs uuid[], lock_class integer, lock_id integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION golden.job_id(id uuid) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT 'job_' || string_agg(
        substr('0123456789abcdefghjkmnpqrstvwxyz', digit.value::integer + 1, 1), '' ORDER BY place)
    FROM (SELECT ('x' || replace(id::text, '-', ''))::bit(128) AS bits) AS whole,
        generate_series(0, 25) AS place,
        -- 26 digits of 5 bits are two bits more than there are.
        LATERAL (SELECT (substring(B'00' || bits FROM place * 5 + 1 FOR 5))::bit(5)::integer AS value) AS digit
$$;
CREATE FUNCTION golden.job_uuid(digits text) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    SELECT string_agg(to_hex(substring(bits FROM place * 4 + 3 FOR 4)::bit(4)::integer), '' ORDER BY place)::uuid
    FROM (
        SELECT string_agg((strpos('0123456789abcdefghjkmnpqrstvwxyz', substr(digits, digit, 1)) - 1)::bit(5)::text, ''
            ORDER BY digit)::bit(130) AS bits
        FROM generate_series(1, 26) AS digit
    ) AS whole, generate_series(0, 31) AS place
$$;
CREATE FUNCTION golden.keep_astray() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO job_astray (created_at, id) VALUES (new.created_at, new.id);
    RETURN NULL;
END $$;
CREATE FUNCTION golden.keep_key() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO job_keys (lane, id) VALUES (new.lane, new.id);
    RETURN NULL;
END $$;
CREATE FUNCTION golden.keep_tags() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO job_tags (tenant, tag, id)
    SELECT DISTINCT new.tenant, json_array_elements_text(new.options::json -> 'tags'), new.id;
    RETURN NULL;
END $$;
CREATE FUNCTION golden.meet_server() RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    met   text;
    known text;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a standby, which cannot be written to' USING ERRCODE = '25006';
    END IF;
    IF NOT EXISTS (SELECT FROM meta WHERE name = 'store_id')
        OR NOT EXISTS (SELECT FROM pg_index WHERE indrelid = 'meta'::regclass AND indisprimary)
    THEN
        RAISE EXCEPTION 'the table meta is not whole: a dump is being restored here, or was not restored to its end'
            USING ERRCODE = 'WL002', HINT = 'Stop all nodes, restore the dump again, and start them when it is done.';
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
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE golden.acts (
    event bigint NOT NULL,
    tenant text NOT NULL
);
CREATE TABLE golden.approvals (
    dlq_id uuid NOT NULL,
    step text NOT NULL,
    principal text NOT NULL,
    reason text NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT approvals_reason_check CHECK ((TRIM(BOTH FROM reason) <> ''::text)),
    CONSTRAINT approvals_step_check CHECK ((step = ANY (ARRAY['requested'::text, 'approved'::text])))
);
CREATE TABLE golden.children (
    parent uuid NOT NULL,
    id uuid NOT NULL
);
CREATE TABLE golden.claims (
    id uuid NOT NULL,
    at timestamp with time zone NOT NULL
);
CREATE TABLE golden.commits (
    id uuid NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE TABLE golden.job_groups (
    id integer NOT NULL,
    queue text NOT NULL,
    tenant text NOT NULL,
    kind text NOT NULL,
    isolated boolean NOT NULL
);
CREATE TABLE golden.jobs (
    rank bigint NOT NULL,
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    next_retry_at timestamp with time zone,
    timer_at timestamp with time zone,
    group_id integer NOT NULL,
    lease_session integer,
    attempt integer NOT NULL,
    retry_count integer NOT NULL,
    max_retries integer NOT NULL,
    id uuid NOT NULL,
    trace_made uuid,
    dlq_id uuid,
    state text NOT NULL,
    tenant text NOT NULL,
    payload_digest bytea NOT NULL,
    lease bytea,
    history bytea NOT NULL,
    task_id text,
    idempotency_scope text,
    idempotency_key text,
    trace_id text,
    options text,
    rest text,
    payload text NOT NULL,
    lane bigint DEFAULT 0 NOT NULL,
    unique_key text,
    CONSTRAINT jobs_attempt_check CHECK ((attempt >= 1)),
    CONSTRAINT jobs_epoch_check CHECK ((epoch >= 0)),
    CONSTRAINT jobs_held CHECK (((lease IS NOT NULL) OR (lease_session IS NULL))),
    CONSTRAINT jobs_history_check CHECK ((length(history) >= 40)),
    CONSTRAINT jobs_key_whole CHECK (((idempotency_scope IS NULL) = (idempotency_key IS NULL))),
    CONSTRAINT jobs_lease CHECK ((length(lease) =
CASE
    WHEN (lease_session IS NULL) THEN 24
    ELSE 49
END)),
    CONSTRAINT jobs_letter CHECK (((dlq_id IS NOT NULL) = (state = 'failed'::text))),
    CONSTRAINT jobs_next_retry CHECK (((next_retry_at IS NOT NULL) = (state = 'retry_scheduled'::text))),
    CONSTRAINT jobs_payload_digest_check CHECK ((length(payload_digest) = 32)),
    CONSTRAINT jobs_retries CHECK (((retry_count >= 0) AND (retry_count <= max_retries))),
    CONSTRAINT jobs_session CHECK (((lease_session IS NOT NULL) = (state = ANY (ARRAY['running'::text, 'dispatched'::text])))),
    CONSTRAINT jobs_started CHECK (((started_at IS NOT NULL) OR (state <> ALL (ARRAY['running'::text, 'succeeded'::text, 'partial'::text])))),
    CONSTRAINT jobs_state_check CHECK ((state = ANY (ARRAY['queued'::text, 'running'::text, 'succeeded'::text, 'dispatched'::text, 'scheduled'::text, 'waiting'::text, 'retry_scheduled'::text, 'interrupted'::text, 'partial'::text, 'failed'::text, 'cancelled'::text]))),
    CONSTRAINT jobs_trace CHECK (((trace_made IS NULL) = (trace_id IS NOT NULL))),
    CONSTRAINT jobs_version_check CHECK ((version >= 1))
);
CREATE VIEW golden.jobs_by_name AS
 SELECT golden.job_id(jobs.id) AS job_id,
    jobs.tenant AS tenant_id,
    job_groups.kind AS job_type,
    jobs.state,
    jobs.attempt,
    jobs.retry_count,
    jobs.max_retries,
    COALESCE(jobs.idempotency_key, golden.job_id(jobs.id)) AS idempotency_key,
    COALESCE(jobs.task_id, golden.job_id(jobs.id)) AS task_id,
    COALESCE(jobs.task_id, golden.job_id(jobs.id)) AS task_key,
    COALESCE(jobs.trace_id, ((('trace-run-'::text || golden.job_id(jobs.id)) || '-'::text) || jobs.trace_made)) AS trace_id,
    ((jobs.rest)::json #>> '{error,code}'::text[]) AS error_code,
    ((jobs.rest)::json #>> '{error,message}'::text[]) AS error_message,
    ((jobs.rest)::json ->> 'ended_by'::text) AS ended_by,
    COALESCE(((jobs.options)::json ->> 'schedule_type'::text), 'at'::text) AS schedule_type,
    (((jobs.options)::json ->> 'timeout_ms'::text))::bigint AS timeout_ms,
    jobs.payload AS payload_json,
    jobs.created_at,
    jobs.updated_at,
    jobs.started_at,
        CASE
            WHEN (jobs.state = ANY (ARRAY['succeeded'::text, 'partial'::text, 'failed'::text, 'cancelled'::text])) THEN jobs.updated_at
            ELSE NULL::timestamp with time zone
        END AS finished_at,
    jobs.next_retry_at,
        CASE
            WHEN (jobs.dlq_id IS NOT NULL) THEN ('dlq_'::text || substr(golden.job_id(jobs.id), 5))
            ELSE NULL::text
        END AS dlq_id,
    ((jobs.options)::json #>> '{origin,requeued}'::text[]) AS requeued_from_dlq_id
   FROM (golden.jobs
     JOIN golden.job_groups ON ((job_groups.id = jobs.group_id)));
CREATE VIEW golden.contract_jobs AS
 SELECT jobs_by_name.job_id,
    jobs_by_name.tenant_id,
    jobs_by_name.job_type,
        CASE
            WHEN (jobs_by_name.state = ANY (ARRAY['queued'::text, 'dispatched'::text])) THEN
            CASE
                WHEN (jobs_by_name.started_at IS NULL) THEN 'queued'::text
                ELSE 'running'::text
            END
            WHEN (jobs_by_name.state = 'scheduled'::text) THEN 'queued'::text
            WHEN (jobs_by_name.state = 'waiting'::text) THEN 'running'::text
            WHEN (jobs_by_name.state = 'interrupted'::text) THEN 'running'::text
            WHEN (jobs_by_name.state = 'retry_scheduled'::text) THEN 'retrying'::text
            WHEN (jobs_by_name.state = 'partial'::text) THEN 'succeeded'::text
            ELSE jobs_by_name.state
        END AS status,
    jobs_by_name.retry_count,
    jobs_by_name.idempotency_key,
    jobs_by_name.trace_id,
    jobs_by_name.error_code,
    jobs_by_name.payload_json,
    jobs_by_name.created_at,
    jobs_by_name.updated_at,
    jobs_by_name.dlq_id,
    jobs_by_name.requeued_from_dlq_id
   FROM golden.jobs_by_name;
CREATE TABLE golden.dlq_items (
    id uuid NOT NULL,
    tenant text NOT NULL,
    job_id uuid NOT NULL,
    state text NOT NULL,
    code text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    requeued_as uuid,
    closed_at timestamp with time zone,
    letter text NOT NULL,
    cause text,
    CONSTRAINT dlq_closed CHECK (((closed_at IS NOT NULL) = (state = ANY (ARRAY['discarded'::text, 'requeued'::text])))),
    CONSTRAINT dlq_items_state_check CHECK ((state = ANY (ARRAY['open'::text, 'discard_requested'::text, 'discarded'::text, 'requeued'::text]))),
    CONSTRAINT dlq_requeued CHECK (((requeued_as IS NOT NULL) = (state = 'requeued'::text)))
);
CREATE TABLE golden.effects (
    job_id uuid NOT NULL,
    key text NOT NULL,
    epoch bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    failed boolean NOT NULL,
    outcome text NOT NULL,
    CONSTRAINT effects_epoch_check CHECK ((epoch >= 1))
);
CREATE TABLE golden.feed (
    first bigint NOT NULL,
    seq bigint NOT NULL,
    count integer NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT feed_count_check CHECK ((count >= 1))
);
CREATE TABLE golden.log (
    seq bigint NOT NULL,
    tenant text NOT NULL,
    at timestamp with time zone NOT NULL,
    count integer NOT NULL,
    events text NOT NULL,
    CONSTRAINT log_count_check CHECK ((count >= 1))
)
PARTITION BY RANGE (seq);
CREATE VIEW golden.events AS
 SELECT ((feed.first + line.place) - 1) AS number,
    log.tenant,
    COALESCE(('job_'::text || (line.value ->> 0)), (line.value ->> 'job_id'::text)) AS job_id,
    ((line.value ->> 1))::bigint AS job_number,
    log.at,
    COALESCE((line.value ->> 2), ('inbox_'::text || (line.value ->> 'inbox'::text)), (((line.value ->> 'about'::text) || '_'::text) || (line.value ->> 'what'::text))) AS cause,
    (line.value ->> 3) AS from_state,
    (line.value ->> 4) AS to_state,
    ((line.value ->> 5))::integer AS attempt,
    ((line.value ->> 6))::integer AS retry_count,
    ((line.value ->> 7))::bigint AS epoch,
    COALESCE((line.value ->> 9), (line.value ->> 'actor'::text)) AS actor,
    COALESCE((line.value ->> 10), (line.value ->> 'trace_id'::text), ( SELECT COALESCE(jobs.trace_id, ((('trace-run-'::text || golden.job_id(jobs.id)) || '-'::text) || jobs.trace_made)) AS "coalesce"
           FROM golden.jobs
          WHERE (jobs.id = golden.job_uuid((line.value ->> 0))))) AS trace_id,
        CASE json_typeof(line.value)
            WHEN 'object'::text THEN line.value
            ELSE (line.value -> 11)
        END AS fact
   FROM (golden.feed
     JOIN golden.log ON ((log.seq = feed.seq))),
    LATERAL json_array_elements((log.events)::json) WITH ORDINALITY line(value, place)
  WHERE (json_typeof(line.value) <> 'null'::text);
CREATE TABLE golden.follow_ups (
    id bigint NOT NULL,
    tenant text NOT NULL,
    what text NOT NULL
);
ALTER TABLE golden.follow_ups ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME golden.follow_ups_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE golden.inbox (
    seq bigint NOT NULL,
    job_id uuid NOT NULL,
    tenant text NOT NULL,
    at timestamp with time zone NOT NULL,
    op text NOT NULL,
    payload text NOT NULL
);
CREATE TABLE golden.inbox_results (
    seq bigint NOT NULL,
    place integer NOT NULL,
    job_id uuid NOT NULL,
    tenant text NOT NULL,
    asked_at timestamp with time zone NOT NULL,
    at timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    existing uuid,
    code text,
    why text,
    op text,
    payload text,
    CONSTRAINT inbox_existing CHECK (((existing IS NOT NULL) OR (outcome = 'refused'::text))),
    CONSTRAINT inbox_hit CHECK (((outcome = 'hit'::text) = ALL (ARRAY[(code IS NULL), (why IS NULL), (op IS NULL), (payload IS NULL)]))),
    CONSTRAINT inbox_results_outcome_check CHECK ((outcome = ANY (ARRAY['hit'::text, 'conflict'::text, 'refused'::text])))
);
ALTER TABLE golden.inbox ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME golden.inbox_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE golden.inbox_set_aside (
    id bigint NOT NULL,
    found_at timestamp with time zone NOT NULL,
    why text NOT NULL,
    job_id uuid,
    tenant text,
    at timestamp with time zone,
    op text,
    payload text
);
ALTER TABLE golden.inbox_set_aside ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME golden.inbox_set_aside_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE golden.job_astray (
    created_at timestamp with time zone NOT NULL,
    id uuid NOT NULL
);
ALTER TABLE golden.job_groups ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME golden.job_groups_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE golden.job_keys (
    lane bigint NOT NULL,
    id uuid NOT NULL
);
CREATE TABLE golden.job_log (
    id uuid NOT NULL,
    seq bigint NOT NULL
);
CREATE TABLE golden.job_tags (
    tenant text NOT NULL,
    tag text NOT NULL,
    id uuid NOT NULL
);
CREATE TABLE golden.log_0 (
    seq bigint NOT NULL,
    tenant text NOT NULL,
    at timestamp with time zone NOT NULL,
    count integer NOT NULL,
    events text NOT NULL,
    CONSTRAINT log_count_check CHECK ((count >= 1))
);
CREATE TABLE golden.log_1 (
    seq bigint NOT NULL,
    tenant text NOT NULL,
    at timestamp with time zone NOT NULL,
    count integer NOT NULL,
    events text NOT NULL,
    CONSTRAINT log_count_check CHECK ((count >= 1))
);
CREATE SEQUENCE golden.log_seq
    START WITH 1024
    INCREMENT BY 1024
    MINVALUE 1024
    NO MAXVALUE
    CACHE 1;
CREATE TABLE golden.marks (
    name text NOT NULL,
    number bigint NOT NULL,
    CONSTRAINT marks_number_check CHECK ((number >= 0))
);
CREATE TABLE golden.meta (
    name text NOT NULL,
    value text NOT NULL
);
CREATE TABLE golden.notes (
    seq bigint NOT NULL,
    place integer NOT NULL,
    tenant text NOT NULL,
    about text NOT NULL,
    name text NOT NULL,
    at timestamp with time zone NOT NULL
);
CREATE TABLE golden.outputs (
    id uuid NOT NULL,
    attempt integer NOT NULL,
    result text,
    remaining text,
    stats text
);
CREATE TABLE golden.progress (
    id uuid NOT NULL,
    epoch bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    value text NOT NULL,
    CONSTRAINT progress_epoch_check CHECK ((epoch >= 1))
);
CREATE TABLE golden.pruned (
    id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    least_ms bigint NOT NULL,
    version bigint NOT NULL,
    rows integer NOT NULL,
    CONSTRAINT pruned_least_ms_check CHECK ((least_ms >= 0)),
    CONSTRAINT pruned_rows_check CHECK ((rows >= 1)),
    CONSTRAINT pruned_version_check CHECK ((version >= 1))
);
CREATE TABLE golden.rule_states (
    rule text NOT NULL,
    part text NOT NULL,
    state text NOT NULL,
    forget_at timestamp with time zone
);
CREATE TABLE golden.rules (
    name text NOT NULL,
    rule text NOT NULL
);
CREATE VIEW golden.scheduler_tasks AS
 SELECT jobs_by_name.task_id,
    jobs_by_name.schedule_type,
        CASE
            WHEN (jobs_by_name.state = ANY (ARRAY['queued'::text, 'dispatched'::text])) THEN
            CASE
                WHEN (jobs_by_name.started_at IS NULL) THEN 'ready'::text
                ELSE 'running'::text
            END
            WHEN (jobs_by_name.state = 'scheduled'::text) THEN 'pending'::text
            WHEN (jobs_by_name.state = 'waiting'::text) THEN 'running'::text
            WHEN (jobs_by_name.state = 'interrupted'::text) THEN 'running'::text
            WHEN (jobs_by_name.state = 'retry_scheduled'::text) THEN 'ready'::text
            WHEN (jobs_by_name.state = 'partial'::text) THEN 'succeeded'::text
            ELSE jobs_by_name.state
        END AS state,
    jobs_by_name.attempt,
    jobs_by_name.max_retries,
    jobs_by_name.timeout_ms,
    jobs_by_name.idempotency_key,
        CASE
            WHEN (jobs_by_name.error_code IS NULL) THEN NULL::text
            WHEN (jobs_by_name.ended_by = 'retries_exhausted'::text) THEN 'TASK_RETRY_EXHAUSTED'::text
            WHEN (jobs_by_name.error_code = 'TASK_TIMEOUT'::text) THEN 'TASK_TIMEOUT'::text
            ELSE 'TASK_EXECUTION_FAILED'::text
        END AS last_error_code,
    ((
        CASE
            WHEN (jobs_by_name.error_code = 'TASK_TIMEOUT'::text) THEN ''::text
            ELSE (jobs_by_name.error_code || ': '::text)
        END || jobs_by_name.error_message) ||
        CASE
            WHEN (jobs_by_name.ended_by = 'retries_exhausted'::text) THEN ' exhausted retries'::text
            ELSE ''::text
        END) AS last_error_reason,
    jobs_by_name.created_at,
    jobs_by_name.updated_at,
    jobs_by_name.started_at,
    jobs_by_name.finished_at,
    jobs_by_name.tenant_id
   FROM golden.jobs_by_name
  WHERE (NOT (EXISTS ( SELECT 1
           FROM golden.jobs later
          WHERE ((later.tenant = jobs_by_name.tenant_id) AND (later.task_id = jobs_by_name.task_key) AND (later.attempt > jobs_by_name.attempt)))));
CREATE TABLE golden.schedules (
    tenant text NOT NULL,
    name text NOT NULL,
    version bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    spec text NOT NULL,
    payload text NOT NULL,
    pause text,
    next_at timestamp with time zone,
    fires_at timestamp with time zone,
    seen_at timestamp with time zone,
    last_slot timestamp with time zone,
    last_job uuid,
    CONSTRAINT schedules_version_check CHECK ((version >= 1)),
    CONSTRAINT schedules_waits CHECK (((fires_at IS NULL) OR ((next_at IS NOT NULL) AND (pause IS NULL))))
);
CREATE TABLE golden.sessions (
    id integer NOT NULL,
    worker text NOT NULL,
    until timestamp with time zone NOT NULL,
    renewals bigint NOT NULL,
    lapses_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone NOT NULL,
    vouched boolean DEFAULT false NOT NULL,
    listens text,
    listened_at timestamp with time zone
);
ALTER TABLE golden.sessions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME golden.sessions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE golden.signals (
    job_id uuid NOT NULL,
    name text NOT NULL,
    number integer NOT NULL,
    at timestamp with time zone NOT NULL,
    sender text NOT NULL,
    sort text NOT NULL,
    content text NOT NULL,
    taken boolean NOT NULL,
    CONSTRAINT signals_number_check CHECK ((number >= 1)),
    CONSTRAINT signals_sort_check CHECK ((sort = ANY (ARRAY['payload'::text, 'rejected'::text, 'ended'::text])))
);
CREATE TABLE golden.steps (
    job_id uuid NOT NULL,
    key text NOT NULL,
    number integer,
    step text NOT NULL,
    output text,
    CONSTRAINT steps_check CHECK (((number IS NULL) = (output IS NULL))),
    CONSTRAINT steps_number_check CHECK ((number >= 1))
);
CREATE VIEW golden.task_runs AS
 SELECT jobs_by_name.job_id AS run_id,
    jobs_by_name.task_id,
        CASE
            WHEN (jobs_by_name.state = ANY (ARRAY['queued'::text, 'dispatched'::text])) THEN
            CASE
                WHEN (jobs_by_name.started_at IS NULL) THEN 'queued'::text
                ELSE 'running'::text
            END
            WHEN (jobs_by_name.state = 'scheduled'::text) THEN 'queued'::text
            WHEN (jobs_by_name.state = 'waiting'::text) THEN 'running'::text
            WHEN (jobs_by_name.state = 'partial'::text) THEN 'succeeded'::text
            ELSE jobs_by_name.state
        END AS run_status,
    jobs_by_name.attempt,
    jobs_by_name.idempotency_key,
    jobs_by_name.next_retry_at,
    jobs_by_name.error_code,
    jobs_by_name.trace_id,
    jobs_by_name.created_at,
    jobs_by_name.updated_at,
    jobs_by_name.tenant_id
   FROM golden.jobs_by_name;
CREATE TABLE golden.tasks (
    tenant text NOT NULL,
    task_id text NOT NULL,
    next_attempt integer NOT NULL,
    CONSTRAINT tasks_next_attempt_check CHECK ((next_attempt >= 2))
);
CREATE TABLE golden.tokens (
    id uuid NOT NULL,
    digest bytea NOT NULL,
    tenant text NOT NULL,
    principal text NOT NULL,
    role text NOT NULL,
    label text,
    created_at timestamp with time zone NOT NULL,
    created_by text NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    revoked_by text,
    CONSTRAINT tokens_digest_check CHECK ((length(digest) = 32)),
    CONSTRAINT tokens_expires CHECK ((expires_at > created_at)),
    CONSTRAINT tokens_revoked CHECK ((revoked_at >= created_at)),
    CONSTRAINT tokens_revoked_by CHECK (((revoked_by IS NULL) = (revoked_at IS NULL))),
    CONSTRAINT tokens_role_check CHECK ((role = ANY (ARRAY['viewer'::text, 'worker'::text, 'operator'::text, 'admin'::text])))
);
ALTER TABLE ONLY golden.log ATTACH PARTITION golden.log_0 FOR VALUES FROM ('0') TO ('67108864');
ALTER TABLE ONLY golden.log ATTACH PARTITION golden.log_1 FOR VALUES FROM ('67108864') TO ('134217728');
COPY golden.acts (event, tenant) FROM stdin;
47	acme
52	acme
53	acme
54	acme
\.
COPY golden.approvals (dlq_id, step, principal, reason, at) FROM stdin;
00000000-0000-0000-0000-000000000008	requested	ann	nobody needs it	2026-02-25 06:13:21+00
\.
COPY golden.children (parent, id) FROM stdin;
\.
COPY golden.claims (id, at) FROM stdin;
00000000-0000-0000-0000-000000000001	2026-02-25 06:13:21+00
00000000-0000-0000-0000-000000000002	2026-02-25 06:13:21+00
\.
COPY golden.commits (id, at) FROM stdin;
15d18d89-e8b3-f6a8-b140-58275669dae2	2026-11-18 12:33:33.88513+00
d6c4c302-81c2-ec08-fbb9-497836f30603	2026-11-18 12:33:33.909552+00
ac6ae6c3-01e0-3fe5-5cdb-788973312e8b	2026-11-18 12:33:33.920412+00
9789ca39-18f2-53e5-d123-aeb8ee1367d7	2026-11-18 12:33:33.931106+00
bbae45ff-194e-969a-7d5b-6e810caff9ef	2026-11-18 12:33:33.932598+00
4c534d77-3ba9-61b8-b123-9861b9a996b2	2026-11-18 12:33:33.933806+00
4bc174c1-22c7-c37a-990c-349be9c82579	2026-11-18 12:33:33.938181+00
a2eb94d0-35ca-d590-6ac7-a1d34a6df89b	2026-11-18 12:33:33.939298+00
d564bf93-09d0-1949-3f84-a074f93958e2	2026-11-18 12:33:33.940463+00
9ff51bd8-e601-8331-1baa-38dac96a8dbe	2026-11-18 12:33:33.941803+00
0201c2e7-4238-f408-f51d-4fa90875188c	2026-11-18 12:33:33.975675+00
11afdbb1-c3b1-2d98-d82c-9fedf2353f5d	2026-11-18 12:33:33.988964+00
b70197c1-baee-a264-8da4-8179ba6c499b	2026-11-18 12:33:34.015892+00
c744fb88-780e-2b35-8180-6cfc34fc2b6a	2026-11-18 12:33:34.034174+00
ab61df51-c126-1534-547b-eda7968d0d45	2026-11-18 12:33:34.039312+00
8304f48b-844f-6c2d-3097-2cefecdf5746	2026-11-18 12:33:34.058544+00
c8e5f573-9df5-640d-cfb6-4c33fc4828d3	2026-11-18 12:33:34.065302+00
27d30a81-cf09-3238-7b47-c3b85d215dba	2026-11-18 12:33:34.070453+00
14efd622-1ac7-f6ec-6214-bbeb39474693	2026-11-18 12:33:34.076931+00
4f6ff6d6-07c9-9a74-0170-648ca65ed35d	2026-11-18 12:33:34.080368+00
ee0dbbb6-3fb5-c222-f668-960fa499e20f	2026-11-18 12:33:34.083161+00
d00185be-43e1-59fe-b284-5994013bd268	2026-11-18 12:33:34.086505+00
da0b028e-c965-8189-146d-33872ad56d06	2026-11-18 12:33:34.089795+00
39fb7456-fa00-84a2-4d1a-c860c7e182af	2026-11-18 12:33:34.094693+00
3fbe4c09-5295-8dfb-e3d7-9e727c562f5d	2026-11-18 12:33:34.102594+00
dafe0cef-e25c-d9ee-f11f-1a03906afe2a	2026-11-18 12:33:34.122733+00
35a2b7f4-3c39-28b2-deab-6a70fa6b9909	2026-11-18 12:33:34.126615+00
5f853234-79ae-abca-1b91-098d1ca9c375	2026-11-18 12:33:34.133731+00
f8c98f2d-baab-f5b3-ce23-185cb34155cd	2026-11-18 12:33:34.13668+00
0c20f526-461c-5e9b-a2c4-0f5927d0ad26	2026-11-18 12:33:34.144773+00
681898ee-7446-703e-d97d-0024973fe4bf	2026-11-18 12:33:34.152783+00
f25325b9-5b53-9bc9-7cf1-d3a4180a409e	2026-11-18 12:33:34.156619+00
5f5d679e-1065-532c-707e-a3fe53d9f337	2026-11-18 12:33:34.16243+00
8529df01-7b6d-477a-5729-9c0ba3d588fa	2026-11-18 12:33:34.16556+00
4e394073-bf38-4796-28fa-30527987fc0b	2026-11-18 12:33:34.211654+00
\.
COPY golden.dlq_items (id, tenant, job_id, state, code, created_at, requeued_as, closed_at, letter, cause) FROM stdin;
00000000-0000-0000-0000-000000000008	acme	00000000-0000-0000-0000-000000000008	discard_requested	NO_SUCH_USER	2026-02-25 06:13:21+00	\N	\N	{"id":"dlq_00000000000000000000000008","tenant":"acme","job_id":"job_00000000000000000000000008","state":"discard_requested","why":"non_retryable_error","failure":{"code":"NO_SUCH_USER","message":"there is no such user","class":"permanent","retryable":false},"began_in":"running","attempt":1,"epoch":1,"payload_digest":"ade1a1c2a61af0f279a4978dfddcdb6acd33f5a8b61e62c5fd881e8a88a387bc","created_at":"2026-02-25T06:13:21Z","requeued_as":null,"discard_requested_by":"ann","discard_reason":"nobody needs it","closed_at":null}	there is no such user
\.
COPY golden.effects (job_id, key, epoch, at, failed, outcome) FROM stdin;
00000000-0000-0000-0000-00000000000b	charge	1	2026-02-25 06:13:21+00	f	2
\.
COPY golden.feed (first, seq, count, at) FROM stdin;
1	1024	1	2026-02-25 06:13:21+00
2	2048	1	2026-02-25 06:13:21+00
3	3072	1	2026-02-25 06:13:21+00
4	4096	1	2026-02-25 06:13:21+00
5	5120	1	2026-02-25 06:13:21+00
6	6144	1	2026-02-25 06:13:21+00
7	7168	1	2026-02-25 06:13:21+00
8	8192	1	2026-02-25 06:13:21+00
9	9216	1	2026-02-25 06:13:21+00
10	10240	1	2026-02-25 06:13:21+00
11	11264	1	2026-02-25 06:13:21+00
12	12288	18	2026-02-25 06:13:21+00
30	14336	3	2026-02-25 06:13:21+00
33	15360	1	2026-02-25 06:13:21+00
34	16384	1	2026-02-25 06:13:21+00
35	17408	3	2026-02-25 06:13:21+00
38	18432	1	2026-02-25 06:13:21+00
39	19456	1	2026-02-25 06:13:21+00
40	20480	1	2026-02-25 06:13:21+00
41	21504	1	2026-02-25 06:13:21+00
42	22528	1	2026-02-25 06:13:21+00
43	23552	1	2026-02-25 06:13:21+00
44	24576	3	2026-02-25 06:13:21+00
47	25600	1	2026-02-25 06:13:21+00
48	26624	1	2026-02-25 06:13:21+00
49	27648	1	2026-02-25 06:13:21+00
50	28672	1	2026-02-25 06:13:21+00
51	30720	1	2026-02-25 06:13:21+00
52	31744	1	2026-02-25 06:13:21+00
53	32768	1	2026-02-25 06:13:21+00
54	33792	1	2026-02-25 06:13:21+00
55	36864	1	2026-02-25 06:13:21+00
\.
COPY golden.follow_ups (id, tenant, what) FROM stdin;
1	acme	{"type":"cancel_children","parent":"job_00000000000000000000000009"}
\.
COPY golden.inbox (seq, job_id, tenant, at, op, payload) FROM stdin;
2	00000000-0000-0000-0000-00000000000c	acme	2026-02-25 06:13:22+00	{"by":"user:ann","random":"0000000000000000000000000000000c","kind":"mail","queue":"default","priority":-7,"max_retries":9,"schedule_type":"every","scheduled_at":"2026-02-25T06:13:20Z","timeout_ms":1500,"heartbeat_timeout_ms":20000,"schedule_to_start_ms":86400000,"deadline_at":"2525-10-27T06:13:20Z","retry":{"base_ms":2000,"max_backoff_ms":99000},"max_interruptions":8,"idempotency":{"run":{"key":"run-12"}},"task":{"task_id":"task-12","may_rerun":true},"tags":["blue"],"trace_id":"trace-12","parent":"job_00000000000000000000000003"}	[ 12 ]
\.
COPY golden.inbox_results (seq, place, job_id, tenant, asked_at, at, outcome, existing, code, why, op, payload) FROM stdin;
36864	0	00000000-0000-0000-0000-00000000000d	acme	2026-02-25 06:13:22+00	2026-02-25 06:13:21+00	conflict	00000000-0000-0000-0000-000000000001	IDEMPOTENCY_CONFLICT	the idempotency key belongs to job_00000000000000000000000001, which differs in payload	{"by":"user:ann","random":"0000000000000000000000000000000d","kind":"mail","queue":"default","priority":0,"max_retries":3,"idempotency":{"key":{"scope":"orders","key":"order-1"}}}	[ 13 ]
\.
COPY golden.inbox_set_aside (id, found_at, why, job_id, tenant, at, op, payload) FROM stdin;
\.
COPY golden.job_astray (created_at, id) FROM stdin;
2026-02-25 06:13:21+00	00000000-0000-0000-0000-000000000001
2026-02-25 06:13:21+00	00000000-0000-0000-0000-000000000002
2026-02-25 06:13:21+00	00000000-0000-0000-0000-000000000003
2026-02-25 06:13:21+00	00000000-0000-0000-0000-000000000004
2026-02-25 06:13:21+00	00000000-0000-0000-0000-000000000005
2026-02-25 06:13:21+00	00000000-0000-0000-0000-000000000006
2026-02-25 06:13:21+00	00000000-0000-0000-0000-000000000007
2026-02-25 06:13:21+00	00000000-0000-0000-0000-000000000008
2026-02-25 06:13:21+00	00000000-0000-0000-0000-000000000009
2026-02-25 06:13:21+00	00000000-0000-0000-0000-00000000000a
2026-02-25 06:13:21+00	00000000-0000-0000-0000-00000000000b
\.
COPY golden.job_groups (id, queue, tenant, kind, isolated) FROM stdin;
1	default	acme	mail	f
\.
COPY golden.job_keys (lane, id) FROM stdin;
\.
COPY golden.job_log (id, seq) FROM stdin;
\.
COPY golden.job_tags (tenant, tag, id) FROM stdin;
\.
COPY golden.jobs (rank, version, epoch, created_at, updated_at, started_at, next_retry_at, timer_at, group_id, lease_session, attempt, retry_count, max_retries, id, trace_made, dlq_id, state, tenant, payload_digest, lease, history, task_id, idempotency_scope, idempotency_key, trace_id, options, rest, payload, lane, unique_key) FROM stdin;
1772030001000000	1	0	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	\N	\N	\N	1	\N	1	0	3	00000000-0000-0000-0000-000000000001	00000000-0000-4000-8000-000000000001	\N	queued	acme	\\xbbd8d6b9899db31d4f4b11036026d475bf1e461c1bc8e5e74d9196b87d316800	\N	\\xe54e69e86d737eed3129b967a72a56c72bc8ff4ee6f18003a496f44d1423469a0000000000000400	invoice-1	orders	order-1	\N	\N	\N	{"big": 3544790567247868102,  "spaced": true}	0	\N
1772003601000000	1	0	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	\N	\N	2026-02-25 07:13:21+00	1	\N	1	0	3	00000000-0000-0000-0000-000000000002	00000000-0000-4000-8000-000000000002	\N	scheduled	acme	\\x44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a	\N	\\x03fec0012ef5a28ec2b2355376ee8b7df0aa8a5060759957373f0b23372f32f50000000000000800	\N	\N	\N	\N	{"scheduled_at":"2026-02-25T07:13:21Z"}	\N	{}	0	\N
1772000001000000	4	1	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	\N	\N	1	\N	1	0	3	00000000-0000-0000-0000-000000000004	00000000-0000-4000-8000-000000000004	\N	succeeded	acme	\\x2bf175f9655e7bb7357b9f0a7c6051465a5ae701104ffe741b98e852c0e4d460	\\x000000000000000000000000000000010000000000000001	\\x9dd63ec0b8e9556188b5521fa6c25111bbf57ea97a2505bd98d8974cd17b95d1000000000000100000000000000030000000000000005000	\N	\N	\N	\N	\N	{"result":"dcec4981aff9f206ae722951fea1ae8d17dba47334bea9d82bef1c3119f2c770","settle":"8639a06101a039a23bc13c567c43e40799aaabeca9790ef6b0cb4cc9cae5efbd"}	"4"	0	\N
1772000001000000	4	1	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	\N	\N	1	\N	1	0	3	00000000-0000-0000-0000-000000000005	00000000-0000-4000-8000-000000000005	\N	partial	acme	\\xd10a4bc9e0c1fa4e8f3d7ce2512b8756e47ca5fa451f373c39a1431bb88db49f	\\x000000000000000000000000000000010000000000000001	\\xa5b34f79540eaa35cdcd1e49115b7085d8aa502c4bc9b47d7965c8fc394f8f8d000000000000140000000000000030000000000000005400	\N	\N	\N	\N	\N	{"remaining":"49a64717d5d4cb19952e6eac2946415cf6879adacf9908e7d872332d32c6e684","settle":"a8485d25431791368c9547cb836d6d26da260c9b7d7aaca1218b9c06cf398056"}	"5"	0	\N
1772000001000000	4	1	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	2026-02-25 06:13:22+00	\N	1	\N	1	1	3	00000000-0000-0000-0000-000000000006	00000000-0000-4000-8000-000000000006	\N	retry_scheduled	acme	\\x92e9e7e5922d26e17e48f0869ab25cc99499fdab722c065de8e0965c96c68e86	\\x000000000000000000000000000000010000000000000001	\\x49297ce2907251fdd020a3cf580af5a367b732408f47699f720efdfe0f0dbfc8000000000000180000000000000030000000000000005800	\N	\N	\N	\N	\N	{"error":{"code":"BUSY","message":"try later","class":"transient","retryable":true},"settles":[{"epoch":1,"digest":"ee591b0d97a74d5db08b1861a4bbfeab1778df56238ddc609e6f675dbf48182a","state":"retry_scheduled","next_retry_at":"2026-02-25T06:13:22Z"}]}	"6"	0	\N
1772000001000000	4	1	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	\N	\N	1	\N	1	0	3	00000000-0000-0000-0000-000000000007	00000000-0000-4000-8000-000000000007	\N	waiting	acme	\\x266aa5886067fbbc1a3a39fe432fc5bbf561abc90e4b8a322215ac17df6ce012	\\x000000000000000000000000000000010000000000000001	\\xf211d82b3f707fa7e23fc93335998262d62f8119c01b1a76708a0ea1311943af0000000000001c0000000000000030000000000000005c00	\N	\N	\N	\N	\N	{"wait":{"on":{"signal":"paid"}}}	"7"	0	\N
1772000001000000	6	1	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	\N	\N	1	\N	1	0	3	00000000-0000-0000-0000-000000000008	00000000-0000-4000-8000-000000000008	00000000-0000-0000-0000-000000000008	failed	acme	\\xade1a1c2a61af0f279a4978dfddcdb6acd33f5a8b61e62c5fd881e8a88a387bc	\\x000000000000000000000000000000010000000000000001	\\xfe2dce175ab8871670927566d1838e8a4396102f08e4d863351631d2753bc528000000000000200000000000000030000000000000006000	\N	\N	\N	\N	\N	{"error":{"code":"NO_SUCH_USER","message":"there is no such user","class":"permanent","retryable":false},"ended_by":"non_retryable_error","settles":[{"epoch":1,"digest":"16f3d9a70e5ead43084e2492af0be33966c65abe2833a4fdb727499e6e1dcea4","state":"failed","next_retry_at":null}]}	"8"	0	\N
1772000001000000	4	1	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	\N	\N	1	\N	1	0	3	00000000-0000-0000-0000-000000000009	00000000-0000-4000-8000-000000000009	\N	cancelled	acme	\\x986b79d4b69dffb1d19836f47b27073d95bf55201b3385aceb7e0687a21d8667	\\x000000000000000000000000000000010000000000000001	\\xb1539168dd6af16e02e5acbd9829a4b8ce1eeab358edd6ce4ba278dfb2f6e98d000000000000240000000000000030000000000000006800	\N	\N	\N	\N	\N	{"ended_by":"cancel_command","settles":[{"epoch":1,"digest":"844ecc5d07065ba19387a69f7bde5d92151858653010c5c36e3bbcf5ab363682","state":"cancelled","next_retry_at":null}]}	"9"	0	\N
1772000001000000	5	1	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	\N	\N	1	\N	1	0	3	00000000-0000-0000-0000-00000000000b	00000000-0000-4000-8000-00000000000b	\N	interrupted	acme	\\xf326bd84707ed76597becb832280595d1a5aaceb0905dc40e3553ebb861bde80	\\x000000000000000000000000000000010000000000000001	\\xc80389ce3f29fefae813c150335dc23f895abf5c8a795180e35874e80a23d4960000000000002c00000000000000300000000000000040000000000000007000	\N	\N	\N	\N	\N	{"interruptions":1,"ledger":{"steps":1}}	"11"	0	\N
1772000001000000	5	2	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	\N	\N	1	2	1	0	3	00000000-0000-0000-0000-00000000000a	00000000-0000-4000-8000-00000000000a	\N	dispatched	acme	\\x536549599ec6c3b859cd3970025779a13d061783c73e663fea7f963e98379aa8	\\x00000000000000000000000000000002000000000000000200064b9fea2d894000064b9fe69a0240000000000000000000	\\x8ed3f411a9a31cdb7432cf6d60e9a4ce04ff62795a08b89356f1827931d6e138000000000000280000000000000030000000000000006c000000000000007800	\N	\N	\N	\N	\N	\N	"10"	0	\N
1772000001000000	12	1	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	\N	\N	1	1	1	0	3	00000000-0000-0000-0000-000000000003	00000000-0000-4000-8000-000000000003	\N	running	acme	\\xfa0831df6ae1d266cfba38a70a6774843977f9f70bd53b12ac2d5d70eb1c5404	\\x00000000000000000000000000000001000000000000000200064b9fea2d894000064b9fe69a0240000000000000000000	\\x00eafcaa636a4800925cfbe6a6982e85a33c3ce7539572e1a4ac982d67b1e04a0000000000000c00000000000000300000000000000038000000000000003c00000000000000440000000000000048000000000000004c00	\N	\N	\N	\N	\N	{"ledger":{"steps":3,"recorded":2,"mails":2,"bytes":22}}	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"	0	\N
\.
COPY golden.log_0 (seq, tenant, at, count, events) FROM stdin;
1024	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000001",1,"enqueued",null,"queued",1,0,0,0,"user:ann",null,{"created":"660a18244814622a4494a54fa4b1ba35f9936ed96df5d3627258626aa67a90cc","attempt":1}]]
2048	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000002",1,"scheduled",null,"scheduled",1,0,0,0,"user:ann",null,{"created":"39736f4db413db88f0f88a61aed008a84274b92f73e4ea097d25a7f2ed789440","attempt":1}]]
3072	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000003",1,"enqueued",null,"queued",1,0,0,0,"user:ann",null,{"created":"c52e9d2a05364a402f8c7bea5c053e0362b41c2cb5a28191454983d3c1718245","attempt":1}]]
4096	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000004",1,"enqueued",null,"queued",1,0,0,0,"user:ann",null,{"created":"c7a87a3f433e741da5d7928ef7e49a50801829a00dd86ef221ebe3f008642c65","attempt":1}]]
5120	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000005",1,"enqueued",null,"queued",1,0,0,0,"user:ann",null,{"created":"49d2668f1f58177f2be144a69054890c0e7aa1b0505a78713a6852436a915956","attempt":1}]]
6144	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000006",1,"enqueued",null,"queued",1,0,0,0,"user:ann",null,{"created":"913f0b59024d9249c9f42af69ff6fb237e528dda7e4c38c8348dcb5f93e3c372","attempt":1}]]
7168	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000007",1,"enqueued",null,"queued",1,0,0,0,"user:ann",null,{"created":"66f96daed590b4db4b73b46d8c5b496ec7e57ab33070c1b4efdc81258fbe08a2","attempt":1}]]
8192	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000008",1,"enqueued",null,"queued",1,0,0,0,"user:ann",null,{"created":"5ab2b8663423f2cf474a930d96a6c68eeeb7ce66592994754d0dc37a74adf7a2","attempt":1}]]
9216	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000009",1,"enqueued",null,"queued",1,0,0,0,"user:ann",null,{"created":"fa6dbdb56c57181a5033998e39d94e467742b7640726315f0373f3b47fb21b01","attempt":1}]]
10240	acme	2026-02-25 06:13:21+00	1	[["0000000000000000000000000a",1,"enqueued",null,"queued",1,0,0,0,"user:ann",null,{"created":"b1dc7d254684fa049827fae1360832d4dde30a2c055e64ef49fcf9c28cbaaac8","attempt":1}]]
11264	acme	2026-02-25 06:13:21+00	1	[["0000000000000000000000000b",1,"enqueued",null,"queued",1,0,0,0,"user:ann",null,{"created":"5b13813514aba62049ebec2b23089e651d3b2a293888b1a8faab6de06b3637db","attempt":1}]]
12288	acme	2026-02-25 06:13:21+00	18	[["00000000000000000000000003",2,"worker_claim","queued","dispatched",1,0,1,0,"worker:w1",null,{"type":"claimed","epoch":1,"claim_id":"claim_00000000000000000000000001","worker":"w1"}],["00000000000000000000000003",3,"started","dispatched","running",1,0,1,0,"worker:w1",null,null],["00000000000000000000000004",2,"worker_claim","queued","dispatched",1,0,1,0,"worker:w1",null,{"type":"claimed","epoch":1,"claim_id":"claim_00000000000000000000000001","worker":"w1"}],["00000000000000000000000004",3,"started","dispatched","running",1,0,1,0,"worker:w1",null,null],["00000000000000000000000005",2,"worker_claim","queued","dispatched",1,0,1,0,"worker:w1",null,{"type":"claimed","epoch":1,"claim_id":"claim_00000000000000000000000001","worker":"w1"}],["00000000000000000000000005",3,"started","dispatched","running",1,0,1,0,"worker:w1",null,null],["00000000000000000000000006",2,"worker_claim","queued","dispatched",1,0,1,0,"worker:w1",null,{"type":"claimed","epoch":1,"claim_id":"claim_00000000000000000000000001","worker":"w1"}],["00000000000000000000000006",3,"started","dispatched","running",1,0,1,0,"worker:w1",null,null],["00000000000000000000000007",2,"worker_claim","queued","dispatched",1,0,1,0,"worker:w1",null,{"type":"claimed","epoch":1,"claim_id":"claim_00000000000000000000000001","worker":"w1"}],["00000000000000000000000007",3,"started","dispatched","running",1,0,1,0,"worker:w1",null,null],["00000000000000000000000008",2,"worker_claim","queued","dispatched",1,0,1,0,"worker:w1",null,{"type":"claimed","epoch":1,"claim_id":"claim_00000000000000000000000001","worker":"w1"}],["00000000000000000000000008",3,"started","dispatched","running",1,0,1,0,"worker:w1",null,null],["00000000000000000000000009",2,"worker_claim","queued","dispatched",1,0,1,0,"worker:w1",null,{"type":"claimed","epoch":1,"claim_id":"claim_00000000000000000000000001","worker":"w1"}],["00000000000000000000000009",3,"started","dispatched","running",1,0,1,0,"worker:w1",null,null],["0000000000000000000000000a",2,"worker_claim","queued","dispatched",1,0,1,0,"worker:w1",null,{"type":"claimed","epoch":1,"claim_id":"claim_00000000000000000000000001","worker":"w1"}],["0000000000000000000000000a",3,"started","dispatched","running",1,0,1,0,"worker:w1",null,null],["0000000000000000000000000b",2,"worker_claim","queued","dispatched",1,0,1,0,"worker:w1",null,{"type":"claimed","epoch":1,"claim_id":"claim_00000000000000000000000001","worker":"w1"}],["0000000000000000000000000b",3,"started","dispatched","running",1,0,1,0,"worker:w1",null,null]]
14336	acme	2026-02-25 06:13:21+00	3	[["00000000000000000000000003",4,"tool_invocation_started","running","running",1,0,1,1,"worker:w1",null,{"type":"step_begun","key":"price","shape":{"op":"step","mode":"pure"},"is_new":true}],["00000000000000000000000003",5,"tool_invocation_finished","running","running",1,0,1,1,"worker:w1",null,{"type":"step_finished","key":"price","outcome":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","failed":false}],["00000000000000000000000003",6,"command_committed","running","running",1,0,1,1,"worker:w1",null,{"type":"step_committed","key":"price","number":1,"outcome":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","by":"executed","bytes":1}]]
15360	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000003",7,"tool_invocation_started","running","running",1,0,1,1,"worker:w1",null,{"type":"step_begun","key":"charge","shape":{"op":"step","mode":"once","input":"06d033ece6645de592db973644cf7357255f24536ff7b03c3b2ace10736f7636"},"is_new":true}]]
16384	acme	2026-02-25 06:13:21+00	1	[["0000000000000000000000000b",4,"tool_invocation_started","running","running",1,0,1,1,"worker:w1",null,{"type":"step_begun","key":"charge","shape":{"op":"step","mode":"once","input":"06d033ece6645de592db973644cf7357255f24536ff7b03c3b2ace10736f7636"},"is_new":true}]]
17408	acme	2026-02-25 06:13:21+00	3	[["00000000000000000000000003",8,"tool_invocation_started","running","running",1,0,1,1,"worker:w1",null,{"type":"step_begun","key":"mail","shape":{"op":"step","mode":"idempotent","input":"06d033ece6645de592db973644cf7357255f24536ff7b03c3b2ace10736f7636"},"is_new":true}],["00000000000000000000000003",9,"tool_invocation_finished","running","running",1,0,1,1,"worker:w1",null,{"type":"step_finished","key":"mail","outcome":"fc4640dce46b377c7fad96e56501f17e5eca3fae68ba4b963b48c5332afdfb0a","failed":true}],["00000000000000000000000003",10,"command_committed","running","running",1,0,1,1,"worker:w1",null,{"type":"step_committed","key":"mail","number":2,"outcome":"fc4640dce46b377c7fad96e56501f17e5eca3fae68ba4b963b48c5332afdfb0a","by":"executed","bytes":21}]]
18432	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000003",11,"signal_received","running","running",1,0,1,1,"user:ann",null,{"type":"signalled","name":{"signal":"paid"},"content":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"}]]
19456	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000003",12,"signal_received","running","running",1,0,1,1,"user:ann",null,{"type":"signalled","name":{"message":{"channel":"chat: ä","id":"m1"}},"content":"58bd04f29abe8ad14c9905a0f2f55d82c42d2ba20a2c34ac991fb6c64a3e0825"}]]
20480	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000004",4,"completed","running","succeeded",1,0,1,1,"worker:w1",null,{"type":"finished","settle":"8639a06101a039a23bc13c567c43e40799aaabeca9790ef6b0cb4cc9cae5efbd","result":"dcec4981aff9f206ae722951fea1ae8d17dba47334bea9d82bef1c3119f2c770","remaining":null}]]
21504	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000005",4,"completed_in_part","running","partial",1,0,1,1,"worker:w1",null,{"type":"finished","settle":"a8485d25431791368c9547cb836d6d26da260c9b7d7aaca1218b9c06cf398056","result":null,"remaining":"49a64717d5d4cb19952e6eac2946415cf6879adacf9908e7d872332d32c6e684"}]]
22528	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000006",4,"retryable_error","running","retry_scheduled",1,1,1,1,"worker:w1",null,{"type":"retry","failure":{"code":"BUSY","message":"try later","class":"transient","retryable":true},"next_retry_at":"2026-02-25T06:13:22Z","settle":"ee591b0d97a74d5db08b1861a4bbfeab1778df56238ddc609e6f675dbf48182a"}]]
23552	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000007",4,"job_waiting","running","waiting",1,0,1,1,"worker:w1",null,{"type":"parked","wait":{"on":{"signal":"paid"}}}]]
25600	acme	2026-02-25 06:13:21+00	1	[{"about":"letter","name":"dlq_00000000000000000000000008","what":"discard_requested","actor":"user:ann","job_id":"job_00000000000000000000000008","detail":{"reason":"nobody needs it"}}]
26624	acme	2026-02-25 06:13:21+00	1	[["00000000000000000000000009",4,"cancel_command","running","cancelled",1,0,1,1,"worker:w1",null,{"type":"cancelled","reason":"enough","failure":null,"settle":"844ecc5d07065ba19387a69f7bde5d92151858653010c5c36e3bbcf5ab363682"}]]
31744	acme	2026-02-25 06:13:21+00	1	[{"about":"schedule","name":"nightly","what":"created","actor":"user:ann","detail":{"next_at":"2026-02-26T01:30:00Z"}}]
32768	acme	2026-02-25 06:13:21+00	1	[{"about":"schedule","name":"nightly","what":"paused","actor":"user:ann","detail":{"reason":"a holiday"}}]
24576	acme	2026-02-25 06:13:21+00	3	[["00000000000000000000000008",4,"non_retryable_error","running","dlq_pending",1,0,1,1,"worker:w1",null,{"type":"buried","dlq_id":"dlq_00000000000000000000000008","began_in":"running","why":"non_retryable_error","failure":{"code":"NO_SUCH_USER","message":"there is no such user","class":"permanent","retryable":false},"settle":"16f3d9a70e5ead43084e2492af0be33966c65abe2833a4fdb727499e6e1dcea4"}],["00000000000000000000000008",5,"dlq_written","dlq_pending","dlq_recorded",1,0,1,1,"worker:w1",null,{"type":"buried","dlq_id":"dlq_00000000000000000000000008","began_in":"running","why":"non_retryable_error","failure":{"code":"NO_SUCH_USER","message":"there is no such user","class":"permanent","retryable":false},"settle":"16f3d9a70e5ead43084e2492af0be33966c65abe2833a4fdb727499e6e1dcea4"}],["00000000000000000000000008",6,"dlq_closed","dlq_recorded","failed",1,0,1,1,"worker:w1",null,{"type":"buried","dlq_id":"dlq_00000000000000000000000008","began_in":"running","why":"non_retryable_error","failure":{"code":"NO_SUCH_USER","message":"there is no such user","class":"permanent","retryable":false},"settle":"16f3d9a70e5ead43084e2492af0be33966c65abe2833a4fdb727499e6e1dcea4"}]]
27648	acme	2026-02-25 06:13:21+00	1	[["0000000000000000000000000a",4,"shutdown","running","interrupted",1,0,1,1,"worker:w1",null,{"type":"interrupted","counted":false}]]
28672	acme	2026-02-25 06:13:21+00	1	[["0000000000000000000000000b",5,"process_restart","running","interrupted",1,0,1,1,"recovery",null,{"type":"interrupted","counted":true}]]
30720	acme	2026-02-25 06:13:21+00	1	[["0000000000000000000000000a",5,"recovery_resume","interrupted","dispatched",1,0,2,1,"worker:w2",null,{"type":"claimed","epoch":2,"claim_id":"claim_00000000000000000000000002","worker":"w2"}]]
33792	acme	2026-02-25 06:13:21+00	1	[{"about":"token","name":"tok_0000000000000000000000002d","what":"issued","actor":"user:ann","detail":{"principal":"bob","role":"operator","tenant":"acme","label":"laptop","expires_at":"9999-01-01T00:00:00Z"}}]
36864	acme	2026-02-25 06:13:21+00	1	[{"inbox":"conflict","job_id":"job_0000000000000000000000000d","existing":"job_00000000000000000000000001","code":"IDEMPOTENCY_CONFLICT","why":"the idempotency key belongs to job_00000000000000000000000001, which differs in payload","actor":"user:ann"}]
\.
COPY golden.log_1 (seq, tenant, at, count, events) FROM stdin;
\.
COPY golden.marks (name, number) FROM stdin;
alerts	5
\.
COPY golden.meta (name, value) FROM stdin;
store_id	d8ed8fb7-a66d-4475-9955-22ff43b7b60f
incarnation	0
feed_from	1
rules_version	0
acts_from	1
schema	11
schema_served_by	11
server	7709488686499540419/00000001/5/16385
\.
COPY golden.notes (seq, place, tenant, about, name, at) FROM stdin;
25600	0	acme	letter	dlq_00000000000000000000000008	2026-02-25 06:13:21+00
31744	0	acme	schedule	nightly	2026-02-25 06:13:21+00
32768	0	acme	schedule	nightly	2026-02-25 06:13:21+00
33792	0	acme	token	tok_0000000000000000000000002d	2026-02-25 06:13:21+00
\.
COPY golden.outputs (id, attempt, result, remaining, stats) FROM stdin;
00000000-0000-0000-0000-000000000004	1	{ "sent": 1 }	\N	{ "ms": 12 }
00000000-0000-0000-0000-000000000005	1	\N	[1, 2]	\N
\.
COPY golden.progress (id, epoch, at, value) FROM stdin;
00000000-0000-0000-0000-000000000003	1	2026-02-25 06:13:21+00	{ "rows": 12 }
\.
COPY golden.pruned (id, at, least_ms, version, rows) FROM stdin;
\.
COPY golden.rule_states (rule, part, state, forget_at) FROM stdin;
\.
COPY golden.rules (name, rule) FROM stdin;
\.
COPY golden.schedules (tenant, name, version, created_at, updated_at, spec, payload, pause, next_at, fires_at, seen_at, last_slot, last_job) FROM stdin;
acme	nightly	2	2026-02-25 06:13:21+00	2026-02-25 06:13:21+00	{"when":{"cron":{"expression":"30 2 * * 1-5","zone":"Europe/Berlin"}},"jitter_ms":90000,"catch_up":{"all":{"max":7}},"overlap":"queue","start_at":"2026-02-25T06:13:20Z","end_at":"9999-01-01T00:00:00Z","job":{"by":"scheduler","random":"00000000000000000000000000000000","kind":"mail","queue":"default","priority":0,"max_retries":9}}	[ 1,  2 ]	{"by":"user:ann","at":"2026-02-25T06:13:21Z","reason":"a holiday"}	2026-02-26 01:30:00+00	\N	\N	\N	\N
\.
COPY golden.sessions (id, worker, until, renewals, lapses_at, started_at, vouched, listens, listened_at) FROM stdin;
1	w1	1970-01-01 00:00:00+00	0	2026-02-25 06:14:28.5+00	2026-02-25 06:13:21+00	f	\N	\N
2	w2	1970-01-01 00:00:00+00	0	2026-02-25 06:14:28.5+00	2026-02-25 06:13:21+00	f	\N	\N
\.
COPY golden.signals (job_id, name, number, at, sender, sort, content, taken) FROM stdin;
00000000-0000-0000-0000-000000000003	spaid	1	2026-02-25 06:13:21+00	user:ann	payload	null	f
00000000-0000-0000-0000-000000000003	m8:chat: äm1	2	2026-02-25 06:13:21+00	user:ann	rejected	{"code":"DECLINED","message":"the card was declined","class":"permanent","retryable":false}	f
\.
COPY golden.steps (job_id, key, number, step, output) FROM stdin;
00000000-0000-0000-0000-000000000003	price	1	{"op":"step","mode":"pure","epoch":1,"begun_at":"2026-02-25T06:13:21Z","record":{"attempt":1,"at":"2026-02-25T06:13:21Z","by":"executed"}}	1
00000000-0000-0000-0000-000000000003	charge	\N	{"op":"step","mode":"once","input":"06d033ece6645de592db973644cf7357255f24536ff7b03c3b2ace10736f7636","epoch":1,"call_id":7,"begun_at":"2026-02-25T06:13:21Z","location":"src/order.rs:12"}	\N
00000000-0000-0000-0000-00000000000b	charge	\N	{"op":"step","mode":"once","input":"06d033ece6645de592db973644cf7357255f24536ff7b03c3b2ace10736f7636","epoch":1,"call_id":7,"begun_at":"2026-02-25T06:13:21Z","location":"src/order.rs:12"}	\N
00000000-0000-0000-0000-000000000003	mail	2	{"op":"step","mode":"idempotent","input":"06d033ece6645de592db973644cf7357255f24536ff7b03c3b2ace10736f7636","epoch":1,"begun_at":"2026-02-25T06:13:21Z","location":"src/order.rs:12","record":{"attempt":1,"at":"2026-02-25T06:13:21Z","by":"executed","failed":true}}	{"code":"DECLINED","message":"the card was declined","class":"permanent","retryable":false}
\.
COPY golden.tasks (tenant, task_id, next_attempt) FROM stdin;
acme	invoice-1	2
\.
COPY golden.tokens (id, digest, tenant, principal, role, label, created_at, created_by, expires_at, revoked_at, revoked_by) FROM stdin;
00000000-0000-0000-0000-00000000004d	\\x0707070707070707070707070707070707070707070707070707070707070707	acme	bob	operator	laptop	2026-02-25 06:13:21+00	user:ann	9999-01-01 00:00:00+00	\N	\N
\.
SELECT pg_catalog.setval('golden.follow_ups_id_seq', 1, true);
SELECT pg_catalog.setval('golden.inbox_seq_seq', 2, true);
SELECT pg_catalog.setval('golden.inbox_set_aside_id_seq', 1, false);
SELECT pg_catalog.setval('golden.job_groups_id_seq', 1, true);
SELECT pg_catalog.setval('golden.log_seq', 36864, true);
SELECT pg_catalog.setval('golden.sessions_id_seq', 2, true);
ALTER TABLE ONLY golden.acts
    ADD CONSTRAINT acts_pkey PRIMARY KEY (event);
ALTER TABLE ONLY golden.approvals
    ADD CONSTRAINT approvals_dlq_id_principal_key UNIQUE (dlq_id, principal);
ALTER TABLE ONLY golden.approvals
    ADD CONSTRAINT approvals_pkey PRIMARY KEY (dlq_id, step);
ALTER TABLE ONLY golden.children
    ADD CONSTRAINT children_pkey PRIMARY KEY (parent, id);
ALTER TABLE ONLY golden.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (id);
ALTER TABLE ONLY golden.commits
    ADD CONSTRAINT commits_pkey PRIMARY KEY (id);
ALTER TABLE ONLY golden.dlq_items
    ADD CONSTRAINT dlq_items_job_id_id_key UNIQUE (job_id, id);
ALTER TABLE ONLY golden.dlq_items
    ADD CONSTRAINT dlq_items_job_id_key UNIQUE (job_id);
ALTER TABLE ONLY golden.dlq_items
    ADD CONSTRAINT dlq_items_pkey PRIMARY KEY (id);
ALTER TABLE ONLY golden.effects
    ADD CONSTRAINT effects_pkey PRIMARY KEY (job_id, key);
ALTER TABLE ONLY golden.feed
    ADD CONSTRAINT feed_pkey PRIMARY KEY (first);
ALTER TABLE ONLY golden.follow_ups
    ADD CONSTRAINT follow_ups_pkey PRIMARY KEY (id);
ALTER TABLE ONLY golden.inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY golden.inbox_results
    ADD CONSTRAINT inbox_results_pkey PRIMARY KEY (seq, place);
ALTER TABLE ONLY golden.inbox_set_aside
    ADD CONSTRAINT inbox_set_aside_pkey PRIMARY KEY (id);
ALTER TABLE ONLY golden.job_astray
    ADD CONSTRAINT job_astray_pkey PRIMARY KEY (created_at, id);
ALTER TABLE ONLY golden.job_groups
    ADD CONSTRAINT job_groups_pkey PRIMARY KEY (id);
ALTER TABLE ONLY golden.job_groups
    ADD CONSTRAINT job_groups_queue_tenant_kind_isolated_key UNIQUE (queue, tenant, kind, isolated);
ALTER TABLE ONLY golden.job_keys
    ADD CONSTRAINT job_keys_pkey PRIMARY KEY (lane, id);
ALTER TABLE ONLY golden.job_log
    ADD CONSTRAINT job_log_pkey PRIMARY KEY (id, seq);
ALTER TABLE ONLY golden.job_tags
    ADD CONSTRAINT job_tags_pkey PRIMARY KEY (tenant, tag, id);
ALTER TABLE ONLY golden.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY golden.log
    ADD CONSTRAINT log_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY golden.log_0
    ADD CONSTRAINT log_0_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY golden.log_1
    ADD CONSTRAINT log_1_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY golden.marks
    ADD CONSTRAINT marks_pkey PRIMARY KEY (name);
ALTER TABLE ONLY golden.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (name);
ALTER TABLE ONLY golden.notes
    ADD CONSTRAINT notes_pkey PRIMARY KEY (seq, place);
ALTER TABLE ONLY golden.outputs
    ADD CONSTRAINT outputs_pkey PRIMARY KEY (id, attempt);
ALTER TABLE ONLY golden.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (id);
ALTER TABLE ONLY golden.pruned
    ADD CONSTRAINT pruned_pkey PRIMARY KEY (id);
ALTER TABLE ONLY golden.rule_states
    ADD CONSTRAINT rule_states_pkey PRIMARY KEY (rule, part);
ALTER TABLE ONLY golden.rules
    ADD CONSTRAINT rules_pkey PRIMARY KEY (name);
ALTER TABLE ONLY golden.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (tenant, name);
ALTER TABLE ONLY golden.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY golden.sessions
    ADD CONSTRAINT sessions_worker_key UNIQUE (worker);
ALTER TABLE ONLY golden.signals
    ADD CONSTRAINT signals_pkey PRIMARY KEY (job_id, name);
ALTER TABLE ONLY golden.steps
    ADD CONSTRAINT steps_pkey PRIMARY KEY (job_id, key);
ALTER TABLE ONLY golden.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (tenant, task_id);
ALTER TABLE ONLY golden.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);
CREATE INDEX acts_tenant ON golden.acts USING btree (tenant, event);
CREATE INDEX claims_at ON golden.claims USING btree (at);
CREATE INDEX dlq_items_all ON golden.dlq_items USING btree (created_at, id);
CREATE INDEX dlq_items_causes ON golden.dlq_items USING btree (tenant, state, code, cause, created_at, id);
CREATE INDEX dlq_items_code ON golden.dlq_items USING btree (tenant, code, created_at, id);
CREATE INDEX dlq_items_list ON golden.dlq_items USING btree (tenant, created_at, id);
CREATE INDEX dlq_items_no_cause ON golden.dlq_items USING btree (id) WHERE (cause IS NULL);
CREATE UNIQUE INDEX feed_seq ON golden.feed USING btree (seq);
CREATE INDEX inbox_results_at ON golden.inbox_results USING btree (at, seq);
CREATE INDEX inbox_results_job ON golden.inbox_results USING btree (job_id);
CREATE INDEX jobs_code ON golden.jobs USING btree (((((rest)::json -> 'error'::text) ->> 'code'::text)), id) WHERE (strpos(rest, 'error'::text) > 0);
CREATE INDEX jobs_held_keys ON golden.jobs USING btree (group_id, lane) WHERE ((lease_session IS NOT NULL) AND (lane <> 0));
CREATE UNIQUE INDEX jobs_key ON golden.jobs USING btree (tenant, idempotency_scope, idempotency_key) WHERE (idempotency_key IS NOT NULL);
CREATE INDEX jobs_leased ON golden.jobs USING btree (lease_session, get_byte(lease, 48)) WHERE (lease_session IS NOT NULL);
CREATE INDEX jobs_listed ON golden.jobs USING btree (group_id, state, id) WHERE ((state = 'succeeded'::text) OR (state = 'scheduled'::text) OR (state = 'waiting'::text) OR (state = 'partial'::text) OR (state = 'failed'::text) OR (state = 'cancelled'::text));
CREATE INDEX jobs_ready ON golden.jobs USING btree (group_id, lane, rank) WHERE ((state = 'queued'::text) OR (state = 'interrupted'::text));
CREATE INDEX jobs_retry ON golden.jobs USING btree (group_id, lane, next_retry_at) WHERE (next_retry_at IS NOT NULL);
CREATE INDEX jobs_retry_at ON golden.jobs USING btree (next_retry_at) WHERE (next_retry_at IS NOT NULL);
CREATE UNIQUE INDEX jobs_task ON golden.jobs USING btree (tenant, task_id, attempt) WHERE (task_id IS NOT NULL);
CREATE INDEX jobs_timer ON golden.jobs USING btree (timer_at) WHERE (timer_at IS NOT NULL);
CREATE UNIQUE INDEX jobs_unique ON golden.jobs USING btree (tenant, unique_key) WHERE ((unique_key IS NOT NULL) AND (NOT ((state = 'succeeded'::text) OR (state = 'partial'::text) OR (state = 'failed'::text) OR (state = 'cancelled'::text))));
CREATE INDEX notes_about ON golden.notes USING btree (tenant, about, name, seq, place);
CREATE INDEX notes_at ON golden.notes USING btree (at, seq);
CREATE INDEX schedules_due ON golden.schedules USING btree (fires_at) WHERE (fires_at IS NOT NULL);
CREATE INDEX sessions_lapsed ON golden.sessions USING btree (lapses_at);
CREATE INDEX sessions_vouched ON golden.sessions USING btree (worker) WHERE vouched;
ALTER INDEX golden.log_pkey ATTACH PARTITION golden.log_0_pkey;
ALTER INDEX golden.log_pkey ATTACH PARTITION golden.log_1_pkey;
CREATE TRIGGER jobs_astray AFTER INSERT ON golden.jobs FOR EACH ROW WHEN ((((new.created_at - to_timestamp(((((('x'::text || translate("left"((new.id)::text, 13), '-'::text, ''::text)))::bit(48))::bigint)::double precision / (1000)::double precision))) < '-00:00:30'::interval) OR ((new.created_at - to_timestamp(((((('x'::text || translate("left"((new.id)::text, 13), '-'::text, ''::text)))::bit(48))::bigint)::double precision / (1000)::double precision))) > '00:00:30'::interval))) EXECUTE FUNCTION golden.keep_astray();
CREATE TRIGGER jobs_keys AFTER INSERT ON golden.jobs FOR EACH ROW WHEN ((new.lane <> 0)) EXECUTE FUNCTION golden.keep_key();
CREATE TRIGGER jobs_tags AFTER INSERT ON golden.jobs FOR EACH ROW WHEN ((strpos(new.options, 'tags'::text) > 0)) EXECUTE FUNCTION golden.keep_tags();
ALTER TABLE ONLY golden.approvals
    ADD CONSTRAINT approvals_dlq_id_fkey FOREIGN KEY (dlq_id) REFERENCES golden.dlq_items(id) ON DELETE CASCADE;
ALTER TABLE ONLY golden.jobs
    ADD CONSTRAINT jobs_has_letter FOREIGN KEY (id, dlq_id) REFERENCES golden.dlq_items(job_id, id) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE ONLY golden.rule_states
    ADD CONSTRAINT rule_states_rule_fkey FOREIGN KEY (rule) REFERENCES golden.rules(name) ON DELETE CASCADE;
