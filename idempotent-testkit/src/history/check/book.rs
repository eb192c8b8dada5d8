//! A history, grouped by key: the grants, and when each may have and must have begun and ended.
use std::collections::{BTreeMap, BTreeSet};

use super::Judge;
use crate::history::{History, Kind, Label, Line, Token};

/// A time after all others.
pub(super) const NEVER: u64 = u64::MAX;

pub(super) struct Book<'a> {
    pub(super) lines: &'a [Line],
    pub(super) keys: BTreeMap<&'a str, Key<'a>>,
    /// The first crash after which an unrecorded call may be in flight.
    pub(super) hides_from: u64,
    /// Whether effects of any key were read at the end.
    pub(super) has_truth: bool,
    pub(super) has_effects: bool,
}

#[derive(Default)]
pub(super) struct Key<'a> {
    pub(super) lines: Vec<(usize, &'a Line)>,
    /// The grants, in the order of their first line.
    pub(super) grants: Vec<Grant<'a>>,
    pub(super) consumptions: Vec<Consumption<'a>>,
    pub(super) truth: Option<&'a [Token]>,
    /// Claims with an unknown result, by owner token.
    pub(super) unheard: BTreeMap<Token, u64>,
}

/// The grant of one owner with one fencing token.
pub(super) struct Grant<'a> {
    pub(super) token: Token,
    pub(super) fence: u64,
    /// The index of the first line that shows the grant.
    pub(super) place: usize,
    /// The earliest and the latest time at which the grant was applied.
    pub(super) from: u64,
    pub(super) by: u64,
    pub(super) lease: Option<u64>,
    pub(super) fp: Option<&'a str>,
    /// Answered renewals: `t0`, `t`, and the requested lease.
    pub(super) renewals: Vec<(u64, u64, Option<u64>)>,
    /// The earliest time of an unanswered renewal.
    renewed_unheard: bool,
    /// From this time on, the owner may have ended the grant.
    pub(super) own_end_from: u64,
    /// From this time on, an owner, an operator or a loss may have ended the grant.
    pub(super) end_from: u64,
    /// By this time, the owner has certainly released or completed the key.
    pub(super) ended_by: u64,
}

/// A completion, including all of its copies.
pub(super) struct Consumption<'a> {
    pub(super) token: Token,
    pub(super) fence: Option<u64>,
    /// The earliest time at which the completion was applied.
    pub(super) from: u64,
    /// The answered copy, and the time of its answer.
    pub(super) ok: Option<(usize, u64)>,
    pub(super) retain: Option<u64>,
    /// The results that may have been stored first.
    pub(super) results: BTreeSet<Option<&'a str>>,
    copies: Vec<&'a Line>,
    /// From this time on, an operator or a loss may have removed the record.
    pub(super) undone_from: u64,
}

