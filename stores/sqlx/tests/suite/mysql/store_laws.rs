//! The store against the test kit's laws.
use idempotent_testkit::{VirtualClock, conformance};

use crate::mysql::conformance::subject;
use crate::mysql::tiered;

// A server has one clock, whatever those of its clients say; they are shown below. The table takes nothing foreign.
conformance!(on_a_virtual_clock, subject(Some(VirtualClock::new())), without: [clients, losing, foreign, watch]);
conformance!(by_its_own_clock, subject(None), without: [clock, clients, losing, foreign, watch]);

mod extras {
    use super::*;

    conformance!(redis_over_it, tiered::subject(), without: [clients, losing, foreign, watch]);
}
