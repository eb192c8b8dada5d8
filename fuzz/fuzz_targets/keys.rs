//! Identities and their storage keys.
#![no_main]

use idempotent_fuzz_bodies::keys::{Maker, hold};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hold(&Maker::REAL, input);
});
