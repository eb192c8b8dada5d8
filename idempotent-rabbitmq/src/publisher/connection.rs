//! The connection that clones of a publisher share.
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::address::{Address, CONNECTING};
use crate::confirm::Confirming;
use crate::delays::Declared;

/// A connection that opens on first use, and opens again after it breaks.
pub(super) struct SharedConnection {
    pub(super) address: Address,
    /// By the open connection.
    pub(super) declared: Declared,
    in_flight: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    open: Option<Arc<Confirming>>,
    /// The handshake, which outlives the call that began it. Where a broker needs longer for a handshake than a call may take,
    /// the next call waits for the same one.
    opening: Option<Opening>,
}

struct Opening {
    handshake: Handshake,
    /// The end of the wait by the waiting call's timer: the runtime that began the handshake may be idle.
    limit: Instant,
}

/// A task that is aborted when it is dropped.
struct Handshake(JoinHandle<lapin::Result<lapin::Connection>>);

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SharedConnection {
    pub(super) fn new(address: Address, in_flight: usize) -> Self {
        Self { address, declared: Declared::default(), in_flight, held: Mutex::default() }
    }

    /// Returns the open connection. Calls during a handshake wait for that handshake.
    ///
    /// # Cancellation
    /// The handshake goes on, and the next call waits for it.
    pub(super) async fn get(&self) -> lapin::Result<Arc<Confirming>> {
        let mut held = self.held.lock().await;
        if let Some(alive) = held.open.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(alive.clone());
        }
        let opened = loop {
            let earlier = held.opening.is_some();
            let Opening { handshake, limit } = held.opening.get_or_insert_with(|| self.open());
            let opened = timeout_at(*limit, &mut handshake.0).await;
            held.opening = None;
            match opened {
                Ok(Ok(Ok(opened))) if opened.status().connected() => break opened,
                // An earlier call's handshake failed, or stands still with that call's runtime: this call makes its own.
                _ if earlier => {}
                Ok(Ok(Ok(_))) => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
                Err(_) => return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
                Ok(Ok(Err(error))) => return Err(error),
                Ok(Err(error)) => return Err(std::io::Error::other(error).into()),
            }
        };
        debug!(target: "idempotent", broker = %self.address, "connected");
        // It may be another broker.
        self.declared.forget();
        Ok(held.open.insert(Arc::new(Confirming::new(opened, self.in_flight))).clone())
    }

    fn open(&self) -> Opening {
        let address = self.address.clone();
        let handshake = tokio::spawn(async move { address.connect("idempotent: publisher").await });
        Opening { handshake: Handshake(handshake), limit: Instant::now() + CONNECTING }
    }

    /// Forgets a connection that did not answer.
    pub(super) async fn discard(&self, silent: &Arc<Confirming>) {
        let mut held = self.held.lock().await;
        if held.open.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, silent)) {
            held.open = None;
        }
    }
}
