//! the memory store and SQLite side by side, the same requests at the same times.
use std::sync::Arc;
use std::time::Duration;

use crate::common::{key_of, ms, secs};
use idempotent::store::{Claim, ClaimHandle, ClaimRequest, Completion, OnExpiry, OwnerToken, Release, ReleaseKind};
use idempotent::{Clock, FencingToken, Fingerprint, MemoryStore, SqliteStore, Store};
use idempotent_testkit::VirtualClock;

struct Dice(u64);
impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.roll(of.len() as u64)).unwrap()]
    }
}

fn request(dice: &mut Dice) -> ClaimRequest {
    let spans = [ms(1), ms(2), ms(10), ms(100), secs(5)];
    let memories = [Duration::ZERO, ms(1), ms(5), secs(10), Duration::MAX];
    ClaimRequest {
        key: key_of(dice.pick(&["a", "b"])),
        owner: OwnerToken(u128::from(1 + dice.roll(4))),
        lease: dice.pick(&spans),
        fingerprint: dice.pick(&[None, Some(Fingerprint::of_bytes("1")), Some(Fingerprint::of_bytes("2"))]),
        max_attempts: dice.pick(&[0, 1, 2, 5]),
        on_expiry: dice.pick(&[OnExpiry::Takeover, OnExpiry::Takeover, OnExpiry::Park]),
        retention: dice.pick(&memories),
        display: dice.pick(&[None, Some("shown")]).map(Arc::from),
    }
}

#[test]
fn memory_and_sqlite_answer_the_same() {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        for seed in 0..60 {
            let (mut dice, clock) = (Dice(seed * 7919 + 1), VirtualClock::new());
            let memory = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
            let sqlite = SqliteStore::builder("sqlite::memory:").clock(Arc::new(clock.clone())).open().await.unwrap();
            let mut said = Vec::new();
            let mut fencing = FencingToken(0);
            for step in 0..150 {
                clock.jump(dice.pick(&[
                    Duration::ZERO,
                    Duration::ZERO,
                    Duration::from_micros(1),
                    ms(1),
                    ms(3),
                    ms(50),
                    secs(6),
                ]));
                let back = dice.roll(40) == 0;
                if back {
                    // The clock goes back, after a time that neither a purge nor an expiry has seen. The answers must
                    // still be equal.
                    let now = i64::try_from(dice.roll(3)).unwrap();
                    clock.set_wall_offset(-now);
                }
                let held =
                    ClaimHandle::unanswered(key_of(dice.pick(&["a", "b"])), OwnerToken(u128::from(1 + dice.roll(4))));
                let what = dice.roll(10);
                let (one, two) = match what {
                    0..=3 => {
                        let request = request(&mut dice);
                        let (one, two) = (memory.claim(&request).await, sqlite.claim(&request).await);
                        if let Ok(Claim::Acquired(grant)) = &one {
                            fencing = grant.fencing;
                        }
                        (format!("{request:?}\n -> {:?}", one.unwrap()), format!("{request:?}\n -> {:?}", two.unwrap()))
                    }
                    4 => {
                        let lease = dice.pick(&[ms(1), ms(10), secs(5)]);
                        (
                            format!("renew {held:?} {:?}", memory.renew(&held, lease).await.unwrap()),
                            format!("renew {held:?} {:?}", sqlite.renew(&held, lease).await.unwrap()),
                        )
                    }
                    5 => {
                        let done = Completion {
                            value: dice.pick(&[None, Some(&b"v"[..])]).map(Arc::from),
                            retain: dice.pick(&[Duration::ZERO, ms(1), ms(20), secs(5), Duration::MAX]),
                        };
                        (
                            format!("complete {held:?} {:?}", memory.complete(&held, &done).await.unwrap()),
                            format!("complete {held:?} {:?}", sqlite.complete(&held, &done).await.unwrap()),
                        )
                    }
                    6 | 7 => {
                        let release = Release {
                            kind: dice.pick(&[
                                ReleaseKind::Delete,
                                ReleaseKind::Vacate,
                                ReleaseKind::Refund,
                                ReleaseKind::MarkFailed,
                                ReleaseKind::MarkDead,
                            ]),
                            delay: dice.pick(&[Duration::ZERO, ms(1), ms(30)]),
                            retention: dice.pick(&[Duration::ZERO, ms(1), secs(5), Duration::MAX]),
                            error: "why".into(),
                        };
                        (
                            format!("{release:?} {held:?} {:?}", memory.release(&held, &release).await.unwrap()),
                            format!("{release:?} {held:?} {:?}", sqlite.release(&held, &release).await.unwrap()),
                        )
                    }
                    8 => {
                        let (force, keep) = (dice.roll(2) == 0, dice.pick(&[Duration::ZERO, ms(5), secs(5)]));
                        let (a, b) = (memory.capabilities().admin.unwrap(), sqlite.capabilities().admin.unwrap());
                        (
                            format!("forget {:?}", a.forget(&held.key, fencing, force, keep).await.unwrap()),
                            format!("forget {:?}", b.forget(&held.key, fencing, force, keep).await.unwrap()),
                        )
                    }
                    _ => {
                        memory.capabilities().purge.unwrap().purge(10).await.unwrap();
                        sqlite.capabilities().purge.unwrap().purge(10).await.unwrap();
                        (String::new(), String::new())
                    }
                };
                said.push(format!("{:?} {one}", clock.wall()));
                let tail = || said.iter().rev().take(8).rev().cloned().collect::<Vec<_>>().join("\n");
                assert_eq!(one, two, "seed {seed} step {step}:\n{}", tail());
                for key in ["a", "b"] {
                    let (one, two) =
                        (memory.peek(&key_of(key)).await.unwrap(), sqlite.peek(&key_of(key)).await.unwrap());
                    assert_eq!(one, two, "seed {seed} step {step}, peek {key}:\n{}", tail());
                }
            }
        }
    });
}

/// "Removes at most `at_most` of them": a janitor that goes on until nothing is removed must get all of them.
#[test]
fn a_purge_that_removes_nothing_found_nothing() {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let clock = VirtualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let mut request = request(&mut Dice(1));
        (request.lease, request.retention, request.max_attempts) = (secs(30), secs(60), 0);
        let held = ClaimHandle::unanswered(request.key.clone(), request.owner);
        store.claim(&request).await.unwrap();
        clock.jump(secs(2));
        let delete =
            Release { kind: ReleaseKind::Delete, delay: Duration::ZERO, retention: Duration::ZERO, error: "".into() };
        store.release(&held, &delete).await.unwrap();
        store.claim(&request).await.unwrap();
        store.complete(&held, &Completion { value: None, retain: secs(31) }).await.unwrap();
        clock.jump(secs(100));
        assert_eq!(store.len(), 1);
        let gone = store.capabilities().purge.unwrap().purge(1).await.unwrap();
        assert_eq!(gone, 1, "one record past its time, purge(1) removed {gone}");
    });
}
