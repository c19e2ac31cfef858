-- Views for people: jobs in the words of the contracts, and events with the trace of their job.
--
-- The words are those of the contracts in the kernel. A test holds each view against the documents of the API, for
-- every state, before and after the first start.

-- Every job with its names as text. An id is 26 digits of 5 bits, of which the first has two bits more than there are;
-- times are RFC 3339 with microseconds.
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
-- that brought no trace has that of its job, which is found by the bytes that the digits of its id stand for.
DROP VIEW events;
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
