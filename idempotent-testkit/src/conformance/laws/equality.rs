//! The store against `protocol.rs`: the same operations, the same answers, the same records.
use std::fmt::{Debug, Write};

use idempotent_core::{Clock, Fencing, Key, Micros};

use crate::VirtualClock;
use crate::conformance::Subject;
use crate::conformance::model::{Model, Shape};
use crate::conformance::operations::{KEYS, Operation, key_name, script};
use crate::conformance::subject::must;

const SEEDS: u64 = 40;
const LENGTH: usize = 80;

pub async fn random_operations_are_answered_as_the_protocol_answers_them(s: &Subject) {
    for seed in 0..SEEDS {
        answered_as_by_the_protocol(s, seed, LENGTH).await;
    }
}

/// One seed of the law above, to look at alone or to go on from.
///
/// # Panics
/// At the first answer or record that differs, with the seed and the operations up to there.
pub async fn answered_as_by_the_protocol(s: &Subject, seed: u64, length: usize) {
    let operations = script(s, seed, length);
    let mut comparison = Comparison::new(s, seed);
    for (at, operation) in operations.iter().enumerate() {
        if let Err(difference) = comparison.step(operation).await {
            panic!("{}", story(seed, &operations[..=at], &difference));
        }
    }
}

fn story(seed: u64, operations: &[Operation], difference: &str) -> String {
    let mut story = format!("seed {seed}, operation {}: {difference}\nthe operations up to there:\n", operations.len());
    for (number, operation) in (1..).zip(operations) {
        // Writing to a string cannot fail.
        let _ = writeln!(story, "{number:4}. {operation}");
    }
    story
}

struct Comparison<'a> {
    s: &'a Subject,
    model: Model,
    keys: Vec<Key>,
    /// Where time is real: the model's own, which rises with each operation.
    operations: u64,
    model_shape: Vec<Shape>,
    store_shape: Vec<Shape>,
}

impl<'a> Comparison<'a> {
    fn new(s: &'a Subject, seed: u64) -> Self {
        let shapes = || (0..KEYS).map(|_| Shape::default()).collect();
        Self {
            s,
            model: Model::default(),
            keys: (0..KEYS).map(|index| s.key(&key_name(seed, index))).collect(),
            operations: 0,
            model_shape: shapes(),
            store_shape: shapes(),
        }
    }

    fn now(&self) -> Micros {
        match &self.s.clock {
            Some(clock) => clock.wall(),
            None => Micros(VirtualClock::START.0 + self.operations),
        }
    }

    fn index(&self, key: &Key) -> usize {
        self.keys.iter().position(|known| known == key).expect("a key of this script")
    }

    async fn step(&mut self, operation: &Operation) -> Result<(), String> {
        self.operations += 1;
        let (store, now) = (&self.s.store, self.now());
        match operation {
            Operation::Claim(ask) => {
                let (got, want) = (must("claim", store.claim(ask).await), self.model.claim(ask, now));
                if self.s.clock.is_some() {
                    same("the claim's answer", &got, &want)?;
                } else {
                    let index = self.index(&ask.key);
                    let (got, want) = (self.store_shape[index].claim(got), self.model_shape[index].claim(want));
                    same("the claim's answer", &got, &want)?;
                }
            }
            Operation::Renew(held, lease) => {
                let got = must("renew", store.renew(held, *lease).await);
                same("the renewal's answer", &got, &self.model.renew(held, *lease, now))?;
            }
            Operation::Complete(held, done) => {
                let got = must("complete", store.complete(held, done).await);
                same("the completion's answer", &got, &self.model.complete(held, done, now))?;
            }
            Operation::Release(held, release) => {
                let got = must("release", store.release(held, release).await);
                same("the release's answer", &got, &self.model.release(held, release, now))?;
            }
            Operation::Forget { key, right, force, memory } => {
                let (Some(admin), key) = (store.abilities().admin, &self.keys[*key]) else { return Ok(()) };
                let number = |fencing: Fencing| if *right { fencing } else { Fencing(fencing.0 - 1) };
                let seen = must("peek", store.peek(key).await).map_or(Fencing(1), |record| record.fencing);
                let got = must("forget", admin.forget(key, number(seen), *force, *memory).await);
                let seen = self.model.peek(key, now).map_or(Fencing(1), |record| record.fencing);
                same("the forgetting's answer", &got, &self.model.forget(key, number(seen), *force, *memory, now))?;
            }
            Operation::Purge(at_most) => {
                if let Some(purge) = store.abilities().purge {
                    must("purge", purge.purge(*at_most).await);
                }
            }
            Operation::Pass(by) => {
                // In real time nothing is to end: all spans are hours.
                if let Some(clock) = &self.s.clock {
                    clock.jump(*by);
                }
            }
        }
        self.compare_records().await
    }

    async fn compare_records(&mut self) -> Result<(), String> {
        let now = self.now();
        for (index, key) in self.keys.iter().enumerate() {
            let got = must("peek", self.s.store.peek(key).await);
            let want = self.model.peek(key, now).cloned();
            if self.s.clock.is_some() {
                same(&format!("the record of key {index}"), &got, &want)?;
            } else {
                let got = got.map(|record| self.store_shape[index].record(record));
                let want = want.map(|record| self.model_shape[index].record(record));
                same(&format!("the record of key {index}"), &got, &want)?;
            }
        }
        Ok(())
    }
}

fn same<T: Debug + PartialEq>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what} differs\n     store: {got:?}\n  protocol: {want:?}")) }
}
