//! The kit must fail a store that is wrong: each bug breaks the laws that are about it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Abilities, Claim, ClaimRequest, Clock, Completion, Fencing, Held, Key, Micros, OwnerToken, Record, Release,
    Settled, State, Store, StoreError,
};
use idempotent_testkit::conformance::{Threads, hold, laws};
use idempotent_testkit::{Subject, VirtualClock};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    /// The control: a mutant without a bug keeps every law.
    None,
    /// Reads, lets others in, writes.
    NonAtomicClaim,
    /// Completes for whoever asks.
    UnconditionalComplete,
    /// Releases by token, without a look at the state.
    ReleaseUndoesConsumed,
    /// The fencing number ends with the record.
    FencingStartsAnew,
    /// The same owner asking again is counted again.
    RepetitionCounts,
    /// A lease may be taken over a ms early.
    EarlyTakeover,
    /// A renewal may shorten.
    RenewalShortens,
    /// The fingerprint is compared before the state.
    FingerprintFirst,
    /// Peek shows what is past its time.
    PeekShowsExpired,
    /// Keys are compared as text, without case.
    CaseFolded,
    /// The last result stands, not the first.
    LastResultStands,
    /// An empty result is kept as none.
    EmptyIsNone,
}

#[derive(Debug)]
struct Mutant {
    bug: Bug,
    clock: VirtualClock,
    rows: Mutex<HashMap<String, Record>>,
}

impl Mutant {
    fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    fn place(&self, key: &Key) -> String {
        if self.has(Bug::CaseFolded) { key.as_str().to_lowercase() } else { key.as_str().to_owned() }
    }

    fn write(&self, key: &Key, write: Write) {
        let mut rows = self.rows.lock().unwrap();
        match write {
            Write::Keep => {}
            Write::Put(record) => drop(rows.insert(self.place(key), record)),
            Write::Delete => drop(rows.remove(&self.place(key))),
        }
    }

    fn found(&self, key: &Key) -> Option<Record> {
        self.rows.lock().unwrap().get(&self.place(key)).cloned()
    }

    fn decide_claim(&self, found: Option<&Record>, ask: &ClaimRequest, mut now: Micros) -> (Claim, Write) {
        let mut ask = ask.clone();
        if let Some(record) = found {
            if self.has(Bug::FingerprintFirst) && record.fingerprint.is_some() && record.fingerprint != ask.fingerprint
            {
                return (Claim::Mismatch, Write::Keep);
            }
            if self.has(Bug::RepetitionCounts)
                && matches!(record.state, State::Consuming { owner, .. } if owner == ask.owner)
            {
                ask.owner = OwnerToken(!ask.owner.0);
                now = record.expires_at;
            }
            if self.has(Bug::EarlyTakeover) {
                now = now + Duration::from_millis(1);
            }
        }
        let (claim, mut write) = protocol::claim(found, &ask, now);
        if let (Bug::FencingStartsAnew, Write::Put(record)) = (self.bug, &mut write) {
            record.fencing = Fencing(record.attempt.into());
            if let Claim::Acquired(mut grant) = claim {
                grant.fencing = record.fencing;
                return (Claim::Acquired(grant), write);
            }
        }
        (claim, write)
    }
}

#[async_trait]
impl Store for Mutant {
    async fn claim(&self, ask: &ClaimRequest) -> Result<Claim, StoreError> {
        let decide = |found: Option<&Record>| self.decide_claim(found, ask, self.clock.wall());
        if self.has(Bug::NonAtomicClaim) {
            let found = self.found(&ask.key);
            tokio::task::yield_now().await;
            let (claim, write) = decide(found.as_ref());
            self.write(&ask.key, write);
            return Ok(claim);
        }
        let mut rows = self.rows.lock().unwrap();
        let (claim, write) = decide(rows.get(&self.place(&ask.key)));
        if let Write::Put(record) = write {
            rows.insert(self.place(&ask.key), record);
        }
        Ok(claim)
    }

    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        let now = self.clock.wall();
        let (settled, mut write) = protocol::renew(self.found(&held.key).as_ref(), held, lease, now);
        if let (Bug::RenewalShortens, Write::Put(Record { state: State::Consuming { until, .. }, .. })) =
            (self.bug, &mut write)
        {
            *until = now + lease;
        }
        self.write(&held.key, write);
        Ok(settled)
    }

    async fn complete(&self, held: &Held, done: &Completion) -> Result<Settled, StoreError> {
        let (mut found, mut held, mut done) = (self.found(&held.key), held.clone(), done.clone());
        if self.has(Bug::EmptyIsNone) {
            done.value = done.value.filter(|value| !value.is_empty());
        }
        if let Some(record) = &mut found {
            match &record.state {
                State::Consuming { owner, .. } if self.has(Bug::UnconditionalComplete) => held.owner = *owner,
                State::Consumed { owner, .. } if self.has(Bug::LastResultStands) => {
                    record.state = State::Consuming { owner: *owner, until: Micros::FOREVER, taken_over: None };
                }
                _ => {}
            }
        }
        let (settled, write) = protocol::complete(found.as_ref(), &held, &done, self.clock.wall());
        self.write(&held.key, write);
        Ok(settled)
    }

    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        let mut found = self.found(&held.key);
        if let (Bug::ReleaseUndoesConsumed, Some(record)) = (self.bug, &mut found)
            && let State::Consumed { owner, .. } = &record.state
        {
            record.state = State::Consuming { owner: *owner, until: Micros::FOREVER, taken_over: None };
        }
        let (settled, write) = protocol::release(found.as_ref(), held, release, self.clock.wall());
        self.write(&held.key, write);
        Ok(settled)
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let (found, now) = (self.found(key), self.clock.wall());
        Ok(found.filter(|record| self.has(Bug::PeekShowsExpired) || protocol::live(Some(record), now).is_some()))
    }

    fn abilities(&self) -> Abilities<'_> {
        Abilities::none()
    }
}

