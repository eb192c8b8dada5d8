//! The state of an open connection, its push messages, and its end.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use redis::aio::{AsyncPushSender, SendError};
use redis::{PushInfo, PushKind, Value};

use crate::connection::notifications::NotificationHub;
use crate::connection::watchdog::ResponseWatchdog;

/// The state of a connection, which is closed once.
pub(crate) struct ConnectionState {
    pub(super) closed: AtomicBool,
    /// True if the connection receives notifications of other processes.
    pub(super) is_listening: AtomicBool,
    pub(super) hub: Arc<NotificationHub>,
    pub(super) watchdog: Arc<ResponseWatchdog>,
}

impl ConnectionState {
    pub(super) fn new(hub: Arc<NotificationHub>) -> Self {
        Self { closed: AtomicBool::new(false), is_listening: AtomicBool::new(false), hub, watchdog: Arc::default() }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        if !self.closed.swap(true, Ordering::SeqCst) && self.is_listening.swap(false, Ordering::SeqCst) {
            self.hub.listener_lost();
        }
        // The watchdog holds the connection, too.
        self.watchdog.end();
    }

    pub(super) fn set_listening(&self) {
        self.hub.listener_added();
        // This store and the one in `close` have one order, so that one of the two sees the other.
        self.is_listening.store(true, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) && self.is_listening.swap(false, Ordering::SeqCst) {
            self.hub.listener_lost();
        }
    }
}

impl Drop for ConnectionState {
    /// Closes the connection.
    fn drop(&mut self) {
        self.close();
    }
}

pub(crate) struct ConnectionCloser(pub(super) Weak<ConnectionState>);

impl ConnectionCloser {
    pub(crate) fn close(&self) {
        if let Some(state) = self.0.upgrade() {
            state.close();
        }
    }
}

/// A handler of the server's push messages and of the disconnection.
pub(super) struct PushHandler {
    pub(super) state: Arc<ConnectionState>,
    pub(super) hub: Arc<NotificationHub>,
}

impl AsyncPushSender for PushHandler {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        match (push.kind, &push.data[..]) {
            (PushKind::Disconnection, _) => self.state.close(),
            (PushKind::Message, [Value::BulkString(channel), Value::BulkString(key)]) => {
                self.hub.dispatch(channel, key)
            }
            _ => {}
        }
        Ok(())
    }
}
