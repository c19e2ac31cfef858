//! The claim loop: carries out what the worker's [`Appetite`] decides, until the worker shuts down.
//!
//! A claim whose answer was lost is sent again under the same id: the store repeats its answer, and
//! the jobs it granted need not wait until their leases run out.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use windlass_store::{self as store, ClaimMany, ClaimReply, Granted, Listener};

use super::{
    BoxFuture,
    appetite::{Answer, Appetite, Event, Next},
    execute::execute,
    notice::Notices,
    run::{Orders, Shared, release},
};
use crate::{Error, SubmitError};

/// Claims jobs and lets them run, until the worker is told to end. Returns the grace period.
pub(super) async fn claim_all(
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
    orders: watch::Receiver<Orders>,
) -> Result<Option<Duration>, Error> {
    let mut claims = ClaimLoop::new(shared, tasks, orders);
    loop {
        while claims.tasks.try_join_next().is_some() {}
        claims.look_at_orders();
        let now = Instant::now();
        let load = shared.executions.load(claims.appetite.needs_room(), now);
        match claims.appetite.next(&load, now) {
            Next::Start => claims.start(),
            Next::GiveBack => claims.give_back(now),
            Next::Claim { max, start } => claims.claim(max, start).await?,
            Next::Wait { until, or } => claims.wait(until, or).await,
            Next::End => return Ok(claims.grace()),
        }
    }
}

struct ClaimLoop<'a> {
    shared: &'a Arc<Shared>,
    tasks: &'a mut JoinSet<()>,
    orders: watch::Receiver<Orders>,
    /// Rings when jobs are ready.
    ready: Listener,
    /// Rings when a retry of this process is due.
    retry_due: Listener,
    appetite: Appetite,
    /// A claim whose answer was lost. What it got, it gets again, and nothing else.
    lost: Option<Request>,
}

/// A claim, to be sent once or, after a lost answer, again.
struct Request {
    claim: ClaimMany,
    /// When it was first sent: its leases last from then on.
    sent_at: Instant,
}

impl<'a> ClaimLoop<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        tasks: &'a mut JoinSet<()>,
        orders: watch::Receiver<Orders>,
    ) -> Self {
        let ready = shared.inner().store.ready();
        let retry_due = shared.inner().local.retry_due.listen();
        let appetite = Appetite::new(shared.executions.slots(), shared.poll);
        Self { shared, tasks, orders, ready, retry_due, appetite, lost: None }
    }

    /// Orders are seen here too, because a shutdown may come while a claim is under way.
    fn look_at_orders(&mut self) {
        if *self.orders.borrow() != Orders::Work {
            self.appetite.on(Event::Shutdown);
        }
    }

    /// How long handlers may go on; none, if as long as it takes.
    fn grace(&self) -> Option<Duration> {
        match *self.orders.borrow() {
            Orders::End { grace } => grace,
            Orders::Work => None,
        }
    }

    fn start(&mut self) {
        while let Some((granted, notices)) = self.shared.executions.next() {
            self.spawn(granted, false, notices);
        }
    }

    fn give_back(&mut self, now: Instant) {
        let (shared, overdue) = (self.shared.clone(), self.shared.executions.take_overdue(now));
        self.tasks.spawn(async move { release(&shared, overdue).await });
    }

    async fn wait(&mut self, until: Instant, or: Event) {
        let executions = &self.shared.executions;
        let event = tokio::select! {
            biased;
            // The only order is to end; and without its handle nobody can give the worker one.
            _ = self.orders.changed() => Event::Shutdown,
            () = executions.changed() => Event::Change { is_idle: executions.is_idle() },
            () = self.ready.rung() => Event::Bell,
            () = self.retry_due.rung() => Event::Bell,
            () = sleep_until(until) => or,
        };
        self.appetite.on(event);
    }

    async fn claim(&mut self, max: usize, start: bool) -> Result<(), Error> {
        let was_lost = self.lost.is_some();
        let request = self.lost.take().unwrap_or_else(|| Request::new(self.shared, max, start));
        // What becomes ready from here on rings again.
        self.ready.mark_heard();
        self.retry_due.mark_heard();
        self.shared.executions.set_claiming(true);
        let event = match request.send(self.shared).await {
            Ok(grants) => Event::Answer(self.take(&request, grants)),
            Err(error) if may_pass(&error) => {
                self.lost = (was_lost || is_lost(&error)).then_some(request);
                Event::Failure { at: Instant::now() }
            }
            Err(error) => return Err(error.into()),
        };
        self.shared.executions.set_claiming(false);
        self.appetite.on(event);
        Ok(())
    }

    /// Takes the jobs of a claim in hand. Those that are not started yet wait in the local queue.
    fn take(&mut self, request: &Request, grants: ClaimReply) -> Answer {
        let ClaimMany { max, start, lease, ref except, .. } = request.claim;
        let ClaimReply { jobs: leases, again_at, repeated } = grants;
        let again_in = again_at.map(|at| at.since(self.shared.inner().now()));
        let answer = Answer {
            max,
            granted: leases.len(),
            has_alone: leases.iter().any(is_alone),
            has_exceptions: !except.is_empty(),
            repeated,
            again_at: again_in.map(|wait| Instant::now() + wait),
        };
        for granted in leases {
            let notices = self.shared.executions.add(&granted, start, request.sent_at, lease);
            if start {
                self.spawn(granted, true, notices);
            }
        }
        answer
    }

    /// The task is boxed: tokio copies a task whenever its stage changes, and this one is large.
    fn spawn(&mut self, granted: Granted, started: bool, notices: Notices) {
        let running: BoxFuture<()> =
            Box::pin(execute(self.shared.clone(), granted, started, notices));
        self.tasks.spawn(running);
    }
}

impl Request {
    fn new(shared: &Shared, max: usize, start: bool) -> Self {
        let (except, tenant_room) = shared.executions.tenants();
        let claim = ClaimMany {
            claim_id: shared.inner().ids.claim_id(),
            worker: shared.worker.clone(),
            trace_id: None,
            tenant: None,
            except,
            queues: shared.queues.clone(),
            kinds: shared.handlers.keys().cloned().collect(),
            max: max.min(tenant_room),
            lease: shared.lease,
            start,
            neighbours: shared.inner().local.neighbours_of(&shared.worker),
        };
        Self { claim, sent_at: Instant::now() }
    }

    async fn send(&self, shared: &Shared) -> Result<ClaimReply, SubmitError> {
        shared.inner().submit_known(self.claim.clone()).await
    }
}

/// May a later claim succeed? A store that is damaged or contradicts the kernel may be repaired, and
/// its health says so meanwhile.
fn may_pass(error: &SubmitError) -> bool {
    match error {
        SubmitError::Full => true,
        SubmitError::Closed | SubmitError::Refused(_) => false,
        SubmitError::Store(error) => {
            let is_repairable =
                matches!(**error, store::Error::Damaged(_) | store::Error::Contradiction(_));
            error.info().retryable || is_repairable
        }
    }
}

/// Is it unknown whether the claim was granted?
fn is_lost(error: &SubmitError) -> bool {
    matches!(error, SubmitError::Store(error) if matches!(**error, store::Error::Ambiguous(_)))
}

fn is_alone(granted: &Granted) -> bool {
    granted.job.lease.as_ref().is_some_and(|lease| lease.alone)
}
