//! The stored form of a record.
#![no_main]

use idempotent_fuzz_bodies::record_bytes::{Form, hold};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hold(&Form::REAL, input);
});
