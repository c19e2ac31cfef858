//! The slots of a schedule, one after the other, and the jitter of each.

use std::time::Duration;

use jiff::{civil::DateTime, tz::TimeZone};
use sha2::{Digest as _, Sha256};

use super::{ScheduleSpec, When, cron::Cron};
use crate::{JobId, Refusal, ScheduleName, TenantId, Timestamp};

/// The first slot after an instant, if there is one.
pub fn next_slot(when: &When, after: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    Ok(Slots::of(when)?.after(after))
}

/// What was understood of a [`When`], for whoever asks more than once.
#[derive(Debug)]
pub struct Slots {
    times: Times,
    start_at: Timestamp,
    end_at: Option<Timestamp>,
}

#[derive(Debug)]
enum Times {
    At(Timestamp),
    Every { period: i64, anchor: i64 },
    Cron { cron: Box<Cron>, zone: TimeZone },
}

impl Slots {
    /// The slots of this.
    pub fn of(when: &When) -> Result<Self, Refusal> {
        let times = match when {
            When::At(at) => Times::At(*at),
            When::Every { period, anchor } => {
                let period = i64::try_from(period.as_micros()).unwrap_or(i64::MAX);
                Times::Every { period: period.max(1), anchor: anchor.as_micros() }
            }
            When::Cron { expression, zone: name } => {
                Times::Cron { cron: Box::new(Cron::parse(expression)?), zone: zone(name)? }
            }
        };
        Ok(Self { times, start_at: Timestamp::MIN, end_at: None })
    }

    /// The same, between the beginning and the end of a schedule.
    pub fn of_spec(spec: &ScheduleSpec) -> Result<Self, Refusal> {
        let start_at = spec.start_at.unwrap_or(Timestamp::MIN);
        Ok(Self { start_at, end_at: spec.end_at, ..Self::of(&spec.when)? })
    }

    /// The first slot at an instant or after it.
    pub fn from(&self, from: Timestamp) -> Option<Timestamp> {
        self.after_micros(from.as_micros() - 1)
    }

    /// The first slot after an instant.
    pub fn after(&self, after: Timestamp) -> Option<Timestamp> {
        self.after_micros(after.as_micros())
    }

    fn after_micros(&self, after: i64) -> Option<Timestamp> {
        let after = after.max(self.start_at.as_micros() - 1);
        let slot = match &self.times {
            Times::At(at) => Some(*at).filter(|at| at.as_micros() > after),
            Times::Every { period, anchor } => {
                let passed = (after - anchor).div_euclid(*period) + 1;
                let micros = passed.max(0).checked_mul(*period)?.checked_add(*anchor)?;
                (micros <= Timestamp::MAX.as_micros()).then(|| Timestamp::from_micros(micros))
            }
            Times::Cron { cron, zone } if cron.is_interval => next_real(cron, zone, after),
            Times::Cron { cron, zone } => next_fixed(cron, zone, after),
        };
        slot.filter(|slot| self.end_at.is_none_or(|end| *slot < end))
    }

    /// What the clock of the schedule shows at an instant, with its offset and its zone.
    pub fn local(&self, at: Timestamp) -> String {
        let zone = match &self.times {
            Times::Cron { zone, .. } => zone.clone(),
            Times::At(_) | Times::Every { .. } => TimeZone::UTC,
        };
        instant(at.as_micros()).to_zoned(zone).to_string()
    }
}

