//! Findings of a review, one sequence of calls each.
mod durability;
mod others;
mod refusals;
mod sentinel;

use std::time::Duration;

use idempotent_core::{ClaimRequest, Key};

use crate::support::ask_for;

fn ask(number: u128, owner: u128) -> ClaimRequest {
    let key = Key::from_parts("idempotent:mq:a", number);
    ClaimRequest { lease: Duration::from_secs(60), max_attempts: 1, ..ask_for(key, owner) }
}
