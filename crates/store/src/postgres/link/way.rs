//! How what is sent to the server is kept safe on its way.
//!
//! Always true of an address: off this machine, the server has to prove who it is and everything is encrypted, unless
//! `sslmode` says otherwise; and only `sslmode=disable` lets a password leave this machine in clear.

use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

use crate::postgres::{Options, Verify};

/// Settles what an address leaves open. `said` is its `sslmode`, if it has one.
pub(crate) fn settle(config: &mut Config, verify: &mut Verify, said: Option<&str>) {
    if is_local(config) {
        return;
    }
    match said {
        None => {
            config.ssl_mode(SslMode::Require);
            if *verify == Verify::Nothing {
                *verify = Verify::System;
            }
        }
        // Whoever answers "no TLS" in the server's place would be sent the password.
        Some("prefer") => {
            config.ssl_mode(SslMode::Require);
        }
        Some(_) => {}
    }
}

impl Options {
    /// Can others on the way read all that is sent, the password included?
    pub fn is_in_clear(&self) -> bool {
        self.config.get_ssl_mode() == SslMode::Disable && !is_local(&self.config)
    }
}

/// Is every server that is named on this machine?
fn is_local(config: &Config) -> bool {
    if !config.get_hostaddrs().is_empty() {
        return config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback);
    }
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            let name = name.trim_start_matches('[').trim_end_matches(']');
            name == "localhost"
                || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    })
}
