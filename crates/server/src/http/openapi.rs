//! The documents of the API, written from the table of routes.

use std::fmt::Write as _;

use axum::http::StatusCode;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use windlass::wire::ProblemDocument;
use windlass_kernel::{Failure, Refusal, refusal::CodeInfo};

use super::{
    core::{
        caller::Access,
        problem::{self, Problem},
        route::{Answer, Call, Route},
    },
    routes::ROUTES,
};

/// `GET /openapi.json`
pub(crate) async fn openapi(_call: Call) -> Result<Answer, Problem> {
    Ok(Answer::ok(&document()))
}

/// OpenAPI 3.1, with every route that is not for development alone.
pub(crate) fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut schemas = settings.into_generator();
    let problem = schemas.subschema_for::<ProblemDocument>();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let mut operation = json!({
            "operationId": operation_id(route),
            "tags": [route.tag],
            "summary": route.summary,
            "description": description(route),
            "parameters": parameters(route),
        });
        if let Some(body) = route.body {
            operation["requestBody"] =
                json!({ "content": { "application/json": { "schema": body(&mut schemas) } } });
        }
        let mut responses = Map::new();
        for (status, answer) in route.answers {
            let content = json!({ "application/json": { "schema": answer(&mut schemas) } });
            let described = json!({ "description": route.summary, "content": content });
            responses.insert(status.to_string(), described);
        }
        if route.answers.is_empty() {
            responses.insert("200".to_owned(), json!({ "description": route.summary }));
        }
        let content = json!({ "application/problem+json": { "schema": problem } });
        let described = json!({ "description": "A problem.", "content": content });
        responses.insert("default".to_owned(), described);
        operation["responses"] = Value::Object(responses);
        operation["security"] = match route.access {
            Access::Open => json!([]),
            _ => json!([{ "token": [] }]),
        };
        let roles = route.access.roles().iter().map(|role| role.as_str());
        operation["x-windlass-roles"] = match route.access {
            Access::Open => json!([]),
            _ => roles.collect(),
        };
        if route.dev {
            operation["x-windlass-dev"] = json!(true);
        }
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Background work that is not lost, not done twice, and can be explained.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// `GET /api/v1/jobs/{id}/events` is `get_jobs_id_events`.
fn operation_id(route: &Route) -> String {
    let path = route.path.trim_start_matches("/api/v1").replace(['{', '}'], "");
    let words: Vec<&str> = path.split(['/', '-', '.']).filter(|word| !word.is_empty()).collect();
    format!("{}_{}", route.method.to_lowercase(), words.join("_"))
}

fn description(route: &Route) -> String {
    let roles: Vec<&str> = route.access.roles().iter().map(|role| role.as_str()).collect();
    let who = match route.access {
        Access::Open => "Anybody may call it.".to_owned(),
        _ => format!("Roles: {}.", roles.join(", ")),
    };
    let dev = if route.dev { " It is there only in development." } else { "" };
    format!("{who}{dev}")
}

