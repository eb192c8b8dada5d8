//! Laws about steps.
use std::pin::Pin;
use std::sync::Arc;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, ReleaseKind, Settled, StateKind, StepRecord, StepState, StepStore, Store,
    StoreError, StoredSteps,
};

use super::races::{of_round, overdue, racers, winner};
use crate::conformance::patient::Patient;
use crate::conformance::subject::{HOUR, HeldBy, MS, acquired, done, lost, must, put_down};
use crate::conformance::{Subject, together};

fn step(name: &str, place: u32, state: StepState, value: Option<&[u8]>) -> StepRecord {
    StepRecord { name: name.into(), place, state, value: value.map(Into::into) }
}

fn done_with(name: &str, place: u32, value: &[u8]) -> StepRecord {
    step(name, place, StepState::Done, Some(value))
}

async fn note(s: &Subject, held: &ClaimHandle, step: &StepRecord) -> Settled {
    must("note", s.journal().note(held, step, HOUR).await)
}

/// Returns the steps in the form of the protocol.
#[track_caller]
fn the_steps(answer: StoredSteps) -> Vec<StepRecord> {
    match answer {
        StoredSteps::Steps(steps) => steps,
        lost @ StoredSteps::Lost { .. } => panic!("the store answered {lost:?} to the owner of the key"),
    }
}

async fn steps(s: &Subject, held: &ClaimHandle) -> Vec<StepRecord> {
    the_steps(must("steps", s.journal().steps(held, HOUR).await))
}

pub async fn steps_are_read_back_unchanged(s: &Subject) {
    acquired(s.claim_by(1).await);
    let held = s.held(1);
    assert_eq!(steps(s, &held).await, [], "nothing was noted");
    let large = vec![0xA5; 300_000];
    let noted = [
        done_with("z", 0, b"0"),
        step("a", 1, StepState::Intended, None),
        step("a\0' \"{}\u{202e}é", 2, StepState::Done, None),
        done_with("empty", 3, b""),
        done_with("Z", 10, &large),
        step("undone", 11, StepState::Undoing, None),
    ];
    for at in [4, 1, 0, 5, 3, 2] {
        assert_eq!(note(s, &held, &noted[at]).await, Settled::Done);
    }
    assert_eq!(steps(s, &held).await, noted, "in the order of their places, and with nothing lost");
    assert_eq!(s.complete(1, b"v").await, Settled::Done, "steps do not touch the record");
}

pub async fn a_step_never_returns_to_an_earlier_state(s: &Subject) {
    acquired(s.claim_by(1).await);
    let held = s.held(1);
    let intent = step("a", 0, StepState::Intended, None);
    let undoing = step("a", 0, StepState::Undoing, None);
    for (noted, stands) in [
        (&intent, &intent),
        (&done_with("a", 0, b"first"), &done_with("a", 0, b"first")),
        (&done_with("a", 0, b"second"), &done_with("a", 0, b"first")),
        (&intent, &done_with("a", 0, b"first")),
        (&undoing, &undoing),
        (&done_with("a", 0, b"third"), &undoing),
    ] {
        assert_eq!(note(s, &held, noted).await, Settled::Done, "a step that was recorded before is not an error");
        assert_eq!(steps(s, &held).await, std::slice::from_ref(stands));
    }
}

pub async fn only_the_owner_reads_and_records_steps(s: &Subject) {
    let grant = acquired(s.claim_by(1).await);
    let held = ClaimHandle { fencing: Some(grant.fencing), ..s.held(1) };
    let kept = done_with("a", 0, b"kept");
    assert_eq!(note(s, &held, &kept).await, Settled::Done);
    let other = idempotent_core::FencingToken(grant.fencing.0 + 1);
    let strangers = [
        (s.held(2), StateKind::Consuming),
        (ClaimHandle { fencing: Some(other), ..s.held(1) }, StateKind::Consuming),
        (s.ask_on("absent", 1).held(), StateKind::Absent),
    ];
    for (stranger, now) in strangers {
        assert_eq!(note(s, &stranger, &done_with("b", 1, b"foreign")).await, lost(now));
        assert_eq!(must("steps", s.journal().steps(&stranger, HOUR).await), StoredSteps::Lost { now });
    }
    assert_eq!(steps(s, &held).await, [kept], "no stranger noted anything");
    assert_eq!(s.complete(1, b"v").await, Settled::Done);
    assert_eq!(note(s, &held, &done_with("b", 1, b"late")).await, lost(StateKind::Consumed), "the run is over");
}

