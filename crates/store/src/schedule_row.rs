//! The row of a schedule: what it says, whichever database keeps it.
//!
//! Fields of what was asked for are never renamed, and one that says nothing is left out: rows of older versions stay
//! readable.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use windlass_kernel::{
    Actor, JobId, Payload, Schedule, ScheduleName, TenantId, Timestamp,
    ops::{Enqueue, NewJob},
    schedule::{CatchUp, Overlap, Pause, ScheduleSpec, When},
    time::duration_ms,
};

use crate::inbox::Request;

/// What was asked for, but for the payload of its jobs, which has a column of its own.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecColumn {
    when: When,
    #[serde(rename = "jitter_ms", with = "duration_ms")]
    #[serde(skip_serializing_if = "Duration::is_zero", default)]
    jitter: Duration,
    catch_up: CatchUp,
    overlap: Overlap,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_at: Option<Timestamp>,
    /// As an enqueue stands in the inbox: all that can be said about a job is said there.
    job: Request,
}

/// The texts of a schedule's row.
pub(crate) struct Texts {
    pub(crate) spec: String,
    pub(crate) payload: String,
    pub(crate) pause: Option<String>,
}

impl Texts {
    pub(crate) fn of(schedule: &Schedule) -> Self {
        let spec = &schedule.spec;
        let column = SpecColumn {
            when: spec.when.clone(),
            jitter: spec.jitter,
            catch_up: spec.catch_up,
            overlap: spec.overlap,
            start_at: spec.start_at,
            end_at: spec.end_at,
            job: Request::of(&template(&schedule.tenant, &spec.job)),
        };
        let pause = schedule.pause.as_ref();
        Self {
            spec: serde_json::to_string(&column).expect("it is plain data"),
            payload: spec.job.payload.as_str().to_owned(),
            pause: pause.map(|pause| serde_json::to_string(pause).expect("it is plain data")),
        }
    }
}

/// An enqueue that stands for all that the schedule will make.
fn template(tenant: &TenantId, job: &NewJob) -> Enqueue {
    let (job_id, by) = (JobId::from_u128(0), Actor::Scheduler.into());
    Enqueue { job_id, tenant: tenant.clone(), new: Box::new(job.clone()), random: 0, by }
}

/// A schedule's row, column by column.
pub(crate) struct ScheduleRow<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) name: &'a str,
    pub(crate) version: u64,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) spec: &'a str,
    pub(crate) payload: &'a str,
    pub(crate) pause: Option<&'a str>,
    pub(crate) next_at: Option<Timestamp>,
    pub(crate) fires_at: Option<Timestamp>,
    pub(crate) seen_at: Option<Timestamp>,
    pub(crate) last_slot: Option<Timestamp>,
    pub(crate) last_job: Option<u128>,
}

impl ScheduleRow<'_> {
    /// The schedule, or what is wrong with its row.
    pub(crate) fn read(self) -> Result<Schedule, String> {
        let said = |field: &'static str| move |why: String| format!("{field}: {why}");
        let tenant = TenantId::new(self.tenant).map_err(|why| said("tenant")(why.to_string()))?;
        let name = ScheduleName::new(self.name).map_err(|why| said("name")(why.to_string()))?;
        let payload = Payload::parse(self.payload, usize::MAX);
        let payload = payload.map_err(|why| said("payload")(why.to_string()))?;
        let spec: Result<SpecColumn, _> = serde_json::from_str(self.spec);
        let spec = spec.map_err(|why| said("spec")(why.to_string()))?;
        let pause: Option<Result<Pause, _>> = self.pause.map(serde_json::from_str);
        let pause = pause.transpose().map_err(|why| said("pause")(why.to_string()))?;
        let SpecColumn { when, jitter, catch_up, overlap, start_at, end_at, job } = spec;
        let job = job.into_op(JobId::from_u128(0), tenant.clone(), payload);
        let job = *job.map_err(said("spec"))?.new;
        let spec = ScheduleSpec { when, jitter, catch_up, overlap, start_at, end_at, job };
        Ok(Schedule {
            tenant,
            name,
            spec: Arc::new(spec),
            version: self.version,
            created_at: self.created_at,
            updated_at: self.updated_at,
            pause,
            next_at: self.next_at,
            fires_at: self.fires_at,
            seen_at: self.seen_at,
            last_slot: self.last_slot,
            last_job: self.last_job.map(JobId::from_u128),
        })
    }
}
