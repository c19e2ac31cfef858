//! A client and a worker over `https://`: they talk to whom this machine's authorities vouch for, and to nobody else.

use std::{env, fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use windlass::{Engine, HandlerResult, JobRequest};

use crate::server::{Server, Store, block_on};

/// Names the server to the process that is its client.
const SERVER: &str = "TEST_HTTPS_SERVER";

#[test]
fn a_worker_works_for_a_server_that_the_authorities_vouch_for() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("server.pem"), folder.path().join("server.key"));
    let (authority, stranger) = (folder.path().join("ours.pem"), folder.path().join("other.pem"));
    let issuer = make_authority(&authority);
    make_authority(&stranger);
    let own = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(&certificate, params.signed_by(&own, &issuer).unwrap().pem()).unwrap();
    fs::write(&key, own.serialize_pem()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let files = ["--tls-certificate", certificate.to_str().unwrap(), "--tls-key"];
    let args = ["--dev", "--listen", "127.0.0.1:0", files[0], files[1], files[2]];
    let store = Store::sqlite();
    let server = Server::start_with(&store, &[&args[..], &[key.to_str().unwrap()]].concat());
    let url = format!("https://{}", server.address());
    let (is_done, said) = run_client(&url, &authority);
    assert!(is_done, "{said}");
    let (is_done, said) = run_client(&url, &stranger);
    assert!(!is_done && said.contains("certificate"), "{said}");
    drop(server);
    store.check();
}

/// The authorities of a process are said by a variable, so the client is a process of its own.
fn run_client(url: &str, authority: &Path) -> (bool, String) {
    let run = Command::new(env::current_exe().unwrap())
        .args(["--exact", "https::the_client", "--nocapture"])
        .env(SERVER, url)
        .env("SSL_CERT_FILE", authority)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    (run.status.success(), said.into_owned())
}

/// The other process. It is a test so that it can be started, and does nothing by itself.
#[test]
fn the_client() {
    let Ok(url) = env::var(SERVER) else { return };
    block_on(async move {
        async fn double(number: u32) -> HandlerResult<u32> {
            Ok(number * 2)
        }
        let engine = Engine::open(&url).await.unwrap();
        let worker = engine.worker().handle_kind("double", double).start().await.unwrap();
        let made = engine.enqueue(JobRequest::of("double", &21)).await.unwrap();
        assert_eq!(engine.wait(made.id).await.unwrap().result::<u32>().unwrap(), 42);
        let scope = windlass::Scope::Every;
        let verified = engine.store().verify(&scope, made.id).await.unwrap().unwrap();
        assert!(verified.is_whole() && verified.events == 4, "{verified:?}");
        worker.shutdown().await.unwrap();
    });
}

fn make_authority(file: &Path) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, file.to_string_lossy().into_owned());
    let key = KeyPair::generate().unwrap();
    fs::write(file, params.self_signed(&key).unwrap().pem()).unwrap();
    Issuer::new(params, key)
}
