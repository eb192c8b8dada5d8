//! The connection that clones of a publisher share.
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::broker_address::{BrokerAddress, CONNECTING};
use crate::confirmed_publisher::ConfirmedPublisher;
use crate::delay_queues::DeclaredPaths;

/// A connection that opens on first use, and again after it breaks.
pub(super) struct SharedConnection {
    pub(super) address: BrokerAddress,
    /// The publisher on the open connection.
    pub(super) declared: DeclaredPaths,
    in_flight: usize,
    held: Mutex<ConnectionSlot>,
}

#[derive(Default)]
struct ConnectionSlot {
    open: Option<Arc<ConfirmedPublisher>>,
    /// The handshake, which continues after the call that began it. If the handshake takes longer than a call may
    /// wait, the next call waits for the same handshake.
    opening: Option<PendingConnection>,
}

struct PendingConnection {
    handshake: HandshakeTask,
    /// The time limit of the waiting call's timer, because the runtime that began the handshake may be idle.
    limit: Instant,
}

/// A task that is aborted when it is dropped.
struct HandshakeTask(JoinHandle<lapin::Result<lapin::Connection>>);

impl Drop for HandshakeTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SharedConnection {
    pub(super) fn new(address: BrokerAddress, in_flight: usize) -> Self {
        Self { address, declared: DeclaredPaths::default(), in_flight, held: Mutex::default() }
    }

    /// Returns the open connection. Calls during a handshake wait for that handshake.
    ///
    /// # Cancellation
    /// The handshake goes on, and the next call waits for it.
    pub(super) async fn get(&self) -> lapin::Result<Arc<ConfirmedPublisher>> {
        let mut held = self.held.lock().await;
        if let Some(alive) = held.open.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(alive.clone());
        }
        let opened = loop {
            let earlier = held.opening.is_some();
            let PendingConnection { handshake, limit } = held.opening.get_or_insert_with(|| self.open());
            let opened = timeout_at(*limit, &mut handshake.0).await;
            held.opening = None;
            match opened {
                Ok(Ok(Ok(opened))) if opened.status().connected() => break opened,
                // The handshake of an earlier call failed, or its runtime stopped: this call begins another handshake.
                _ if earlier => {}
                Ok(Ok(Ok(_))) => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
                Err(_) => return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
                Ok(Ok(Err(error))) => return Err(error),
                Ok(Err(error)) => return Err(std::io::Error::other(error).into()),
            }
        };
        debug!(target: "idempotent", broker = %self.address, "connected");
        // The broker may be another one.
        self.declared.forget();
        Ok(held.open.insert(Arc::new(ConfirmedPublisher::new(opened, self.in_flight))).clone())
    }

    fn open(&self) -> PendingConnection {
        let address = self.address.clone();
        let handshake = tokio::spawn(async move { address.connect("idempotent: publisher").await });
        PendingConnection { handshake: HandshakeTask(handshake), limit: Instant::now() + CONNECTING }
    }

    /// Discards a connection that did not answer.
    pub(super) async fn discard(&self, silent: &Arc<ConfirmedPublisher>) {
        let mut held = self.held.lock().await;
        if held.open.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, silent)) {
            held.open = None;
        }
    }
}
