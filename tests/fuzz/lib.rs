//! The properties that each fuzz target checks for any input, in addition to the absence of panics.
//!
//! Each module has the functions under test in a struct, so that `bounded.rs` can show that a wrong function is
//! detected. A body panics if a property is violated, and otherwise returns how far the input got, so that a run
//! without depth is detected, too.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a broken property is a panic")]
pub mod durations;
pub mod http_key;
pub mod kept;
pub mod keys;
pub mod policy;
pub mod record_bytes;

/// The body of a fuzz target. It returns how far an input got.
pub type Body = fn(&[u8]) -> &'static str;

/// Every target by its name, which is also the name of its corpus.
pub const ALL: [(&str, Body); 6] = [
    ("durations", |input| durations::hold(&durations::Reader::REAL, input)),
    ("http_key", |input| http_key::hold(&http_key::Reader::REAL, input)),
    ("kept", |input| kept::hold(&kept::Form::REAL, input)),
    ("keys", |input| keys::hold(&keys::Maker::REAL, input)),
    ("policy", |input| policy::hold(&policy::Judge::REAL, input)),
    ("record_bytes", |input| record_bytes::hold(&record_bytes::Form::REAL, input)),
];
