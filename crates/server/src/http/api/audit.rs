//! What people did: who, when, what and why.

use crate::http::{
    api::feed,
    core::{
        contract::Json,
        problem::Problem,
        route::{Answer, Call},
    },
};
use windlass::wire::List;

/// `GET /api/v1/audit`
pub(crate) async fn list(call: Call) -> Result<Answer, Problem> {
    let before = call.query.number("cursor", u64::MAX)?.unwrap_or(u64::MAX);
    let limit = call.query.number("limit", 1_000)?.unwrap_or(100).max(1);
    let limit = usize::try_from(limit).expect("it is bounded");
    let acts = call.engine().own_store()?.acts(call.scope(), before, limit).await?;
    let next = acts.last().filter(|_| acts.len() == limit).map(|last| last.number.to_string());
    let traces = feed::traces_of(&call, &acts).await?;
    let items: Vec<Json> = acts.iter().filter_map(|act| feed::shown(act, &traces)).collect();
    Ok(Answer::ok(&List { items, next }))
}
