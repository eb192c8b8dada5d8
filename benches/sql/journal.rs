//! A step of a run, which is one statement, compared with one INSERT.
use std::sync::Arc;
use std::time::Duration;

use idempotent::steps::{StepRecord, StepState};

use crate::by_hand::VALUE;
use crate::cases::Side;
use crate::claims::{held, request};
use crate::report::{Goal, Report};

pub const CASE: &str = "step of a run, to one INSERT";
const ROUNDS: u64 = 9;
const STEPS: u64 = 64;
/// The number of steps in a run.
const EACH: u64 = 8;
/// An unused range of numbers.
const FROM: u64 = 1 << 44;

pub async fn all(report: &Report, side: &Side) {
    if !report.wants(side.name, CASE) {
        return;
    }
    let rounds = report.rounds(ROUNDS, STEPS, 1);
    let requests: Vec<_> = (0..rounds.rounds * rounds.operations / EACH).map(|run| request(FROM + run)).collect();
    for claim in side.store.capabilities().batch.unwrap().claim_all(&requests).await {
        claim.unwrap();
    }
    let (store, by_hand) = (side.store.clone(), side.by_hand.clone());
    let ours = move |number: u64| {
        let store = store.clone();
        async move {
            let held = held(&request(FROM + number / EACH));
            let place = u32::try_from(number % EACH).unwrap();
            let (name, value) = (Arc::from(format!("step {place}")), Some(Arc::from(VALUE)));
            let step = StepRecord { name, place, state: StepState::Done, value };
            let journal = store.capabilities().steps.unwrap();
            journal.note(&held, &step, Duration::from_secs(3_600)).await.unwrap();
        }
    };
    let insert = move |number: u64| {
        let by_hand = by_hand.clone();
        async move { by_hand.step(number).await }
    };
    let pair = rounds.nanos(0, ours, insert).await.rates();
    report.pair((side.name, CASE, Some(1)), "steps/s", pair, Goal::None);
}
