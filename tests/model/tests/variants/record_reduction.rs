//! Comparison of the model's reduced records with whole records on a real clock: equal scripts have equal answers.
use std::mem::discriminant;
use std::time::Duration;

use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Key, OnExpiry, OwnerToken, Record, Release, Settled,
    State, Timestamp,
};
use idempotent_model::action::Action;
use idempotent_model::record::{LEASE, NOW, RETENTION};
use idempotent_model::state::{Budget, End, Holding, Message, Phase, Request, State as Small};
use idempotent_model::store::{Answer, Store, kind};
use idempotent_model::table::LIMIT;
use idempotent_model::variant::Variant;
use idempotent_model::world::World;

const OWNERS: u8 = 3;
const PLENTY: Budget = Budget {
    crashes: 9,
    expiries: 99,
    failures: 9,
    timeouts: 9,
    losses: 0,
    ends: 99,
    forgets: 0,
    ended_transactions: 0,
};

/// The protocol with whole records, and actual times and fencing tokens.
struct Whole {
    limit: u32,
    now: Timestamp,
    record: Option<Record>,
    held: [u64; OWNERS as usize],
}

impl Whole {
    fn ask(&mut self, owner: u8, request: Request) -> Answer {
        let found = self.record.as_ref();
        let token = OwnerToken(u128::from(owner) + 1);
        let key = Key::from_parts("model", 1);
        let number = self.held[usize::from(owner)];
        let held = ClaimHandle {
            key: key.clone(),
            owner: token,
            fencing: (number > 0).then_some(FencingToken(number)),
            terms: None,
        };
        let (answer, write) = match request {
            Request::Claim => {
                let (lease, fingerprint, max_attempts, on_expiry) = (LEASE, None, self.limit, OnExpiry::Takeover);
                let (retention, display) = (RETENTION, None);
                let request =
                    ClaimRequest { key, owner: token, lease, fingerprint, max_attempts, on_expiry, retention, display };
                let (claim, write) = protocol::claim(found, &request, self.now);
                (Answer::Claim(claim), write)
            }
            Request::Complete => {
                let done = Completion { value: Some([owner + 1].into()), retain: RETENTION };
                settled(protocol::complete(found, &held, &done, self.now))
            }
            Request::Release(end) => {
                let (delay, retention) = (Duration::ZERO, RETENTION);
                let release = Release { kind: end.into(), delay, retention, error: "failed".into() };
                settled(protocol::release(found, &held, &release, self.now))
            }
            Request::Renew => settled(protocol::renew(found, &held, LEASE, self.now)),
        };
        match write {
            Write::Keep => {}
            Write::Put(record) => self.record = Some(record),
            Write::Delete => self.record = None,
        }
        answer
    }

    fn pass(&mut self, action: Action) {
        let Some(record) = &self.record else { return };
        self.now = match (action, &record.state) {
            (Action::Expire, State::Consuming { until, .. }) => *until,
            (Action::End, _) => record.expires_at,
            (_, _) => Timestamp(self.now.0 + 1),
        };
    }
}

fn settled((settled, write): (Settled, Write)) -> (Answer, Write) {
    (Answer::Settled(settled), write)
}

/// The same in the model.
struct Model {
    variant: Variant,
    store: Store,
    state: Small,
}

impl Model {
    fn number(&self, owner: u8) -> u8 {
        self.state.runs[usize::from(owner)].held().map_or(0, |held| held.number)
    }

    fn ask(&mut self, owner: u8, request: Request) -> Answer {
        let number = if request == Request::Claim { 0 } else { self.number(owner) };
        let (answer, record, _) =
            self.store.apply(self.state.record, &Message { run: owner, sort: 0, number, request });
        self.state.record = record;
        self.state.tick(0);
        answer
    }

    fn pass(&mut self, action: Action) {
        self.state = World::new(&self.variant, &self.store, &self.state).after(action);
    }
}

