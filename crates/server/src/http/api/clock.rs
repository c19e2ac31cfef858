//! The clock that the store follows: how it stands, and how a person says that it is right.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use windlass::wire::ReasonBody;
use windlass_kernel::{AcceptClock, TenantId, Timestamp};
use windlass_store::{ClockStanding, Write};

use crate::http::core::{
    problem::Problem,
    route::{Answer, Call},
};

/// How the clock stands to the store's time.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ClockDocument {
    /// What time it is, by the store: what decides leases, retries and schedules. It never goes back and never stands still.
    #[schemars(with = "String")]
    now: Timestamp,
    /// `agrees`; `went_back`, if the clock is behind the store's time, which then goes on a tenth slower until they meet;
    /// `jumped_ahead`, if the clock is so far ahead that it is not followed.
    clock: &'static str,
    /// By how much the clock is off, in milliseconds.
    off_ms: u64,
    /// In how many milliseconds they meet by themselves, if they do.
    meets_in_ms: Option<u64>,
}

/// The word for how the clock stands, and by how much it is off.
pub(crate) fn stands(standing: ClockStanding) -> (&'static str, Duration) {
    match standing {
        ClockStanding::Agrees => ("agrees", Duration::ZERO),
        ClockStanding::WentBack { by } => ("went_back", by),
        ClockStanding::JumpedAhead { by } => ("jumped_ahead", by),
    }
}

/// `GET /api/v1/clock`
pub(crate) async fn show(call: Call) -> Result<Answer, Problem> {
    Ok(Answer::ok(&document(&call)?))
}

/// `POST /api/v1/clock/accept`
pub(crate) async fn accept(call: Call) -> Result<Answer, Problem> {
    let body: ReasonBody = call.body()?;
    if !call.sees_the_whole() {
        let detail = "the clock concerns every tenant: use a token that is for all of them";
        return Err(Problem::forbidden(detail));
    }
    let tenant = call.scope().tenant().cloned().unwrap_or_else(TenantId::of_store);
    let (_, ahead) = stands(call.engine().own_store()?.clock());
    let op = AcceptClock { tenant, ahead, reason: body.reason, by: call.by() };
    call.engine().submit(Write::Clock(op)).await?;
    // The engine's own idea of the time follows with its next look.
    call.engine().own_store()?.due(1).await?;
    Ok(Answer::ok(&document(&call)?))
}

fn document(call: &Call) -> Result<ClockDocument, Problem> {
    let standing = call.engine().own_store()?.clock();
    let (clock, off) = stands(standing);
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(ClockDocument {
        now: call.engine().now(),
        clock,
        off_ms: millis(off),
        meets_in_ms: standing.meets_in().map(millis),
    })
}