pub async fn a_superseded_owner_records_no_step(s: &Subject) {
    let first = acquired(s.claim_by(1).await);
    let old = ClaimHandle { fencing: Some(first.fencing), ..s.held(1) };
    s.pass(s.lease()).await;
    assert_eq!(note(s, &old, &done_with("a", 0, b"late")).await, Settled::Done, "nobody took over yet");
    acquired(s.claim_by(2).await);
    assert_eq!(note(s, &old, &done_with("b", 1, b"too late")).await, lost(StateKind::Consuming));
    assert_eq!(must("steps", s.journal().steps(&old, HOUR).await), StoredSteps::Lost { now: StateKind::Consuming });
    // Nor does it for the next grant of the same owner token.
    assert_eq!(s.release(2, ReleaseKind::Vacate).await, Settled::Done);
    acquired(s.claim_by(1).await);
    assert_eq!(note(s, &old, &done_with("b", 1, b"too late")).await, lost(StateKind::Consuming));
    assert_eq!(steps(s, &s.held(1)).await, [done_with("a", 0, b"late")]);
}

pub async fn steps_survive_release_and_takeover(s: &Subject) {
    acquired(s.claim_by(1).await);
    assert_eq!(note(s, &s.held(1), &done_with("a", 0, b"by 1")).await, Settled::Done);
    assert_eq!(s.release(1, ReleaseKind::Vacate).await, Settled::Done);
    acquired(s.claim_by(2).await);
    assert_eq!(steps(s, &s.held(2)).await, [done_with("a", 0, b"by 1")]);
    assert_eq!(note(s, &s.held(2), &done_with("b", 1, b"by 2")).await, Settled::Done);
    s.pass(s.lease()).await;
    acquired(s.claim_by(3).await);
    let both = [done_with("a", 0, b"by 1"), done_with("b", 1, b"by 2")];
    assert_eq!(steps(s, &s.held(3)).await, both);
    // Released with the shortest delay, which also keeps the record of a first run.
    let back = idempotent_core::Release { delay: MS, ..put_down(ReleaseKind::Refund) };
    assert_eq!(s.release_as(3, &back).await, Settled::Done);
    s.pass(2 * MS).await;
    acquired(s.claim_by(4).await);
    assert_eq!(steps(s, &s.held(4)).await, both);
    assert_eq!(s.renew(4, HOUR).await, Settled::Done);
    assert_eq!(steps(s, &s.held(4)).await, both, "a renewal changes nothing of them");
}

/// Claims the key, records a step, and ends the record in this way. Then the key is claimed again.
async fn begins_anew(s: &Subject, how: &str, end: impl AsyncFnOnce(&ClaimRequest)) {
    let brief = ClaimRequest { lease: s.lease(), retention: 10 * MS, ..s.ask_on(how, 1) };
    acquired(s.claim(&brief).await);
    assert_eq!(note(s, &brief.held(), &done_with("a", 0, b"old")).await, Settled::Done);
    end(&brief).await;
    let anew = ClaimRequest { owner: idempotent_core::OwnerToken(2), ..brief };
    assert_eq!(acquired(s.claim(&anew).await).attempt, 1, "{how}: the key starts again");
    assert_eq!(steps(s, &anew.held()).await, [], "{how}: these are another record's steps");
    assert_eq!(note(s, &anew.held(), &done_with("b", 0, b"new")).await, Settled::Done);
    assert_eq!(note(s, &anew.held(), &done_with("a", 1, b"new")).await, Settled::Done);
    let new = [done_with("b", 0, b"new"), done_with("a", 1, b"new")];
    assert_eq!(steps(s, &anew.held()).await, new, "{how}: a step of the record before is no step of this one");
}

