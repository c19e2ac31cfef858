-- The ledgers of durable jobs: their steps, what came for them from outside, and what was handed in late.

-- One row for each step of a job. A step that is on record has its number in the order of records, and what came of it.
CREATE TABLE steps (
    job_id uuid    NOT NULL,
    key    text    NOT NULL,
    number integer CHECK (number >= 1),
    step   text    NOT NULL,
    output text,
    PRIMARY KEY (job_id, key),
    CHECK ((number IS NULL) = (output IS NULL))
);

-- Signals, messages and ends of children, kept until the handler asks for them. A name comes once.
CREATE TABLE signals (
    job_id  uuid        NOT NULL,
    name    text        NOT NULL,
    number  integer     NOT NULL CHECK (number >= 1),
    at      timestamptz NOT NULL,
    sender  text        NOT NULL,
    sort    text        NOT NULL CHECK (sort IN ('payload', 'rejected', 'ended')),
    content text        NOT NULL,
    taken   boolean     NOT NULL,
    PRIMARY KEY (job_id, name)
);

-- What a worker that had lost its lease says came of a step.
CREATE TABLE effects (
    job_id  uuid        NOT NULL,
    key     text        NOT NULL,
    epoch   bigint      NOT NULL CHECK (epoch >= 1),
    at      timestamptz NOT NULL,
    failed  boolean     NOT NULL,
    outcome text        NOT NULL,
    PRIMARY KEY (job_id, key)
);
