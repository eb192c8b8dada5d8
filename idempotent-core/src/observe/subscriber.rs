//! The warning about a process that shows no events.
use std::io::Write;
use std::sync::Once;

/// Writes one line to stderr if the process has no `tracing` subscriber. Without one, a person sees neither retries nor
/// dead letters nor configuration errors. Later calls do nothing.
pub fn warn_without_subscriber() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        if !tracing::dispatcher::has_been_set() {
            // A closed stderr must not end the process.
            let _ = writeln!(
                std::io::stderr(),
                "idempotent: no `tracing` subscriber is installed, so retries, dead letters and configuration errors are not \
                 shown; call `tracing_subscriber::fmt().init()` first in `main`"
            );
        }
    });
}
