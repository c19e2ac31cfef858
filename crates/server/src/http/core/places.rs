//! Places of connections: so many at once, and those that nobody uses do not keep others out.
//!
//! A connection on which no caller was let in yet has shown no right to its place. One address has a quarter of all
//! places for such connections. Where there is no place left, the one that has been idle for longest gives up its own.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex},
};

use crate::http::core::pulse::Pulse;

/// All places.
#[derive(Debug)]
pub(crate) struct Places {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    places: HashMap<u64, (IpAddr, Arc<Pulse>)>,
    /// Connections of an address on which no caller was let in yet.
    unproven: HashMap<IpAddr, usize>,
    number: u64,
}

/// The place of one connection, which is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    number: u64,
    address: IpAddr,
    pub(crate) pulse: Arc<Pulse>,
    places: Arc<Places>,
}

impl Places {
    /// One address has one of so many parts of all places for connections on which nobody was let in.
    const PARTS: usize = 4;

    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// A place for a connection of this address; none, if all are taken and in use.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Arc<Place>> {
        let address = network(address);
        let mut taken = self.taken();
        let unproven = taken.unproven.get(&address).copied().unwrap_or(0);
        if unproven >= (self.max / Self::PARTS).max(1) && !taken.evict(Some(address)) {
            return None;
        }
        if taken.places.len() >= self.max && !taken.evict(None) {
            return None;
        }
        taken.number += 1;
        *taken.unproven.entry(address).or_default() += 1;
        let (number, pulse) = (taken.number, Arc::new(Pulse::new()));
        taken.places.insert(number, (address, pulse.clone()));
        Some(Arc::new(Place { number, address, pulse, places: self.clone() }))
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().expect("nobody panics with it")
    }
}

impl Taken {
    /// Ends the connection that has been idle for longest, of those on which nobody was let in. Was there one?
    fn evict(&mut self, of: Option<IpAddr>) -> bool {
        let may_go = |(_, (address, pulse)): &(&u64, &(IpAddr, Arc<Pulse>))| {
            of.is_none_or(|of| of == *address) && !pulse.is_proven()
        };
        let idle = self.places.iter().filter(may_go);
        let idle = idle.filter_map(|(number, (_, pulse))| Some((pulse.idle_since()?, *number)));
        let Some((_, number)) = idle.min() else { return false };
        if let Some((address, pulse)) = self.places.remove(&number) {
            pulse.ended.notify_one();
            self.one_less(address);
        }
        true
    }

    fn one_less(&mut self, address: IpAddr) {
        if let Some(count) = self.unproven.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.unproven.remove(&address);
            }
        }
    }
}

impl Place {
    /// A caller was let in on this connection: it is not among those that are ended for others.
    pub(crate) fn prove(&self) {
        if self.pulse.is_proven() {
            return;
        }
        let mut taken = self.places.taken();
        if taken.places.contains_key(&self.number) && self.pulse.prove() {
            taken.one_less(self.address);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if taken.places.remove(&self.number).is_some() && !self.pulse.is_proven() {
            taken.one_less(self.address);
        }
    }
}

/// What counts as one address. Whoever has one of IPv6 has as many as there are below its network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(bits))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn who_is_idle_and_has_shown_nothing_gives_way() {
        let places = Places::new(8);
        let held: Vec<_> = (0..8).map(|it| places.enter(address(it)).unwrap()).collect();
        held[1..].iter().for_each(|place| place.prove());
        let newcomer = places.enter(address(9)).expect("the first gives way");
        newcomer.prove();
        assert!(places.enter(address(10)).is_none(), "all others have shown who they are");
        assert_eq!(places.taken().places.len(), 8);
        drop((held, newcomer));
        assert!(places.taken().places.is_empty() && places.taken().unproven.is_empty());
    }

    #[test]
    fn one_address_holds_a_quarter_of_all_places_unless_its_callers_are_let_in() {
        let places = Places::new(8);
        let mut held: Vec<_> = (0..50).filter_map(|_| places.enter(address(1))).collect();
        assert_eq!(places.taken().places.len(), 2, "the oldest gives way to the next");
        for _ in 0..6 {
            let place = places.enter(address(1)).unwrap();
            place.prove();
            held.push(place);
        }
        assert_eq!(places.taken().places.len(), 7, "six that were let in, and one that was not");
        let v6 = |low: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, low]);
        assert_eq!(network(v6(1)), network(v6(2)));
    }
}
