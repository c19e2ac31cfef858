-- Tokens, which let people and programs in; what people did; and how far those have come who follow the feed.

CREATE TABLE tokens (
    id         BLOB    PRIMARY KEY CHECK (length(id) = 16),
    -- The SHA-256 of its secret, which is nowhere here.
    digest     BLOB    NOT NULL CHECK (length(digest) = 32),
    -- Whose things it opens; '*' for those of every tenant.
    tenant     TEXT    NOT NULL,
    principal  TEXT    NOT NULL,
    role       TEXT    NOT NULL CHECK (role = 'viewer' OR role = 'worker' OR role = 'operator' OR role = 'admin'),
    label      TEXT,
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    expires_at INTEGER CHECK (expires_at > created_at),
    revoked_at INTEGER CHECK (revoked_at >= created_at),
    revoked_by TEXT    CHECK ((revoked_by IS NULL) = (revoked_at IS NULL))
) STRICT, WITHOUT ROWID;

-- Where the log tells what a person did.
CREATE TABLE acts (
    -- The number of its event.
    event  INTEGER PRIMARY KEY,
    tenant TEXT    NOT NULL
) STRICT;

-- Serves what was done to the things of one tenant.
CREATE INDEX acts_tenant ON acts (tenant, event);

-- From this event on acts are found; what was done before is in the log alone.
INSERT INTO meta (name, value)
VALUES ('acts_from', coalesce((SELECT id + count FROM log ORDER BY id DESC LIMIT 1), 1));

-- How far those have come who follow the feed: the last event that they are done with.
CREATE TABLE marks (
    name   TEXT    PRIMARY KEY,
    number INTEGER NOT NULL CHECK (number >= 0)
) STRICT, WITHOUT ROWID;

-- Serves the list of the dead letters of every tenant, newest first.
CREATE INDEX dlq_items_all ON dlq_items (state, created_at);
