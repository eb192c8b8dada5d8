//! The law that compares the store with `protocol.rs`: equal operations have equal answers and records.
use std::fmt::Debug;
use std::sync::Arc;

use idempotent_core::{
    Claim, ClaimHandle, Clock, FencingToken, Key, OwnerToken, Record, Settled, State, Store, StoreError, Timestamp,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::VirtualClock;
use crate::conformance::Subject;
use crate::conformance::model::{Model, Shape};
use crate::conformance::operations::{Ask, By, Grants, KEYS, NAMES, Operation, Script, scripts};
use crate::conformance::subject::must;

/// The number of scripts.
const CASES: u64 = 48;
/// The number of steps of the longest script.
const LENGTH: usize = 80;
/// The number of scripts that are tried to shorten a failing one.
const SHRINKS: u32 = 2_000;
/// The seed and the number of scripts, for a longer search.
const SEED: &str = "IDEMPOTENT_KIT_SEED";
const MORE: &str = "IDEMPOTENT_KIT_CASES";

/// Uses the same scripts each time, unless `IDEMPOTENT_KIT_SEED` (a number, 0 by default) sets another seed.
/// `IDEMPOTENT_KIT_CASES` sets their number (48 by default). In half of the scripts, each owner sends the fencing token
/// of its last grant, like an executor; a consumed record may then contain that instead of its owner token. A script
/// with a different answer is shrunk and printed step by step.
pub async fn random_operations_are_answered_by_the_protocol(s: &Subject) {
    answered_as_by_the_protocol(s, number(SEED, 0), number(MORE, CASES)).await;
}

/// Checks the law above with another seed and number of scripts.
///
/// # Panics
/// At the first script with a different answer. The message shows the seed and the shortest such script.
pub async fn answered_as_by_the_protocol(s: &Subject, seed: u64, cases: u64) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let scripts = scripts(s.clock.is_some(), LENGTH);
    let mut runs = 0;
    for case in 1..=cases {
        let mut tree = scripts.new_tree(&mut runner).expect("a script");
        if let Err(difference) = run(s, &mut runs, &tree.current()).await {
            let first = tree.current();
            let (shortest, difference) = shrink(s, &mut runs, &mut tree, difference).await;
            panic!(
                "seed {seed}, script {case}: {difference}\n{} of its {} steps are enough:\n{shortest}",
                shortest.steps.len(),
                first.steps.len(),
            );
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}: it has to be a number")),
        Err(_) => default,
    }
}

/// Returns the simplest script that still fails, and its failure.
async fn shrink(
    s: &Subject,
    runs: &mut u64,
    tree: &mut impl ValueTree<Value = Script>,
    difference: String,
) -> (Script, String) {
    let (mut worst, mut difference) = (tree.current(), difference);
    let mut simpler = tree.simplify();
    for _ in 0..SHRINKS {
        if !simpler {
            break;
        }
        let script = tree.current();
        simpler = match run(s, runs, &script).await {
            Ok(()) => tree.complicate(),
            Err(still) => {
                (worst, difference) = (script, still);
                tree.simplify()
            }
        };
    }
    (worst, difference)
}

/// Runs a script on its own keys, so that the remains of an earlier script do not matter.
async fn run(s: &Subject, runs: &mut u64, script: &Script) -> Result<(), String> {
    *runs += 1;
    let keys = NAMES.iter().map(|name| s.key(&format!("script {runs} key {name}"))).collect();
    let mut comparison = Comparison::new(s, keys, script.told);
    for operation in &script.steps {
        comparison.step(operation).await?;
        comparison.compare_records().await?;
    }
    Ok(())
}

struct Comparison<'a> {
    s: &'a Subject,
    second: Subject,
    model: Model,
    keys: Vec<Key>,
    /// The time of the model in real time, which rises with each operation.
    operations: u64,
    model_shape: Vec<Shape>,
    store_shape: Vec<Shape>,
    /// True if owners send the fencing tokens of their grants. Store and model have different tokens, since their
    /// clocks differ.
    told: bool,
    model_grants: Grants,
    store_grants: Grants,
}