/// A zone by its name. If there is none, the nearest name is told.
pub(super) fn zone(name: &str) -> Result<TimeZone, Refusal> {
    if let Ok(zone) = TimeZone::get(name) {
        return Ok(zone);
    }
    let database = jiff::tz::db();
    let likeness = |known: &str| {
        let place = known.rsplit('/').next().unwrap_or(known);
        strsim::jaro_winkler(known, name).max(strsim::jaro_winkler(place, name))
    };
    let name: String = name.chars().take(60).collect();
    let known = database.available().map(|known| known.as_str().to_owned());
    let nearest = known.map(|known| (likeness(&known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = match nearest {
        Some((likeness, known)) if likeness > 0.8 => format!("; did you mean {known}?"),
        _ => ", such as Europe/Berlin or UTC".to_owned(),
    };
    Err(Refusal::invalid("zone", format!("{name:?} is no name of a time zone{hint}")))
}

/// The next of fixed times: each runs once, at the first moment that can be meant.
///
/// Going through the wall clock, these moments never fall back: what lies in a gap is moved to its end, and of
/// what is shown twice the first is meant. So the first one after the instant is the next.
fn next_fixed(cron: &Cron, zone: &TimeZone, after: i64) -> Option<Timestamp> {
    let mut from = zone.to_datetime(instant(after)).with().subsec_nanosecond(0).build().ok()?;
    loop {
        let time = cron.next_from(from)?;
        let moment = first_moment(zone, time)?;
        if moment > after {
            return in_range(moment);
        }
        from = time.checked_add(jiff::Span::new().seconds(1)).ok()?;
    }
}

/// When the wall clock first shows this time, or the end of the gap in which it does not.
fn first_moment(zone: &TimeZone, time: DateTime) -> Option<i64> {
    let found = zone.to_ambiguous_timestamp(time);
    match found.offset() {
        jiff::tz::AmbiguousOffset::Gap { before, .. } => {
            // Read with the offset of before, it lies after the change, by less than the gap is long.
            let beyond = before.to_timestamp(time).ok()?;
            let mut changes =
                zone.preceding(beyond.checked_add(jiff::Span::new().seconds(1)).ok()?);
            Some(changes.next()?.timestamp().as_microsecond())
        }
        _ => Some(found.earlier().ok()?.as_microsecond()),
    }
}

/// The next instant at which the wall clock shows a time that fits: it is looked for from one change of clocks to
/// the next, in between which a wall clock is as good as any other.
fn next_real(cron: &Cron, zone: &TimeZone, after: i64) -> Option<Timestamp> {
    let mut from = after.div_euclid(1_000_000).checked_add(1)?.checked_mul(1_000_000)?;
    loop {
        let start = in_range(from).map(|it| instant(it.as_micros()))?;
        let offset = zone.to_offset(start);
        let time = cron.next_from(offset.to_datetime(start))?;
        let moment = offset.to_timestamp(time).ok()?.as_microsecond();
        let change = zone.following(start).next().map(|change| change.timestamp().as_microsecond());
        match change {
            Some(change) if change <= moment => from = change,
            _ => return in_range(moment),
        }
    }
}

fn instant(micros: i64) -> jiff::Timestamp {
    let micros = micros.clamp(-1_000_000, Timestamp::MAX.as_micros());
    jiff::Timestamp::from_microsecond(micros).expect("the range is inside jiff's")
}

fn in_range(micros: i64) -> Option<Timestamp> {
    let range = Timestamp::MIN.as_micros()..=Timestamp::MAX.as_micros();
    range.contains(&micros).then(|| Timestamp::from_micros(micros))
}

/// By how much a slot is fired later than its time: from nothing to the jitter of its schedule. It is a hash of
/// schedule and slot, not chance, so that all nodes agree.
pub fn jitter_of(
    tenant: &TenantId,
    name: &ScheduleName,
    slot: Timestamp,
    jitter: Duration,
) -> Duration {
    let most = u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX);
    if most == 0 {
        return Duration::ZERO;
    }
    let hash = hash(b"jitter", tenant, name, slot);
    let chance = u64::from_be_bytes(hash[..8].try_into().expect("a hash is longer"));
    Duration::from_millis(chance % most)
}

/// The id of the job of a slot. It begins with the time of the slot, as an id that is made by the clock would, and
/// goes on with a hash.
pub(super) fn job_id(tenant: &TenantId, name: &ScheduleName, slot: Timestamp) -> (JobId, u128) {
    let hash = hash(b"job", tenant, name, slot);
    let millis = u128::from(slot.as_micros().unsigned_abs() / 1000);
    let [chance, random] = [0, 16].map(|from| {
        u128::from_be_bytes(hash[from..from + 16].try_into().expect("a hash has 32 bytes"))
    });
    // The shape of a version 7 UUID.
    let low = (chance & ((1 << 76) - 1) & !(0b11 << 62)) | 0b10 << 62;
    (JobId::from_u128((millis << 80) | (7 << 76) | low), random)
}

fn hash(what: &[u8], tenant: &TenantId, name: &ScheduleName, slot: Timestamp) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [what, tenant.as_str().as_bytes(), name.as_str().as_bytes()] {
        hash.update(part);
        // No name holds a control character, so no two schedules read alike.
        hash.update([0]);
    }
    hash.update(slot.as_micros().to_be_bytes());
    hash.finalize().into()
}