fn mutant(bug: Bug) -> Subject {
    let clock = VirtualClock::new();
    Subject::new(Mutant { bug, clock: clock.clone(), rows: Mutex::default() }).on_clock(clock)
}
idempotent_testkit::conformance!(a_mutant_without_a_bug_keeps_every_law, mutant(Bug::None));

/// What the law says about the mutant, if it is broken.
fn broken(bug: Bug, threads: Threads, law: impl AsyncFnOnce(&Subject)) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| hold(threads, || mutant(bug), law))).err()?;
    Some(panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

macro_rules! caught {
    ($($name:ident: $bug:ident by $($group:ident::$law:ident)+;)+) => {$(
        #[test]
        fn $name() {
            $(assert!(
                broken(Bug::$bug, Threads::One, laws::$group::$law).is_some(),
                "{:?} was not caught by {}", Bug::$bug, stringify!($law)
            );)+
            let law = laws::equality::random_operations_are_answered_as_the_protocol_answers_them;
            let found = broken(Bug::$bug, Threads::One, law);
            assert_eq!(found.is_some(), seen_by_one_after_the_other(Bug::$bug), "{found:?}");
        }
    )+};
}

/// Operations one after the other show neither races, nor look-alike keys, nor empty results.
fn seen_by_one_after_the_other(bug: Bug) -> bool {
    !matches!(bug, Bug::None | Bug::CaseFolded | Bug::EmptyIsNone)
}

caught! {
    an_unconditional_complete_is_caught: UnconditionalComplete by
        owners::nobody_but_the_owner_changes_a_held_key
        owners::a_superseded_owner_is_told_what_is_there_and_changes_nothing;
    a_release_that_undoes_a_consumed_key_is_caught: ReleaseUndoesConsumed by
        owners::a_consumed_key_is_not_undone_by_its_owner;
    a_fencing_number_that_starts_anew_is_caught: FencingStartsAnew by
        fencing::fencing_rises_over_every_kind_of_release
        fencing::fencing_rises_when_a_record_was_past_its_time;
    a_repetition_that_counts_is_caught: RepetitionCounts by
        claims::the_same_owner_claiming_again_gets_the_same_grant;
    an_early_takeover_is_caught: EarlyTakeover by
        claims::a_lease_holds_until_its_end_and_may_be_taken_over_from_then_on;
    a_renewal_that_shortens_is_caught: RenewalShortens by
        owners::a_renewal_never_shortens;
    a_fingerprint_compared_first_is_caught: FingerprintFirst by
        payloads::a_vacant_key_takes_the_new_fingerprint
        payloads::an_expired_lease_takes_the_new_fingerprint
        payloads::a_dead_key_is_dead_for_every_payload;
    a_peek_that_shows_what_is_past_its_time_is_caught: PeekShowsExpired by
        time::a_consumed_key_is_remembered_for_its_retention_and_no_longer
        time::an_orphaned_key_counts_as_absent_past_lease_and_memory;
    folded_case_is_caught: CaseFolded by
        keys::stored_keys_that_differ_only_by_case_are_kept_apart;
    a_last_result_that_stands_is_caught: LastResultStands by
        owners::a_completion_repeated_by_its_owner_is_done_and_the_first_result_stands;
    an_empty_result_kept_as_none_is_caught: EmptyIsNone by
        claims::a_consumed_key_answers_with_its_value;
}

#[test]
fn a_non_atomic_claim_is_caught() {
    let law = laws::races::of_racing_claims_one_is_acquired;
    let said = broken(Bug::NonAtomicClaim, Threads::Many, law).expect("many claims acquire one key");
    assert!(said.contains("claims were acquired"), "{said}");
}

#[test]
fn a_difference_from_the_protocol_is_told_as_a_story() {
    let law = laws::equality::random_operations_are_answered_as_the_protocol_answers_them;
    let said = broken(Bug::UnconditionalComplete, Threads::One, law).unwrap();
    for word in ["seed ", "operation ", "store: ", "protocol: ", "   1. ", "complete key .."] {
        assert!(said.contains(word), "{word:?} is missing in:\n{said}");
    }
}

#[test]
fn what_guards_a_subject_is_dropped_at_the_end_of_a_broken_law_too() {
    let guard = Arc::new(());
    let watched = Arc::downgrade(&guard);
    let build = || mutant(Bug::None).guarded_by(guard);
    let held = AssertUnwindSafe(|| hold(Threads::One, build, async |_: &Subject| panic!("broken")));
    assert!(catch_unwind(held).is_err());
    assert!(watched.upgrade().is_none());
}
