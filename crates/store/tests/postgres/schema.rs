//! The schema as its migrations make it, in a file that shows each change of it.

use std::{env, fs, path::Path};

use crate::common::{Backend, TestStore, postgres::SchemaHome};

/// Tables and types with their columns, then constraints, indexes and functions, in an order that does not change. The
/// partitions of the log are made as they are needed, and are left out.
const SCHEMA: &str = "
    WITH tables AS (
        SELECT oid, relname, relkind FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'c')
            AND relname !~ '^log_[0-9]')
    SELECT line FROM (
        SELECT 1 AS part, relname::text || lpad(attnum::text, 3, '0') AS place,
            CASE relkind WHEN 'c' THEN 'type ' ELSE 'column ' END || relname || '.' || attname || ' ' || format_type(atttypid, atttypmod)
            || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END AS line
        FROM pg_attribute JOIN tables ON tables.oid = attrelid WHERE attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT 2, relname::text || conname::text,
            'constraint ' || relname || '.' || conname || ' ' || pg_get_constraintdef(pg_constraint.oid)
        FROM pg_constraint JOIN tables ON tables.oid = conrelid WHERE contype <> 'n'
        UNION ALL
        SELECT 3, indexrelid::regclass::text,
            replace(pg_get_indexdef(indexrelid), current_schema() || '.', '')
        FROM pg_index JOIN tables ON tables.oid = indrelid
        WHERE NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
        UNION ALL
        SELECT 4, proname::text, 'function ' || proname || '(' || pg_get_function_identity_arguments(oid) || ')'
        FROM pg_proc WHERE pronamespace = current_schema()::regnamespace) AS lines
    ORDER BY part, place COLLATE \"C\", line COLLATE \"C\"";

#[test]
fn the_schema_is_what_the_file_shows() {
    let test = TestStore::new(Backend::Postgres);
    let rows = SchemaHome::at(&test.home.address()).sql().query(SCHEMA, &[]);
    let lines: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let title =
        "-- The schema, as its migrations make it. Written by a test; `make bless` renews it.";
    let expected = format!("{title}\n\n{}\n", lines.join("\n"));
    // PostgreSQL 13 has another word for it.
    let expected = expected.replace("btrim(reason)", "TRIM(BOTH FROM reason)");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/postgres.txt");
    if env::var_os("WINDLASS_BLESS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "schema/postgres.txt is out of date; run `make bless`");
}
