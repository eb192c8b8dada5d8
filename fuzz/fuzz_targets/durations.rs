//! Durations in their text form.
#![no_main]

use idempotent_fuzz_bodies::durations::{Reader, hold};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hold(&Reader::REAL, input);
});
