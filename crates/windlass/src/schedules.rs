//! Schedules: jobs that are made when their time comes, on one of any number of nodes, once.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use windlass::{CatchUp, Engine, Overlap, Work, job};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Report {
//!     team: String,
//! }
//!
//! impl Work for Report {
//!     const KIND: &str = "report";
//! }
//!
//! # fn main() -> Result<(), windlass::Error> {
//! #     tokio::runtime::Runtime::new().expect("a runtime").block_on(example())
//! # }
//! # async fn example() -> Result<(), windlass::Error> {
//! # let engine = Engine::open("sqlite::memory:").await?;
//! engine
//!     .schedule("nightly", job(Report { team: "sales".to_owned() }).max_retries(5))
//!     .cron("0 3 * * *", "Europe/Berlin")
//!     .catch_up(CatchUp::One)
//!     .overlap(Overlap::Skip)
//!     .put()
//!     .await?;
//! for slot in engine.schedules().preview("nightly", 3).await? {
//!     println!("{} in Berlin, {} in UTC", slot.local, slot.at);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A program puts its schedules whenever it starts: the same again changes nothing. What has fired does not fire again,
//! also if the schedule is changed.
//!
//! # When the clocks change
//!
//! A time that does not exist runs once, at the first moment after the gap. A time that exists twice runs once, the
//! first time. An expression with a `*` in its field of seconds, minutes or hours is an interval, and runs at every real
//! slot: hourly is every hour. [`windlass_kernel::schedule`] has a table of examples.
//!
//! # Late, missed, overlapping
//!
//! A slot that nobody could fire within a minute was missed, and [`CatchUp`] says what becomes of it. [`Overlap`] says
//! what a slot does while the last job is not at its end. Each slot that is skipped is noted with the reason, and
//! [`Schedules::history`] tells it.

use std::{sync::Arc, time::Duration};

use windlass_kernel::{
    JobId, Refusal, Schedule, ScheduleName, ScheduleOp, Timestamp,
    schedule::{Action, PreviewSlot, ScheduleSpec, When, preview},
};
use windlass_store::{Scheduled, read::FeedEvent};

pub use windlass_kernel::schedule::{CatchUp, Overlap};

use crate::{Engine, Error, JobRequest};

/// A schedule that is asked for, with everything as usual unless something is said: what was missed is made up for once,
/// and jobs may overlap.
#[derive(Debug)]
#[must_use = "a schedule does nothing until it is put"]
pub struct ScheduleRequest {
    engine: Engine,
    name: String,
    job: JobRequest,
    when: Option<When>,
    jitter: Duration,
    catch_up: CatchUp,
    overlap: Overlap,
    start_at: Option<Timestamp>,
    end_at: Option<Timestamp>,
}

impl ScheduleRequest {
    /// At the times of a wall clock in a zone, such as `Europe/Berlin`. The expression has five fields (minute, hour,
    /// day of the month, month, day of the week), six with seconds first, or is one of `@hourly`, `@daily`,
    /// `@weekly`, `@monthly` and `@yearly`.
    pub fn cron(self, expression: &str, zone: &str) -> Self {
        let (expression, zone) = (expression.to_owned(), zone.to_owned());
        self.when(When::Cron { expression, zone })
    }

    /// Again and again, one period apart. Slots are counted from the beginning of 1970, so that every hour is on the
    /// hour, in UTC, and none drifts.
    pub fn every(self, period: Duration) -> Self {
        self.when(When::Every { period, anchor: Timestamp::MIN })
    }

    /// The same, counted from this time, which is the first slot.
    pub fn every_from(self, period: Duration, anchor: Timestamp) -> Self {
        self.when(When::Every { period, anchor })
    }

    /// Once, at this time.
    pub fn at(self, at: Timestamp) -> Self {
        self.when(When::At(at))
    }

    fn when(self, when: When) -> Self {
        Self { when: Some(when), ..self }
    }

    /// Spreads firings over this much time after their slots: each has a delay of its own, the same on every node.
    pub fn jitter(self, jitter: Duration) -> Self {
        Self { jitter, ..self }
    }

    /// What becomes of slots that were missed.
    pub fn catch_up(self, catch_up: CatchUp) -> Self {
        Self { catch_up, ..self }
    }

    /// What a slot does while the last job is not at its end.
    pub fn overlap(self, overlap: Overlap) -> Self {
        Self { overlap, ..self }
    }

    /// No slot before this time.
    pub fn start_at(self, at: Timestamp) -> Self {
        Self { start_at: Some(at), ..self }
    }

    /// No slot at this time or later.
    pub fn end_at(self, at: Timestamp) -> Self {
        Self { end_at: Some(at), ..self }
    }

    /// Creates the schedule, or changes the one of this name into this. When it answers, that is durable.
    pub async fn put(self) -> Result<Arc<Schedule>, Error> {
        let (engine, name) = (self.engine.clone(), ScheduleName::new(&self.name)?);
        let action = Action::Put(Box::new(self.into_spec()?));
        let told = engine.schedules().act(name, action).await?;
        Ok(told.schedule.expect("it was just put"))
    }

