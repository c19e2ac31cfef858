//! What an op says of itself before it is decided: which jobs and rows it is about, whether it can wait, and how much it
//! carries. With this a store loads, orders and bounds ops without knowing them.

use crate::ops::Enqueue;
use crate::{
    DlqId, JobId, Payload,
    ids::StepKey,
    job::WaitOn,
    ledger::{
        MailName,
        ops::advance::{Entry, Happened},
    },
};

/// What an op is about, and what it costs to hold it.
#[derive(Clone, Copy, Debug)]
pub struct Footprint<'a> {
    /// The job that it names, or the one it creates.
    pub job: Option<JobId>,
    /// The dead letter that it names; that of the job, if the job is to run again.
    pub letter: Option<DlqId>,
    /// The other job that it names: the parent of a new job, or the child that a job waits for.
    pub relative: Option<JobId>,
    /// The job that it would make.
    pub makes: Makes<'a>,
    /// Rows of the ledger of the job that it names.
    pub ledger: LedgerRows<'a>,
    /// How long it can wait.
    pub urgency: Urgency,
    /// How many bytes of a caller's text it carries.
    pub bytes: usize,
}

/// Rows of a ledger that an op is about.
#[derive(Clone, Copy, Debug)]
pub enum LedgerRows<'a> {
    /// None.
    Nothing,
    /// The steps of these entries, and the mail that they take.
    Entries(&'a [Entry]),
    /// This mail.
    Mail(&'a MailName),
    /// The mail that such a wait is for, as far as its names are known.
    Awaited(&'a WaitOn),
    /// This step, and what was handed in late of it.
    Effect(&'a StepKey),
}

impl LedgerRows<'_> {
    /// The steps that are meant.
    pub fn steps(&self) -> Vec<&StepKey> {
        match self {
            LedgerRows::Nothing | LedgerRows::Mail(_) | LedgerRows::Awaited(_) => Vec::new(),
            LedgerRows::Entries(entries) => entries.iter().map(|entry| &entry.key).collect(),
            LedgerRows::Effect(key) => vec![key],
        }
    }

    /// The mail that is meant.
    pub fn mails(&self) -> Vec<MailName> {
        match self {
            LedgerRows::Nothing | LedgerRows::Effect(_) => Vec::new(),
            LedgerRows::Entries(entries) => {
                let taken = entries.iter().filter_map(|entry| match &entry.what {
                    Happened::Recorded { mail, .. } => mail.clone(),
                    Happened::Begun { .. } | Happened::TryFailed { .. } => None,
                });
                taken.collect()
            }
            LedgerRows::Mail(name) => vec![(*name).clone()],
            LedgerRows::Awaited(wait) => wait.mails(),
        }
    }

    /// The step whose late effect is meant.
    pub fn effect(&self) -> Option<&StepKey> {
        match self {
            LedgerRows::Effect(key) => Some(key),
            LedgerRows::Nothing | LedgerRows::Entries(_) => None,
            LedgerRows::Mail(_) | LedgerRows::Awaited(_) => None,
        }
    }
}

/// The job that an op would make.
#[derive(Clone, Copy, Debug)]
pub enum Makes<'a> {
    /// None.
    Nothing,
    /// The one that is asked for.
    New(&'a Enqueue),
    /// One that does the work of another again: of the job that the op names, or of the one whose letter it names.
    Again {
        /// Its id.
        new_job_id: JobId,
    },
}

impl Makes<'_> {
    /// The id of the new job.
    pub fn id(&self) -> Option<JobId> {
        match self {
            Makes::Nothing => None,
            Makes::New(op) => Some(op.job_id),
            Makes::Again { new_job_id } => Some(*new_job_id),
        }
    }
}

/// How long an op can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The holder of a lease says it, and leases do not wait.
    Lease,
    /// It waits its turn: new jobs, claims, what people and timers want.
    Bulk,
}

impl<'a> Footprint<'a> {
    /// Of an op on one job.
    pub(crate) fn of_job(job: JobId) -> Self {
        Self { job: Some(job), ..Self::of_none() }
    }

    /// Of what the holder of a lease says.
    pub(crate) fn of_lease(job: JobId) -> Self {
        Self { urgency: Urgency::Lease, ..Self::of_job(job) }
    }

    /// Of an op on a dead letter.
    pub(crate) fn of_letter(letter: DlqId) -> Self {
        Self { letter: Some(letter), ..Self::of_none() }
    }

    fn of_none() -> Self {
        let (job, letter, relative, makes) = (None, None, None, Makes::Nothing);
        let (ledger, urgency) = (LedgerRows::Nothing, Urgency::Bulk);
        Self { job, letter, relative, makes, ledger, urgency, bytes: 0 }
    }

    /// With a job that it would make.
    pub(crate) fn making(self, makes: Makes<'a>) -> Self {
        Self { makes, ..self }
    }

    /// With so much text.
    pub(crate) fn carrying(self, bytes: usize) -> Self {
        Self { bytes: self.bytes + bytes, ..self }
    }
}

/// The size of a payload, if there is one.
pub(crate) fn size(payload: Option<&Payload>) -> usize {
    payload.map_or(0, |payload| payload.as_str().len())
}
