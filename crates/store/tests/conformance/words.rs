//! The views for people: jobs in the words of the contracts, and events with the trace of their job.
//!
//! A view is held against the document that the kernel makes of the same job. So the words of a view are those of the
//! contract, for every state, before and after the first start.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, types::ValueRef};
use serde_json::{Map, Value, json, value::RawValue};
use windlass_kernel::{
    Job, Payload, State, Timestamp, TraceId,
    contract::{jobs, runs, tasks},
    ops::NewJob,
};

use crate::common::{
    Backend, Home, Scope, TestStore, plain, postgres::SchemaHome, rich::Rich, settle, succeeded,
};

for_each_lasting_backend!(
    views_say_what_the_documents_of_the_contracts_say,
    every_event_has_a_trace,
    a_large_payload_is_whole,
);

type Row = Map<String, Value>;

/// What a person sees who asks with plain SQL.
fn rows(backend: Backend, home: &dyn Home, sql: &str) -> Vec<Row> {
    match backend {
        Backend::Sqlite | Backend::Memory => {
            let connection = Connection::open(home.address()).unwrap();
            let mut statement = connection.prepare(sql).unwrap();
            let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let value = |value: ValueRef<'_>| match value {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(number) => number.into(),
                ValueRef::Text(text) => String::from_utf8(text.to_vec()).unwrap().into(),
                other => panic!("nobody can read {other:?}"),
            };
            let row = |row: &rusqlite::Row<'_>| {
                let cells = names.iter().enumerate();
                Ok(cells
                    .map(|(at, name)| (name.clone(), value(row.get_ref(at).unwrap())))
                    .collect())
            };
            statement.query_map([], row).unwrap().map(Result::unwrap).collect()
        }
        Backend::Postgres => {
            let shell = SchemaHome::at(&home.address()).sql();
            shell.run("SET timezone = 'UTC'");
            let rows =
                shell.query(&format!("SELECT row_to_json(it)::text FROM ({sql}) AS it"), &[]);
            rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
        }
    }
}

/// The same with times as numbers: each database writes them in its own manner.
fn with_times(row: Row) -> Row {
    let time = |(name, value): (String, Value)| match value.as_str() {
        Some(text) if name.ends_with("_at") => {
            let at: Timestamp = text.replace("+00:00", "Z").parse().unwrap();
            (name, at.as_micros().into())
        }
        _ => (name, value),
    };
    row.into_iter().map(time).collect()
}

fn document(document: &impl serde::Serialize) -> Row {
    let Value::Object(fields) = serde_json::to_value(document).unwrap() else { unreachable!() };
    with_times(fields)
}

/// A view by what names its rows.
fn view(rich: &Rich, backend: Backend, name: &str, id: &str) -> BTreeMap<(String, String), Row> {
    let rows = rows(backend, rich.home.as_ref(), &format!("SELECT * FROM {name}"));
    let count = rows.len();
    let text = |row: &Row, name: &str| row[name].as_str().unwrap().to_owned();
    let key = |row: Row| ((text(&row, "tenant_id"), text(&row, id)), with_times(row));
    let found: BTreeMap<_, _> = rows.into_iter().map(key).collect();
    assert_eq!(found.len(), count, "{name} has a row twice");
    found
}

/// Lives until every state that a row can have was seen, before and after the first start.
fn full(backend: Backend) -> Rich {
    let passing = [State::DlqPending, State::DlqRecorded];
    let mut wanted: BTreeSet<(&str, bool)> = BTreeSet::new();
    for state in State::ALL.iter().filter(|state| !passing.contains(state)) {
        let bits = [false, true].into_iter().filter(|bit| state.allows_started(*bit));
        wanted.extend(bits.map(|bit| (state.as_str(), bit)));
    }
    let mut rich = Rich::new(backend);
    for seed in 1..=20 {
        rich.live(seed, 400, 6);
        let jobs = rich.world.store.jobs.values();
        let seen = jobs.map(|job| (job.state.as_str(), job.has_started()));
        if wanted.is_subset(&seen.collect()) {
            return rich;
        }
    }
    panic!("some state was never seen");
}

