//! What a run costs: time, processor time, memory.

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

/// What was spent since it was started.
pub(super) struct Meter {
    started: Instant,
    cpu: Duration,
}

impl Meter {
    pub(super) fn start() -> Self {
        Self { started: Instant::now(), cpu: cpu() }
    }

    /// Time by the clock, and processor time of all threads of this process.
    pub(super) fn read(&self) -> (Duration, Duration) {
        (self.started.elapsed(), cpu().saturating_sub(self.cpu))
    }
}

/// User and system time together.
fn cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}

/// Lets the peak begin anew, so that a run is not charged for the one before. Where the system cannot do
/// that, the peak is that of the whole process.
pub(super) fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The most memory that was in use. None, where the system does not say.
pub(super) fn peak_rss_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
