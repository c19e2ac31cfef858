//! Alerts about queues whose jobs have been ready for too long: the worst of each tenant, and how many more there are.
//!
//! Always true here: a queue is made by naming it, so how many there are is the tenant's to choose, and no tenant's
//! queues take the place of another's. A tenant has at most [`OF_TENANT_MAX`] alerts by name; all together have
//! [`NAMED_MAX`], dealt out in turns, so nobody gets a second before everybody has a first. The work is linear in the
//! number of queues.

use std::{collections::HashMap, time::Duration};

use windlass_kernel::{TenantId, Timestamp};
use windlass_store::read::OldestReady;

use crate::http::api::alerts::{Alert, alert};

/// The most queues of one tenant that are named.
pub(crate) const OF_TENANT_MAX: usize = 20;
/// The most queues of all tenants that are named.
pub(crate) const NAMED_MAX: usize = 1_000;

/// The queues of one tenant whose jobs have been ready for too long.
struct Late<'a> {
    tenant: &'a TenantId,
    /// The worst of them, the longest first.
    worst: Vec<&'a OldestReady>,
    count: usize,
    /// How many are named.
    named: usize,
}

/// Alerts about the queues that have been ready for longer than this.
pub(crate) fn queue_age(oldest: &[OldestReady], threshold: Duration, now: Timestamp) -> Vec<Alert> {
    let mut tenants: HashMap<&TenantId, Vec<&OldestReady>> = HashMap::new();
    for it in oldest.iter().filter(|it| now.since(it.since) > threshold) {
        tenants.entry(&it.tenant).or_default().push(it);
    }
    let mut late: Vec<Late<'_>> = tenants.into_iter().map(Late::from).collect();
    late.sort_unstable_by_key(|it| (it.worst[0].since, it.tenant));
    deal_out(&mut late);
    let mut found = Vec::new();
    for it in &late {
        let named = it.worst.iter().take(it.named);
        found.extend(named.map(|it| of_queue(it, threshold, now)));
        found.extend(it.rest());
    }
    found.extend(of_others(&late));
    found
}

impl<'a> From<(&'a TenantId, Vec<&'a OldestReady>)> for Late<'a> {
    fn from((tenant, mut worst): (&'a TenantId, Vec<&'a OldestReady>)) -> Self {
        let count = worst.len();
        // Of equal ones always the same: an alert that comes and goes would be told each time.
        let order = |one: &&OldestReady, other: &&OldestReady| {
            one.since.cmp(&other.since).then_with(|| one.queue.cmp(&other.queue))
        };
        if count > OF_TENANT_MAX {
            worst.select_nth_unstable_by(OF_TENANT_MAX, order);
            worst.truncate(OF_TENANT_MAX);
        }
        worst.sort_unstable_by(order);
        Self { tenant, worst, count, named: 0 }
    }
}

/// In each turn every tenant has one more of its queues named, as long as there are any and there is room.
fn deal_out(late: &mut [Late<'_>]) {
    let mut left = NAMED_MAX;
    for turn in 0..OF_TENANT_MAX {
        for it in late.iter_mut().filter(|it| it.worst.len() > turn).take(left) {
            it.named += 1;
            left -= 1;
        }
    }
}

fn of_queue(oldest: &OldestReady, threshold: Duration, now: Timestamp) -> Alert {
    let OldestReady { tenant, queue, since } = oldest;
    let age = now.since(*since);
    let seconds = age.as_secs();
    let summary =
        format!("a job of queue {queue} of tenant {tenant} has been ready for {seconds} s");
    Alert {
        tenant: Some(tenant.to_string()),
        queue: Some(queue.to_string()),
        remedy: "GET /api/v1/jobs/{id}/why says what a job waits for: a worker, a limit, a pause.",
        ..alert("queue_age", age.as_secs_f64(), threshold.as_secs_f64(), summary)
    }
}

const REMEDY: &str =
    "GET /api/v1/queues shows since when the oldest job of each queue has been ready.";

impl Late<'_> {
    /// The queues that are not named, if one of the tenant's is.
    fn rest(&self) -> Option<Alert> {
        let (tenant, more) = (self.tenant, self.count - self.named);
        let summary = format!(
            "and {more} more queues of tenant {tenant} have jobs that have been ready for too long"
        );
        (self.named > 0 && more > 0).then(|| Alert {
            tenant: Some(tenant.to_string()),
            remedy: REMEDY,
            ..alert("queue_age", more as f64, 0.0, summary)
        })
    }
}

/// Tenants for whose queues there was no room.
fn of_others(late: &[Late<'_>]) -> Option<Alert> {
    let others = late.iter().filter(|it| it.named == 0);
    let (tenants, more) = (others.clone().count(), others.map(|it| it.count).sum::<usize>());
    let summary = format!(
        "and {more} queues of {tenants} more tenants have jobs that have been ready for too long"
    );
    (tenants > 0).then(|| Alert { remedy: REMEDY, ..alert("queue_age", more as f64, 0.0, summary) })
}

#[cfg(test)]
mod tests {
    use windlass_kernel::Queue;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    /// So many queues of a tenant. Each is a second younger than the one before it.
    fn queues(tenant: &str, count: i64) -> Vec<OldestReady> {
        let ready = |number| OldestReady {
            tenant: TenantId::new(tenant).unwrap(),
            queue: Queue::new(format!("q{number:05}")).unwrap(),
            since: at(1_000 + number),
        };
        (0..count).map(ready).collect()
    }

    fn found(oldest: &[OldestReady]) -> Vec<Alert> {
        queue_age(oldest, Duration::from_secs(10), at(100_000))
    }

    fn of<'a>(found: &'a [Alert], tenant: Option<&str>) -> Vec<&'a Alert> {
        found.iter().filter(|alert| alert.tenant.as_deref() == tenant).collect()
    }

    #[test]
    fn however_many_queues_wait_the_worst_are_named_and_the_rest_is_counted() {
        assert_eq!(found(&queues("a", 20)).len(), 20);
        let many = found(&queues("a", 30_000));
        assert_eq!(many.len(), OF_TENANT_MAX + 1);
        assert_eq!(many[0].queue.as_deref(), Some("q00000"), "the longest first");
        assert_eq!(many[19].queue.as_deref(), Some("q00019"));
        let rest = many.last().unwrap();
        assert_eq!((rest.queue.as_deref(), rest.value), (None, 29_980.0));
    }

    #[test]
    fn no_tenant_takes_the_room_of_another() {
        let many = [queues("a", 30_000), queues("b", 1), queues("c", 21)].concat();
        let found = found(&many);
        let count = |tenant| of(&found, Some(tenant)).len();
        assert_eq!((count("a"), count("b"), count("c"), found.len()), (21, 1, 21, 43));
    }

    #[test]
    fn when_there_are_very_many_tenants_each_has_one_before_anybody_has_two() {
        // Two tenants too many for a queue of each.
        let name = |number: usize| format!("t{number:05}");
        let many: Vec<OldestReady> =
            (0..NAMED_MAX + 2).flat_map(|number| queues(&name(number), 3)).collect();
        let found = found(&many);
        assert_eq!(of(&found, Some("t00000")).len(), 2, "one queue, and how many more");
        assert!(of(&found, Some(&name(NAMED_MAX))).is_empty());
        let others = of(&found, None);
        assert_eq!((others.len(), others[0].value), (1, 6.0));
        assert!(others[0].summary.starts_with("and 6 queues of 2 more tenants "));
        assert_eq!(found.len(), 2 * NAMED_MAX + 1);
    }
}
