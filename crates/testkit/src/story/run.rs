//! Run: the lines of a story happen in a world, and each is compared with what it expects.
//!
//! After every line, for every job that it touched: the history has no gap, and folding it rebuilds the
//! row. A refusal changes nothing. Time stands still but for `pass`, which fires timers in their order.

use std::{collections::BTreeSet, fmt, time::Duration};

use windlass_kernel::{
    self as kernel, Answer, By, Jitter, Job, JobId, Op, Refusal, State, Timestamp, WorkerId,
    ids::ClaimId,
    ops::{Claim, Expire, Expiry, Outcome, Promote, PromoteWhen, RetryNow, Settle},
    timer,
};

use super::{
    deed::Deed,
    ops,
    parse::{Line, Story},
    step::{Action, RunEnding},
    words::{Name, Result},
};
use crate::World;

/// A line that did not go as the story says.
#[derive(Debug)]
pub struct Failure {
    /// The number of the line in its file.
    pub number: usize,
    /// The line.
    pub text: String,
    /// What was expected and what came.
    pub why: String,
    /// What had happened so far to the job that the line is about.
    pub history: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  {}", self.number, self.text, self.why)?;
        self.history.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// Lives through a story in an empty world. Gives back what the story shows, line by line.
pub fn run(story: &Story, world: &mut dyn World) -> std::result::Result<Vec<String>, Failure> {
    let began = "2026-01-01T00:00:00Z".parse().expect("it is an instant");
    let mut scene = Scene {
        world,
        began,
        now: began,
        last: None,
        touched: BTreeSet::new(),
        count: 0,
        shown: Vec::new(),
    };
    for line in &story.lines {
        if let Err(why) = scene.play(line) {
            let (number, text) = (line.number, line.text.clone());
            return Err(Failure { number, text, why, history: scene.history() });
        }
    }
    Ok(scene.shown)
}

/// What an op was told, or why it was refused.
pub(super) type Told = std::result::Result<Answer, Refusal>;

/// A story on its way.
pub(super) struct Scene<'a> {
    pub(super) world: &'a mut dyn World,
    pub(super) began: Timestamp,
    pub(super) now: Timestamp,
    /// The job that was mentioned last.
    pub(super) last: Option<Name>,
    /// The jobs that the line could change.
    touched: BTreeSet<Name>,
    /// How many ops there were.
    count: u64,
    /// What the story shows.
    pub(super) shown: Vec<String>,
}

