//! A field that nobody knows is refused, wherever in a request it stands: a slip in a name must not mean its default.
//!
//! The places come from the server's own OpenAPI document, so a new body is tried without being named here.

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::{
    client::{Answer, client, send},
    on_both_stores,
    server::{Server, Store},
};

on_both_stores!(
    a_field_that_nobody_knows_is_refused_at_every_level,
    a_call_without_a_body_takes_none,
    a_scope_that_names_nothing_is_refused,
);

/// What callers fill as they like.
const FREE: [&str; 8] =
    ["payload", "progress", "result", "remaining", "stats", "input", "output", "state"];

/// A way down a body: names of fields, and `[]` for the entries of a list.
type Place = Vec<String>;

/// Every object of a schema, each as the way to it.
fn objects(document: &Value, schema: &Value, at: &Place, found: &mut Vec<Place>) {
    if let Some(path) = schema["$ref"].as_str() {
        let pointed = document.pointer(path.trim_start_matches('#')).expect("it is there");
        return objects(document, pointed, at, found);
    }
    for choice in ["anyOf", "oneOf", "allOf"] {
        for schema in schema[choice].as_array().into_iter().flatten() {
            objects(document, schema, at, found);
        }
    }
    if !schema["items"].is_null() {
        objects(document, &schema["items"], &below(at, "[]"), found);
    }
    let Some(properties) = schema["properties"].as_object() else {
        let says_nothing = schema.as_object().is_none_or(|it| {
            it.keys().all(|key| key == "description" || key == "default" || key == "title")
        });
        let is_free = at.last().is_some_and(|name| FREE.contains(&name.as_str()));
        assert!(!says_nothing || is_free, "the schema does not say what {at:?} holds");
        return;
    };
    assert_eq!(schema["additionalProperties"], json!(false), "{at:?} takes any field");
    found.push(at.clone());
    for (name, schema) in properties {
        objects(document, schema, &below(at, name), found);
    }
}

fn below(at: &Place, name: &str) -> Place {
    at.iter().cloned().chain([name.to_owned()]).collect()
}

async fn ask(server: &Server, method: Method, path: &str, body: &Value) -> Answer {
    let request = client().request(method, server.url(path)).body(body.to_string());
    send(request.header("content-type", "application/json")).await.expect("it answers")
}

/// A body with nothing in it but the way to this place, and there a field that nobody knows.
fn slip(place: &[String]) -> Value {
    match place {
        [] => json!({"nobody_knows_me": 1}),
        [name, rest @ ..] if name == "[]" => json!([slip(rest)]),
        [name, rest @ ..] => Value::Object(Map::from_iter([(name.clone(), slip(rest))])),
    }
}

async fn a_field_that_nobody_knows_is_refused_at_every_level(store: Store) {
    let server = Server::start(&store);
    let job = server.post("/api/v1/jobs", "{}").await.ok().at("/job/job_id");
    let document = server.get("/openapi.json").await.json();
    let (mut bodies, mut places) = (0, 0);
    for (path, methods) in document["paths"].as_object().expect("paths by name") {
        for (method, operation) in methods.as_object().expect("methods by name") {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if schema.is_null() {
                continue;
            }
            let mut found = Vec::new();
            match path.as_str() {
                // Its contract writes down what it holds.
                "/api/v1/tasks" => found.extend([vec![], vec!["retry".to_owned()]]),
                _ => objects(&document, schema, &Vec::new(), &mut found),
            }
            assert!(!found.is_empty(), "{method} {path}");
            bodies += 1;
            for place in found {
                places += 1;
                let method = Method::from_bytes(method.to_uppercase().as_bytes()).expect("one");
                let url = path.replace("{id}", &job).replace("{name}", "some");
                let body = slip(&place);
                let answer = ask(&server, method.clone(), &url, &body).await;
                let is_told = answer.text.contains("nobody_knows_me");
                // Entries of a list that stand for themselves have answers of their own.
                let is_refused = answer.status == 422
                    || answer.status == 200 && answer.text.contains("\"code\":\"INVALID_INPUT\"");
                assert!(is_told && is_refused, "{method} {url} {body}: {}", answer.text);
            }
        }
    }
    // As many as there were when this was written, so that the walk cannot lose its way unseen.
    assert!(bodies >= 26 && places >= 40, "{bodies} bodies, {places} places");
}

async fn a_call_without_a_body_takes_none(store: Store) {
    let server = Server::start(&store);
    let made = json!({"name": "some", "every_ms": 60_000, "job": {}}).to_string();
    server.post("/api/v1/schedules", &made).await.ok();
    let resume = "/api/v1/schedules/some/resume";
    let answer = server.post(resume, r#"{"reason": "mended"}"#).await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    assert!(answer.text.contains("this call takes none"), "{}", answer.text);
    for nothing in ["", "{}", " {}\n"] {
        server.post(resume, nothing).await.ok();
    }
}

async fn a_scope_that_names_nothing_is_refused(store: Store) {
    let server = Server::start(&store);
    let put = async |body: &Value| ask(&server, Method::PUT, "/api/v1/rules/x", body).await;
    for scope in [json!({}), json!({"kinds": []}), json!(null), json!([]), json!("mail")] {
        let answer = put(&json!({"scope": scope, "says": "pause"})).await;
        assert_eq!(answer.status, 422, "{scope}: {}", answer.text);
    }
    let kind = put(&json!({"scope": {"kind": "mail"}, "says": "pause"})).await;
    assert_eq!(kind.status, 422, "{}", kind.text);
    assert_eq!(server.get("/api/v1/rules").await.json()["items"], json!([]));
    // Whoever means everything leaves it out.
    put(&json!({"says": "pause"})).await.ok();
}
