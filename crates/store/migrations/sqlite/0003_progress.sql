-- How far the handlers of jobs say they have come.

-- One row for each job whose handler said something: the last of it, byte for byte, and the epoch that said it. Apart
-- from the job's row, which is read and written far more often.
CREATE TABLE progress (
    seq   INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL CHECK (epoch >= 1),
    at    INTEGER NOT NULL,
    value TEXT    NOT NULL
) STRICT;
