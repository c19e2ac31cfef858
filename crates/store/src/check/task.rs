//! What is unique over all jobs: attempts of a task, and idempotency keys. Both come sorted.

use windlass_kernel::{JobId, TenantId};

use super::{
    Invariant, Report,
    values::{KeyName, Run},
};

/// What is known of the runs before, of the same task.
#[derive(Default)]
pub(crate) struct RunCheck {
    task: Option<(TenantId, String)>,
    last_attempt: u32,
    open: Option<JobId>,
}

impl RunCheck {
    /// Checks the next run, by tenant, task and first attempt.
    pub(crate) fn check(&mut self, run: Run, report: &mut Report) {
        let mut add = |rule, sentence: String| report.add_job(rule, run.job, sentence, &[], None);
        let Run { task, first, last, .. } = &run;
        let same = self.task.as_ref().is_some_and(|it| it.0 == run.tenant && it.1 == *task);
        if !same {
            *self = Self::default();
        } else if *first <= self.last_attempt {
            let sentence = format!("makes attempt {first} of task {task} once more");
            add(Invariant::AttemptUnique, sentence);
        }
        if let Some(other) = self.open.filter(|_| same) {
            add(Invariant::TaskActive, format!("runs task {task} while {other} has not ended"));
        }
        match run.next_attempt {
            Some(next) if next > i64::from(*last) => {}
            Some(next) => {
                let sentence = format!("made attempt {last} of task {task}, whose next is {next}");
                add(Invariant::TaskNext, sentence);
            }
            None => add(Invariant::TaskNext, format!("runs task {task}, which has no row")),
        }
        self.last_attempt = self.last_attempt.max(*last);
        self.open = self.open.or((!run.ended).then_some(run.job));
        self.task = Some((run.tenant, run.task));
    }
}

/// The key before.
#[derive(Default)]
pub(crate) struct KeyCheck {
    last: Option<(KeyName, JobId)>,
}

impl KeyCheck {
    /// Checks the next key, by name.
    pub(crate) fn check(&mut self, name: KeyName, job: JobId, report: &mut Report) {
        if let Some((_, other)) = self.last.as_ref().filter(|(last, _)| *last == name) {
            let key = String::from_utf8_lossy(&name.key);
            let sentence = format!("has key {key} of scope {}, as {other} has", name.scope);
            report.add_job(Invariant::KeyUnique, job, sentence, &[], None);
        }
        self.last = Some((name, job));
    }
}
