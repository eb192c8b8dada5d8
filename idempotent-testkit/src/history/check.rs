//! The invariants, judged over a [`History`].
//!
//! A call was applied at one moment between its `t0` and its `t`; an unanswered one at any moment from its `t0` on,
//! or never. **Only what no choice of these moments explains is reported.** So there are no false reports, and
//! some breaches go unseen: a claim that overlaps the end of the lease before it may be either side of it.
//!
//! | | a violation is |
//! |---|---|
//! | I0 | more than one effect of a key (and step); always counted, asserted at [`Level::L3`] only |
//! | I1 | a grant inside the lease of another owner: the lease began with the first `claim_…` of its token that may have been granted and lasts `lease_ms`, or from an answered `renew_ok` on; nothing that may have ended it before |
//! | I2 | `released` or `failed` by an owner that never had the key, or after somebody else was surely granted it; `forget` of a key surely held, if operators do not force |
//! | I3 | `complete_ok` or `renew_ok` likewise, or after the owner had surely given the key back |
//! | I4 | within the retention of a `complete_ok`: `released`, `failed`, `renew_ok`, `claim_delayed`, `dead`; a `forget` by the number of a grant that was surely superseded |
//! | I4b | within the retention of a `complete_ok`: `claim_won` |
//! | I5 | `claim_consumed` with another result than the one stored, or with one nobody stored |
//! | I6 | a grant surely behind another, without a higher number; one number granted twice; the same claim granted twice inside its lease; a number of 2^53 or more |
//! | I7 | an accepted effect surely behind one of a higher number; asserted from [`Level::L2`] on |
//! | I8 | `ack` although no `complete_ok`, `claim_consumed` or `dead_lettered` of the key was heard before: by the worker that acks, if that worker has claimed the key, else by anybody |
//! | I9 | a consumed key without any effect: by `effect_truth` if there is one, else by `effect` |
//! | I10 | a grant surely behind `failed` or `dead`, while that is remembered; more grants in a row than `max_attempts` with nothing in between that might have given an attempt back |
//! | I11 | an effect under a token that was not granted; more effects of a token than grants |
//! | I12 | `claim_consumed` for another `fp` than every payload that may have been completed; `mismatch` though no other payload may stand |
//! | I13 | `claim_inflight` though every lease is surely over; at the end of a settled history, a key produced and neither consumed, failed nor dead |
//! | I14 | `renew_lost` or `complete_lost` of an owner surely inside its lease; its own repeated claim told `claim_inflight` though nobody else may have the key |
//!
//! What can only be judged with what a history need not have (`lease_ms`, `retain_ms`, an option of [`Judge`]) is
//! counted as [`not_judged`](Tally::not_judged) where that is missing. `claim_inflight` within the retention is no
//! violation, since a store may say so while a row is locked; nor is `claim_failed`, since it may be a refusal.
mod book;
mod effects;
mod ends;
mod grants;
mod owners;
mod results;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use self::book::Book;
use super::{History, Kind};

/// One of the invariants of the protocol.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(missing_docs, reason = "the table of the module says them")]
pub enum Invariant {
    I0,
    I1,
    I2,
    I3,
    I4,
    I4b,
    I5,
    I6,
    I7,
    I8,
    I9,
    I10,
    I11,
    I12,
    I13,
    I14,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 16] = {
        use Invariant::*;
        [I0, I1, I2, I3, I4, I4b, I5, I6, I7, I8, I9, I10, I11, I12, I13, I14]
    };
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Invariant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|invariant| invariant.to_string() == text);
        found.ok_or_else(|| format!("{text:?} is no invariant; they are I0 to I14, and I4b"))
    }
}

/// What the system under test claims to keep.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// Lease and token.
    #[default]
    L1,
    /// The resource refuses smaller fencing numbers: I7, too.
    L2,
    /// Effect and record in one transaction: I0, too.
    L3,
}

/// What is known of the system beside its history. The defaults assume the least.
#[derive(Clone, Debug)]
#[must_use]
pub struct Judge {
    level: Level,
    margin: u64,
    drift: u64,
    hides: bool,
    busy: bool,
    forced: bool,
    settled: Option<bool>,
    memory: Option<u64>,
    max_attempts: Option<u32>,
    excused: BTreeSet<Invariant>,
}

