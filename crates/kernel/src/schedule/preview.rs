//! What comes next, for people: each slot in the schedule's own zone and in UTC.

use serde::Serialize;

use super::{ScheduleSpec, Slots, jitter_of};
use crate::{Refusal, ScheduleName, TenantId, Timestamp};

/// A slot that will come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreviewSlot {
    /// Its time, in UTC.
    pub at: Timestamp,
    /// What the clock of the schedule shows then, with its offset and its zone:
    /// `2026-03-29T03:00:00+02:00[Europe/Berlin]`. Of a schedule without a zone it is UTC.
    pub local: String,
    /// When it is fired, if all goes well: its time and its jitter.
    pub fires_at: Timestamp,
}

/// The next slots after an instant, at most so many and never more than [`PreviewSlot::MAX`].
pub fn preview(
    tenant: &TenantId,
    name: &ScheduleName,
    spec: &ScheduleSpec,
    after: Timestamp,
    count: usize,
) -> Result<Vec<PreviewSlot>, Refusal> {
    let slots = Slots::of_spec(spec)?;
    let first = slots.after(after);
    let all = std::iter::successors(first, |slot| slots.after(*slot));
    let preview = all.take(count.min(PreviewSlot::MAX)).map(|at| PreviewSlot {
        at,
        local: slots.local(at),
        fires_at: at.plus(jitter_of(tenant, name, at, spec.jitter)),
    });
    Ok(preview.collect())
}

impl PreviewSlot {
    /// The most slots that are shown at once.
    pub const MAX: usize = 1_000;
}
