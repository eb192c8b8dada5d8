//! Histories: the calls and events of workers, a broker and a fault injector as JSON lines, and a checker for them.
//!
//! A history is written by the test of a fleet: real processes under faults, each into a separate file, merged
//! afterwards ([`Recording`] writes it). [`check`] decides whether the invariants held.
//!
//! # Lines
//! Each line is one JSON object, for one call of the store or one other event.
//!
//! | field | content | present |
//! |---|---|---|
//! | `t0`, `t` | when the call began and when its answer arrived, in ns of one clock that all writers share and no process sets (`CLOCK_MONOTONIC`, or the virtual clock); equal for events without a duration | always |
//! | `worker` | the process incarnation, a number or a name; a restarted worker has a new one | always |
//! | `event` | see below | always |
//! | `key` | the storage key | unless the event is about a whole worker |
//! | `token` | the owner token, 32 hex digits | if the event has an owner |
//! | `fence` | the fencing token | if it is known |
//! | `tenant`, `scene` | of the key | optional |
//! | `lease_ms` | the requested lease; without it I1, I10, I13 and I14 cannot be judged | `claim_won`, `renew_ok` |
//! | `retain_ms` | the retention; without it I4 and I4b cannot be judged | `complete_ok`, `complete_unknown` |
//! | `result` | a digest of the result | `complete_ok`, `complete_unknown`, `claim_consumed` |
//! | `fp` | the payload's fingerprint | claims |
//! | `step` | the name of the effect, if a handler has several | `effect`, `effect_refused` |
//! | `tokens` | the owner tokens of the effects that the resource holds, one entry for each effect | `effect_truth` |
//!
//! | event | meaning |
//! |---|---|
//! | `produced` | a message with this key was sent |
//! | `claim_won` | the store granted the key |
//! | `claim_inflight`, `claim_consumed`, `claim_delayed`, `mismatch`, `dead` | the other answers to a claim; `dead` also: the owner buried the key |
//! | `claim_failed` | the key has failed permanently, or the claim was refused: the checker concludes nothing from it |
//! | `renew_ok`, `complete_ok` | the operation succeeded |
//! | `renew_lost`, `complete_lost` | the store rejected the operation: not the owner |
//! | `released`, `failed` | the owner released the key; the owner recorded a permanent failure |
//! | `claim_unknown`, `renew_unknown`, `complete_unknown`, `release_unknown` | no answer arrived: the call was applied at some time from `t0` on, perhaps much later, or never. A copy of a request that a network creates is a separate line of this kind |
//! | `effect`, `effect_refused` | the handler's effect on a resource; a fenced resource rejected it |
//! | `ack`, `nack`, `dead_lettered` | the settlement of the delivery; the dead letter is confirmed |
//! | `crash`, `paused`, `resumed` | an action of the fault injector on the worker |
//! | `forget`, `record_lost` | an operator made the key claimable; the store lost the record |
//! | `effect_truth` | at the end: the effects that the resource really holds. A worker's own `effect` proves nothing |
//!
//! A call that the store certainly did not apply (refused, not connected) has no line. Unknown fields are ignored.
//!
//! ```
//! use idempotent_testkit::history::{History, check::Judge};
//!
//! let history: History = r#"
//! {"t0":0,"t":1000,"worker":1,"key":"k","event":"claim_won","token":"000000000000000000000000000000a1","fence":7,"lease_ms":30000}
//! {"t0":5000,"t":6000,"worker":2,"key":"k","event":"claim_won","token":"000000000000000000000000000000b2","fence":8,"lease_ms":30000}
//! "#.parse()?;
//! let report = Judge::new().check(&history);
//! assert_eq!(report.violated().collect::<Vec<_>>(), ["I1".parse()?]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
pub mod check;
mod line;
mod read;
mod record;
pub(crate) mod store_calls;

use std::io;

pub use self::line::{Kind, Label, Line, Token};
pub use self::read::BadLine;
pub use self::record::{Journal, Recording};

/// A history: lines in the order of `t`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct History {
    /// The lines. The sort by [`t`](Line::t) is stable, so lines with equal times keep their order.
    pub lines: Vec<Line>,
}

impl History {
    /// Creates a history, sorted by the end of each call.
    #[must_use]
    pub fn new(mut lines: Vec<Line>) -> Self {
        lines.sort_by_key(|line| line.t);
        Self { lines }
    }

    /// Returns the history as JSON lines. Equal histories give equal bytes.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            text.push_str(&line.to_json());
            text.push('\n');
        }
        text
    }

    /// Writes [`to_text`](Self::to_text).
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write(&self, mut to: impl io::Write) -> io::Result<()> {
        to.write_all(self.to_text().as_bytes())
    }
}
