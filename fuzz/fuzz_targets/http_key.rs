//! The header with the key of a request.
#![no_main]

use idempotent_fuzz_bodies::http_key::{Reader, hold};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hold(&Reader::REAL, input);
});
