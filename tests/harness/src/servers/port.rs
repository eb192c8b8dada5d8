//! Free ports for servers.
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// The first port. The range is below the ports that the system assigns to outgoing connections, so that none of them
/// takes a port before its server binds it.
const FIRST: u16 = 12_000;
const PORTS: u16 = 8_000;

/// The distance of a cluster node's second port from the first.
const BUS: u16 = 10_000;

/// A reserved port for one server. No other server of a test gets the port, even while its server is stopped: a client
/// that connects then is refused, and does not reach another server.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) number: u16,
    _sockets: Vec<Socket>,
}

/// Reserves a free port. A server of another program may still take it first.
///
/// # Errors
/// If all tried ports are in use.
pub(crate) fn free(with_bus: bool) -> Result<Reserved, String> {
    let reserved = |number: u16| {
        let bus = with_bus.then_some(number + BUS);
        let sockets = [Some(number), bus].into_iter().flatten().map(reserve).collect::<io::Result<_>>().ok()?;
        Some(Reserved { number, _sockets: sockets })
    };
    (0..1_000)
        .map(|_| FIRST + u16::try_from(random() % u64::from(PORTS)).unwrap_or_default())
        .find_map(reserved)
        .ok_or_else(|| format!("no free port from {FIRST} to {}", FIRST + PORTS))
}

/// Returns true if another socket uses the port.
pub(crate) fn is_taken(port: u16) -> bool {
    reserve(port).is_err()
}

/// Binds a socket that never listens. The bind fails if any other socket has the port. After the bind, the address may
/// be reused, so that a server can listen on the same port; all servers of the test kit request this, too.
fn reserve(port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// Returns a random number: each new state of the standard library's hasher differs.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_reserved_port_takes_its_own_server_and_is_given_to_no_other_one() {
        let reserved = free(true).unwrap();
        assert!(is_taken(reserved.number) && is_taken(reserved.number + BUS));
        for port in [reserved.number, reserved.number + BUS] {
            drop(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
            assert!(is_taken(port), "also when its server is gone");
        }
    }
}
