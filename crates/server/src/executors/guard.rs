//! The guard: which addresses a call to another server may reach.
//!
//! A name is looked up once for each connection, what may not be reached is taken out, and the connection goes to
//! what is left: there is no second look that could find something else. An address that stands in a URL is never
//! looked up, so it is checked by itself.
//!
//! Always true here: an address that is not known to be public is refused, unless the config allows it. The message of a
//! refusal names no address that the caller did not name.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use windlass::BoxFuture;

/// Finds the addresses of a name.
pub(crate) type Lookup = Arc<dyn Fn(String) -> BoxFuture<io::Result<Vec<IpAddr>>> + Send + Sync>;

/// Decides where calls may go. Clones are the same guard.
#[derive(Clone)]
pub(crate) struct Guard {
    allow: Arc<[Allowed]>,
    lookup: Lookup,
}

/// A call that may not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotAllowed(String);

impl Guard {
    /// Asks the operating system for names.
    pub(crate) fn new(allow: &[Allowed]) -> Self {
        Self::with_lookup(allow, Arc::new(|name| Box::pin(look_up(name))))
    }

    pub(crate) fn with_lookup(allow: &[Allowed], lookup: Lookup) -> Self {
        Self { allow: allow.into(), lookup }
    }

    /// May this be called, as far as the URL itself tells? A name is judged when it is looked up.
    pub(crate) fn check(&self, url: &Url) -> Result<(), NotAllowed> {
        let refuse = |why: String| Err(NotAllowed(why));
        if !matches!(url.scheme(), "http" | "https") {
            return refuse(format!("a call is http or https, not {}", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("a name or password in a URL is refused: use a header".to_owned());
        }
        let host = url.host_str().unwrap_or_default();
        let Some(address) = literal(host) else { return Ok(()) };
        match Sort::of(address) {
            Sort::Public => Ok(()),
            _ if self.allows(host, address) => Ok(()),
            sort => refuse(format!(
                "{host} is {sort}, which may not be called unless the config allows it"
            )),
        }
    }

    /// The addresses of a name that may be called.
    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, windlass::BoxError> {
        let found = match is_here(name) {
            true => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            false => (self.lookup)(name.to_owned()).await?,
        };
        let may =
            |address: &IpAddr| Sort::of(*address) == Sort::Public || self.allows(name, *address);
        let allowed: Vec<_> = found.iter().copied().filter(may).collect();
        match (allowed.is_empty(), found.first()) {
            (true, Some(first)) => Err(NotAllowed(format!(
                "{name} leads to {}, which may not be called unless the config allows it",
                Sort::of(*first)
            ))
            .into()),
            (true, None) => Err(format!("{name} has no address").into()),
            (false, _) => Ok(allowed),
        }
    }

    fn allows(&self, host: &str, address: IpAddr) -> bool {
        self.allow.iter().any(|allowed| allowed.covers(host, address))
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found = guard.addresses(name.as_str()).await?;
            // The port is that of the URL.
            let addresses = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("allow", &self.allow).finish_non_exhaustive()
    }
}

async fn look_up(name: String) -> io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
    Ok(found.map(|address| address.ip()).collect())
}

/// Is it a name that always means this machine? Nobody need be asked, and nobody can say otherwise.
fn is_here(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// The address that a host is, if it is no name.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Something that the config allows although it is not public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Every address that begins with these bits.
    Network(IpAddr, u8),
    /// Whatever this name leads to.
    Host(String),
}

impl Allowed {
    /// Reads `10.0.0.0/8`, `::1` or `billing.internal`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(address, bits(address)));
        }
        if let Some((address, prefix)) = text.split_once('/') {
            let parsed = address.parse::<IpAddr>().ok().zip(prefix.parse::<u8>().ok());
            return match parsed {
                Some((address, prefix)) if prefix <= bits(address) => {
                    Ok(Self::Network(address, prefix))
                }
                _ => Err(format!("{text:?} is no network; write it as 10.0.0.0/8 or fd00::/8")),
            };
        }
        let is_part = |part: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=63).contains(&part.len()) && part.bytes().all(fits)
        };
        let name = text.strip_suffix('.').unwrap_or(text);
        // What ends in a number is an address to a URL, so it would never be met as a name.
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
        match name.split('.').all(is_part) && !is_number {
            true => Ok(Self::Host(name.to_ascii_lowercase())),
            false => Err(format!(
                "{text:?} is no host and no network; write billing.internal, 10.1.2.3 or 10.0.0.0/8"
            )),
        }
    }

    fn covers(&self, host: &str, address: IpAddr) -> bool {
        match self {
            Self::Host(name) => host.strip_suffix('.').unwrap_or(host).eq_ignore_ascii_case(name),
            Self::Network(network, prefix) => {
                let same = |a: u128, b: u128, width: u32| {
                    let shift = width - u32::from(*prefix);
                    a.checked_shr(shift).unwrap_or(0) == b.checked_shr(shift).unwrap_or(0)
                };
                match (network, address) {
                    (IpAddr::V4(a), IpAddr::V4(b)) => {
                        same(u128::from(a.to_bits()), u128::from(b.to_bits()), 32)
                    }
                    (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
                    _ => false,
                }
            }
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// What sort of address it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Public,
    Unspecified,
    Loopback,
    Private,
    LinkLocal,
    Shared,
    Metadata,
    Multicast,
    /// For documentation, tests, translation or the future.
    Reserved,
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sort::Public => "a public address",
            Sort::Unspecified => "an unspecified address",
            Sort::Loopback => "a loopback address",
            Sort::Private => "a private address",
            Sort::LinkLocal => "a link-local address",
            Sort::Shared => "an address that a provider shares out",
            Sort::Metadata => "an address of a cloud's own services",
            Sort::Multicast => "a multicast address",
            Sort::Reserved => "a reserved address",
        })
    }
}