fn views_say_what_the_documents_of_the_contracts_say(backend: Backend) {
    let rich = full(backend);
    let twin: Vec<&Job> = rich.world.store.jobs.values().collect();
    let (of_runs, of_jobs) = (
        view(&rich, backend, "task_runs", "run_id"),
        view(&rich, backend, "contract_jobs", "job_id"),
    );
    let of_tasks = view(&rich, backend, "scheduler_tasks", "task_id");
    assert_eq!((of_runs.len(), of_jobs.len()), (twin.len(), twin.len()));
    let mut newest: BTreeMap<(String, String), &Job> = BTreeMap::new();
    for job in twin {
        let (tenant, id) = (job.spec.tenant.to_string(), job.id.to_string());
        let mut expected = document(&runs::RunDocument::new(job));
        expected.insert("tenant_id".to_owned(), tenant.clone().into());
        assert_eq!(of_runs[&(tenant.clone(), id.clone())], expected);

        let payload = rich.wait(rich.store.payload(&Scope::Every, job.id));
        let raw = payload.clone().map(|text| RawValue::from_string(text).unwrap());
        let mut expected = document(&jobs::JobDocument::new(job, raw.as_deref()));
        expected.insert("payload_json".to_owned(), json!(payload));
        assert_eq!(of_jobs[&(tenant.clone(), id)], expected);

        let task = newest.entry((tenant, job.spec.task_id.to_string())).or_insert(job);
        if task.attempt < job.attempt {
            *task = job;
        }
    }
    assert!(of_tasks.len() < of_runs.len(), "no task ran again");
    assert_eq!(of_tasks.len(), newest.len());
    for ((tenant, task), job) in newest {
        let mut expected = document(&tasks::TaskDocument::new(job));
        expected.insert("tenant_id".to_owned(), tenant.clone().into());
        assert_eq!(of_tasks[&(tenant, task)], expected);
    }
}

fn every_event_has_a_trace(backend: Backend) {
    let rich = full(backend);
    let sql = "SELECT job_id, job_number, trace_id FROM events WHERE job_number IS NOT NULL";
    let key = |row: &Row| (row["job_id"].as_str().unwrap().to_owned(), row["job_number"].as_u64());
    let seen = rows(backend, rich.home.as_ref(), sql);
    let seen: BTreeMap<_, _> =
        seen.into_iter().map(|row| (key(&row), row["trace_id"].clone())).collect();
    for job in rich.world.store.jobs.values() {
        for event in rich.wait(rich.store.events(&Scope::Every, job.id)) {
            let trace = event.trace_id.as_ref().unwrap_or(&job.spec.trace_id);
            let shown = &seen[&(job.id.to_string(), Some(event.number))];
            assert_eq!(shown.as_str(), Some(trace.as_str()), "{} {}", job.id, event.number);
        }
    }
    // A trace that was given, and an op that brings another.
    let test = TestStore::new(backend);
    let trace = |text: &str| Some(TraceId::new(text).unwrap());
    let id = test.enqueue(1, NewJob { trace_id: trace("given"), ..plain() });
    let epoch = test.claim("w1", 1, 1)[0].job.epoch;
    let mut end = settle(id, epoch, succeeded());
    end.by.trace_id = trace("own");
    test.op(end).unwrap();
    let seen = rows(backend, test.home.as_ref(), "SELECT trace_id FROM events ORDER BY number");
    let seen: Vec<&str> = seen.iter().map(|row| row["trace_id"].as_str().unwrap()).collect();
    assert_eq!(seen, ["given", "given", "given", "own"]);
}

fn a_large_payload_is_whole(backend: Backend) {
    let test = TestStore::new(backend);
    let text = format!("[\"{}\"]", "x".repeat(300_000));
    test.enqueue(1, NewJob { payload: Payload::parse(&text, 1 << 20).unwrap(), ..plain() });
    let found = rows(backend, test.home.as_ref(), "SELECT payload_json FROM contract_jobs");
    assert_eq!(found[0]["payload_json"], json!(text));
}
