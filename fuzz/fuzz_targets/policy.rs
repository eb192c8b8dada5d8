//! Policies from configuration.
#![no_main]

use idempotent_fuzz_bodies::policy::{Judge, hold};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hold(&Judge::REAL, input);
});
