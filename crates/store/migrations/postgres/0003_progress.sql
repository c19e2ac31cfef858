-- How far the handlers of jobs say they have come.

-- One row for each job whose handler said something: the last of it, byte for byte, and the epoch that said it. Apart
-- from the job's row, which is read and written far more often. A program that does not know this table
-- leaves the row of a job that it forgets; but only of one that came to its end, and was old enough to go, while such
-- a program still served beside newer ones.
CREATE TABLE progress (
    id    uuid        PRIMARY KEY,
    epoch bigint      NOT NULL CHECK (epoch >= 1),
    at    timestamptz NOT NULL,
    value text        NOT NULL
);
