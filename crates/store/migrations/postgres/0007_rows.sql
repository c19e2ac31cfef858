-- Rows of jobs on their way to the server. A program sends an array of them with each commit.

-- What changes in the life of a job, and the transaction that wrote the row which it is instead of.
CREATE TYPE moving_job AS (
    id            uuid,
    state         text,
    version       bigint,
    attempt       integer,
    retry_count   integer,
    epoch         bigint,
    updated_at    timestamptz,
    started_at    timestamptz,
    next_retry_at timestamptz,
    timer_at      timestamptz,
    lease_session integer,
    lease         bytea,
    dlq_id        uuid,
    rest          text,
    history       bytea,
    group_id      integer,
    written_by    xid
);

-- All of a new job. What its history says of the log is the number of a row, or how far it is from the first one of
-- its commit; what it carries may be that of another job.
CREATE TYPE new_job AS (
    id             uuid,
    state          text,
    version        bigint,
    attempt        integer,
    retry_count    integer,
    epoch          bigint,
    updated_at     timestamptz,
    started_at     timestamptz,
    next_retry_at  timestamptz,
    timer_at       timestamptz,
    lease_session  integer,
    lease          bytea,
    dlq_id         uuid,
    rest           text,
    chain          bytea,
    group_id       integer,
    tenant         text,
    rank           bigint,
    max_retries    integer,
    created_at     timestamptz,
    task_id        text,
    scope          text,
    key            text,
    payload_digest bytea,
    trace_made     uuid,
    trace_id       text,
    options        text,
    payload        text,
    payload_of     uuid,
    seq            bigint,
    lane           bigint,
    unique_key     text
);
