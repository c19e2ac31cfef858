//! Schedules over a year of a cluster's own time: two nodes that are killed, cut off and started again, and both changes
//! of clocks in every zone. Each slot makes one job, or a note says why it made none.
//!
//! Which slots there should have been comes from clocks that are read minute by minute, and not from the kernel. By
//! default there are 2,000 schedules; with `WINDLASS_DEEP` there are 10,000. A seed that fails is printed, and
//! `WINDLASS_SIMULATION_SEED=<seed>` runs another.
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

#[path = "../simulation/chance.rs"]
mod chance;
mod judge;
#[path = "../simulation/line.rs"]
#[expect(dead_code, reason = "the simulation uses more of it")]
mod line;
mod plan;
mod year;

use std::env;

#[test]
fn over_a_year_each_slot_makes_one_job_or_a_note_says_why_it_made_none() {
    let count = if env::var_os("WINDLASS_DEEP").is_some() { 10_000 } else { 2_000 };
    let seed = env::var("WINDLASS_SIMULATION_SEED").ok().and_then(|seed| seed.parse().ok());
    let told = year::live(seed.unwrap_or(20_26), count);
    println!("{told:#?}");
    assert!(told.fired > count as u64 * 10, "too few were fired: {told:?}");
    let happened = [told.kills, told.outages, told.lost_answers, told.missed, told.overlapped];
    assert!(happened.iter().all(|count| *count > 10), "too little happened: {told:?}");
    assert!(told.missing_hour > 10 && told.doubled_hour > 10, "no clock changed: {told:?}");
}
