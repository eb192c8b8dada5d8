//! The choice between a command and a script for claims.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The share of claims that needed a script, above which claims are scripts. A claim that begins as a command and needs the
/// script takes two round trips.
const MOST_SCRIPTS: u32 = ALL / 8;
const ALL: u32 = 1 << 16;
/// The number of claims after which the share has mostly followed a change.
const MEMORY: u32 = 64;

/// The form of claims.
#[derive(Clone, Debug)]
pub(crate) enum ClaimForm {
    /// Always a script.
    Script,
    /// A command for most absent keys, if a script is rarely needed and the server's clock is known well enough.
    Adaptive(Arc<ScriptShare>),
    /// A command whenever there is any reading of the server's clock.
    Command,
}

/// The share of recent claims whose outcome only the script can decide.
#[derive(Debug, Default)]
pub(crate) struct ScriptShare(AtomicU32);

impl ScriptShare {
    /// Adds the outcomes of `claims` claims, of which `scripts` needed the script.
    pub(crate) fn add(&self, scripts: usize, claims: usize) {
        let claims = u32::try_from(claims).unwrap_or(MEMORY).clamp(1, MEMORY);
        let scripts = u32::try_from(scripts).unwrap_or(MEMORY).min(claims);
        // An addition that is lost between the two accesses changes the share by little.
        let share = self.0.load(Ordering::Relaxed);
        let next = (share / MEMORY) * (MEMORY - claims) + ALL / MEMORY * scripts;
        self.0.store(next, Ordering::Relaxed);
    }

    /// Returns whether few enough claims need the script.
    pub(crate) fn is_low(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= MOST_SCRIPTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_load_is_followed_within_some_claims_in_both_directions() {
        let share = ScriptShare::default();
        assert!(share.is_low());
        for _ in 0..20 {
            share.add(1, 1);
        }
        assert!(!share.is_low());
        share.add(0, 256);
        assert!(share.is_low(), "a batch of fresh claims");
        share.add(256, 256);
        assert!(!share.is_low(), "a batch of duplicates");
        for _ in 0..200 {
            share.add(0, 1);
        }
        assert!(share.is_low());
    }

    #[test]
    fn a_few_duplicates_leave_claims_commands() {
        let share = ScriptShare::default();
        for round in 0..1_000 {
            share.add(usize::from(round % 20 == 0), 1);
            assert!(share.is_low(), "{round}");
        }
    }
}
