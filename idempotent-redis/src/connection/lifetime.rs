//! The end of a connection, and what is heard over it until then.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use redis::aio::{AsyncPushSender, SendError};
use redis::{PushInfo, PushKind, Value};

use crate::connection::notifications::Hub;
use crate::connection::watchdog::Watchdog;

/// Whether a connection has ended, told once.
pub(crate) struct End {
    pub(super) closed: AtomicBool,
    /// It hears what other processes tell.
    pub(super) hears: AtomicBool,
    pub(super) hub: Arc<Hub>,
    pub(super) dog: Arc<Watchdog>,
}

impl End {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self { closed: AtomicBool::new(false), hears: AtomicBool::new(false), hub, dog: Arc::default() }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        if !self.closed.swap(true, Ordering::SeqCst) && self.hears.swap(false, Ordering::SeqCst) {
            self.hub.deaf();
        }
        // It holds the connection, too.
        self.dog.end();
    }

    pub(super) fn listens(&self) {
        self.hub.listening();
        // Of this and the end each sees the other, or is seen: one order for both.
        self.hears.store(true, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) && self.hears.swap(false, Ordering::SeqCst) {
            self.hub.deaf();
        }
    }
}

impl Drop for End {
    /// Nobody hears over a connection that is gone.
    fn drop(&mut self) {
        self.close();
    }
}

/// Ends a connection: nothing more is sent over it.
pub(crate) struct Closer(pub(super) Weak<End>);

impl Closer {
    pub(crate) fn close(&self) {
        if let Some(end) = self.0.upgrade() {
            end.close();
        }
    }
}

/// What a server says without being asked, and the end of the connection.
pub(super) struct Pushes {
    pub(super) end: Arc<End>,
    pub(super) hub: Arc<Hub>,
}

impl AsyncPushSender for Pushes {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        match (push.kind, &push.data[..]) {
            (PushKind::Disconnection, _) => self.end.close(),
            (PushKind::Message, [Value::BulkString(channel), Value::BulkString(key)]) => self.hub.told(channel, key),
            _ => {}
        }
        Ok(())
    }
}
