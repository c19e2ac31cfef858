//! What is to be said about what was measured. It is pure: every fault can be tried without being made.

use std::time::Duration;

use super::{
    finding::Check,
    measure::{Measured, Space},
};
use crate::cli::look::{progress::size, times::written};

/// By how much two clocks may differ, and how far the last commit may lie in the future.
const SKEW_MAX: Duration = Duration::from_secs(5);
/// How long a lease that ran out may stay. A server takes it back within seconds.
const LAPSED_MAX: Duration = Duration::from_secs(60);
/// With less room a store may stop at any moment.
const FREE_MIN: u64 = 256_000_000;
/// With less room somebody should look soon.
const FREE_LOW: u64 = 1_000_000_000;
/// A journal that is larger than this, and than the database, is one that cannot be folded in.
const JOURNAL_MAX: u64 = 1_000_000_000;

/// What to do about a clock.
pub(super) const SET_RIGHT: &str = "Set the clock of the machine that is wrong, and let it follow a time server (timedatectl set-ntp true).";

/// Everything that can be said about a store.
pub(super) fn all(measured: &Measured) -> Vec<Check> {
    let mut checks = vec![store(measured), schema(measured)];
    if measured.survey.is_up_to_date() {
        checks.push(clock(measured));
    }
    checks.extend(measured.space.map(|space| disk(measured, space)));
    if measured.survey.is_up_to_date() {
        checks.extend([leases(measured), letters(measured)]);
        checks.extend(inbox(measured));
    }
    checks
}

fn store(measured: &Measured) -> Check {
    let (survey, name) = (&measured.survey, &measured.name);
    if let Some(lost) = &survey.lost {
        return Check::bad(
            "store",
            lost,
            "windlass restore BACKUP puts the last backup in its place.",
        );
    }
    if let Some(why) = &survey.read_only {
        let remedy =
            "Give whoever runs the server the right to write, or name another store with --store.";
        return Check::bad("store", why, remedy);
    }
    let owner = match (&survey.owner, survey.journal_bytes) {
        (Some(owner), _) => format!("; it is open in {owner}"),
        (None, Some(_)) => "; nobody serves it".to_owned(),
        (None, None) => String::new(),
    };
    Check::ok("store", format!("{name} can be read and written{owner}"))
}

fn schema(measured: &Measured) -> Check {
    let survey = &measured.survey;
    let (found, known) = (survey.schema, survey.known);
    if survey.is_too_new {
        let what = format!("it is at step {found}, and this program knows {known}");
        return Check::bad(
            "schema",
            what,
            "Use the version of windlass that made it, or a later one.",
        );
    }
    if found == 0 {
        let what = "there is no store in it yet";
        return Check::note(
            "schema",
            what,
            "windlass migrate up makes one; so does windlass serve.",
        );
    }
    if found < known {
        let what = format!("it is at step {found} of {known}: it was made by an older version");
        let remedy = "The next start brings it up to date. See how: windlass migrate plan";
        return Check::note("schema", what, remedy);
    }
    if found > known {
        let what = format!("it is at step {found}; this program knows {known}, and can serve it");
        return Check::note("schema", what, "Bring this program up to date when it suits you.");
    }
    // On a table of ours it runs with each write, and can do whatever the program that writes may do.
    let ours = |name: &&String| name.starts_with("trigger ");
    let triggers: Vec<&str> = survey.foreign.iter().filter(ours).map(String::as_str).collect();
    if !triggers.is_empty() {
        let what = format!("it has what Windlass did not make: {}", triggers.join(", "));
        let remedy =
            "Look at what it does. Unless you put it there, drop it, and find out who did.";
        return Check::bad("schema", what, remedy);
    }
    match survey.missing.is_empty() {
        true if !survey.foreign.is_empty() => {
            let what = format!("beside Windlass's own it has {}", survey.foreign.join(", "));
            Check::note("schema", what, "Nothing to do, if they are yours.")
        }
        true => Check::ok("schema", format!("step {found} of {known}, and nothing is missing")),
        false => {
            let what = format!("it lacks {}", survey.missing.join(", "));
            let remedy = "Somebody took it away. Stop what serves the store, then make it again as \
                          windlass migrate plan --all --show-sql shows it, or restore a backup.";
            Check::bad("schema", what, remedy)
        }
    }
}

fn clock(measured: &Measured) -> Check {
    let Measured { survey, now, .. } = measured;
    if let Some(theirs) = survey.now {
        let skew = now.since(theirs).max(theirs.since(*now));
        if skew > SKEW_MAX {
            let word = if *now > theirs { "ahead of" } else { "behind" };
            let what =
                format!("the clock of this machine is {} {word} that of the database", rough(skew));
            return Check::bad("clock", what, SET_RIGHT);
        }
    }
    let clock = survey.now.unwrap_or(*now);
    if let Some(last) = survey.last_commit_at {
        let ahead = last.since(clock);
        if ahead > SKEW_MAX {
            let what = format!(
                "the last commit is of {last}, {} from now: the clock is behind, or was ahead then. The store's time \
                 goes on from there, a tenth slower until they meet, in {}",
                rough(ahead),
                rough(ahead * 10)
            );
            return Check::note("clock", what, SET_RIGHT);
        }
    }
    match survey.now {
        Some(_) => Check::ok("clock", "this machine and the database agree"),
        None => Check::ok("clock", "it is not behind the last commit"),
    }
}