impl Sort {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        match address.octets() {
            // Where clouds keep the secrets of a machine.
            [169, 254, 169, 254 | 253] | [100, 100, 100, 200] | [168, 63, 129, 16] => {
                Sort::Metadata
            }
            [169, 254, 170, 2 | 23] | [192, 0, 0, 192] => Sort::Metadata,
            [0, ..] => Sort::Unspecified,
            [127, ..] => Sort::Loopback,
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Sort::Private,
            [169, 254, ..] => Sort::LinkLocal,
            [100, 64..=127, ..] => Sort::Shared,
            [224..=239, ..] => Sort::Multicast,
            [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18..=19, ..] => Sort::Reserved,
            [198, 51, 100, _] | [203, 0, 113, _] | [240..=255, ..] => Sort::Reserved,
            _ => Sort::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let parts = address.segments();
        // An old address in a new one leads to the old one.
        let old = |high: u16, low: u16| {
            Self::of_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        };
        match parts {
            [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254] | [0xfd20, 0x00ce, ..] => Sort::Metadata,
            [0, 0, 0, 0, 0, 0, 0, 0] => Sort::Unspecified,
            [0, 0, 0, 0, 0, 0, 0, 1] => Sort::Loopback,
            [0, 0, 0, 0, 0, 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
                old(high, low)
            }
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => old(high, low),
            [0, 0, 0, 0, 0, 0, high, low] => match old(high, low) {
                Sort::Public => Sort::Reserved,
                sort => sort,
            },
            [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Sort::Private,
            [0xfe80..=0xfebf, ..] => Sort::LinkLocal,
            [0xff00..=0xffff, ..] => Sort::Multicast,
            // Tunnels, tests and documentation, within what is else public.
            [0x2001, 0..=0x01ff, ..] | [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => {
                Sort::Reserved
            }
            [0x2000..=0x3fff, ..] => Sort::Public,
            _ => Sort::Reserved,
        }
    }
}
