//! The traces of jobs, many at once: an event that brought none shows that of its job.

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{JobId, TraceId};

use super::job::whose;
use crate::{
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::Uuid,
        },
    },
    read::{Scope, Traces},
};

const TRACES: &str = "
    SELECT id, trace_made, trace_id FROM jobs
    WHERE id = ANY($1::uuid[]) AND ($2::text IS NULL OR tenant = $2)";

/// The trace of each of these jobs that is there and that the scope may see.
pub(crate) async fn read_traces(
    client: &ClientWrapper,
    scope: &Scope,
    ids: &[JobId],
) -> PgResult<Traces> {
    let ids: Vec<Uuid> = ids.iter().map(|id| Uuid(id.as_u128())).collect();
    let mut traces = Traces::new();
    for row in run_one(client, Ask::new(TRACES).with(ids).with(whose(scope))).await? {
        let id = JobId::from_u128(row.try_get::<_, Uuid>(0)?.0);
        let trace = match row.try_get::<_, Option<Uuid>>(1)? {
            Some(made) => Some(TraceId::for_run(id, made.0)),
            None => TraceId::new(row.try_get::<_, String>(2)?).ok(),
        };
        traces.extend(trace.map(|trace| (id, trace)));
    }
    Ok(traces)
}
