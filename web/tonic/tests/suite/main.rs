//! The layer in tonic's server, called by tonic's client over TCP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod call_forms;
mod denied_callers;
mod interruptions;
mod key_metadata;
mod other_layers;
mod passed_calls;
mod problems;
mod replays;
mod setup_errors;
mod streams;
mod support;