pub async fn a_new_record_of_a_key_has_no_steps(s: &Subject) {
    begins_anew(s, "memory", async |_| s.pass(s.lease() + 20 * MS).await).await;
    begins_anew(s, "retention", async |ask| {
        must("complete", s.store.complete(&ask.held(), &done(b"v", MS)).await);
        s.pass(10 * MS).await;
    })
    .await;
    if let Some(admin) = s.store.capabilities().admin {
        begins_anew(s, "forgotten", async |ask| {
            must("release", s.store.release(&ask.held(), &put_down(ReleaseKind::MarkFailed)).await);
            let failed = must("peek", s.store.peek(&ask.key).await).expect("it failed");
            // The new record must begin at another time, since an operator is not that fast.
            s.pass(10 * MS).await;
            must("forget", admin.forget(&ask.key, failed.fencing, false, HOUR).await);
        })
        .await;
    }
    if let Some(purge) = s.store.capabilities().purge {
        begins_anew(s, "purged", async |_| {
            s.pass(s.lease() + 20 * MS).await;
            must("purge", purge.purge(1_000).await);
        })
        .await;
    }
}

pub async fn steps_of_two_keys_are_separate(s: &Subject) {
    let asks = [s.ask_on("one", 1), s.ask_on("two", 1)];
    for (at, ask) in asks.iter().enumerate() {
        acquired(s.claim(ask).await);
        assert_eq!(note(s, &ask.held(), &done_with("a", 0, &[at as u8])).await, Settled::Done);
    }
    for (at, ask) in asks.iter().enumerate() {
        assert_eq!(steps(s, &ask.held()).await, [done_with("a", 0, &[at as u8])]);
    }
}

/// The answer to a racer.
enum Said {
    Late(Settled),
    /// A grant or another answer, with the number of steps that were found at once.
    Over(Claim, Option<usize>),
}

type Racer = Pin<Box<dyn Future<Output = Said> + Send>>;

/// Retries while the store is too busy.
async fn patiently<T, F>(ask: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if error.is_worth_a_retry() => tokio::task::yield_now().await,
            Err(error) => panic!("the journal failed: {error}"),
        }
    }
}

fn journal(store: &Arc<dyn Store>) -> &dyn StepStore {
    store.capabilities().steps.expect("a capability does not come and go")
}

/// Claims a key with an expired lease, and reads its steps as soon as it is granted.
async fn takes_over(store: Arc<dyn Store>, ask: ClaimRequest) -> Said {
    let claim = Patient(store.clone()).claim(&ask).await;
    let Claim::Acquired(_) = claim else { return Said::Over(claim, None) };
    let held = ask.held();
    let read = patiently(|| journal(&store).steps(&held, HOUR)).await;
    Said::Over(claim, Some(the_steps(read).len()))
}

/// Races a late record against a takeover. A run that takes over replays the recorded steps. A step that is recorded after that read would be done twice.
pub async fn a_takeover_sees_each_recorded_step(s: &Subject) {
    s.journal();
    overdue(s).await;
    for round in 0..s.race_rounds() {
        let held = s.ask_on(&of_round(round), 1).held();
        let late = |store: Arc<dyn Store>| async move {
            let late = done_with("late", 0, b"v");
            Said::Late(patiently(|| journal(&store).note(&held, &late, HOUR)).await)
        };
        let mut racing: Vec<Racer> = Vec::new();
        for ask in racers(s, &of_round(round), HOUR).into_iter().skip(1) {
            racing.push(Box::pin(takes_over(s.store.clone(), ask)));
        }
        racing.insert(round as usize % racing.len(), Box::pin(late(s.store.clone())));
        let (mut noted, mut claims, mut seen) = (None, Vec::new(), None);
        for said in together::race(round, racing).await {
            match said {
                Said::Late(settled) => noted = Some(settled),
                Said::Over(claim, steps) => {
                    claims.push(claim);
                    seen = seen.or(steps);
                }
            }
        }
        winner(&claims);
        match noted.expect("the owner was among them") {
            Settled::Done => assert_eq!(seen, Some(1), "recorded, but the run that took over did not find the step"),
            Settled::Lost { .. } => assert_eq!(seen, Some(0), "said to be lost, and noted all the same"),
        }
    }
}
