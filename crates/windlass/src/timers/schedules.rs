//! Schedules whose time has come: each is fired with the version that was seen, so of two engines that find the same
//! only one makes a job.

use windlass_kernel::{Actor, ScheduleOp, schedule::Action};
use windlass_store::{Write, read::DueSchedule};

use crate::engine::Inner;

/// Fires what was found.
pub(super) async fn fire(engine: &Inner, due: Vec<DueSchedule>) {
    let write = |DueSchedule { tenant, name, version }| {
        let (action, by) = (Action::Fire { version }, Actor::Scheduler.into());
        Write::Schedule(ScheduleOp { tenant, name, action, by })
    };
    // A refusal means that somebody else was faster. What could not be written is found by the next look.
    let writes: Vec<Write> = due.into_iter().map(write).collect();
    let enqueuing = engine.enqueuing();
    let replies = engine.submit_many(writes.clone()).await;
    if let Some(enqueuing) = enqueuing {
        let answers = writes.iter().zip(&replies).map(|(write, reply)| (write, reply, None));
        engine.tell_of_made(enqueuing, answers, false).await;
    }
}