impl<'a> Comparison<'a> {
    fn new(s: &'a Subject, keys: Vec<Key>, told: bool) -> Self {
        let shapes = || (0..KEYS).map(|_| Shape::default()).collect();
        let (second, model) = (s.over_any_second(), Model::default());
        let (model_shape, store_shape) = (shapes(), shapes());
        let (model_grants, store_grants) = (Grants::default(), Grants::default());
        Self { s, second, model, keys, operations: 0, model_shape, store_shape, told, model_grants, store_grants }
    }

    fn now(&self) -> Timestamp {
        match &self.s.clock {
            Some(clock) => clock.wall(),
            None => Timestamp(VirtualClock::START.0 + self.operations),
        }
    }

    /// Returns the connection of the step.
    fn store(&self, by: &By) -> Arc<dyn Store> {
        if by.second { self.second.store.clone() } else { self.s.store.clone() }
    }

    /// Returns the handle of this owner at the store, and at the model.
    fn held(&self, by: &By) -> (ClaimHandle, ClaimHandle) {
        (by.held(&self.keys, &self.store_grants), by.held(&self.keys, &self.model_grants))
    }

    fn same_claim(&mut self, ask: &Ask, got: Claim, want: Claim) -> Result<(), String> {
        if self.told {
            self.store_grants.note(ask, &self.keys, &got);
            self.model_grants.note(ask, &self.keys, &want);
        }
        if self.s.clock.is_some() {
            return same("the claim's answer", &got, &want);
        }
        let key = ask.by().key;
        let (got, want) = (self.store_shape[key].claim(got), self.model_shape[key].claim(want));
        same("the claim's answer", &got, &want)
    }

    async fn step(&mut self, operation: &Operation) -> Result<(), String> {
        self.operations += 1;
        let now = self.now();
        match operation {
            Operation::Claim(ask) => {
                let request = ask.request(&self.keys);
                let got = must("claim", self.store(ask.by()).claim(&request).await);
                let want = self.model.claim(&request, now);
                self.same_claim(ask, got, want)
            }
            Operation::Renew(by, lease) => {
                let (held, known) = self.held(by);
                let got = must("renew", self.store(by).renew(&held, *lease).await);
                same("the renewal's answer", &got, &self.model.renew(&known, *lease, now))
            }
            Operation::Complete(by, done) => {
                let (held, known) = self.held(by);
                let got = must("complete", self.store(by).complete(&held, done).await);
                same("the completion's answer", &got, &self.model.complete(&known, done, now))
            }
            Operation::Release(by, release) => {
                let (held, known) = self.held(by);
                let got = must("release", self.store(by).release(&held, release).await);
                same("the release's answer", &got, &self.model.release(&known, release, now))
            }
            Operation::ClaimAll(_) | Operation::RenewAll(_) | Operation::CompleteAll(_) => {
                self.batch(operation, now).await
            }
            Operation::Forget { key, right, force, retention } => {
                let Some(admin) = self.s.store.capabilities().admin else { return Ok(()) };
                let key = &self.keys[*key];
                let number = |fencing: FencingToken| if *right { fencing } else { FencingToken(fencing.0 - 1) };
                let seen = must("peek", self.s.store.peek(key).await).map_or(FencingToken(1), |record| record.fencing);
                let got = must("forget", admin.forget(key, number(seen), *force, *retention).await);
                let seen = self.model.peek(key, now).map_or(FencingToken(1), |record| record.fencing);
                same("the forgetting's answer", &got, &self.model.forget(key, number(seen), *force, *retention, now))
            }
            Operation::Purge(at_most) => {
                if let Some(purge) = self.s.store.capabilities().purge {
                    must("purge", purge.purge(*at_most).await);
                }
                Ok(())
            }
            Operation::Pass(by) => {
                // In real time, no period may end: all are hours.
                if let Some(clock) = &self.s.clock {
                    clock.jump(*by);
                }
                Ok(())
            }
        }
    }

