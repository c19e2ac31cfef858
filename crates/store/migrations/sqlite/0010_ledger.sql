-- The ledgers of durable jobs: their steps, what came for them from outside, and what was handed in late.

-- One row for each step of a job. A step that is on record has its number in the order of records, and what came of it.
CREATE TABLE steps (
    seq    INTEGER NOT NULL,
    key    TEXT    NOT NULL,
    number INTEGER CHECK (number >= 1),
    step   TEXT    NOT NULL,
    output TEXT,
    PRIMARY KEY (seq, key),
    CHECK ((number IS NULL) = (output IS NULL))
) STRICT, WITHOUT ROWID;

-- Signals, messages and ends of children, kept until the handler asks for them. A name comes once.
CREATE TABLE signals (
    seq     INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    number  INTEGER NOT NULL CHECK (number >= 1),
    at      INTEGER NOT NULL,
    sender  TEXT    NOT NULL,
    sort    TEXT    NOT NULL CHECK (sort IN ('payload', 'rejected', 'ended')),
    content TEXT    NOT NULL,
    taken   INTEGER NOT NULL CHECK (taken IN (0, 1)),
    PRIMARY KEY (seq, name)
) STRICT, WITHOUT ROWID;

-- What a worker that had lost its lease says came of a step.
CREATE TABLE effects (
    seq     INTEGER NOT NULL,
    key     TEXT    NOT NULL,
    epoch   INTEGER NOT NULL CHECK (epoch >= 1),
    at      INTEGER NOT NULL,
    failed  INTEGER NOT NULL CHECK (failed IN (0, 1)),
    outcome TEXT    NOT NULL,
    PRIMARY KEY (seq, key)
) STRICT, WITHOUT ROWID;
