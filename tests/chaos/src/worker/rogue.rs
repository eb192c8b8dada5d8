//! A foreign client of the same store, which continues after the end of its lease, unlike the executor. Other workers
//! have taken over by then, or have even completed. Only the store rejects the calls of this client.
use std::sync::Arc;
use std::time::Duration;

use idempotent::store::{
    Claim, ClaimHandle, ClaimRequest, Completion, Entropy, OnExpiry, OsEntropy, OwnerToken, Release, ReleaseKind,
    Settled,
};
use idempotent::{FencingToken, Fingerprint, Identity, Key, Scene, Store};
use idempotent_testkit::history::Token;

use super::{MEMORY, RUNS, Worker};
use crate::wire::Message;

/// Until the next delivery.
const SOON_MS: u64 = 50;
const TRIES: u32 = 6;

impl Worker {
    pub(super) async fn go_rogue(&self, delivery: u64, message: &Message) {
        // Of a number: never refused.
        let Ok(key) = Identity::new(Scene::Mq, "chaos", &message.key).key(self.executor.namespace()) else { return };
        let settled = match OsEntropy.bits() {
            Ok(owner) => self.outstay(&key, OwnerToken(owner), delivery, message).await,
            Err(_) => None,
        };
        match settled {
            Some(Settled::Done) => self.ack(key.as_str(), delivery),
            _ => self.nack(key.as_str(), delivery, SOON_MS),
        }
    }

    /// Continues after the end of the lease. Returns the result of the completion, if there was one.
    async fn outstay(&self, key: &Key, owner: OwnerToken, delivery: u64, message: &Message) -> Option<Settled> {
        let lease = Duration::from_millis(message.lease_ms);
        let request = ClaimRequest {
            key: key.clone(),
            owner,
            lease,
            fingerprint: Some(Fingerprint::of_bytes("this")),
            max_attempts: RUNS,
            on_expiry: OnExpiry::Takeover,
            retention: MEMORY,
            display: None,
        };
        let Ok(Claim::Acquired(grant)) = self.context.store.claim(&request).await else { return None };
        self.context.effect(key, Token(owner.0), grant.fencing, message.fenced).await.ok()?;
        // It may know its number or not.
        let known = |fencing: FencingToken| delivery.is_multiple_of(2).then_some(fencing);
        let held = ClaimHandle { key: key.clone(), owner, fencing: known(grant.fencing), terms: None };
        self.insist(&held, lease, VERBS[usize::try_from(delivery % 3).unwrap_or_default()]).await
    }

    /// Sends a late call, and repeats the call after the answer that the key is lost. Returns the result of a
    /// completion.
    async fn insist(&self, held: &ClaimHandle, lease: Duration, verb: Verb) -> Option<Settled> {
        let mut pause = lease * 12 / 10;
        for _ in 0..TRIES {
            tokio::time::sleep(pause).await;
            let settled = match verb {
                Verb::Renew => self.context.store.renew(held, lease).await,
                Verb::Complete => self.context.store.complete(held, &completion(held)).await,
                Verb::Release => self.context.store.release(held, &release()).await,
            };
            match (verb, settled) {
                (_, Err(_)) => {}
                (_, Ok(Settled::Lost { .. })) => pause = lease / 5,
                (Verb::Renew, Ok(Settled::Done)) => pause = lease * 12 / 10,
                (Verb::Complete, Ok(Settled::Done)) => return Some(Settled::Done),
                (Verb::Release, Ok(Settled::Done)) => return None,
            }
        }
        None
    }
}

/// The repeated call.
#[derive(Clone, Copy)]
enum Verb {
    Renew,
    Complete,
    Release,
}

const VERBS: [Verb; 3] = [Verb::Renew, Verb::Complete, Verb::Release];

fn completion(held: &ClaimHandle) -> Completion {
    let value = format!("by the rogue {}", Token(held.owner.0)).into_bytes();
    Completion { value: Some(value.into()), retain: MEMORY }
}

fn release() -> Release {
    Release { kind: ReleaseKind::Vacate, delay: Duration::ZERO, retention: MEMORY, error: Arc::from("by a rogue") }
}
