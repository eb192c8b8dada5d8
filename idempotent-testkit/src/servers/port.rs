//! Ports nobody listens on.
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// Below those the system hands out to outgoing connections, so that none of them takes one between look and bind.
const FIRST: u16 = 12_000;
const PORTS: u16 = 8_000;

/// How far a cluster node's second port is above the first.
const BUS: u16 = 10_000;

/// One that is free now, on which a server may still lose the race.
///
/// # Errors
/// Where all of those that were tried are taken.
pub(crate) fn free(with_bus: bool) -> Result<u16, String> {
    let is_free = |port| bind(port).is_ok();
    (0..1_000)
        .map(|_| FIRST + u16::try_from(random() % u64::from(PORTS)).unwrap_or_default())
        .find(|port| is_free(*port) && (!with_bus || is_free(port + BUS)))
        .ok_or_else(|| format!("no free port from {FIRST} to {}", FIRST + PORTS))
}

/// Whether somebody listens there now.
pub(crate) fn is_taken(port: u16) -> bool {
    bind(port).is_err()
}

/// Without listening: a client that connects meanwhile is refused, as by a port without a server.
fn bind(port: u16) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
}

/// Each new state of the standard library's hasher differs.
fn random() -> u64 {
    RandomState::new().hash_one(())
}