impl Default for Judge {
    fn default() -> Self {
        Self::new()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Judge {
    /// Assumes the least.
    pub const fn new() -> Self {
        Self {
            level: Level::L1,
            margin: 10_000_000,
            drift: 1_000,
            hides: true,
            busy: true,
            forced: true,
            settled: None,
            memory: None,
            max_attempts: None,
            excused: BTreeSet::new(),
        }
    }

    /// Which of I0 and I7 are asserted. Default: neither.
    pub const fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// A lease or retention counts as surely running only up to this much before its end, and as surely over only
    /// this much behind it: the store's granularity, and all that its clock may have been set. Default: 10 ms.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = nanos(margin);
        self
    }

    /// And this many ns more for each million of its length: how much faster or slower the store's clock may go.
    /// Default: 1,000.
    pub const fn drift(mut self, per_million: u64) -> Self {
        self.drift = per_million;
        self
    }

    /// What a worker had on the wire when it crashed is in the history, as unknown. Default: it is not, so that a
    /// crashed worker may have had one more call under way for each of its tokens, and a claim.
    pub const fn nothing_hidden(mut self) -> Self {
        self.hides = false;
        self
    }

    /// `claim_inflight` always means a lease. Default: it may also mean that a row was locked.
    pub const fn never_busy(mut self) -> Self {
        self.busy = false;
        self
    }

    /// No `forget` of this history was forced. Default: any may have been.
    pub const fn never_forced(mut self) -> Self {
        self.forced = false;
        self
    }

    /// Whether everything had the time to end. Default: if the history has an `effect_truth`, since that is read
    /// back at the end.
    pub const fn settled(mut self, settled: bool) -> Self {
        self.settled = Some(settled);
        self
    }

    /// The shortest time that failed, dead and orphaned keys are remembered (`Policy::memory`); a part of I10 needs
    /// it. Default: not known.
    pub fn memory(mut self, memory: Duration) -> Self {
        self.memory = Some(nanos(memory));
        self
    }

    /// The most runs that any worker's policy grants a key; a part of I10 needs it, and [`memory`](Self::memory).
    /// Default: not known.
    pub const fn max_attempts(mut self, runs: u32) -> Self {
        self.max_attempts = Some(runs);
        self
    }

    /// This one is given up on purpose, as by a policy that runs unprotected. Default: none is.
    pub fn excuse(mut self, invariant: Invariant) -> Self {
        self.excused.insert(invariant);
        self
    }

    /// Judges a history.
    #[must_use]
    pub fn check(&self, history: &History) -> Report {
        let book = Book::of(self, history);
        let mut report = Report { counts: Counts::of(&book), ..Report::default() };
        for check in
            [grants::check, owners::check, results::check, effects::check, ends::check] as [fn(&mut Court<'_>); 5]
        {
            check(&mut Court { judge: self, book: &book, report: &mut report });
        }
        report.findings.sort_by_key(|finding| finding.lines.last().copied());
        report
    }

    fn asserts(&self, invariant: Invariant) -> bool {
        let level = match invariant {
            Invariant::I0 => Level::L3,
            Invariant::I7 => Level::L2,
            _ => Level::L1,
        };
        self.level >= level && !self.excused.contains(&invariant)
    }

    /// By how much the end of something this long is uncertain.
    fn doubt(&self, length: u64) -> u64 {
        self.margin.saturating_add(length / 1_000_000 * self.drift)
    }
}

/// A breach, and the lines that show it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// Which.
    pub invariant: Invariant,
    /// In words.
    pub text: String,
    /// Of which key.
    pub key: String,
    /// Places in [`History::lines`], from 0 on.
    pub lines: Vec<usize>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.lines.iter().map(|line| (line + 1).to_string()).collect();
        let plural = if lines.len() == 1 { "line" } else { "lines" };
        write!(f, "{}: {} (key {}, {plural} {})", self.invariant, self.text, self.key, lines.join(", "))
    }
}

/// How often an invariant was put to the test.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Tally {
    /// Cases judged.
    pub judged: u64,
    /// Cases that could not be: something that the history need not have is missing.
    pub not_judged: u64,
}

/// What happened, whether right or wrong: a check of what never happens proves nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counts {
    /// Lines.
    pub lines: u64,
    /// Keys.
    pub keys: u64,
    /// Grants.
    pub grants: u64,
    /// Workers killed.
    pub kills: u64,
    /// Grants whose predecessor neither was put down nor may have been.
    pub takeovers: u64,
    /// Calls without an answer.
    pub unknowns: u64,
    /// Effects of a key beyond its first: I0, counted.
    pub repeated_effects: u64,
}

impl Counts {
    fn of(book: &Book<'_>) -> Self {
        let count = |which: fn(Kind) -> bool| book.lines.iter().filter(|line| which(line.event)).count() as u64;
        let keys = || book.keys.values();
        Self {
            lines: book.lines.len() as u64,
            keys: book.keys.len() as u64,
            grants: keys().map(|key| key.grants.len() as u64).sum(),
            kills: count(|kind| kind == Kind::Crash),
            takeovers: keys().map(|key| key.takeovers()).sum(),
            unknowns: count(Kind::is_unknown),
            repeated_effects: keys().map(|key| key.repeated_effects()).sum(),
        }
    }
}

/// What became of a history's judgement.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Breaches of what is asserted, in the order of the lines that show them.
    pub findings: Vec<Finding>,
    /// By invariant.
    pub tallies: BTreeMap<Invariant, Tally>,
    /// What happened.
    pub counts: Counts,
}

impl Report {
    /// The invariants violated, each once, in the order of their names.
    pub fn violated(&self) -> impl Iterator<Item = Invariant> {
        self.findings.iter().map(|finding| finding.invariant).collect::<BTreeSet<_>>().into_iter()
    }

    /// Whether every invariant that is asserted held.
    #[must_use]
    pub fn held(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Where a check says what it found.
struct Court<'a> {
    judge: &'a Judge,
    book: &'a Book<'a>,
    report: &'a mut Report,
}

impl Court<'_> {
    /// A case that was judged; `wrong` says so if it is a breach.
    fn judge(&mut self, invariant: Invariant, key: &str, lines: &[usize], wrong: Option<String>) {
        self.report.tallies.entry(invariant).or_default().judged += 1;
        if let (Some(text), true) = (wrong, self.judge.asserts(invariant)) {
            self.report.findings.push(Finding { invariant, text, key: key.to_owned(), lines: lines.to_vec() });
        }
    }

    fn pass(&mut self, invariant: Invariant) {
        self.report.tallies.entry(invariant).or_default().not_judged += 1;
    }
}
