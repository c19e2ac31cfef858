-- Schedules, which make jobs at their times, and notes: facts about what is not a job.

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

-- Serves timers.
CREATE INDEX schedules_due ON schedules (fires_at) WHERE fires_at IS NOT NULL;

-- Where the log tells what is not of a job. Serves the history of a schedule, and retention, oldest first.
CREATE TABLE notes (
    -- The number of its event.
    event  INTEGER PRIMARY KEY,
    tenant TEXT    NOT NULL,
    about  TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    at     INTEGER NOT NULL
) STRICT;

-- Serves the history of one thing.
CREATE INDEX notes_about ON notes (tenant, about, name, event);

-- Single events, as people query them. What became of an enqueue that made no job is one of them, and so is a note.
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
       coalesce(line.value ->> 10, line.value ->> 'trace_id') AS trace_id,
       iif(line.type = 'object', line.value, line.value -> 11) AS fact
FROM log, json_each(log.events) AS line
-- A line that retention took leaves null.
WHERE line.type <> 'null';
