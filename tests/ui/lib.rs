//! Nothing but tests: see `ui.rs`.