/// Runs the same script on both, up to the first difference.
fn compare(limit: u8, mut dice: impl FnMut(u8) -> u8) -> [bool; 5] {
    let variant = Variant { limit, budget: PLENTY, ..LIMIT };
    let mut whole = Whole { limit: limit.into(), now: Timestamp(1_000_000), record: None, held: [0; 3] };
    let mut small = Model { store: Store::new(variant), variant, state: Small { left: PLENTY, ..Small::default() } };
    let mut met = [false; 5];
    for _ in 0..40 {
        let live = small.state.record.is_some_and(|kept| kept.is_live());
        let action = match dice(8) {
            0 if live => Some(Action::Expire),
            1 if small.state.record.is_some_and(|kept| kept.remembered && !kept.is_live()) => Some(Action::End),
            2 | 3 if small.state.is_ahead() => Some(Action::Tick),
            _ => None,
        };
        if let Some(action) = action {
            whole.pass(action);
            small.pass(action);
        } else {
            let owner = dice(OWNERS);
            let request = match dice(9) {
                0..=3 => Request::Claim,
                4 => Request::Complete,
                // Without a limit, no key is vacated, and the reduced form has no attempts.
                6 if limit > 0 => Request::Release(End::Vacate),
                5 | 6 => Request::Release(End::Delete),
                7 => Request::Release(End::Refund),
                _ => Request::Renew,
            };
            let (said, heard) = (whole.ask(owner, request), small.ask(owner, request));
            same(&said, &heard, limit > 0);
            if let (Answer::Claim(Claim::Acquired(said)), Answer::Claim(Claim::Acquired(heard))) = (&said, &heard) {
                let highest = small.state.ghost.highest.max(heard.fencing.0 as u8);
                small.state.ghost.highest = highest;
                // Sometimes a worker uses an older grant.
                if dice(3) > 0 {
                    whole.held[usize::from(owner)] = said.fencing.0;
                    let number = heard.fencing.0 as u8;
                    let held = Holding { number, last: false, taken_over: false, live: false };
                    small.state.runs[usize::from(owner)].phase = Phase::Granted(held);
                }
                met[0] |= said.taken_over.is_some();
            }
            met[1] |= matches!(said, Answer::Settled(Settled::Lost { .. }));
            met[2] |= matches!(said, Answer::Claim(Claim::Consumed(_)));
            met[3] |= matches!(said, Answer::Claim(Claim::Dead(_)));
        }
        met[4] |= stands_alike(&whole, &small);
    }
    met
}

fn same(said: &Answer, heard: &Answer, counted: bool) {
    match (said, heard) {
        (Answer::Claim(Claim::Acquired(said)), Answer::Claim(Claim::Acquired(heard))) => {
            assert_eq!(said.taken_over.is_some(), heard.taken_over.is_some());
            assert!(!counted || said.attempt == heard.attempt, "{said:?} {heard:?}");
        }
        (Answer::Claim(said), Answer::Claim(heard)) => assert_eq!(discriminant(said), discriminant(heard)),
        (Answer::Settled(said), Answer::Settled(heard)) => assert_eq!(said, heard),
        _ => panic!("{said:?} {heard:?}"),
    }
}

/// Checks that both have the same kind of record, and fencing tokens in the same order. Returns whether a token was
/// ahead of the clock.
fn stands_alike(whole: &Whole, small: &Model) -> bool {
    let (Some(record), Some(kept)) = (&whole.record, small.state.record) else {
        assert_eq!(whole.record.is_some(), small.state.record.is_some());
        return false;
    };
    let live = protocol::live(Some(record), whole.now).map(|record| record.state.kind());
    assert_eq!(live.unwrap_or(idempotent_core::StateKind::Absent), kind(Some(kept)));
    for (owner, number) in (0..OWNERS).zip(whole.held) {
        assert_eq!(number.cmp(&record.fencing.0), small.number(owner).cmp(&kept.number), "owner {owner}");
    }
    let ahead = record.fencing.0.checked_sub(whole.now.0);
    assert_eq!(ahead, kept.number.checked_sub(NOW).map(u64::from), "how far the number is ahead of the clock");
    ahead.is_some_and(|ahead| ahead > 0)
}

#[test]
fn small_records_and_numbers_answer_as_whole_ones_do() {
    let mut met = [false; 5];
    for seed in 0..4_000_u64 {
        // A linear congruential generator, whose high bits are random enough.
        let mut bits = seed;
        let dice = |sides: u8| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u8::try_from((bits >> 33) % u64::from(sides)).unwrap()
        };
        for (met, now) in met.iter_mut().zip(compare(if seed % 2 == 0 { 0 } else { 2 }, dice)) {
            *met |= now;
        }
    }
    assert_eq!(met, [true; 5], "a takeover, a loss, a consumed key, a dead one, a number ahead of the clock");
}
