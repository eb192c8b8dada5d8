//! The thread that renews leases: no handler can block it.
use std::future::pending;
use std::sync::{OnceLock, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle};

/// Returns the runtime of this process's renewal thread, which the first caller starts and which never ends. Returns
/// `None` if the system has no thread for it.
pub(super) fn runtime() -> Option<&'static Handle> {
    static RUNTIME: OnceLock<Option<Handle>> = OnceLock::new();
    RUNTIME.get_or_init(start).as_ref()
}

/// The runtime is built by its own thread: where there is none, a runtime must not be dropped within another one.
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
