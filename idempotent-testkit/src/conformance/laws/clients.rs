//! Laws with clients whose clocks are wrong by 5 minutes: only the store's clock counts.
use idempotent_core::{Claim, ClaimRequest, FencingToken, Release, ReleaseKind, Settled, State, StateKind};

use crate::conformance::subject::{HOUR, HeldBy, Subject, acquired, done, must, put_down};

const NAMES: [&str; 2] = ["5 minutes ahead", "5 minutes behind"];

pub async fn a_client_with_a_wrong_clock_takes_over_neither_early_nor_late(s: &Subject) {
    for (name, client) in NAMES.into_iter().zip(s.over_clients()) {
        let ask = |owner| s.ask_on(name, owner);
        let first = acquired(s.claim(&ask(1)).await);
        assert!(matches!(client.claim(&ask(2)).await, Claim::InFlight(_)), "{name}: a lease that has just begun");
        if s.pass_almost(s.lease()).await {
            assert!(matches!(client.claim(&ask(2)).await, Claim::InFlight(_)), "{name}: its last ms");
        }
        s.pass(s.lease()).await;
        assert_eq!(acquired(client.claim(&ask(2)).await).taken_over, Some(first.fencing), "{name}");
    }
}

pub async fn a_client_with_a_wrong_clock_sets_durations_of_the_same_length(s: &Subject) {
    for (name, client) in NAMES.into_iter().zip(s.over_clients()) {
        let ask = |owner| s.ask_on(name, owner);
        acquired(client.claim(&ask(1)).await);
        let record = must("peek", s.store.peek(&ask(1).key).await).expect("held, as the others see it");
        let State::Consuming { until, .. } = record.state else { panic!("{:?}", record.state) };
        assert_eq!(until - record.updated_at, s.lease(), "{name}");
        assert!(matches!(s.claim(&ask(2)).await, Claim::InFlight(_)), "{name}");
        s.pass(s.lease()).await;
        acquired(s.claim(&ask(2)).await);
        // A delay, counted from now by the store's clock.
        let vacate = Release { delay: s.lease(), ..put_down(ReleaseKind::Vacate) };
        assert_eq!(must("release", client.store.release(&ask(2).held(), &vacate).await), Settled::Done);
        assert!(matches!(s.claim(&ask(3)).await, Claim::Delayed { .. }), "{name}");
        s.pass(s.lease()).await;
        acquired(s.claim(&ask(3)).await);
        // A retention.
        let brief = done(b"v", s.lease());
        assert_eq!(must("complete", client.store.complete(&ask(3).held(), &brief).await), Settled::Done);
        assert!(matches!(s.claim(&ask(4)).await, Claim::Consumed(_)), "{name}");
        s.pass(s.lease()).await;
        assert_eq!(must("peek", s.store.peek(&ask(4).key).await), None, "{name}: past its retention");
    }
}

pub async fn a_client_with_a_wrong_clock_sees_each_expiry_in_time(s: &Subject) {
    let clients = s.over_clients();
    acquired(s.claim_by(1).await);
    assert_eq!(must("complete", s.store.complete(&s.held(1), &done(b"v", s.lease())).await), Settled::Done);
    for (name, client) in NAMES.iter().zip(&clients) {
        assert_eq!(client.state().await, StateKind::Consumed, "{name}");
        assert!(matches!(client.claim_by(2).await, Claim::Consumed(_)), "{name}");
    }
    s.pass(s.lease()).await;
    for (name, client) in NAMES.iter().zip(&clients) {
        assert_eq!(client.state().await, StateKind::Absent, "{name}");
    }
}

pub async fn fencing_rises_with_any_client_clock(s: &Subject) {
    let mut last = FencingToken(0);
    let clients = s.over_clients();
    for owner in 0..6_u128 {
        let client = &clients[usize::from(owner % 2 == 1)];
        let ask = ClaimRequest { lease: HOUR, ..s.ask(owner) };
        let fencing = acquired(client.claim(&ask).await).fencing;
        assert!(fencing > last, "{fencing} is not above {last}");
        last = fencing;
        assert_eq!(client.release(owner, ReleaseKind::Delete).await, Settled::Done);
    }
}
