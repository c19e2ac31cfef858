//! The events of a job, in order.

use windlass_kernel::Timestamp;

use super::{
    super::seen::{Event, short, step},
    Page,
};
use crate::cli::look::{
    count::grouped,
    table::{Cell, Room, Table},
    view::{BOLD, DIM, View},
};

/// How many events are shown: the first, and the last.
const FIRST: usize = 8;
const LAST: usize = 22;

pub(super) fn section(page: &Page, view: &View) -> String {
    let (events, job) = (&page.events, &page.job);
    let hidden = job.version.saturating_sub((FIRST + LAST) as u64);
    let is_cut = hidden > 0 && events.len() > FIRST + LAST;
    let shown: Vec<&Event> = match is_cut {
        true => events[..FIRST].iter().chain(&events[events.len() - LAST..]).collect(),
        false => events.iter().collect(),
    };
    let text = table(&shown, job.created_at, view).fit(view.width.saturating_sub(2));
    let mut lines: Vec<String> =
        text.lines().map(|line| format!("  {}\n", line.trim_end())).collect();
    if is_cut {
        let id = &job.job_id;
        let more = format!("  {DIM}… {} more: windlass job events {id}{DIM:#}\n", grouped(hidden));
        lines.insert(1 + FIRST, more);
    }
    format!("{BOLD}Events{BOLD:#}\n{}", lines.concat())
}

/// Where there is less room than this, what else is worth knowing goes first.
const NARROW: usize = 90;

/// Events under names.
pub(crate) fn table(events: &[&Event], first_at: Timestamp, view: &View) -> Table {
    let times = view.times;
    let what = if view.width < NARROW { Room::Spare(3) } else { Room::Shorten(16) };
    let mut table = Table::new("It has no events.")
        .number("#", Room::Needed)
        .column("WHEN", Room::Spare(0))
        .column("CAUSE", Room::Needed)
        .column("STATE", Room::Needed)
        .column("BY", Room::Spare(2))
        .column("WHAT", what);
    for event in events {
        let (step, style) = step(event);
        table.row([
            event.number.to_string().into(),
            times.after(first_at, event.at).into(),
            event.cause.as_str().into(),
            Cell::styled(step, style),
            event.actor.to_string().into(),
            short(event, times).into(),
        ]);
    }
    table
}