fn disk(measured: &Measured, space: Space) -> Check {
    let survey = &measured.survey;
    let Space { free_bytes, total_bytes } = space;
    let (free, total) = (size(free_bytes), size(total_bytes));
    let (database, journal) = (survey.size_bytes, survey.journal_bytes.unwrap_or(0));
    let room = "Make room, or let retention forget more: finished jobs are most of a store.";
    if free_bytes < FREE_MIN {
        let what = format!("{free} of {total} are free: the store may stop at any moment");
        return Check::bad("disk", what, room);
    }
    if journal > JOURNAL_MAX && journal > database {
        let what =
            format!("the journal has {}, and the database {}", size(journal), size(database));
        let remedy = "Something has read the file for long and keeps it from being folded in: end that, or start \
                      the server again.";
        return Check::note("disk", what, remedy);
    }
    if free_bytes < FREE_LOW || free_bytes < database + journal {
        let what =
            format!("{free} of {total} are free; the store has {}", size(database + journal));
        return Check::note("disk", what, room);
    }
    let journal =
        if journal > 0 { format!(", its journal {}", size(journal)) } else { String::new() };
    Check::ok("disk", format!("{free} are free; the database has {}{journal}", size(database)))
}

fn leases(measured: &Measured) -> Check {
    let survey = &measured.survey;
    let now = survey.now.unwrap_or(measured.now);
    let is_leaked = |lapsed: Duration, held: u64| held > 0 && lapsed > LAPSED_MAX;
    let leaked: Vec<_> = survey
        .sessions
        .iter()
        .filter(|session| is_leaked(now.since(session.lapses_at), session.held))
        .collect();
    let held: u64 = survey.sessions.iter().map(|session| session.held).sum();
    let Some(oldest) = leaked.iter().min_by_key(|session| session.lapses_at) else {
        let held = match held {
            0 => "no job is held".to_owned(),
            some => {
                many(some, "a job is held", "jobs are held") + ", and none by a worker that is gone"
            }
        };
        return Check::ok("leases", held);
    };
    let jobs: u64 = leaked.iter().map(|session| session.held).sum();
    let workers = many(leaked.len() as u64, "a worker that is", "workers that are");
    let what = format!(
        "{} held by {workers} gone, {} for {}",
        many(jobs, "a job is", "jobs are"),
        oldest.worker,
        rough(now.since(oldest.lapses_at))
    );
    let remedy = match survey.owner {
        None => "A server takes them back within seconds: start one with windlass serve.",
        Some(_) => "The server should have taken them back: look at its log, and start it again.",
    };
    Check::bad("leases", what, remedy)
}

fn letters(measured: &Measured) -> Check {
    match measured.survey.letters {
        0 => Check::ok("letters", "no dead letter is open"),
        count => {
            let what = many(count, "a dead letter is open", "dead letters are open");
            Check::note("letters", what, "Look at them: windlass dlq list")
        }
    }
}

/// It is told only if there is something: most stores have no inbox in use.
fn inbox(measured: &Measured) -> Option<Check> {
    let count = measured.survey.set_aside;
    let rows = many(count, "a row of it was", "rows of it were");
    let what = format!("{rows} set aside: no job could be made of what it says");
    let remedy = "Look at why in the table inbox_set_aside; put them back into inbox once the cause is gone, or \
                  delete them.";
    (count > 0).then(|| Check::bad("inbox", what, remedy))
}

/// So many of something, in words.
fn many(count: u64, one: &str, more: &str) -> String {
    if count == 1 { one.to_owned() } else { format!("{count} {more}") }
}

/// In whole seconds.
fn rough(duration: Duration) -> String {
    written(Duration::from_secs(duration.as_secs()))
}

#[cfg(test)]
mod tests {
    use windlass_kernel::{Timestamp, WorkerId};
    use windlass_store::{Owner, Survey, read::SessionView};

    use super::{super::finding::State, *};

    fn now() -> Timestamp {
        Timestamp::from_micros(1_790_000_000_000_000)
    }

    /// A store that is well.
    fn well() -> Measured {
        let survey = Survey { schema: 6, known: 6, journal_bytes: Some(0), ..Survey::default() };
        let space = Space { free_bytes: 50_000_000_000, total_bytes: 100_000_000_000 };
        Measured { name: "w.db".to_owned(), survey, now: now(), space: Some(space) }
    }

