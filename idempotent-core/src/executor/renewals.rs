//! The thread that renews leases: no handler can block it.
use std::future::pending;
use std::sync::OnceLock;
use std::thread;

use tokio::runtime::{Builder, Handle};

/// Returns the runtime of this process's renewal thread, which the first caller starts and which never ends. Returns
/// `None` if the system has no thread for it.
pub(super) fn runtime() -> Option<&'static Handle> {
    static RUNTIME: OnceLock<Option<Handle>> = OnceLock::new();
    RUNTIME.get_or_init(start).as_ref()
}

fn start() -> Option<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    let serve = move || runtime.block_on(pending::<()>());
    thread::Builder::new().name("idempotent-renewals".to_owned()).spawn(serve).ok()?;
    Some(handle)
}