impl Scene<'_> {
    fn play(&mut self, line: &Line) -> Result<()> {
        let jobs = line.step.jobs();
        self.last = jobs.last().copied().or(self.last);
        self.touched = jobs.iter().copied().collect();
        let before = self.rows(&jobs);
        let told = self.act(&line.step.action)?;
        if let Some(Ok(answer)) = &told {
            self.last = Some(Name::of(answer.job_id));
        }
        self.check_expects(&line.step.expects, told.as_ref())?;
        let is_op = matches!(line.step.action, Action::Do(_));
        let is_new = told.is_some_and(|told| told.is_ok_and(|answer| !answer.recorded));
        if is_op && !is_new && self.rows(&jobs) != before {
            return Err("it was refused or recorded before, and yet something changed".to_owned());
        }
        std::mem::take(&mut self.touched).into_iter().try_for_each(|job| self.check_history(job))
    }

    fn act(&mut self, action: &Action) -> Result<Option<Told>> {
        match action {
            Action::Do(deed) => return Ok(Some(self.do_deed(deed))),
            Action::Run { job, ending } => return Ok(Some(self.run_job(job.id(), *ending))),
            Action::Pass { time, unnoticed } => self.pass(*time, *unnoticed)?,
            Action::Die { worker } => self.die(worker)?,
            Action::Restore => self.world.restore(),
            Action::Expect { .. } => {}
            Action::Events { job, causes } => self.check_events(*job, causes)?,
            Action::Event { job, contract, fields } => {
                self.check_event(*job, contract.as_deref(), fields)?;
            }
            Action::Replay { job, statuses } => self.check_replay(*job, statuses)?,
        }
        Ok(None)
    }

    fn rows(&mut self, jobs: &[Name]) -> Vec<Option<Job>> {
        jobs.iter().map(|job| self.world.job(job.id())).collect()
    }

    fn commit(&mut self, op: Op) -> Told {
        self.count += 1;
        self.world.commit(op, self.now)
    }

    fn do_deed(&mut self, deed: &Deed) -> Told {
        let job = self.world.job(deed.job.id());
        let (began, now, count) = (self.began, self.now, self.count);
        let op = ops::op(deed, &ops::Setting { job: job.as_ref(), began, now, count })?;
        self.commit(op)
    }

    /// Fires every timer that is due on the way, in the order of time.
    fn pass(&mut self, time: Duration, unnoticed: bool) -> Result<()> {
        const ALARMS_MAX: usize = 1_000;
        let end = self.now.plus(time);
        for _ in 0..ALARMS_MAX {
            let jobs = if unnoticed { Vec::new() } else { self.world.open_jobs() };
            let alarms = jobs.iter().filter_map(|job| Some((timer::next(job)?, job)));
            let first = alarms.min_by_key(|((at, _), job)| (*at, job.id));
            let Some(((at, alarm), job)) = first.filter(|((at, _), _)| *at <= end) else {
                self.now = end;
                return Ok(());
            };
            self.now = self.now.max(at);
            let name = Name::of(job.id);
            self.touched.insert(name);
            self.commit(timer::op(job, alarm, Jitter::NONE))
                .map_err(|refusal| format!("the timer {alarm} of {name} was refused: {refusal}"))?;
        }
        Err(format!("{ALARMS_MAX} timers fired, and there is no end to it"))
    }

    /// Ends every lease of a worker session, for it is dead.
    fn die(&mut self, worker: &str) -> Result<()> {
        for job in self.world.open_jobs() {
            if job.lease.is_none_or(|lease| lease.worker.as_str() != worker) {
                continue;
            }
            self.touched.insert(Name::of(job.id));
            let (job_id, version, what) = (job.id, job.version, Expiry::DeadSession);
            self.commit(Op::Expire(Expire { job_id, version, what, jitter: Jitter::NONE }))
                .map_err(|refusal| format!("its lease of {} stays: {refusal}", Name::of(job_id)))?;
        }
        Ok(())
    }

    /// Runs a job now, due or not, by the ordinary ops. One that runs already is only settled.
    fn run_job(&mut self, job_id: JobId, ending: RunEnding) -> Told {
        let worker = WorkerId::new("dev")?;
        let job = self.world.job(job_id);
        let state = job.as_ref().map(|job| job.state);
        let by = || By::worker(worker.clone());
        if state == Some(State::Scheduled) {
            let when = PromoteWhen::Now { by: by() };
            self.commit(Op::Promote(Promote { job_id, when }))?;
        }
        if state == Some(State::RetryScheduled) {
            self.commit(Op::RetryNow(RetryNow { job_id, by: by() }))?;
        }
        let epoch = match job {
            Some(job) if job.state == State::Running => job.epoch,
            _ => {
                let claim_id = ClaimId::from_u128(self.count.into());
                let lease = Duration::from_secs(30);
                let (worker, trace_id) = (worker.clone(), None);
                let (start, alone) = (true, true);
                let claim = Claim { job_id, claim_id, worker, trace_id, lease, start, alone };
                self.commit(Op::Claim(claim))?.epoch
            }
        };
        let outcome = match ending {
            RunEnding::Succeeded => Outcome::Succeeded { result: None },
            RunEnding::Failed => {
                Outcome::Failed(kernel::Failure::permanent("FORCED_FAILURE", "as it was asked"))
            }
            RunEnding::Transient => {
                Outcome::Failed(kernel::Failure::transient("TRANSIENT_FAILURE", "as it was asked"))
            }
        };
        let lease =
            self.world.job(job_id).and_then(|job| job.lease.as_ref().map(|it| it.worker.clone()));
        let by = By::worker(lease.unwrap_or(worker));
        let (stats, jitter) = (None, Jitter::NONE);
        self.commit(Op::Settle(Settle { job_id, epoch, by, outcome, stats, jitter }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MapStore, story::parse};

    /// Checks that a story goes wrong in its last line, and in which words.
    fn check_fails(lines: &str, why: &str) {
        let story = &parse(&format!("# A story.\n{lines}")).unwrap()[0];
        let failure = run(story, &mut MapStore::default()).unwrap_err();
        assert_eq!(failure.number, lines.lines().count() + 1, "{failure}");
        assert!(failure.why.contains(why), "{failure}");
    }

    #[test]
    fn a_story_that_goes_well_shows_its_replay() {
        let text = "# A story.\nenqueue j1 trace t\nrun j1 succeeded\nreplay j1 -> queued running succeeded";
        let shown = run(&parse(text).unwrap()[0], &mut MapStore::default()).unwrap();
        let expected = format!(
            "trace_id=t job_id={} retry_count=0 status_transition=queued->running->succeeded",
            JobId::from_u128(1)
        );
        assert_eq!(shown, [expected]);
    }

    #[test]
    fn what_differs_is_named() {
        check_fails("enqueue j1 -> running", "expected running, but it is queued");
        check_fails("enqueue j1 -> queued epoch 1", "expected epoch 1, but it is 0");
        check_fails("enqueue j1 -> queued dlq open", "expected dlq open, but it is none");
        check_fails(
            "enqueue j1\nclaim j1 lease 10s -> dispatched lease_in 9s",
            "but it is 10000ms",
        );
        check_fails("enqueue j1\npass 1s -> j1 queued j2 queued", "there is no job j2");
        check_fails("enqueue j1\nevents j1 -> enqueued due", "but it is enqueued");
        check_fails("enqueue j1\nreplay j1 -> running", "but it is queued");
        check_fails(
            "enqueue j1\nevent j1 {\"number\": 2}",
            "expected an event with {\"number\":2}",
        );
        check_fails("enqueue j1\nevent j1 runes {}", "there is no contract \"runes\"");
    }

    #[test]
    fn a_refusal_is_expected_or_a_failure() {
        check_fails("claim j1", "it was refused with NOT_FOUND");
        check_fails("claim j1 -> dispatched", "expected dispatched, but it is refused NOT_FOUND");
        check_fails(
            "enqueue j1 -> refused NOT_FOUND",
            "expected refused NOT_FOUND, but it is queued",
        );
        check_fails("enqueue j1\nclaim j2 -> refused STALE_ATTEMPT", "but it is refused NOT_FOUND");
    }

    #[test]
    fn a_failure_tells_what_happened_before() {
        let text = "# A story.\nenqueue j1\nclaim j1 -> running";
        let failure = run(&parse(text).unwrap()[0], &mut MapStore::default()).unwrap_err();
        let told = failure.to_string();
        assert!(told.starts_with("3: claim j1 -> running\n  expected running"), "{told}");
        assert!(told.contains("j1 2: worker_claim -> dispatched, attempt 1, epoch 1"), "{told}");
    }

    #[test]
    fn a_row_that_is_not_its_history_is_found_out() {
        let story = &parse("# A story.\nexpect j1 -> queued").unwrap()[0];
        let mut world = MapStore::default();
        run(&parse("# A story.\nenqueue j1").unwrap()[0], &mut world).unwrap();
        assert!(run(story, &mut world.clone()).is_ok());
        world.jobs.values_mut().for_each(|job| job.retry_count = 7);
        assert!(run(story, &mut world.clone()).unwrap_err().why.contains("the row is"));
        world.events.iter_mut().for_each(|event| event.number = 2);
        assert!(run(story, &mut world).unwrap_err().why.contains("has the number 2"));
    }
}
