-- Views for people: jobs in the words of the contracts, and events with the trace of their job.
--
-- The words are those of the contracts in the kernel. A test holds each view against the documents of the API, for
-- every state, before and after the first start.

-- The bytes of a job's id, from the 26 digits of its text: the other way round than job_id.
CREATE FUNCTION job_uuid(digits text) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT string_agg(to_hex(substring(bits FROM place * 4 + 3 FOR 4)::bit(4)::integer), '' ORDER BY place)::uuid
    FROM (
        SELECT string_agg((strpos('0123456789abcdefghjkmnpqrstvwxyz', substr(digits, digit, 1)) - 1)::bit(5)::text, ''
            ORDER BY digit)::bit(130) AS bits
        FROM generate_series(1, 26) AS digit
    ) AS whole, generate_series(0, 31) AS place
$$;

-- Every job with its names as text.
CREATE VIEW jobs_by_name AS
SELECT job_id(jobs.id) AS job_id,
       jobs.tenant AS tenant_id,
       job_groups.kind AS job_type,
       jobs.state,
       jobs.attempt,
       jobs.retry_count,
       jobs.max_retries,
       coalesce(jobs.idempotency_key, job_id(jobs.id)) AS idempotency_key,
       coalesce(jobs.task_id, job_id(jobs.id)) AS task_id,
       -- As the index jobs_task has it.
       coalesce(jobs.task_id, job_id(jobs.id)) AS task_key,
       coalesce(jobs.trace_id, 'trace-run-' || job_id(jobs.id) || '-' || jobs.trace_made) AS trace_id,
       jobs.rest::json #>> '{error,code}' AS error_code,
       jobs.rest::json #>> '{error,message}' AS error_message,
       jobs.rest::json ->> 'ended_by' AS ended_by,
       coalesce(jobs.options::json ->> 'schedule_type', 'at') AS schedule_type,
       (jobs.options::json ->> 'timeout_ms')::bigint AS timeout_ms,
       jobs.payload AS payload_json,
       jobs.created_at,
       jobs.updated_at,
       jobs.started_at,
       CASE WHEN jobs.state IN ('succeeded', 'partial', 'failed', 'cancelled') THEN jobs.updated_at END AS finished_at,
       jobs.next_retry_at,
       CASE WHEN jobs.dlq_id IS NOT NULL THEN 'dlq_' || substr(job_id(jobs.id), 5) END AS dlq_id,
       jobs.options::json #>> '{origin,requeued}' AS requeued_from_dlq_id
FROM jobs JOIN job_groups ON job_groups.id = jobs.group_id;

-- Contract runs: every job is a run.
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

-- Contract tasks: of a task that ran again its newest job.
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

-- Contract jobs.
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

-- Single events, as people query them. What became of an enqueue that made no job is one of them, and so is a note. One
-- that brought no trace has that of its job.
CREATE OR REPLACE VIEW events AS
SELECT feed.first + line.place - 1          AS number,
       log.tenant                           AS tenant,
       coalesce('job_' || (line.value ->> 0), line.value ->> 'job_id') AS job_id,
       (line.value ->> 1)::bigint           AS job_number,
       log.at                               AS at,
       coalesce(line.value ->> 2, 'inbox_' || (line.value ->> 'inbox'),
           (line.value ->> 'about') || '_' || (line.value ->> 'what')) AS cause,
       line.value ->> 3                     AS from_state,
       line.value ->> 4                     AS to_state,
       (line.value ->> 5)::integer          AS attempt,
       (line.value ->> 6)::integer          AS retry_count,
       (line.value ->> 7)::bigint           AS epoch,
       coalesce(line.value ->> 9, line.value ->> 'actor')     AS actor,
       coalesce(line.value ->> 10, line.value ->> 'trace_id', (
           SELECT coalesce(jobs.trace_id, 'trace-run-' || job_id(jobs.id) || '-' || jobs.trace_made)
           FROM jobs WHERE jobs.id = job_uuid(line.value ->> 0))) AS trace_id,
       CASE json_typeof(line.value) WHEN 'object' THEN line.value ELSE line.value -> 11 END AS fact
FROM feed JOIN log ON log.seq = feed.seq,
    json_array_elements(log.events::json) WITH ORDINALITY AS line (value, place)
-- A line that retention took leaves null.
WHERE json_typeof(line.value) <> 'null';
