//! The thread that renews leases and watches the deadlines of store requests. No handler can block this thread.
use std::future::pending;
use std::sync::{OnceLock, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle};

/// Returns the runtime of this process's renewal thread. The first caller starts the thread, which never ends. Returns
/// `None` if the thread cannot be started.
pub(crate) fn runtime() -> Option<&'static Handle> {
    static RUNTIME: OnceLock<Option<Handle>> = OnceLock::new();
    RUNTIME.get_or_init(start).as_ref()
}

/// Starts the thread, which builds the runtime itself, since a runtime must not be dropped within another one.
fn start() -> Option<Handle> {
    let (ready, started) = mpsc::channel();
    let serve = move || {
        let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
        if ready.send(runtime.handle().clone()).is_ok() {
            runtime.block_on(pending::<()>());
        }
    };
    thread::Builder::new().name("idempotent-renewals".to_owned()).spawn(serve).ok()?;
    started.recv().ok()
}
