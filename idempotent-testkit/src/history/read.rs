//! Parsing of lines, and errors for invalid ones.
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::str::FromStr;

use serde::Deserialize;

use super::{History, Kind, Label, Line, Token};

/// An invalid line: its number, the violated rule, and the remedy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadLine {
    number: usize,
    text: String,
}

impl BadLine {
    /// Returns the number of the line, from 1.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.text)
    }
}

impl std::error::Error for BadLine {}

/// A line with optional fields only, so that the error can name missing fields.
#[derive(Deserialize)]
struct Raw {
    t: Option<u64>,
    t0: Option<u64>,
    worker: Option<Label>,
    key: Option<String>,
    event: Option<String>,
    token: Option<String>,
    fence: Option<u64>,
    tenant: Option<String>,
    scene: Option<String>,
    lease_ms: Option<u64>,
    retain_ms: Option<u64>,
    result: Option<String>,
    fp: Option<String>,
    step: Option<Label>,
    tokens: Option<Vec<String>>,
}

impl History {
    /// Reads JSON lines. Blank lines are skipped.
    ///
    /// # Errors
    /// [`BadLine`] for the first line that violates the format or cannot be read.
    pub fn read(from: impl Read) -> Result<Self, BadLine> {
        let mut lines = Vec::new();
        for (index, line) in BufReader::new(from).lines().enumerate() {
            let bad = |text: String| BadLine { number: index + 1, text };
            let text = line.map_err(|e| bad(format!("cannot be read: {e}; histories are UTF-8 text")))?;
            if !text.trim().is_empty() {
                lines.push(read(&text).map_err(bad)?);
            }
        }
        let end = lines.iter().map(|line| line.t).filter(|t| *t < u64::MAX).max().unwrap_or_default();
        for line in lines.iter_mut().filter(|line| line.t == u64::MAX) {
            (line.t, line.t0) = (end, end);
        }
        Ok(Self::new(lines))
    }
}

impl FromStr for History {
    type Err = BadLine;

    fn from_str(text: &str) -> Result<Self, BadLine> {
        Self::read(text.as_bytes())
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(text, 16) {
            Ok(token) if hex => Ok(Self(token)),
            _ => Err(format!("token {text:?} is not 32 hex digits; write the owner token as {{:032x}}")),
        }
    }
}

fn read(text: &str) -> Result<Line, String> {
    let raw: Raw = serde_json::from_str(text)
        .map_err(|e| format!("{e}; each line is one JSON object with the fields of the history format"))?;
    let name = raw.event.ok_or("`event` is missing; every line names its event")?;
    let event = Kind::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| unknown(&name))?;
    // An `effect_truth`, which is read at the end, has no time or worker.
    let at_the_end = event == Kind::EffectTruth;
    let t = raw.t.or(at_the_end.then_some(u64::MAX));
    let t = t.ok_or_else(|| format!("{event} has no `t`; give the end of the call in ns"))?;
    let t0 = raw.t0.unwrap_or(if at_the_end || is_plain(event) { t } else { u64::MAX });
    if t0 == u64::MAX && t != u64::MAX {
        return Err(format!("{event} has no `t0`; give the start of the call in ns, by the clock of `t`"));
    }
    if t0 > t {
        return Err(format!("`t0` {t0} is behind `t` {t}; a call begins before it ends, by one clock for both"));
    }
    let worker = raw.worker.or(at_the_end.then_some(Label::Number(0)));
    let line = Line {
        t,
        t0,
        worker: worker.ok_or_else(|| format!("{event} has no `worker`; name the process incarnation"))?,
        key: raw.key,
        event,
        token: raw.token.map(|token| token.parse()).transpose()?,
        fence: raw.fence,
        tenant: raw.tenant,
        scene: raw.scene,
        lease_ms: raw.lease_ms,
        retain_ms: raw.retain_ms,
        result: raw.result,
        fp: raw.fp,
        step: raw.step,
        tokens: raw.tokens.map(|tokens| tokens.iter().map(|token| token.parse()).collect()).transpose()?,
    };
    complete(line)
}

/// Checks that the line has the fields that its event requires.
fn complete(line: Line) -> Result<Line, String> {
    let event = line.event;
    if line.key.is_none() && !event.is_of_a_worker() {
        return Err(format!("{event} has no `key`; only crash, paused and resumed are about no key"));
    }
    if line.token.is_none() && has_owner(event) {
        return Err(format!("{event} has no `token`; give the owner token it was asked with"));
    }
    if line.fence.is_none() && event == Kind::ClaimWon {
        return Err("claim_won has no `fence`; give the number that was granted".to_owned());
    }
    if line.tokens.is_none() && event == Kind::EffectTruth {
        return Err("effect_truth has no `tokens`; list those the resource holds, [] for none".to_owned());
    }
    Ok(line)
}

/// Returns whether the event has no duration, so that one time is sufficient.
fn is_plain(event: Kind) -> bool {
    event.is_of_a_worker()
        || matches!(event, Kind::Produced | Kind::Ack | Kind::Nack | Kind::DeadLettered | Kind::RecordLost)
}

fn has_owner(event: Kind) -> bool {
    matches!(
        event,
        Kind::ClaimWon
            | Kind::ClaimUnknown
            | Kind::RenewOk
            | Kind::RenewLost
            | Kind::RenewUnknown
            | Kind::CompleteOk
            | Kind::CompleteLost
            | Kind::CompleteUnknown
            | Kind::Released
            | Kind::ReleaseUnknown
    )
}

fn unknown(name: &str) -> String {
    let all: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    format!("event {name:?} is not known; it is one of {}", all.join(", "))
}
