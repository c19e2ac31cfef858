//! TLS: encrypted when it is asked for, and refused when nobody vouches for the server.

use std::{
    error::Error as _,
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use rcgen::{CertificateParams, Issuer, KeyPair};
use windlass_store::postgres::{Options, Postgres};
use windlass_testkit::postgres::{self, Cluster};

use crate::common::runtime;

/// A server with a certificate for its address, and the authority that vouches for it.
struct Secure {
    cluster: Cluster,
    authority: PathBuf,
    stranger: PathBuf,
}

fn secure() -> Secure {
    let cluster = Cluster::start(&postgres::Options { fsync: false, ..Default::default() });
    let folder = cluster.socket_dir().to_owned();
    let (authority, stranger) = (folder.join("authority.pem"), folder.join("stranger.pem"));
    let (issuer, pem) = make_authority("an authority");
    fs::write(&authority, pem).unwrap();
    fs::write(&stranger, make_authority("a stranger").1).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    for (name, text) in [("server.pem", certificate.pem()), ("server.key", key.serialize_pem())] {
        give(&folder, name, &text);
    }
    let at = folder.display();
    cluster.psql(&format!("ALTER SYSTEM SET ssl_cert_file = '{at}/server.pem'"));
    cluster.psql(&format!("ALTER SYSTEM SET ssl_key_file = '{at}/server.key'"));
    cluster.psql("ALTER SYSTEM SET ssl = on");
    cluster.restart(postgres::Stop::Fast);
    Secure { cluster, authority, stranger }
}

fn make_authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

/// A file that belongs to the server, for it takes no key that others may read.
fn give(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let owner = fs::metadata(folder).unwrap();
    chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// The address of a server on another machine, which is this one all the same.
fn elsewhere(port: u16, query: &str) -> Options {
    let url = format!("postgres://postgres:hunter2@db.example:{port}/postgres?{query}");
    let mut options = Options::parse(&url).unwrap();
    options.config.hostaddr(std::net::Ipv4Addr::LOCALHOST.into());
    options
}

/// All that is said about a store that cannot be opened.
fn said(error: &windlass_store::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        said = format!("{said}: {next}");
        cause = next.source();
    }
    said
}

/// Opens a store, and says whether all its connections are encrypted; or what is said instead.
fn open(secure: &Secure, query: &str) -> Result<bool, String> {
    let port = secure.cluster.port();
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?{query}");
    let runtime = runtime(1);
    let store = runtime
        .block_on(Postgres::open(Options::parse(&url).unwrap()))
        .map_err(|error| said(&error))?;
    let sql = "
        SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'windlass'";
    let is_encrypted = secure.cluster.psql(sql) == "t";
    drop(store);
    Ok(is_encrypted)
}

#[test]
fn it_is_encrypted_when_asked_for_and_verified_when_asked_for() {
    let secure = secure();
    assert_eq!(open(&secure, "sslmode=disable"), Ok(false));
    assert_eq!(open(&secure, "sslmode=require"), Ok(true));
    let (authority, stranger) = (secure.authority.display(), secure.stranger.display());
    let verified = open(&secure, &format!("sslmode=verify-full&sslrootcert={authority}"));
    assert_eq!(verified, Ok(true));
    let said = open(&secure, &format!("sslmode=verify-full&sslrootcert={stranger}")).unwrap_err();
    assert!(said.contains("certificate"), "{said}");
    let said = open(&secure, "sslmode=verify-full&sslrootcert=/nowhere.pem").unwrap_err();
    assert!(said.contains("/nowhere.pem"), "{said}");
}

#[test]
fn a_server_on_another_machine_has_to_prove_who_it_is_unless_it_need_not() {
    let secure = secure();
    let port = secure.cluster.port();
    let opened = |query: &str| {
        let runtime = runtime(1);
        runtime
            .block_on(Postgres::open(elsewhere(port, query)))
            .map(drop)
            .map_err(|error| said(&error))
    };
    let unproven = opened("").unwrap_err();
    assert!(unproven.contains("certificate"), "{unproven}");
    // It has a certificate of somebody whom we trust, and for another name.
    let authority = secure.authority.display();
    let unproven = opened(&format!("sslrootcert={authority}")).unwrap_err();
    assert!(unproven.contains("certificate"), "{unproven}");
    assert_eq!(opened("sslmode=require"), Ok(()));
    assert_eq!(opened("sslmode=prefer"), Ok(()));
}

/// Listens as a server that has no TLS does, or whoever takes its place: it says so, and asks for the password. It gives
/// back all that it is sent.
fn listen_in_clear() -> (u16, mpsc::Receiver<Vec<u8>>) {
    const NO_TLS: &[u8] = b"N";
    const SEND_THE_PASSWORD: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let (mut all, mut part) = (Vec::new(), [0; 1024]);
            for answer in [NO_TLS, SEND_THE_PASSWORD, b""] {
                let Ok(length) = stream.read(&mut part) else { break };
                all.extend_from_slice(&part[..length]);
                // Who asks for no TLS begins with what others say second.
                let is_question = part[..length].starts_with(&[0, 0, 0, 8]);
                let answer =
                    if is_question || answer.is_empty() { answer } else { SEND_THE_PASSWORD };
                if length == 0 || stream.write_all(answer).is_err() {
                    break;
                }
            }
            let _ = tell.send(all);
        }
    });
    (port, told)
}

#[test]
fn no_password_is_sent_in_clear_to_a_server_that_says_it_has_no_tls() {
    let (port, told) = listen_in_clear();
    let sent = |query: &str| {
        let opened = runtime(1).block_on(Postgres::open(elsewhere(port, query)));
        let error = said(&opened.err().expect("it is no server"));
        (told.recv_timeout(Duration::from_secs(60)).expect("somebody came"), error)
    };
    let has_password = |bytes: &[u8]| bytes.windows(7).any(|part| part == b"hunter2");
    for query in ["", "sslmode=prefer", "sslmode=require", "sslmode=verify-full"] {
        let (bytes, error) = sent(query);
        assert!(!has_password(&bytes), "{query:?}: the password is sent");
        assert_eq!(bytes.len(), 8, "{query:?}: more than the question for TLS is sent");
        assert!(error.to_lowercase().contains("tls"), "{query:?}: {error}");
    }
    // Only whoever says so sends it.
    assert!(has_password(&sent("sslmode=disable").0), "the password is not asked for");
}

#[test]
fn a_server_without_tls_is_refused_when_tls_is_asked_for() {
    let port = Cluster::shared().port();
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=require");
    let opened = runtime(1).block_on(Postgres::open(Options::parse(&url).unwrap()));
    let said = opened.err().unwrap().source().unwrap().to_string();
    assert!(said.to_lowercase().contains("tls"), "{said}");
}