    /// Compares a batch with single requests. Skipped if the store has no batch.
    async fn batch(&mut self, operation: &Operation, now: Timestamp) -> Result<(), String> {
        let Some(batch) = self.s.store.capabilities().batch else { return Ok(()) };
        match operation {
            Operation::ClaimAll(asks) => {
                let requests: Vec<_> = asks.iter().map(|ask| ask.request(&self.keys)).collect();
                let got = all("claim_all", batch.claim_all(&requests).await, requests.len())?;
                for ((ask, request), got) in asks.iter().zip(&requests).zip(got) {
                    let want = self.model.claim(request, now);
                    self.same_claim(ask, got, want)?;
                }
            }
            Operation::RenewAll(renewals) => {
                let (held, known): (Vec<_>, Vec<_>) = renewals
                    .iter()
                    .map(|(by, lease)| {
                        let (held, known) = self.held(by);
                        ((held, *lease), (known, *lease))
                    })
                    .unzip();
                let got = all("renew_all", batch.renew_all(&held).await, held.len())?;
                let want: Vec<Settled> = known.iter().map(|(held, by)| self.model.renew(held, *by, now)).collect();
                same("the renewals' answers", &got, &want)?;
            }
            Operation::CompleteAll(completions) => {
                let (held, known): (Vec<_>, Vec<_>) = completions
                    .iter()
                    .map(|(by, done)| {
                        let (held, known) = self.held(by);
                        ((held, done.clone()), (known, done.clone()))
                    })
                    .unzip();
                let got = all("complete_all", batch.complete_all(&held).await, held.len())?;
                let want: Vec<Settled> = known.iter().map(|(held, by)| self.model.complete(held, by, now)).collect();
                same("the completions' answers", &got, &want)?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn compare_records(&mut self) -> Result<(), String> {
        let now = self.now();
        for (index, key) in self.keys.iter().enumerate() {
            let got = must("peek", self.s.store.peek(key).await);
            let want = self.model.peek(key, now).cloned().map(|want| as_kept(want, got.as_ref()));
            let what = format!("the record of key {}", NAMES[index]);
            if self.s.clock.is_some() {
                same(&what, &got, &want)?;
            } else {
                let got = got.map(|record| self.store_shape[index].record(record));
                let want = want.map(|record| self.model_shape[index].record(record));
                same(&what, &got, &want)?;
            }
        }
        Ok(())
    }
}

/// Returns the expected record without the optional fields of a consumed record: its owner token, and the times when it
/// was first seen and written. The fencing token replaces each of them.
fn as_kept(want: Record, got: Option<&Record>) -> Record {
    let (State::Consumed { owner, value }, Some(Record { state: State::Consumed { owner: kept, .. }, .. })) =
        (&want.state, got)
    else {
        return want;
    };
    let owner = if *kept == OwnerToken::NOT_KEPT { *kept } else { *owner };
    let state = State::Consumed { owner, value: value.clone() };
    match got {
        Some(got) if got.first_seen.0 == got.fencing.0 && got.updated_at == got.first_seen => {
            Record { state, first_seen: got.first_seen, updated_at: got.updated_at, ..want }
        }
        _ => Record { state, ..want },
    }
}

fn all<T>(verb: &str, answers: Vec<Result<T, StoreError>>, asked: usize) -> Result<Vec<T>, String> {
    if answers.len() != asked {
        return Err(format!("{verb} was asked {asked} and answered {}", answers.len()));
    }
    Ok(answers.into_iter().map(|answer| must(verb, answer)).collect())
}

fn same<T: Debug + PartialEq>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what} differs\n     store: {got:?}\n  protocol: {want:?}")) }
}