    /// What is said when one thing is otherwise.
    fn found(change: impl FnOnce(&mut Measured)) -> Vec<(&'static str, State, String)> {
        let mut measured = well();
        change(&mut measured);
        let checks = all(&measured).into_iter().filter(|check| check.state != State::Ok);
        checks
            .map(|check| {
                assert!(check.remedy.is_some(), "{check:?}");
                (check.check, check.state, check.what)
            })
            .collect()
    }

    fn one(change: impl FnOnce(&mut Measured)) -> (&'static str, State, String) {
        let mut found = found(change);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn a_store_that_is_well_is_said_to_be() {
        assert!(found(|_| ()).is_empty());
        // What runs is no finding, and a clock may differ a little.
        let little = Duration::from_secs(4);
        assert!(found(|it| it.survey.now = Some(now().plus(little))).is_empty());
        assert!(found(|it| it.survey.last_commit_at = Some(now().plus(little))).is_empty());
        assert!(found(|it| it.survey.sessions = vec![session(now(), 3)]).is_empty());
    }

    #[test]
    fn a_wrong_clock_is_found() {
        let hour = Duration::from_secs(3_600);
        let (check, state, what) = one(|it| it.survey.now = Some(now().minus(hour)));
        assert_eq!((check, state), ("clock", State::Bad));
        assert_eq!(what, "the clock of this machine is 1h ahead of that of the database");
        let (.., what) = one(|it| it.survey.now = Some(now().plus(hour)));
        assert_eq!(what, "the clock of this machine is 1h behind that of the database");
        let (check, _, what) = one(|it| it.survey.last_commit_at = Some(now().plus(hour)));
        assert!(check == "clock" && what.contains("1h from now"), "{what}");
        assert!(what.ends_with("until they meet, in 10h"), "{what}");
    }

    #[test]
    fn a_disk_that_is_nearly_full_is_found() {
        let free = |free_bytes| {
            move |it: &mut Measured| {
                it.space = Some(Space { free_bytes, total_bytes: 100_000_000_000 });
            }
        };
        let (check, state, what) = one(free(200_000_000));
        assert_eq!((check, state), ("disk", State::Bad));
        assert_eq!(what, "200.0 MB of 100.0 GB are free: the store may stop at any moment");
        assert_eq!(one(free(900_000_000)).1, State::Note);
        let (_, state, what) = one(|it| it.survey.journal_bytes = Some(2_000_000_000));
        assert!(state == State::Note && what.starts_with("the journal has 2.0 GB"), "{what}");
        assert_eq!(one(|it| it.survey.size_bytes = 60_000_000_000).1, State::Note);
    }

    fn session(lapses_at: Timestamp, held: u64) -> SessionView {
        SessionView { worker: WorkerId::new("w1").unwrap(), lapses_at, renewals: 0, held }
    }

    #[test]
    fn a_leaked_lease_is_found() {
        let long_ago = now().minus(Duration::from_secs(300));
        let (check, state, what) = one(|it| it.survey.sessions = vec![session(long_ago, 2)]);
        assert_eq!((check, state), ("leases", State::Bad));
        assert_eq!(what, "2 jobs are held by a worker that is gone, w1 for 5m");
        assert!(found(|it| it.survey.sessions = vec![session(long_ago, 0)]).is_empty());
    }

    #[test]
    fn every_other_fault_is_found() {
        for (check, state, change) in [
            (
                "schema",
                State::Bad,
                (|it| it.survey.missing.push("index x".to_owned())) as fn(&mut Measured),
            ),
            ("schema", State::Bad, |it| it.survey.foreign.push("trigger t on jobs".to_owned())),
            ("schema", State::Note, |it| it.survey.foreign.push("table orders".to_owned())),
            ("schema", State::Note, |it| it.survey.schema = 5),
            ("schema", State::Note, |it| it.survey.schema = 0),
            ("schema", State::Note, |it| it.survey.schema = 7),
            ("schema", State::Bad, |it| (it.survey.schema, it.survey.is_too_new) = (7, true)),
            ("store", State::Bad, |it| it.survey.lost = Some("it ends at event 3".to_owned())),
            ("store", State::Bad, |it| it.survey.read_only = Some("a standby".to_owned())),
            ("letters", State::Note, |it| it.survey.letters = 3),
            ("inbox", State::Bad, |it| it.survey.set_aside = 1),
        ] {
            let found = one(change);
            assert_eq!((found.0, found.1), (check, state), "{}", found.2);
        }
    }

    #[test]
    fn who_has_the_file_is_named() {
        let mut measured = well();
        let address = Some("http://127.0.0.1:7117".to_owned());
        measured.survey.owner = Some(Owner { process: Some(7), address });
        let told = &all(&measured)[0].what;
        assert!(
            told.ends_with("it is open in process 7, which answers at http://127.0.0.1:7117"),
            "{told}"
        );
    }
}
