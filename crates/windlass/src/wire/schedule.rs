//! Schedules.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{
    JobId, Payload, Refusal, Schedule, ScheduleName, Timestamp,
    ops::NewJob,
    schedule::{CatchUp, Overlap, Pause, PreviewSlot, ScheduleSpec, When},
    time::{as_ms, duration_ms_option},
};

use super::{NewJobBody, raw};

/// A schedule that is asked for: one of `cron`, `every_ms` and `at` says when.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScheduleBody {
    /// Its name. The same again changes the one that is there.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub name: ScheduleName,
    /// Times of a wall clock: five fields, six with seconds first, or `@hourly` and the like.
    pub cron: Option<String>,
    /// Where the clock hangs, such as `Europe/Berlin`; UTC, if nothing is said.
    pub zone: Option<String>,
    /// How far its slots lie apart.
    #[serde(rename = "every_ms", with = "duration_ms_option", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub every: Option<Duration>,
    /// The first slot of an interval; now, if nothing is said.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub anchor: Option<Timestamp>,
    /// One slot.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub at: Option<Timestamp>,
    /// By how much a slot may be fired later than its time.
    #[serde(rename = "jitter_ms", with = "duration_ms_option", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub jitter: Option<Duration>,
    /// What becomes of slots that were missed: `skip`, `one` or `{"all": {"max": 10}}`.
    pub catch_up: Option<CatchUpBody>,
    /// What a slot does while the last job is not at its end: allow, skip or queue.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub overlap: Option<Overlap>,
    /// It has no slot before this.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub start_at: Option<Timestamp>,
    /// It has no slot at this time or later.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub end_at: Option<Timestamp>,
    /// The job that is made for each slot. Its key and its time are those of the slot.
    pub job: NewJobBody,
}

/// What becomes of slots that were missed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CatchUpBody {
    /// They are skipped.
    Skip,
    /// The last of them is fired, and the others are skipped.
    One,
    /// They are fired, oldest first.
    All(CatchUpAllBody),
}

/// Missed slots that are fired.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CatchUpAllBody {
    /// How many at the most: of more the oldest are skipped.
    pub max: u32,
}

impl From<CatchUpBody> for CatchUp {
    fn from(body: CatchUpBody) -> Self {
        match body {
            CatchUpBody::Skip => CatchUp::Skip,
            CatchUpBody::One => CatchUp::One,
            CatchUpBody::All(CatchUpAllBody { max }) => CatchUp::All { max },
        }
    }
}

impl From<CatchUp> for CatchUpBody {
    fn from(policy: CatchUp) -> Self {
        match policy {
            CatchUp::Skip => CatchUpBody::Skip,
            CatchUp::One => CatchUpBody::One,
            CatchUp::All { max } => CatchUpBody::All(CatchUpAllBody { max }),
        }
    }
}

impl ScheduleBody {
    /// The body that asks for this schedule.
    pub fn new(name: &ScheduleName, spec: &ScheduleSpec) -> Result<Self, Refusal> {
        let (mut cron, mut zone, mut every, mut anchor, mut at) = (None, None, None, None, None);
        match &spec.when {
            When::At(time) => at = Some(*time),
            When::Every { period, anchor: first } => {
                (every, anchor) = (Some(*period), Some(*first));
            }
            When::Cron { expression, zone: name } => {
                (cron, zone) = (Some(expression.clone()), Some(name.clone()));
            }
        }
        Ok(Self {
            name: name.clone(),
            cron,
            zone,
            every,
            anchor,
            at,
            jitter: Some(spec.jitter),
            catch_up: Some(spec.catch_up.into()),
            overlap: Some(spec.overlap),
            start_at: spec.start_at,
            end_at: spec.end_at,
            job: NewJobBody::new(&spec.job)?,
        })
    }

    /// What is asked for, by the clock that reads `now`.
    pub fn into_spec(self, now: Timestamp) -> Result<ScheduleSpec, Refusal> {
        let invalid = |why: &str| Refusal::invalid("when", why);
        let when = match (self.cron, self.every, self.at) {
            (Some(expression), None, None) => {
                When::Cron { expression, zone: self.zone.unwrap_or_else(|| "UTC".to_owned()) }
            }
            (None, Some(period), None) => {
                When::Every { period, anchor: self.anchor.unwrap_or(now) }
            }
            (None, None, Some(at)) => When::At(at),
            _ => return Err(invalid("must be said once: cron, every_ms or at")),
        };
        if self.job.job_id.is_some() {
            let why = "cannot be given: each job of a schedule has its own";
            return Err(Refusal::invalid("job_id", why));
        }
        Ok(ScheduleSpec {
            when,
            jitter: self.jitter.unwrap_or_default(),
            catch_up: self.catch_up.map_or_else(CatchUp::default, CatchUp::from),
            overlap: self.overlap.unwrap_or(Overlap::Allow),
            start_at: self.start_at,
            end_at: self.end_at,
            job: self.job.into_new()?,
        })
    }
}

