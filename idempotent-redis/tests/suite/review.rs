//! What a review found, sequence by sequence.
mod durability;
mod fake;
mod others;
mod refusals;
mod sentinel;

use std::time::Duration;

use idempotent_core::{ClaimRequest, Key, OnExpiry, OwnerToken};

const HOUR: Duration = Duration::from_secs(3_600);

fn ask(number: u128, owner: u128) -> ClaimRequest {
    ClaimRequest {
        key: Key::from_parts("idempotent:mq:a", number),
        owner: OwnerToken(owner),
        lease: Duration::from_secs(60),
        fingerprint: None,
        max_attempts: 1,
        on_expiry: OnExpiry::Takeover,
        memory: HOUR,
        display: None,
    }
}
