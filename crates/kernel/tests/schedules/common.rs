//! A schedule that lives through ops, as a store would have it.

use std::time::Duration;

use windlass_kernel::{
    Actor, Answer, Kind, Note, Payload, Principal, Refusal, Schedule, ScheduleName, ScheduleOp,
    State, TenantId, Timestamp,
    ops::NewJob,
    schedule::{Action, Change, LastJob, ScheduleSpec, When, decide},
};

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

pub(crate) fn cron(expression: &str, zone: &str) -> When {
    When::Cron { expression: expression.to_owned(), zone: zone.to_owned() }
}

pub(crate) fn every(seconds: u64) -> When {
    When::Every { period: Duration::from_secs(seconds), anchor: Timestamp::MIN }
}

pub(crate) fn spec(when: When) -> ScheduleSpec {
    let payload = Payload::parse("{}", 10).expect("an object");
    ScheduleSpec::new(when, NewJob::new(Kind::new("report").expect("a name"), payload))
}

/// One schedule, its time, and all that was noted of it.
pub(crate) struct World {
    pub(crate) schedule: Option<Schedule>,
    pub(crate) now: Timestamp,
    /// Is the last job at its end? A test sets it.
    pub(crate) last_job: LastJob,
    pub(crate) notes: Vec<Note>,
    /// The slots for which a job was made.
    pub(crate) fired: Vec<Timestamp>,
}

impl World {
    pub(crate) fn new(now: &str) -> Self {
        let (now, last_job) = (at(now), LastJob::Ended);
        Self { schedule: None, now, last_job, notes: Vec::new(), fired: Vec::new() }
    }

    /// A schedule that was put at this time.
    pub(crate) fn with(now: &str, spec: ScheduleSpec) -> Self {
        let mut world = Self::new(now);
        world.act(Action::Put(Box::new(spec))).expect("it can be put");
        world
    }

    pub(crate) fn act(&mut self, action: Action) -> Result<Option<Timestamp>, Refusal> {
        let op = ScheduleOp {
            tenant: TenantId::new("acme").expect("a name"),
            name: ScheduleName::new("nightly").expect("a name"),
            by: match &action {
                Action::Fire { .. } => Actor::Scheduler.into(),
                _ => Actor::User(Principal::new("ann").expect("a name")).into(),
            },
            action,
        };
        let decision = decide(self.schedule.as_ref(), self.last_job, &op, self.now)?;
        match decision.change {
            Change::None => {}
            Change::Put(schedule) => self.schedule = Some(*schedule),
            Change::Delete => self.schedule = None,
        }
        self.notes.extend(decision.notes);
        for firing in decision.firings {
            let job_id = firing.enqueue.job_id;
            // The key of a slot makes sure of it.
            let recorded = firing.slot.is_some_and(|slot| self.fired.contains(&slot));
            self.fired.extend(firing.slot.filter(|_| !recorded));
            self.notes.push(firing.note(&Ok(answer(job_id, recorded))));
        }
        Ok(decision.goes_on_from)
    }

    pub(crate) fn put(&mut self, spec: ScheduleSpec) -> Result<(), Refusal> {
        self.act(Action::Put(Box::new(spec))).map(drop)
    }

    pub(crate) fn it(&self) -> &Schedule {
        self.schedule.as_ref().expect("it is there")
    }

    /// A timer looks, if there is something to look at.
    pub(crate) fn look(&mut self) {
        while self.schedule.as_ref().and_then(|it| it.fires_at).is_some_and(|at| at <= self.now) {
            let version = self.it().version;
            self.act(Action::Fire { version }).expect("its time has come");
        }
    }

    /// Time passes while somebody looks at each moment that asks for it.
    pub(crate) fn pass_until(&mut self, end: &str) {
        while let Some(next) = self.it().fires_at.filter(|next| *next <= at(end)) {
            self.now = self.now.max(next);
            self.look();
        }
        self.now = at(end);
    }

    /// Time passes, and nobody looks before its end.
    pub(crate) fn sleep_until(&mut self, end: &str) {
        self.now = at(end);
        self.look();
    }

    /// Reasons of what was skipped, with how many slots.
    pub(crate) fn skipped(&self) -> Vec<(String, u64)> {
        let skipped = self.notes.iter().filter(|note| note.what == "skipped");
        let told = skipped.map(|note| {
            let reason = note.detail["reason"].as_str().expect("a word").to_owned();
            (reason, note.detail.get("count").map_or(1, |it| it.as_u64().expect("a count")))
        });
        told.collect()
    }

    pub(crate) fn words(&self) -> Vec<&'static str> {
        self.notes.iter().map(|note| note.what).collect()
    }

    pub(crate) fn fired(&self) -> Vec<String> {
        self.fired.iter().map(ToString::to_string).collect()
    }
}

pub(crate) fn answer(job_id: windlass_kernel::JobId, recorded: bool) -> Answer {
    Answer {
        job_id,
        state: State::Queued,
        recorded,
        epoch: windlass_kernel::Epoch::ZERO,
        leased_until: None,
        next_retry_at: None,
        dlq_id: None,
        cancel_requested: false,
        steps: Vec::new(),
        delivered: false,
    }
}