pub(super) fn ms(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

impl<'a> Book<'a> {
    pub(super) fn of(judge: &Judge, history: &'a History) -> Self {
        let lines = &history.lines[..];
        let crashes = || lines.iter().filter(|line| judge.hides && line.event == Kind::Crash);
        let crashed: BTreeSet<&Label> = crashes().map(|line| &line.worker).collect();
        let mut keys: BTreeMap<&str, Key<'_>> = BTreeMap::new();
        for (place, line) in lines.iter().enumerate() {
            if let Some(key) = &line.key {
                keys.entry(key).or_default().lines.push((place, line));
            }
        }
        for key in keys.values_mut() {
            key.read(&crashed);
        }
        Self {
            lines,
            keys,
            hides_from: crashes().map(|line| line.t0).min().unwrap_or(NEVER),
            has_truth: lines.iter().any(|line| line.event == Kind::EffectTruth),
            has_effects: lines.iter().any(|line| line.event == Kind::Effect),
        }
    }
}

impl Line {
    /// Returns whether the line may be about this grant.
    fn is_of(&self, token: Token, fence: u64) -> bool {
        self.token == Some(token) && self.fence.is_none_or(|number| number == fence)
    }
}

/// Returns whether an event of this kind ends a lease if it is applied.
fn may_end(kind: Kind) -> bool {
    is_given_back(kind) || matches!(kind, Kind::ReleaseUnknown | Kind::CompleteOk | Kind::CompleteUnknown)
}

/// Returns whether the owner gave up the key without completing it.
pub(super) fn is_given_back(kind: Kind) -> bool {
    matches!(kind, Kind::Released | Kind::Failed | Kind::Dead)
}

/// Returns whether an operator or a loss removed the record.
pub(super) fn is_undone(kind: Kind) -> bool {
    matches!(kind, Kind::Forget | Kind::RecordLost)
}

impl<'a> Key<'a> {
    fn read(&mut self, crashed: &BTreeSet<&Label>) {
        for (place, line) in &self.lines {
            match (line.event, line.token) {
                (Kind::ClaimUnknown, Some(token)) => {
                    let from = self.unheard.entry(token).or_insert(line.t0);
                    *from = line.t0.min(*from);
                }
                (Kind::CompleteOk | Kind::CompleteUnknown, Some(token)) => {
                    let known =
                        self.consumptions.iter_mut().find(|done| (done.token, done.fence) == (token, line.fence));
                    match known {
                        Some(done) => done.add(*place, line),
                        None => self.consumptions.push(Consumption::of(*place, line, token)),
                    }
                }
                (Kind::EffectTruth, _) => self.truth = line.tokens.as_deref(),
                _ => {}
            }
        }
        self.read_grants(crashed);
        for done in &mut self.consumptions {
            let undone = self.lines.iter().filter(|(_, line)| is_undone(line.event) && line.t >= done.from);
            done.undone_from = undone.map(|(_, line)| line.t0).min().unwrap_or(NEVER);
        }
    }

    fn read_grants(&mut self, crashed: &BTreeSet<&Label>) {
        for (place, line) in &self.lines {
            let (Kind::ClaimWon, Some(token), Some(fence)) = (line.event, line.token, line.fence) else { continue };
            match self.grants.iter_mut().find(|grant| (grant.token, grant.fence) == (token, fence)) {
                Some(grant) => (grant.from, grant.by) = (grant.from.min(line.t0), grant.by.min(line.t)),
                None => {
                    let mut grant = Grant::of(*place, line, token, fence);
                    grant.from = grant.from.min(self.unheard.get(&token).copied().unwrap_or(NEVER));
                    if crashed.contains(&line.worker) {
                        grant.own_end_from = grant.from;
                        grant.renewed_unheard = true;
                    }
                    self.grants.push(grant);
                }
            }
        }
        for grant in &mut self.grants {
            for (_, line) in &self.lines {
                grant.read(line);
            }
        }
    }

    /// Returns the grants that this line may be about.
    pub(super) fn grants_of(&self, line: &Line) -> Vec<&Grant<'a>> {
        self.grants.iter().filter(|grant| line.token.is_some_and(|_| line.is_of(grant.token, grant.fence))).collect()
    }

    /// Returns whether the owner of this line may hold the key with a fencing token that the line does not contain.
    pub(super) fn is_vague(&self, line: &Line) -> bool {
        let Some(token) = line.token else { return true };
        let grants = self.grants.iter().filter(|grant| grant.token == token).count();
        line.fence.is_none() && (grants > 1 || self.unheard.contains_key(&token))
    }

    /// Returns a grant, other than `of`, that was certainly made after these and before `line` began.
    pub(super) fn superseding(&self, of: &[&Grant<'a>], line: &Line) -> Option<&Grant<'a>> {
        let last = of.iter().map(|grant| grant.by).max()?;
        self.grants.iter().find(|other| {
            let another = !of.iter().any(|grant| (grant.token, grant.fence) == (other.token, other.fence));
            another && other.from > last && other.by < line.t0 && !self.is_rolled_back(other, line)
        })
    }

    /// Returns whether a failover may have lost this grant before the end of `line`, and restored the record of an
    /// earlier one.
    fn is_rolled_back(&self, grant: &Grant<'a>, line: &Line) -> bool {
        let lost = |other: &Line| other.event == Kind::RecordLost && other.t >= grant.from && other.t0 <= line.t;
        self.lines.iter().any(|(_, other)| lost(other))
    }

    /// Returns the first time at which an operator or a loss may have removed the record of `from`.
    pub(super) fn undone_from(&self, from: u64) -> u64 {
        let undone = self.lines.iter().filter(|(_, line)| is_undone(line.event) && line.t >= from);
        undone.map(|(_, line)| line.t0).min().unwrap_or(NEVER)
    }

    pub(super) fn takeovers(&self) -> u64 {
        let mut grants: Vec<_> = self.grants.iter().collect();
        grants.sort_by_key(|grant| grant.fence);
        let pairs = grants.windows(2).filter(|pair| {
            let ended =
                self.lines.iter().any(|(_, line)| may_end(line.event) && line.is_of(pair[0].token, pair[0].fence));
            !ended && pair[0].token != pair[1].token && self.undone_from(pair[0].from) > pair[1].by
        });
        pairs.count() as u64
    }

    /// Returns the effects that the resource holds, or that the workers report: owner token and step.
    pub(super) fn effects(&self) -> Vec<(Option<Token>, Option<&Label>)> {
        match self.truth {
            Some(tokens) => tokens.iter().map(|token| (Some(*token), None)).collect(),
            None => {
                let effects = self.lines.iter().filter(|(_, line)| line.event == Kind::Effect);
                effects.map(|(_, line)| (line.token, line.step.as_ref())).collect()
            }
        }
    }

    /// Returns whether a handler has several effects, by the lines of its workers.
    pub(super) fn has_steps(&self) -> bool {
        self.lines.iter().any(|(_, line)| line.step.is_some())
    }

    pub(super) fn repeated_effects(&self) -> u64 {
        if self.truth.is_some() && self.has_steps() {
            return 0;
        }
        let effects = self.effects();
        let steps: BTreeSet<_> = effects.iter().map(|(_, step)| step).collect();
        (effects.len() - steps.len()) as u64
    }
}

impl<'a> Grant<'a> {
    fn of(place: usize, line: &'a Line, token: Token, fence: u64) -> Self {
        Self {
            token,
            fence,
            place,
            from: line.t0,
            by: line.t,
            lease: line.lease_ms.map(ms),
            fp: line.fp.as_deref(),
            renewals: Vec::new(),
            renewed_unheard: false,
            own_end_from: NEVER,
            end_from: NEVER,
            ended_by: NEVER,
        }
    }

    fn read(&mut self, line: &Line) {
        if is_undone(line.event) && line.t >= self.from {
            self.end_from = self.end_from.min(line.t0);
        }
        if !line.is_of(self.token, self.fence) {
            return;
        }
        match line.event {
            Kind::RenewOk => self.renewals.push((line.t0, line.t, line.lease_ms.map(ms))),
            Kind::RenewUnknown => self.renewed_unheard = true,
            kind if may_end(kind) => {
                self.own_end_from = self.own_end_from.min(line.t0);
                if !kind.is_unknown() && line.fence.is_some() {
                    self.ended_by = self.ended_by.min(line.t);
                }
            }
            _ => {}
        }
        self.end_from = self.end_from.min(self.own_end_from);
    }

    /// Returns whether the lease certainly lasts through the whole of `from ..= by`, if no event ends it and it was
    /// granted by then.
    pub(super) fn lasts(&self, judge: &Judge, from: u64, by: u64) -> bool {
        let end = |begun: u64, lease: u64| begun.saturating_add(lease).saturating_sub(judge.doubt(lease));
        self.lease.is_some_and(|lease| by < end(self.from, lease))
            || self.renewals.iter().any(|(t0, t, lease)| *t < from && lease.is_some_and(|lease| by < end(*t0, lease)))
    }

    /// Returns the time at which the lease has certainly expired.
    pub(super) fn over_by(&self, judge: &Judge) -> u64 {
        if self.renewed_unheard {
            return NEVER;
        }
        let end = |applied_by: u64, lease: Option<u64>| match lease {
            Some(lease) => applied_by.saturating_add(lease).saturating_add(judge.doubt(lease)),
            None => NEVER,
        };
        let renewed = self.renewals.iter().map(|(_, t, lease)| end(*t, *lease));
        renewed.fold(end(self.by, self.lease), u64::max)
    }
}

impl<'a> Consumption<'a> {
    fn of(place: usize, line: &'a Line, token: Token) -> Self {
        let mut done = Self {
            token,
            fence: line.fence,
            from: line.t0,
            ok: None,
            retain: line.retain_ms.map(ms),
            results: BTreeSet::new(),
            copies: Vec::new(),
            undone_from: NEVER,
        };
        done.add(place, line);
        done
    }

    fn add(&mut self, place: usize, line: &'a Line) {
        self.from = self.from.min(line.t0);
        self.retain = self.retain.or(line.retain_ms.map(ms));
        self.copies.push(line);
        if line.event == Kind::CompleteOk && self.ok.is_none_or(|(_, by)| line.t < by) {
            self.ok = Some((place, line.t));
        }
        // For a repeated completion after an answer, the first result stays.
        let first_by = self.ok.map_or(NEVER, |(_, by)| by);
        let first = self.copies.iter().filter(|copy| copy.t0 <= first_by);
        self.results = first.map(|copy| copy.result.as_deref()).collect();
    }

    /// Returns the period in which the key is certainly consumed.
    pub(super) fn stands(&self, judge: &Judge) -> Option<(u64, u64)> {
        let ((_, by), retain) = (self.ok?, self.retain?);
        let over = self.from.saturating_add(retain).saturating_sub(judge.doubt(retain));
        Some((by, over.min(self.undone_from)))
    }

    /// Returns the time at which the retention has certainly ended.
    pub(super) fn over_by(&self, judge: &Judge) -> u64 {
        match (self.ok, self.retain) {
            (Some((_, by)), Some(retain)) => by.saturating_add(retain).saturating_add(judge.doubt(retain)),
            _ => NEVER,
        }
    }
}
