//! The invariants, checked against a [`History`].
//!
//! A call was applied at one moment between its `t0` and its `t`, and an unanswered call at any moment from its `t0`
//! on, or never. **Only histories that no choice of these moments explains are reported.** There are therefore no false
//! reports, but some violations are not seen: a claim that overlaps the end of the previous lease may be on either side
//! of it.
//!
//! | | violation |
//! |---|---|
//! | I0 | more than one effect of a key (and step); always counted, asserted at [`Level::L3`] only |
//! | I1 | a grant inside the lease of another owner: the lease began with the first `claim_…` of its token that may have been granted, or with an answered `renew_ok`, and lasts `lease_ms`, if no event may have ended it before |
//! | I2 | `released` or `failed` by an owner that never had the key, or after another owner was certainly granted it; `forget` of a key that was certainly held, if operators do not force |
//! | I3 | `complete_ok` or `renew_ok` in the same cases, or after the owner had certainly released the key |
//! | I4 | within the retention of a `complete_ok`: `released`, `failed`, `renew_ok`, `claim_delayed`, `dead`; a `forget` with the fencing token of a grant that was certainly superseded |
//! | I4b | within the retention of a `complete_ok`: `claim_won` |
//! | I5 | `claim_consumed` with another result than the stored one, or with one that was never stored |
//! | I6 | a grant certainly after another, without a higher fencing token; one fencing token granted twice; the same claim granted twice inside its lease; a fencing token of 2^53 or more |
//! | I7 | an accepted effect certainly after one with a higher fencing token; asserted from [`Level::L2`] on |
//! | I8 | `ack` although no `complete_ok`, `claim_consumed` or `dead_lettered` of the key arrived before: at the worker that acknowledges, if that worker has claimed the key, otherwise at any worker |
//! | I9 | a consumed key without any effect: by `effect_truth` if there is one, otherwise by `effect` |
//! | I10 | a grant certainly after `failed` or `dead`, while that record is retained; more grants in a row than `max_attempts` without an event in between that might have refunded an attempt |
//! | I11 | an effect under a token that was not granted; more effects of a token than grants |
//! | I12 | `claim_consumed` for another `fp` than every payload that may have been completed; `mismatch` although no other payload may be stored |
//! | I13 | `claim_inflight` although every lease has certainly expired; at the end of a settled history, a produced key that is neither consumed, failed nor dead |
//! | I14 | `renew_lost` or `complete_lost` of an owner certainly inside its lease; `claim_inflight` for its own repeated claim although no other owner may have the key |
//!
//! If a check needs optional data (`lease_ms`, `retain_ms`, an option of [`Judge`]) that is missing, the case counts as
//! [`not_judged`](Tally::not_judged). `claim_inflight` within the retention is not a violation, since a store may
//! answer so while a row is locked. Neither is `claim_failed`, since it may be a refusal.
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

/// An invariant of the protocol.
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
    /// All invariants.
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

/// The guarantee level that the system under test claims.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// Lease and owner token.
    #[default]
    L1,
    /// The resource rejects lower fencing tokens: I7, too.
    L2,
    /// Effect and record in one transaction: I0, too.
    L3,
}

