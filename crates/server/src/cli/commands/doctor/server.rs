//! A server that runs: does it answer, can it take work, what time does it think it is, and is there an alert?

use std::time::Duration;

use axum::http::Method;
use serde::Deserialize;
use windlass::wire::Me;
use windlass_kernel::Timestamp;

use super::{
    Check,
    judge::SET_RIGHT,
    mend::{self, Clock},
};
use crate::cli::{
    api::{Api, path},
    look::{times::written, view::now},
};

#[derive(Deserialize)]
struct Alert {
    name: String,
    severity: String,
    summary: String,
    remedy: String,
}

#[derive(Deserialize)]
struct Health {
    status: String,
}

pub(super) async fn look(api: &Api) -> Vec<Check> {
    let url = api.place();
    let ready = match api.answer(Method::GET, "/readyz", None).await {
        Ok(answered) => answered,
        Err(trouble) => {
            let remedy = "Start it with windlass serve, or correct --server.";
            return vec![Check::bad("server", trouble.to_string(), remedy)];
        }
    };
    let status = ready.1.read::<Health>().map_or_else(|_| "no Windlass".to_owned(), |it| it.status);
    if ready.0 != 200 {
        let what = format!("{url} answers, and cannot take work: {status}");
        return vec![Check::bad("server", what, "Look at its log, and at its store.")];
    }
    let mut checks = vec![Check::ok("server", format!("{url} answers and takes work"))];
    match api.get(&path(&["me"])).await.and_then(|document| document.read::<Me>()) {
        Ok(me) => checks.extend(store_clock(api).await.or_else(|| clock(me.now, now()))),
        Err(trouble) => {
            let what = format!("its clock and its alerts are not told: {trouble}");
            let remedy = "Say who you are with --token, or WINDLASS_TOKEN.";
            checks.push(Check::note("alerts", what, remedy));
            return checks;
        }
    }
    let page = api.page(&path(&["alerts"])).await;
    match page.and_then(|page| page.read::<Alert>()) {
        Ok(alerts) => checks.extend(alerts_told(alerts)),
        Err(trouble) => checks.push(Check::bad("alerts", trouble.to_string(), "Look at its log.")),
    }
    checks
}

/// The clock that its store follows, if that is off.
async fn store_clock(api: &Api) -> Option<Check> {
    let found = api.get(&path(&["clock"])).await.and_then(|it| it.read::<Clock>()).ok()?;
    let what = found.trouble()?;
    Some(match found.is_held_back() {
        true => Check::bad("clock", what, mend::REMEDY),
        false => Check::note("clock", what, SET_RIGHT),
    })
}

/// Two clocks that do not agree. A call takes a moment itself.
fn clock(theirs: Timestamp, ours: Timestamp) -> Option<Check> {
    let skew = ours.since(theirs).max(theirs.since(ours));
    let what = format!(
        "the clock of this machine and that of the server are {} apart",
        written(Duration::from_secs(skew.as_secs()))
    );
    let remedy = "Set the one that is wrong, and let it follow a time server.";
    (skew > Duration::from_secs(5)).then(|| Check::bad("clock", what, remedy))
}

fn alerts_told(alerts: Vec<Alert>) -> Vec<Check> {
    if alerts.is_empty() {
        return vec![Check::ok("alerts", "there is none")];
    }
    let told = alerts.into_iter().map(|alert| {
        let what = format!("{} {}: {}", alert.severity, alert.name, alert.summary);
        // It comes and goes with the work. Whether the server can take work was looked at above.
        Check::note("alerts", what, alert.remedy)
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_wrong_is_found() {
        let now = Timestamp::from_micros(1_790_000_000_000_000);
        assert!(clock(now.plus(Duration::from_secs(3)), now).is_none());
        let found = clock(now.minus(Duration::from_secs(90)), now).unwrap();
        assert!(found.what.ends_with("1m30s apart"), "{}", found.what);
    }
}
