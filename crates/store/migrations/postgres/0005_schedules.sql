-- Schedules, which make jobs at their times, and notes: facts about what is not a job.

CREATE TABLE schedules (
    tenant     text        NOT NULL,
    name       text        NOT NULL,
    -- It grows with every change, so that a timer acts on what it saw.
    version    bigint      NOT NULL CHECK (version >= 1),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- What was asked for, as JSON, and the payload of its jobs, byte for byte.
    spec       text        NOT NULL,
    payload    text        NOT NULL,
    -- Who paused it, when and why, as JSON; null while it is not.
    pause      text,
    -- The next slot; null when no other comes.
    next_at    timestamptz,
    -- When a timer has to look at it; null while there is nothing to wait for.
    fires_at   timestamptz,
    -- When a timer last found that the next slot has to wait for the job of the one before.
    seen_at    timestamptz,
    -- The last slot that was fired, and the last job that was made.
    last_slot  timestamptz,
    last_job   uuid,
    PRIMARY KEY (tenant, name),
    CONSTRAINT schedules_waits CHECK (fires_at IS NULL OR (next_at IS NOT NULL AND pause IS NULL))
);

-- Serves timers.
CREATE INDEX schedules_due ON schedules (fires_at) WHERE fires_at IS NOT NULL;

-- Where the log tells what is not of a job.
CREATE TABLE notes (
    -- The log row that tells it, and its place there.
    seq    bigint      NOT NULL,
    place  integer     NOT NULL,
    tenant text        NOT NULL,
    about  text        NOT NULL,
    name   text        NOT NULL,
    at     timestamptz NOT NULL,
    PRIMARY KEY (seq, place)
);

-- Serves the history of one thing.
CREATE INDEX notes_about ON notes (tenant, about, name, seq, place);
-- Serves retention: the oldest first.
CREATE INDEX notes_at ON notes (at, seq);

-- Single events, as people query them. What became of an enqueue that made no job is one of them, and so is a note.
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
       coalesce(line.value ->> 10, line.value ->> 'trace_id') AS trace_id,
       CASE json_typeof(line.value) WHEN 'object' THEN line.value ELSE line.value -> 11 END AS fact
FROM feed JOIN log ON log.seq = feed.seq,
    json_array_elements(log.events::json) WITH ORDINALITY AS line (value, place)
-- A line that retention took leaves null.
WHERE json_typeof(line.value) <> 'null';
