-- What lists are found by, at any depth: jobs by group and state, by tag, by limit key, by code and by time of creation, letters by code and cause.
--
-- A program that does not know these serves beside newer ones: indexes and triggers keep them, and the cause of a
-- letter that such a program writes is made later.

-- Jobs in the states that no other index has. A job enters it when it is at its end, or while nobody could claim it: on
-- its usual way it is written here once.
CREATE INDEX jobs_listed ON jobs (group_id, state, id) WHERE
    state = 'succeeded' OR state = 'scheduled' OR state = 'waiting' OR state = 'partial'
    OR state = 'failed' OR state = 'cancelled';

-- Jobs that have failed, for now or for good, by the code of the last failure.
CREATE INDEX jobs_code ON jobs ((rest::json -> 'error' ->> 'code'), id)
    WHERE strpos(rest, 'error') > 0;

-- What never changes of a job has tables of its own, for every index of jobs is written with each change of a job.

-- Jobs with a limit key.
CREATE TABLE job_keys (
    lane bigint NOT NULL,
    id   uuid   NOT NULL,
    PRIMARY KEY (lane, id)
);

INSERT INTO job_keys (lane, id) SELECT lane, id FROM jobs WHERE lane <> 0;

CREATE FUNCTION keep_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_keys (lane, id) VALUES (new.lane, new.id);
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_keys AFTER INSERT ON jobs FOR EACH ROW
    WHEN (new.lane <> 0) EXECUTE FUNCTION keep_key();

-- Jobs that were not created about when their id was made. All others are found by the time in their id.
CREATE TABLE job_astray (
    created_at timestamptz NOT NULL,
    id         uuid        NOT NULL,
    PRIMARY KEY (created_at, id)
);

INSERT INTO job_astray (created_at, id)
SELECT created_at, id FROM jobs
WHERE (created_at - to_timestamp(('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint
    / 1000::double precision)) NOT BETWEEN interval '-30 seconds' AND interval '30 seconds';

CREATE FUNCTION keep_astray() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_astray (created_at, id) VALUES (new.created_at, new.id);
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_astray AFTER INSERT ON jobs FOR EACH ROW
    WHEN ((new.created_at - to_timestamp(('x' || translate(left(new.id::text, 13), '-', ''))::bit(48)::bigint
        / 1000::double precision)) NOT BETWEEN interval '-30 seconds' AND interval '30 seconds')
    EXECUTE FUNCTION keep_astray();

-- The tags of jobs that have some.
CREATE TABLE job_tags (
    tenant text NOT NULL,
    tag    text NOT NULL,
    id     uuid NOT NULL,
    PRIMARY KEY (tenant, tag, id)
);

INSERT INTO job_tags (tenant, tag, id)
SELECT DISTINCT tenant, json_array_elements_text(options::json -> 'tags'), id FROM jobs
WHERE strpos(options, 'tags') > 0;

CREATE FUNCTION keep_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_tags (tenant, tag, id)
    SELECT DISTINCT new.tenant, json_array_elements_text(new.options::json -> 'tags'), new.id;
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_tags AFTER INSERT ON jobs FOR EACH ROW
    WHEN (strpos(new.options, 'tags') > 0) EXECUTE FUNCTION keep_tags();

-- The message of the failure without what is another each time; null until it is made.
ALTER TABLE dlq_items ADD COLUMN cause text;

-- Letters of one code.
CREATE INDEX dlq_items_code ON dlq_items (tenant, code, created_at, id);

-- Letters of one cause are counted here.
CREATE INDEX dlq_items_causes ON dlq_items (tenant, state, code, cause, created_at, id);

-- Letters whose cause is not made yet.
CREATE INDEX dlq_items_no_cause ON dlq_items (id) WHERE cause IS NULL;

-- Claims that no longer count, oldest first.
CREATE INDEX claims_at ON claims (at);
