//! TLS with the user's own certificate, which is read again when it has changed.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Where a certificate and its key are.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The certificate that is used now.
#[derive(Clone)]
pub(crate) struct Tls {
    config: watch::Receiver<Arc<ServerConfig>>,
}

/// A certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}: {why}", path.display())]
pub(crate) struct Error {
    path: PathBuf,
    why: String,
}

impl Tls {
    /// How often the files are looked at.
    const LOOK: Duration = Duration::from_secs(5);

    /// Reads the files, and again whenever they have changed. What cannot be used then is told, and the old one stays.
    pub(crate) fn open(files: Files) -> Result<Self, Error> {
        let (sender, config) = watch::channel(Arc::new(read(&files)?));
        let mut known = changed_at(&files);
        tokio::spawn(async move {
            while !sender.is_closed() {
                tokio::time::sleep(Self::LOOK).await;
                let now = changed_at(&files);
                if now == known {
                    continue;
                }
                known = now;
                match read(&files) {
                    Ok(config) => {
                        tracing::info!("the certificate was read again");
                        sender.send_replace(Arc::new(config));
                    }
                    Err(error) => tracing::error!(%error, "the old certificate stays"),
                }
            }
        });
        Ok(Self { config })
    }

    /// What a new connection uses.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.config.borrow().clone().into()
    }
}

fn changed_at(files: &Files) -> [Option<SystemTime>; 2] {
    let changed = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    [changed(&files.certificate), changed(&files.key)]
}

fn read(files: &Files) -> Result<ServerConfig, Error> {
    let fail = |path: &Path, why: String| Error { path: path.to_owned(), why };
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| fail(&files.certificate, error.to_string()))?;
    if certificates.is_empty() {
        return Err(fail(&files.certificate, "it holds no certificate in PEM".to_owned()));
    }
    check_mode(&files.key).map_err(|error| fail(&files.key, error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(&files.key);
    let key = key.map_err(|error| fail(&files.key, error.to_string()))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(&files.certificate, error.to_string()))?;
    let config = builder.with_no_client_auth().with_single_cert(certificates, key);
    let mut config = config.map_err(|error| fail(&files.key, error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A key that everybody on the machine can read is no secret.
fn check_mode(key: &Path) -> io::Result<()> {
    let mode = fs::metadata(key)?.permissions().mode();
    if mode & 0o007 != 0 {
        let why = format!("everybody can read it; run chmod 600 {}", key.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}
