//! Documents of schedules as they go over the line. Of a schedule's job only kind, queue and payload are told.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{
    JobId, Kind, Payload, Queue, Refusal, Schedule, ScheduleName, TenantId, Timestamp,
    ops::NewJob,
    schedule::{CatchUp, Overlap, Pause, ScheduleSpec, When},
    time::{duration_ms, duration_ms_option},
};

use super::wire::NewJobDocument;

/// A schedule that is asked for.
#[derive(Serialize)]
pub(super) struct NewScheduleDocument<'a> {
    name: &'a ScheduleName,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<&'a str>,
    #[serde(rename = "every_ms", with = "duration_ms_option")]
    every: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anchor: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    #[serde(rename = "jitter_ms", with = "duration_ms")]
    jitter: Duration,
    catch_up: CatchUp,
    overlap: Overlap,
    start_at: Option<Timestamp>,
    end_at: Option<Timestamp>,
    job: NewJobDocument<'a>,
}

impl<'a> NewScheduleDocument<'a> {
    pub(super) fn of(name: &'a ScheduleName, spec: &'a ScheduleSpec) -> Result<Self, Refusal> {
        let (mut cron, mut zone, mut every, mut anchor, mut at) = (None, None, None, None, None);
        match &spec.when {
            When::At(time) => at = Some(*time),
            When::Every { period, anchor: first } => {
                (every, anchor) = (Some(*period), Some(*first));
            }
            When::Cron { expression, zone: name } => {
                (cron, zone) = (Some(expression.as_str()), Some(name.as_str()));
            }
        }
        Ok(Self {
            name,
            cron,
            zone,
            every,
            anchor,
            at,
            jitter: spec.jitter,
            catch_up: spec.catch_up,
            overlap: spec.overlap,
            start_at: spec.start_at,
            end_at: spec.end_at,
            job: NewJobDocument::new(&spec.job)?,
        })
    }
}

/// A schedule.
#[derive(Deserialize)]
pub(super) struct ScheduleDocument {
    name: ScheduleName,
    tenant: TenantId,
    when: When,
    #[serde(rename = "jitter_ms", with = "duration_ms")]
    jitter: Duration,
    catch_up: CatchUp,
    overlap: Overlap,
    start_at: Option<Timestamp>,
    end_at: Option<Timestamp>,
    kind: Kind,
    queue: Queue,
    payload: Option<Box<RawValue>>,
    pause: Option<Pause>,
    next_at: Option<Timestamp>,
    last_slot: Option<Timestamp>,
    last_job_id: Option<JobId>,
    version: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl ScheduleDocument {
    /// The schedule. Of its job only what is told is known, unless the caller knows what was asked for.
    pub(super) fn into_schedule(self, known: Option<&ScheduleSpec>) -> Result<Schedule, Refusal> {
        let spec = match known {
            Some(spec) => spec.clone(),
            None => {
                let payload = self.payload.as_deref().map_or("null", RawValue::get);
                let job = NewJob::new(self.kind, Payload::parse(payload, usize::MAX)?);
                ScheduleSpec {
                    when: self.when,
                    jitter: self.jitter,
                    catch_up: self.catch_up,
                    overlap: self.overlap,
                    start_at: self.start_at,
                    end_at: self.end_at,
                    job: NewJob { queue: self.queue, ..job },
                }
            }
        };
        Ok(Schedule {
            tenant: self.tenant,
            name: self.name,
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

/// The job that was made now.
#[derive(Deserialize)]
pub(super) struct Triggered {
    pub(super) job_id: JobId,
}

/// What a backfill did.
#[derive(Deserialize)]
pub(super) struct Backfilled {
    pub(super) made: Vec<JobId>,
    pub(super) known: Vec<JobId>,
    pub(super) goes_on_from: Option<Timestamp>,
}
