-- Tokens, which let people and programs in; what people did; and how far those have come who follow the feed.
--
-- A program that does not know these tables writes no acts: what people do through it is in the log alone, so let it
-- serve beside newer ones only as long as an upgrade takes.

CREATE TABLE tokens (
    id         uuid        PRIMARY KEY,
    -- The SHA-256 of its secret, which is nowhere here.
    digest     bytea       NOT NULL CHECK (length(digest) = 32),
    -- Whose things it opens; '*' for those of every tenant.
    tenant     text        NOT NULL,
    principal  text        NOT NULL,
    role       text        NOT NULL CHECK (role IN ('viewer', 'worker', 'operator', 'admin')),
    label      text,
    created_at timestamptz NOT NULL,
    created_by text        NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    revoked_by text,
    CONSTRAINT tokens_expires CHECK (expires_at > created_at),
    CONSTRAINT tokens_revoked CHECK (revoked_at >= created_at),
    CONSTRAINT tokens_revoked_by CHECK ((revoked_by IS NULL) = (revoked_at IS NULL))
);

-- Where the log tells what a person did.
CREATE TABLE acts (
    -- The number of its event.
    event  bigint PRIMARY KEY,
    tenant text   NOT NULL
);

-- Serves what was done to the things of one tenant.
CREATE INDEX acts_tenant ON acts (tenant, event);

-- From this event on acts are found; what was done before is in the log alone.
INSERT INTO meta (name, value)
VALUES ('acts_from', coalesce((SELECT first + count FROM feed ORDER BY first DESC LIMIT 1), 1));

-- How far those have come who follow the feed: the last event that they are done with.
CREATE TABLE marks (
    name   text   PRIMARY KEY,
    number bigint NOT NULL CHECK (number >= 0)
);

-- Serves the list of the dead letters of every tenant, newest first.
CREATE INDEX dlq_items_all ON dlq_items (created_at, id);
