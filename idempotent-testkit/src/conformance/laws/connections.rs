//! Laws with two connections to the same records, like those of two processes.
use idempotent_core::{Claim, ClaimRequest, ReleaseKind, Settled, StateKind};

use super::races::winner;
use crate::conformance::patient::Patient;
use crate::conformance::subject::{HOUR, HeldBy, MS, Subject, acquired, done, lost, must, put_down};
use crate::conformance::together;

/// Reads over each connection before each step, so that a connection that answers from a cache is detected.
pub async fn a_connection_sees_the_writes_of_another_one(s: &Subject) {
    let other = s.over_second();
    let same = async |after: &str, state: StateKind| {
        let (here, there) = (s.peek().await, other.peek().await);
        assert_eq!(here, there, "after {after}");
        assert_eq!(here.map_or(StateKind::Absent, |record| record.state.kind()), state, "after {after}");
    };
    same("nothing", StateKind::Absent).await;
    let first = acquired(s.claim_by(1).await);
    same("a claim", StateKind::Consuming).await;
    assert_eq!(other.renew(1, HOUR).await, Settled::Done, "the owner token counts, not the connection");
    same("a renewal over the other connection", StateKind::Consuming).await;
    assert_eq!(s.release(1, ReleaseKind::Vacate).await, Settled::Done);
    same("a release", StateKind::Vacant).await;
    let second = acquired(other.claim_by(2).await);
    assert_eq!(second.attempt, 2);
    assert!(second.fencing > first.fencing, "numbers rise over all connections");
    same("a claim over the other connection", StateKind::Consuming).await;
    assert_eq!(s.release(2, ReleaseKind::Delete).await, Settled::Done);
    same("a deletion", StateKind::Absent).await;
    assert!(acquired(other.claim_by(3).await).fencing > second.fencing);
    assert_eq!(s.complete(3, b"v").await, Settled::Done);
    same("a completion", StateKind::Consumed).await;
    assert_eq!(s.claim_by(4).await, other.claim_by(4).await);
}

pub async fn a_key_held_over_one_connection_is_guarded_over_the_other(s: &Subject) {
    let other = s.over_second();
    let first = acquired(s.claim_by(1).await);
    assert!(matches!(other.claim_by(2).await, Claim::InFlight(_)));
    assert_eq!(other.complete(2, b"foreign").await, lost(StateKind::Consuming));
    assert_eq!(other.release(2, ReleaseKind::Delete).await, lost(StateKind::Consuming));
    assert_eq!(acquired(other.claim_by(1).await), first, "a repeated claim may take another connection");
    s.pass(s.lease()).await;
    let over = acquired(other.claim_by(3).await);
    assert_eq!((over.attempt, over.taken_over), (2, Some(first.fencing)));
    assert_eq!(s.complete(1, b"late").await, lost(StateKind::Consuming), "it was overtaken, wherever");
    assert_eq!(s.release(1, ReleaseKind::Delete).await, lost(StateKind::Consuming));
    assert_eq!(other.complete(3, b"v").await, Settled::Done);
    assert_eq!(s.release(3, ReleaseKind::Delete).await, lost(StateKind::Consumed));
}

pub async fn one_of_several_claims_over_two_connections_is_acquired(s: &Subject) {
    let other = s.over_second();
    let stores = [Patient(s.store.clone()), Patient(other.store.clone())];
    for round in 0..s.race_rounds().div_ceil(10) {
        let ask = |owner| ClaimRequest { lease: HOUR, ..s.ask_on(&format!("round {round}"), owner) };
        let racing = (0..64).map(|racer| {
            let (store, ask) = (stores[racer % 2].clone(), ask(100 + racer as u128));
            async move { store.claim(&ask).await }
        });
        let won = winner(&together::race(round, racing.collect()).await);
        // Over the connection that did not win.
        let held = ask(100 + won as u128).held();
        assert_eq!(stores[1 - won % 2].complete(&held, &done(b"v", HOUR)).await, Settled::Done);
    }
}

pub async fn watchers_are_woken_over_another_connection(s: &Subject) {
    let watch = s.watch();
    let other = s.over_second();
    for (name, verdict) in
        [("complete", None), ("delete", Some(ReleaseKind::Delete)), ("vacate", Some(ReleaseKind::Vacate))]
    {
        let ask = ClaimRequest { lease: HOUR, ..s.ask_on(name, 1) };
        acquired(s.claim(&ask).await);
        let watching = tokio::spawn(watch.watch(&ask.key));
        match verdict {
            None => must("complete", other.store.complete(&ask.held(), &done(b"v", HOUR)).await),
            Some(verdict) => must("release", other.store.release(&ask.held(), &put_down(verdict)).await),
        };
        let mut patience = 100;
        while !watching.is_finished() {
            patience -= 1;
            assert!(patience > 0, "{name} woke no waiter over another connection");
            s.pass(100 * MS).await;
            tokio::time::sleep(MS).await;
        }
    }
}
