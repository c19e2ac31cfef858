//! TLS: encrypted when it is asked for, and refused when nobody vouches for the server.

use std::{
    error::Error as _,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
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

/// Opens a store, and says whether all its connections are encrypted; or what is said instead.
fn open(secure: &Secure, query: &str) -> Result<bool, String> {
    let port = secure.cluster.port();
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?{query}");
    let options = Options::parse(&url).unwrap();
    let runtime = runtime(1);
    let store = runtime.block_on(Postgres::open(options)).map_err(|error| {
        let mut said = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            said = format!("{said}: {next}");
            cause = next.source();
        }
        said
    })?;
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
fn a_server_without_tls_is_refused_when_tls_is_asked_for() {
    let port = Cluster::shared().port();
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=require");
    let opened = runtime(1).block_on(Postgres::open(Options::parse(&url).unwrap()));
    let said = opened.err().unwrap().source().unwrap().to_string();
    assert!(said.to_lowercase().contains("tls"), "{said}");
}
