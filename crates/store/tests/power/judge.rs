//! The judge: is what a power cut has left what was acknowledged?

use std::{collections::BTreeMap, fmt, fs, path::Path, sync::Arc};

use windlass_kernel::JobId;
use windlass_store::{
    Error,
    read::{JobFilter, PageFrom},
    sqlite::check,
};

use super::{
    common::{FileStore, claim_many, enqueue, granted, plain, settle, succeeded, tenant, write},
    disk::Image,
};

/// Every job, with its state, its version and its epoch.
pub(crate) type Jobs = BTreeMap<u128, String>;

/// What is wrong with an image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The store itself says so.
    Refused(String),
    /// It opens, and is not what was acknowledged, nor that and the batch that was under way.
    Differs(String),
    /// It breaks a rule of the checker.
    Breaks(String),
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        Self::Refused(format!("{error} {}", cause.unwrap_or_default()))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "it is refused: {why}"),
            Self::Differs(how) => write!(f, "{how}"),
            Self::Breaks(report) => write!(f, "it breaks rules: {report}"),
        }
    }
}

/// Opens the image, and compares it with what it was after the last batch that was acknowledged, or after
/// that which was under way. Then work goes on in it.
pub(crate) fn judge(image: &Image, path: &Path, before: &Jobs, after: &Jobs) -> Result<(), Wrong> {
    for (name, bytes) in image {
        fs::write(format!("{}{name}", path.display()), bytes).unwrap();
    }
    let test = FileStore::open(path)?;
    // A commit that is empty promotes what users have put into the inbox.
    test.runtime.block_on(test.store.commit(Arc::default()))?;
    let found = jobs(&test)?;
    if found != *before && found != *after {
        return Err(Wrong::Differs(difference(&found, before)));
    }
    work_goes_on(&test)?;
    drop(test);
    let report = check(path)?;
    if report.is_clean() { Ok(()) } else { Err(Wrong::Breaks(report.to_string())) }
}

fn jobs(test: &FileStore) -> Result<Jobs, Error> {
    let mut found = Jobs::new();
    let mut from = None;
    loop {
        let cursor = PageFrom { from, limit: PageFrom::LIMIT_MAX };
        let page = test.store.jobs(JobFilter::of(tenant()), cursor);
        let page = test.runtime.block_on(page)?;
        found.extend(page.items.iter().map(|job| (job.id.as_u128(), said(job))));
        match page.next {
            Some(next) => from = Some(next),
            None => return Ok(found),
        }
    }
}

/// What is said of a job: enough to tell any two moments of its life apart.
pub(crate) fn said(job: &windlass_kernel::Job) -> String {
    format!("{}/{}/{}", job.state, job.version, job.epoch.get() & 0xffff_ffff)
}

fn difference(found: &Jobs, expected: &Jobs) -> String {
    let wrong = |(number, said): &(&u128, &String)| found.get(number) != Some(said);
    let missing: Vec<_> = expected.iter().filter(wrong).take(5).collect();
    let (is, was) = (found.len(), expected.len());
    format!("{is} jobs instead of {was}; not as they were acknowledged: {missing:?}")
}

fn work_goes_on(test: &FileStore) -> Result<(), Error> {
    let number = 1 << 100;
    let commit = |write| test.runtime.block_on(test.store.commit(vec![write].into()));
    commit(write(enqueue(number, plain())))?.remove(0).unwrap();
    let granted = granted(&commit(claim_many("after the cut", number, 1_000))?.remove(0).unwrap());
    let mine = granted.iter().find(|it| it.job.id == JobId::from_u128(number)).unwrap();
    commit(write(settle(mine.job.id, mine.job.epoch, succeeded())))?.remove(0).unwrap();
    Ok(())
}