    /// What would come next if it were put: so many slots at the most.
    pub fn preview(self, count: usize) -> Result<Vec<PreviewSlot>, Error> {
        let (engine, name) = (self.engine.clone(), ScheduleName::new(&self.name)?);
        let spec = self.into_spec()?;
        Ok(preview(engine.tenant_id(), &name, &spec, engine.inner().now(), count)?)
    }

    fn into_spec(self) -> Result<ScheduleSpec, Error> {
        let missing = || Refusal::invalid("when", "must be said: cron, every or at");
        let when = self.when.clone().ok_or_else(missing)?;
        if self.job.id.is_some() {
            let why = "cannot be given: each job of a schedule has its own";
            return Err(Refusal::invalid("id", why).into());
        }
        let Self { engine, job, jitter, catch_up, overlap, start_at, end_at, .. } = self;
        let job = job.into_new(|| engine.inner().now())?;
        Ok(ScheduleSpec { when, jitter, catch_up, overlap, start_at, end_at, job })
    }
}

/// The schedules of a tenant.
#[derive(Clone, Debug)]
pub struct Schedules {
    engine: Engine,
}

/// What a backfill did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backfilled {
    /// Jobs that were made.
    pub made: Vec<JobId>,
    /// Jobs of slots that had been fired before.
    pub known: Vec<JobId>,
}

impl Engine {
    /// A schedule of this name that makes this job, to be told when and then put. See [`crate::schedules`].
    pub fn schedule(&self, name: &str, job: impl Into<JobRequest>) -> ScheduleRequest {
        ScheduleRequest {
            engine: self.clone(),
            name: name.to_owned(),
            job: job.into(),
            when: None,
            jitter: Duration::ZERO,
            catch_up: CatchUp::default(),
            overlap: Overlap::Allow,
            start_at: None,
            end_at: None,
        }
    }

    /// The schedules that are there.
    pub fn schedules(&self) -> Schedules {
        Schedules { engine: self.clone() }
    }
}

impl Schedules {
    /// A schedule as it stands.
    pub async fn get(&self, name: &str) -> Result<Schedule, Error> {
        let name = ScheduleName::new(name)?;
        let found = self.engine.store().schedule(self.engine.tenant_id(), &name).await?;
        Ok(found.ok_or(Refusal::NotFound { what: "schedule" })?)
    }

    /// Schedules by name, so many at the most, from the one after this on.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<Schedule>, Error> {
        let after = after.map(ScheduleName::new).transpose()?;
        let (store, tenant) = (self.engine.store(), self.engine.tenant_id());
        Ok(store.schedules(tenant, after.as_ref(), limit).await?)
    }

    /// The next slots, so many at the most, in the schedule's zone and in UTC. A paused schedule has them too.
    pub async fn preview(&self, name: &str, count: usize) -> Result<Vec<PreviewSlot>, Error> {
        let Schedule { tenant, name, spec, .. } = self.get(name).await?;
        Ok(preview(&tenant, &name, &spec, self.engine.inner().now(), count)?)
    }

    /// What was noted about a schedule, newest first, before this event: created, fired, skipped and why.
    pub async fn history(
        &self,
        name: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<FeedEvent>, Error> {
        let name = ScheduleName::new(name)?;
        let (store, tenant) = (self.engine.store(), self.engine.tenant_id());
        Ok(store.schedule_history(tenant, &name, before.unwrap_or(u64::MAX), limit).await?)
    }

    /// Holds back its slots until it is resumed.
    pub async fn pause(&self, name: &str, reason: Option<String>) -> Result<(), Error> {
        self.act(ScheduleName::new(name)?, Action::Pause { reason }).await.map(drop)
    }

    /// Lets it go on. What was missed meanwhile follows its catch-up policy.
    pub async fn resume(&self, name: &str) -> Result<(), Error> {
        self.act(ScheduleName::new(name)?, Action::Resume).await.map(drop)
    }

    /// Ends it. The jobs that it made stay.
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        self.act(ScheduleName::new(name)?, Action::Delete).await.map(drop)
    }

    /// Makes a job now, whatever its slots, its pause and its overlap policy say.
    pub async fn trigger(&self, name: &str) -> Result<JobId, Error> {
        let ids = &self.engine.inner().ids;
        let (job_id, random) = (ids.job_id(), ids.random());
        self.act(ScheduleName::new(name)?, Action::Trigger { job_id, random }).await?;
        Ok(job_id)
    }

    /// Makes the jobs of past slots, from a time on and before another. A slot that has fired has its job already. It
    /// goes in steps: if it fails in between, the same again goes on where it ended.
    pub async fn backfill(
        &self,
        name: &str,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Backfilled, Error> {
        let name = ScheduleName::new(name)?;
        let mut done = Backfilled::default();
        let mut next = Some(from);
        while let Some(from) = next {
            let told = self.act(name.clone(), Action::Backfill { from, to }).await?;
            done.made.extend(told.made);
            done.known.extend(told.known);
            next = told.goes_on_from;
        }
        Ok(done)
    }

    async fn act(&self, name: ScheduleName, action: Action) -> Result<Scheduled, Error> {
        let (tenant, by) = (self.engine.tenant_id().clone(), self.engine.by());
        self.engine.submit(ScheduleOp { tenant, name, action, by }).await
    }
}
