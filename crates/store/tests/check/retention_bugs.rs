//! Bugs of retention: a job that goes too early, alive, or by halves.

use windlass_store::check::Invariant;

use crate::plant::Planted;

/// Forgets the first such job by hand: notes it with these values, then runs what else is to happen.
fn forget(victim: &str, note: &str, then: &[&str], rules: &[Invariant]) {
    let planted = Planted::new();
    let id = format!("x'{:032x}'", planted.victim(victim).as_u128());
    let job = format!("(SELECT seq FROM jobs WHERE id = {id})");
    let note = format!(
        "INSERT INTO pruned (id, at, least_ms, version, rows)
         SELECT id, {note}, version, length(history) / 8 - 4
             + (SELECT count(*) FROM job_log WHERE job_log.seq = jobs.seq)
         FROM jobs WHERE id = {id}"
    );
    let then = then.iter().map(|sql| sql.replace(":job", &job).replace(":id", &id));
    let sql: Vec<String> = [note].into_iter().chain(then).collect();
    planted.plant(&sql.join(";")).check_names(rules);
}

const AN_HOUR_LATER: &str = "updated_at + 3600000000, 600000";
const PARTS: &[&str] = &[
    "DELETE FROM payloads WHERE seq = :job",
    "DELETE FROM outputs WHERE seq = :job",
    "DELETE FROM job_log WHERE seq = :job",
    "DELETE FROM progress WHERE seq = :job",
    "DELETE FROM steps WHERE seq = :job",
    "DELETE FROM signals WHERE seq = :job",
    "DELETE FROM effects WHERE seq = :job",
];
const ROW: &str = "DELETE FROM jobs WHERE id = :id";

/// A job that nothing else is about.
const ALONE: &str =
    "task_id IS NULL AND id NOT IN (SELECT task_id FROM tasks WHERE typeof(task_id) = 'blob')";

/// Without a parent or a child, which would be left behind.
const NO_FAMILY: &str =
    "seq NOT IN (SELECT seq FROM children) AND id NOT IN (SELECT parent FROM children)";

fn alone(state: &str) -> String {
    format!("state = '{state}' AND {ALONE}")
}

fn all() -> Vec<&'static str> {
    PARTS.iter().copied().chain([ROW]).collect()
}

#[test]
fn nothing_is_wrong_with_a_job_that_was_forgotten_in_time() {
    forget(&alone("succeeded"), AN_HOUR_LATER, &all(), &[]);
    forget(&alone("cancelled"), AN_HOUR_LATER, &all(), &[]);
}

#[test]
fn a_job_is_gone_and_nobody_forgot_it() {
    let unnoted: Vec<&str> =
        all().into_iter().chain(["DELETE FROM pruned WHERE id = :id"]).collect();
    forget(&alone("succeeded"), AN_HOUR_LATER, &unnoted, &[Invariant::Owner]);
}

#[test]
fn a_job_is_forgotten_early() {
    forget(&alone("succeeded"), "updated_at + 599999000, 600000", &all(), &[Invariant::Retention]);
    forget(&alone("succeeded"), "updated_at - 1, 0", &all(), &[Invariant::Retention]);
}

#[test]
fn a_job_is_forgotten_alive() {
    for state in ["queued", "waiting", "running", "retry_scheduled"] {
        let victim = format!("state = '{state}' AND {NO_FAMILY}");
        forget(&victim, "updated_at + 3600000000, 600000", &all(), &[Invariant::Retention]);
    }
}

#[test]
fn half_a_job_is_left() {
    forget(&alone("succeeded"), AN_HOUR_LATER, &[], &[Invariant::Retention]);
    let result = format!("seq IN (SELECT seq FROM outputs) AND {}", alone("succeeded"));
    forget(&result, AN_HOUR_LATER, &[PARTS[0], PARTS[2], PARTS[3], ROW], &[Invariant::Owner]);
    let open = "id IN (SELECT job_id FROM dlq_items WHERE state = 'open')";
    forget(open, AN_HOUR_LATER, &all(), &[Invariant::OneLetter]);
}

#[test]
fn a_line_is_taken_that_belonged_to_someone() {
    // The first commit speaks of jobs that are there.
    let sql = "
        DELETE FROM log WHERE id = 1;
        DELETE FROM acts WHERE event < (SELECT min(id) FROM log);
        INSERT INTO meta (name, value) SELECT 'feed_from', min(id) FROM log";
    Planted::new().plant(sql).check_names(&[Invariant::LogPointers]);
}

#[test]
fn numbers_would_come_again() {
    let sql = "
        INSERT INTO meta (name, value) SELECT 'feed_from', max(id) + count + 1 FROM log";
    Planted::new().plant(sql).check_names(&[Invariant::LogContiguous]);
}

#[test]
fn a_forgotten_job_is_counted_wrongly() {
    let more = ["UPDATE pruned SET rows = rows + 1"];
    let then: Vec<&str> = all().into_iter().chain(more).collect();
    forget(&alone("succeeded"), AN_HOUR_LATER, &then, &[Invariant::Retention]);
    let nobody =
        "INSERT INTO pruned (id, at, least_ms, version, rows) VALUES (zeroblob(16), 1, 1, 1, 1)";
    Planted::new().plant(nobody).check_names(&[Invariant::Retention]);
}

#[test]
fn a_child_is_not_known_to_its_parent() {
    Planted::new().plant("DELETE FROM children").check_names(&[Invariant::Owner]);
    let other = "INSERT INTO children SELECT zeroblob(16), max(seq) + 1 FROM jobs";
    Planted::new().plant(other).check_names(&[Invariant::Owner]);
}
