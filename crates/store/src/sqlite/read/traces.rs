//! The traces of jobs, many at once: an event that brought none shows that of its job.

use rusqlite::{Connection, OptionalExtension as _, types::ValueRef};
use windlass_kernel::{JobId, TraceId};

use crate::{
    read::{Scope, Traces},
    sqlite::{SqlResult, row::column::u128_of},
};

const TRACE: &str = "SELECT tenant, trace_id FROM jobs WHERE id = ?1";

/// The trace of each of these jobs that is there and that the scope may see.
pub(crate) fn read_traces(
    connection: &Connection,
    scope: &Scope,
    ids: &[JobId],
) -> SqlResult<Traces> {
    let mut by_id = connection.prepare_cached(TRACE)?;
    let mut traces = Traces::new();
    for id in ids {
        let found = by_id.query_row([id.as_u128().to_be_bytes()], |row| {
            if scope.word().is_some_and(|own| row.get_ref(0).is_ok_and(|it| it.as_str() != Ok(own)))
            {
                return Ok(None);
            }
            match row.get_ref(1)? {
                ValueRef::Blob(_) => Ok(Some(TraceId::for_run(*id, u128_of(row, 1)?))),
                text => Ok(TraceId::new(text.as_str()?).ok()),
            }
        });
        traces.extend(found.optional()?.flatten().map(|trace| (*id, trace)));
    }
    Ok(traces)
}