/// A checker, with facts about the system that are not in its history. The defaults assume as little as possible.
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
    retention: Option<u64>,
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
    /// Creates a checker with the default assumptions.
    pub const fn new() -> Self {
        Self {
            level: Level::L1,
            margin: 10_000_000,
            drift: 1_000,
            hides: true,
            busy: true,
            forced: true,
            settled: None,
            retention: None,
            max_attempts: None,
            excused: BTreeSet::new(),
        }
    }

    /// Sets the guarantee level, which decides whether I0 and I7 are asserted. Default: neither.
    pub const fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Sets the uncertainty of the end of a lease or retention: up to this time before its end, it is certainly
    /// running, and from this time after its end, it has certainly expired. Use the granularity of the store, plus all
    /// changes of its clock. Default: 10 ms.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = nanos(margin);
        self
    }

    /// Sets a further uncertainty in ns for each million ns of a length: how much faster or slower the store's clock
    /// may run. Default: 1,000.
    pub const fn drift(mut self, per_million: u64) -> Self {
        self.drift = per_million;
        self
    }

    /// Declares that the history contains the unanswered calls of crashed workers as unknown. Default: it does not, so
    /// a crashed worker may have had one more call in flight for each of its tokens, and a claim.
    pub const fn nothing_hidden(mut self) -> Self {
        self.hides = false;
        self
    }

    /// Declares that `claim_inflight` always means a lease. Default: it may also mean that a row was locked.
    pub const fn never_busy(mut self) -> Self {
        self.busy = false;
        self
    }

    /// Declares that no `forget` of this history was forced. Default: each may have been.
    pub const fn never_forced(mut self) -> Self {
        self.forced = false;
        self
    }

    /// Sets whether all runs had the time to end. Default: true if the history has an `effect_truth`, since that is
    /// read at the end.
    pub const fn settled(mut self, settled: bool) -> Self {
        self.settled = Some(settled);
        self
    }

    /// Sets the shortest retention of failed, dead and orphaned keys (`Policy::retain_failures`), which a part of I10
    /// needs. Default: unknown.
    pub fn retain_failures(mut self, retention: Duration) -> Self {
        self.retention = Some(nanos(retention));
        self
    }

    /// Sets the highest number of runs that any worker's policy grants a key, which a part of I10 needs together with
    /// [`retain_failures`](Self::retain_failures). Default: unknown.
    pub const fn max_attempts(mut self, runs: u32) -> Self {
        self.max_attempts = Some(runs);
        self
    }

    /// Excludes an invariant that the system gives up on purpose, e.g. by a policy that runs unprotected. Default:
    /// none.
    pub fn excuse(mut self, invariant: Invariant) -> Self {
        self.excused.insert(invariant);
        self
    }

    /// Checks a history.
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

    /// Returns the uncertainty of the end of a period of this length.
    fn doubt(&self, length: u64) -> u64 {
        self.margin.saturating_add(length / 1_000_000 * self.drift)
    }
}

/// A violation, and the lines that show it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// The violated invariant.
    pub invariant: Invariant,
    /// A description.
    pub text: String,
    /// The key.
    pub key: String,
    /// Indices into [`History::lines`], from 0.
    pub lines: Vec<usize>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.lines.iter().map(|line| (line + 1).to_string()).collect();
        let plural = if lines.len() == 1 { "line" } else { "lines" };
        write!(f, "{}: {} (key {}, {plural} {})", self.invariant, self.text, self.key, lines.join(", "))
    }
}

/// The number of checks of an invariant.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Tally {
    /// Checked cases.
    pub judged: u64,
    /// Cases that could not be checked, because optional data is missing.
    pub not_judged: u64,
}

/// Counts of events, correct or not: a check of events that never happen proves nothing.
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
    /// Grants whose predecessor was certainly not released.
    pub takeovers: u64,
    /// Unanswered calls.
    pub unknowns: u64,
    /// Effects of a key after its first one (I0).
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

/// The result of checking a history.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Violations of the asserted invariants, in the order of the lines that show them.
    pub findings: Vec<Finding>,
    /// The checks of each invariant.
    pub tallies: BTreeMap<Invariant, Tally>,
    /// Counts of events.
    pub counts: Counts,
}

impl Report {
    /// Returns the violated invariants, each once, in the order of their names.
    pub fn violated(&self) -> impl Iterator<Item = Invariant> {
        self.findings.iter().map(|finding| finding.invariant).collect::<BTreeSet<_>>().into_iter()
    }

    /// Returns whether every asserted invariant held.
    #[must_use]
    pub fn held(&self) -> bool {
        self.findings.is_empty()
    }
}

/// A collector for the results of checks.
struct Court<'a> {
    judge: &'a Judge,
    book: &'a Book<'a>,
    report: &'a mut Report,
}

impl Court<'_> {
    /// Counts a checked case, and records a violation if `wrong` describes one.
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
