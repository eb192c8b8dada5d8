//! The stored form of a response.
#![no_main]

use idempotent_fuzz_bodies::kept::{Form, hold};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hold(&Form::REAL, input);
});