/// A schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleDocument {
    /// Its name.
    pub name: String,
    /// Who it belongs to.
    pub tenant: String,
    /// Its slots: `{"cron": …}`, `{"every": …}` or `{"at": …}`.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub when: When,
    /// By how much a slot may be fired later than its time.
    pub jitter_ms: u64,
    /// What becomes of slots that were missed.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub catch_up: CatchUp,
    /// What a slot does while the last job is not at its end.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub overlap: Overlap,
    /// It has no slot before this.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub start_at: Option<Timestamp>,
    /// It has no slot at this time or later.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub end_at: Option<Timestamp>,
    /// The kind of its jobs.
    pub kind: String,
    /// The queue of its jobs.
    pub queue: String,
    /// The payload of its jobs.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub payload: Option<Box<RawValue>>,
    /// Who paused it, when and why; null, if it goes on.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub pause: Option<Pause>,
    /// Its next slot.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub next_at: Option<Timestamp>,
    /// Its last slot that made a job.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub last_slot: Option<Timestamp>,
    /// The last job that it made.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub last_job_id: Option<JobId>,
    /// It grows with each change.
    pub version: u64,
    /// When it was created.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub created_at: Timestamp,
    /// When it last changed.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub updated_at: Timestamp,
}

impl From<&Schedule> for ScheduleDocument {
    fn from(schedule: &Schedule) -> Self {
        let spec = &schedule.spec;
        Self {
            name: schedule.name.to_string(),
            tenant: schedule.tenant.to_string(),
            when: spec.when.clone(),
            jitter_ms: as_ms(spec.jitter),
            catch_up: spec.catch_up,
            overlap: spec.overlap,
            start_at: spec.start_at,
            end_at: spec.end_at,
            kind: spec.job.kind.to_string(),
            queue: spec.job.queue.to_string(),
            payload: raw(spec.job.payload.as_str().to_owned()),
            pause: schedule.pause.clone(),
            next_at: schedule.next_at,
            last_slot: schedule.last_slot,
            last_job_id: schedule.last_job,
            version: schedule.version,
            created_at: schedule.created_at,
            updated_at: schedule.updated_at,
        }
    }
}

/// How a job is made now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TriggerBody {
    /// The id of the new job, for a caller that makes it before its first try: sent again, it gives the same job.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub new_job_id: Option<JobId>,
}

/// The job that was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Triggered {
    /// The job.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job_id: JobId,
}

/// A time from which and before which slots are made up for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BackfillBody {
    /// The first slot is this one or a later one.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub from: Timestamp,
    /// The last slot lies before it.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub to: Timestamp,
}

/// What a backfill did.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Backfilled {
    /// Jobs that were made.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub made: Vec<JobId>,
    /// Jobs of slots that had been fired before.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub known: Vec<JobId>,
    /// Where to go on: send it as `from`. Null, if all is done.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub goes_on_from: Option<Timestamp>,
}

/// A slot that will come.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlotDocument {
    /// Its time, in UTC.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub at: Timestamp,
    /// What the clock of the schedule shows then, with its offset and its zone.
    pub local: String,
    /// When it is fired, if all goes well: its time and its jitter.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub fires_at: Timestamp,
}

impl From<PreviewSlot> for SlotDocument {
    fn from(PreviewSlot { at, local, fires_at }: PreviewSlot) -> Self {
        Self { at, local, fires_at }
    }
}

impl ScheduleDocument {
    /// The schedule. Of its job only what is told is known, unless the caller knows what was asked for.
    pub fn into_schedule(self, known: Option<&ScheduleSpec>) -> Result<Schedule, Refusal> {
        let spec = match known {
            Some(spec) => spec.clone(),
            None => {
                let payload = self.payload.as_deref().map_or("null", RawValue::get);
                let payload = Payload::parse(payload, usize::MAX)?;
                let job = NewJob::new(self.kind.try_into()?, payload);
                ScheduleSpec {
                    when: self.when,
                    jitter: Duration::from_millis(self.jitter_ms),
                    catch_up: self.catch_up,
                    overlap: self.overlap,
                    start_at: self.start_at,
                    end_at: self.end_at,
                    job: NewJob { queue: self.queue.try_into()?, ..job },
                }
            }
        };
        Ok(Schedule {
            tenant: self.tenant.try_into()?,
            name: self.name.try_into()?,
            spec: Arc::new(spec),
            version: self.version,
            created_at: self.created_at,
            updated_at: self.updated_at,
            pause: self.pause,
            next_at: self.next_at,
            fires_at: self.next_at,
            seen_at: None,
            last_slot: self.last_slot,
            last_job: self.last_job_id,
        })
    }
}
