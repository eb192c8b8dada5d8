//! The stored form of an answer.
#![no_main]

use idempotent_fuzz_bodies::kept::{Form, hold};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hold(&Form::REAL, input);
});
