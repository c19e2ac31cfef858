-- What lists are found by, at any depth: jobs by group and state, by tag, by limit key and by code, letters by code and cause.

-- Jobs in the states that no other index has. A job enters it when it is at its end, or while nobody could claim it: on
-- its usual way it is written here once. Its rows end with the number of the job.
CREATE INDEX jobs_listed ON jobs (group_id, state) WHERE
    state = 'succeeded' OR state = 'scheduled' OR state = 'waiting' OR state = 'partial'
    OR state = 'failed' OR state = 'cancelled';

-- Jobs with a limit key.
CREATE INDEX jobs_limit_key ON jobs (lane) WHERE lane <> 0;

-- Jobs that have failed, for now or for good, by the code of the last failure.
CREATE INDEX jobs_code ON jobs (rest ->> '$.error.code') WHERE instr(rest, 'error') > 0;

-- The tags of jobs that have some.
CREATE TABLE job_tags (
    tenant TEXT    NOT NULL,
    tag    TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (tenant, tag, seq)
) STRICT, WITHOUT ROWID;

INSERT INTO job_tags (tenant, tag, seq)
SELECT DISTINCT jobs.tenant, tags.value, jobs.seq FROM jobs, json_each(jobs.options, '$.tags') AS tags
WHERE instr(jobs.options, 'tags') > 0;

-- The message of the failure without what is another each time; null until it is made.
ALTER TABLE dlq_items ADD COLUMN cause TEXT;

-- Letters of one code.
CREATE INDEX dlq_items_code ON dlq_items (tenant, code, created_at);

-- Letters of one cause are counted here.
CREATE INDEX dlq_items_causes ON dlq_items (tenant, state, code, cause, created_at);

-- Letters whose cause is not made yet.
CREATE INDEX dlq_items_no_cause ON dlq_items (id) WHERE cause IS NULL;