fn parameters(route: &Route) -> Vec<Value> {
    let in_path =
        route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
    });
    let in_query = route.query.iter().map(|param| {
        json!({ "name": param.name, "in": "query", "description": param.doc, "schema": { "type": "string" } })
    });
    in_path.chain(in_query).collect()
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#1b1f24;background:#fff}h1{margin-bottom:0}h2{margin-top:2.5rem;text-transform:capitalize;\
border-bottom:1px solid #d0d7de}section{margin:1.2rem 0}code{font:14px ui-monospace,monospace;\
background:#f3f4f6;padding:.1rem .3rem;border-radius:3px}b.m{display:inline-block;min-width:4.2rem;\
font:600 13px ui-monospace,monospace;color:#0550ae}p{margin:.2rem 0}dl{margin:.3rem 0 0 4.2rem}\
dt{font:14px ui-monospace,monospace}dd{margin:0 0 .3rem 1.5rem;color:#57606a}small{color:#57606a}\
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}code{background:#161b22}\
h2{border-color:#30363d}dd,small{color:#8b949e}b.m{color:#79c0ff}}";

/// `GET /docs`: the same for people, on one page that needs nothing else.
pub(crate) async fn page(_call: Call) -> Result<Answer, Problem> {
    Ok(html_answer(html()))
}

fn html() -> String {
    let document = document();
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport \
         content=\"width=device-width\"><title>Windlass API</title><style>{STYLE}</style>\
         <h1>Windlass API</h1><p><small>Version {}. The same for programs: \
         <a href=/openapi.json>/openapi.json</a>.</small></p>",
        env!("CARGO_PKG_VERSION")
    );
    let mut chapter = "";
    for route in ROUTES {
        if route.tag != chapter {
            chapter = route.tag;
            let _ = write!(page, "<h2>{}</h2>", escaped(chapter));
        }
        let _ = write!(
            page,
            "<section><p><b class=m>{}</b> <code>{}</code></p><dl><dd>{} <small>{}</small></dd>",
            route.method,
            escaped(route.path),
            escaped(route.summary),
            escaped(&description(route))
        );
        for param in route.query {
            let _ = write!(page, "<dt>?{}</dt><dd>{}</dd>", param.name, escaped(param.doc));
        }
        let operation = &document["paths"][route.path][route.method.to_lowercase()];
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        for (name, doc) in fields(&document, schema) {
            let _ = write!(page, "<dt>{}</dt><dd>{}</dd>", escaped(&name), escaped(&doc));
        }
        page.push_str("</dl></section>");
    }
    page
}

/// The fields of a body, with what they mean.
fn fields(document: &Value, schema: &Value) -> Vec<(String, String)> {
    let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    let Some(name) = name else { return Vec::new() };
    let properties = document["components"]["schemas"][name]["properties"].as_object();
    let field = |(name, schema): (&String, &Value)| {
        (name.clone(), schema["description"].as_str().unwrap_or("").to_owned())
    };
    properties.map(|all| all.iter().map(field).collect()).unwrap_or_default()
}

/// `GET /docs/errors`: every code, and what to do about it.
pub(crate) async fn errors(_call: Call) -> Result<Answer, Problem> {
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Windlass errors</title>\
         <style>{STYLE}</style><h1>Errors</h1>"
    );
    for info in codes() {
        let _ = write!(
            page,
            "<section id={}><p><code>{}</code></p><dl><dd>{} <small>{}</small></dd></dl></section>",
            info.code,
            info.code,
            escaped(info.meaning),
            escaped(info.remedy)
        );
    }
    Ok(html_answer(page))
}

fn codes() -> impl Iterator<Item = &'static CodeInfo> {
    let all = [Refusal::CODES, Failure::CODES, windlass_store::Error::CODES, problem::CODES];
    all.into_iter().flatten()
}

fn html_answer(page: String) -> Answer {
    let mut answer = Answer::text(StatusCode::OK, "text/html; charset=utf-8", page);
    let policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
                  form-action 'none'; frame-ancestors 'none'";
    let headers = answer.0.headers_mut();
    headers.insert("content-security-policy", axum::http::HeaderValue::from_static(policy));
    answer
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_document_that_is_committed_is_up_to_date() {
        let page = serde_json::to_string_pretty(&document()).unwrap();
        windlass_testkit::docs::compare_page("openapi.json", &(page + "\n"));
    }

    #[test]
    fn every_route_stands_in_the_document_once_and_has_its_own_name() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let count: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(count, ROUTES.len());
        let ids: BTreeSet<String> = ROUTES.iter().map(operation_id).collect();
        assert_eq!(ids.len(), ROUTES.len());
    }

    /// What a contract shows is written down by its contract, and a replay is for development.
    #[test]
    fn every_other_answer_says_what_it_holds() {
        let mut schemas = SchemaSettings::draft2020_12().into_generator();
        for route in ROUTES {
            let is_elsewhere = ["/api/v1/task", "/api/v1/internal/", "/openapi.json"];
            let is_elsewhere = is_elsewhere.iter().any(|path| route.path.starts_with(path));
            let says_nothing =
                route.answers.iter().any(|(_, answer)| json!(answer(&mut schemas)) == json!(true));
            assert!(is_elsewhere || !says_nothing, "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn what_a_schema_points_at_is_there() {
        let document = document();
        let text = document.to_string();
        for part in text.split("\"$ref\":\"#").skip(1) {
            let path = part.split('"').next().unwrap();
            assert!(document.pointer(path).is_some(), "{path}");
        }
    }
}
