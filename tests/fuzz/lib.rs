//! What each fuzz target holds of any input: properties, not only that nothing panics.
//!
//! Each module has what is under test as a struct of functions, so that `bounded.rs` can show that a wrong one is
//! noticed. A body panics where a property is broken, and else says which way the input went, so that a run that
//! never got far is noticed, too.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a broken property is a panic")]
pub mod durations;
pub mod http_key;
pub mod kept;
pub mod keys;
pub mod policy;
pub mod record_bytes;

/// A body of a fuzz target: the way an input went.
pub type Body = fn(&[u8]) -> &'static str;

/// Every target by its name, which is also its corpus's.
pub const ALL: [(&str, Body); 6] = [
    ("durations", |input| durations::hold(&durations::Reader::REAL, input)),
    ("http_key", |input| http_key::hold(&http_key::Reader::REAL, input)),
    ("kept", |input| kept::hold(&kept::Form::REAL, input)),
    ("keys", |input| keys::hold(&keys::Maker::REAL, input)),
    ("policy", |input| policy::hold(&policy::Judge::REAL, input)),
    ("record_bytes", |input| record_bytes::hold(&record_bytes::Form::REAL, input)),
];
