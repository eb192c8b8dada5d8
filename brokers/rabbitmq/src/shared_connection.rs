//! A connection for publishing that several tasks share.
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::alarm::Alarm;
use crate::delay_queues::DeclaredSteps;
use crate::options::{BrokerUrl, CONNECT_TIMEOUT, unanswered};
use crate::publish_connection::PublishConnection;

/// A connection that opens on first use, and opens again after a failure.
#[derive(Debug)]
pub(crate) struct SharedConnection {
    pub(crate) url: BrokerUrl,
    /// The declarations over the open connection.
    pub(crate) declared: DeclaredSteps,
    /// The alarm of the broker that blocks the open connection.
    pub(crate) alarm: Alarm,
    /// The name of the connection, which the broker's tools show.
    name: String,
    in_flight: usize,
    state: Mutex<ConnectionState>,
}

#[derive(Debug, Default)]
struct ConnectionState {
    open: Option<Arc<PublishConnection>>,
    /// The handshake, which outlives the call that started it. If a handshake takes longer than a call, the next call
    /// waits for the same handshake.
    opening: Option<PendingHandshake>,
}

#[derive(Debug)]
struct PendingHandshake {
    task: HandshakeTask,
    /// The end of the handshake by the timer of the waiting call, since the runtime that started the handshake may be
    /// idle.
    end: Instant,
}

/// A task that is aborted on drop.
#[derive(Debug)]
struct HandshakeTask(JoinHandle<lapin::Result<lapin::Connection>>);

impl Drop for HandshakeTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SharedConnection {
    pub(crate) fn new(url: BrokerUrl, name: String, in_flight: usize) -> Self {
        let (declared, alarm) = (DeclaredSteps::default(), Alarm::default());
        Self { url, declared, alarm, name, in_flight, state: Mutex::default() }
    }

    /// Returns the open connection. Calls during a handshake wait for that handshake.
    ///
    /// # Cancellation
    /// The handshake continues, and the next call waits for it.
    pub(crate) async fn get(&self) -> lapin::Result<Arc<PublishConnection>> {
        let mut state = self.state.lock().await;
        if let Some(alive) = state.open.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(alive.clone());
        }
        let opened = loop {
            let is_earlier = state.opening.is_some();
            let PendingHandshake { task, end } = state.opening.get_or_insert_with(|| self.start_handshake());
            let opened = timeout_at(*end, &mut task.0).await;
            state.opening = None;
            match opened {
                Ok(Ok(Ok(opened))) if opened.status().connected() => break opened,
                // The handshake of an earlier call failed, or its runtime has stopped. This call starts a handshake of
                // its own.
                _ if is_earlier => {}
                Ok(Ok(Ok(_))) => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
                Err(_) => return Err(unanswered()),
                Ok(Ok(Err(error))) => return Err(error),
                Ok(Err(error)) => return Err(std::io::Error::other(error).into()),
            }
        };
        debug!(target: "idempotent", broker = %self.url, name = self.name, "connected for publishing");
        // The URL may now lead to another broker.
        self.declared.clear();
        self.alarm.follow(&opened, &self.url);
        Ok(state.open.insert(Arc::new(PublishConnection::new(opened, self.in_flight))).clone())
    }

    fn start_handshake(&self) -> PendingHandshake {
        let (url, name) = (self.url.clone(), self.name.clone());
        let task = tokio::spawn(async move { url.connect(&name).await });
        PendingHandshake { task: HandshakeTask(task), end: Instant::now() + CONNECT_TIMEOUT }
    }

    /// Drops a connection on which the broker did not respond.
    pub(crate) async fn discard(&self, unresponsive: &Arc<PublishConnection>) {
        let mut state = self.state.lock().await;
        if state.open.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, unresponsive)) {
            state.open = None;
        }
    }
}
