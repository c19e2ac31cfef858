//! What a token opens: a tenant of its own, and what its role may do.

use windlass::{Config, Engine, Error, HandlerResult, JobRequest, Refusal, State};
use windlass_kernel::TenantId;
use windlass_store::read::Scope;

use crate::{
    on_both_stores,
    server::{Server, Store},
};

on_both_stores!(a_token_says_whose_jobs_they_are_and_what_may_be_done);

/// The token that was just shown.
fn token(store: &Store, role: &str, tenant: &str) -> String {
    let said = store.ran(&["token", "add", role, "--role", role, "--tenant", tenant]);
    let found = said.split_whitespace().find(|word| word.starts_with("windlass_"));
    found.unwrap_or_else(|| panic!("no token: {said}")).to_owned()
}

async fn a_token_says_whose_jobs_they_are_and_what_may_be_done(store: Store) {
    let tokens = [("worker", "acme"), ("operator", "acme"), ("worker", "*")];
    let [worker, operator, fleet] = tokens.map(|(role, tenant)| token(&store, role, tenant));
    let server = Server::start_with(&store, &["--listen", "127.0.0.1:0"]);

    let config = Config { token: Some("windlass_nobody".to_owned()), ..Config::default() };
    let denied = Engine::open_with(&server.url(), &config).await.unwrap_err();
    assert!(matches!(&denied, Error::Store(error) if error.code() == "DENIED"), "{denied:?}");

    let engine = server.engine_with(&worker).await.unwrap();
    let made = engine.enqueue(JobRequest::of("echo", &1)).await.unwrap();
    assert_eq!(engine.job(made.id).await.unwrap().spec.tenant.as_str(), "acme");
    let other = engine.tenant("other").unwrap();
    assert!(matches!(other.job(made.id).await, Err(Error::NoJob(_))));
    let refused = other.enqueue(JobRequest::of("echo", &1)).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::NotFound { what: "tenant" })), "{refused}");
    let refused = engine.cancel(made.id).await.unwrap_err();
    assert!(refused.to_string().contains("operator"), "{refused}");

    async fn echo(number: u32) -> HandlerResult<u32> {
        Ok(number)
    }
    // Names of workers are each tenant's own, and a fleet works for all of them.
    let fleet = server.engine_with(&fleet).await.unwrap();
    let workers = [
        engine.worker().handle_kind("echo", echo).start().await.unwrap(),
        fleet.worker().handle_kind("fleet", echo).start().await.unwrap(),
    ];
    assert_eq!(engine.wait(made.id).await.unwrap().result::<u32>().unwrap(), 1);
    let made = engine.enqueue(JobRequest::of("fleet", &2)).await.unwrap();
    assert_eq!(engine.wait(made.id).await.unwrap().result::<u32>().unwrap(), 2);
    let scope = Scope::Of(TenantId::new("acme").unwrap());
    assert!(fleet.store().job(&scope, made.id).await.unwrap().is_some());
    for worker in workers {
        worker.shutdown().await.unwrap();
    }
    let operator = server.engine_with(&operator).await.unwrap();
    let made = operator.enqueue(JobRequest::of("nobody", &())).await.unwrap();
    assert_eq!(operator.cancel(made.id).await.unwrap(), State::Cancelled);
    let refused = operator.worker().handle_kind("echo", echo).start().await.unwrap().ended().await;
    assert!(refused.unwrap_err().to_string().contains("may not do this"));
    drop(server);
    store.check();
}
