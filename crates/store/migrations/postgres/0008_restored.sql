-- A store whose dump is just being restored is no new store: it is not met until it is there.

-- Greets the server that a new connection leads to. If it is not the one that was met before (another cluster,
-- or another timeline of it: a backup was restored, or a standby took over), or if this table is not the one that
-- it was (a dump was restored, or the database was copied), a new incarnation begins, so that no epoch is granted
-- that some worker may already hold. A dump makes its tables first, fills them then, and gives them their keys last:
-- before that nothing is written here, since it would stand in the way of what comes, and hide that there was a restore.
CREATE OR REPLACE FUNCTION meet_server() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    met   text;
    known text;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a standby, which cannot be written to' USING ERRCODE = '25006';
    END IF;
    IF NOT EXISTS (SELECT FROM meta WHERE name = 'store_id')
        OR NOT EXISTS (SELECT FROM pg_index WHERE indrelid = 'meta'::regclass AND indisprimary)
    THEN
        RAISE EXCEPTION 'the table meta is not whole: a dump is being restored here, or was not restored to its end'
            USING ERRCODE = 'WL002', HINT = 'Stop all nodes, restore the dump again, and start them when it is done.';
    END IF;
    met := (SELECT system_identifier FROM pg_control_system())
        || '/' || substring(pg_walfile_name(pg_current_wal_lsn()) FOR 8)
        || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
        || '/' || 'meta'::regclass::oid;
    IF (SELECT value FROM meta WHERE name = 'server') = met THEN
        RETURN;
    END IF;
    LOCK TABLE meta IN SHARE ROW EXCLUSIVE MODE;
    known := (SELECT value FROM meta WHERE name = 'server');
    IF known IS NULL THEN
        INSERT INTO meta (name, value) VALUES ('server', met);
    ELSIF known <> met THEN
        UPDATE meta SET value = met WHERE name = 'server';
        UPDATE meta SET value = value::bigint + 1 WHERE name = 'incarnation';
    END IF;
END $$;
