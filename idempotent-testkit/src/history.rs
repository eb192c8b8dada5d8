//! What workers, a broker and a fault injector did to a store, as JSON lines; and a judge of it.
//!
//! A history is written by whoever tests a fleet: by [`sim`](crate::sim), or by real processes under faults, each
//! into a file of its own, merged afterwards ([`Recording`] writes it). [`check`] says whether the invariants held in it.
//!
//! # The lines
//! One JSON object a line, one line for each call of the store and each event beside it.
//!
//! | field | is | present |
//! |---|---|---|
//! | `t0`, `t` | when the call began and when its answer was heard, in ns of one clock that all writers share and nobody sets (`CLOCK_MONOTONIC`, or the virtual clock); equal for what takes no time | always |
//! | `worker` | the process incarnation, a number or a name; a worker that is started again is another one | always |
//! | `event` | see below | always |
//! | `key` | the storage key | unless the event is about a whole worker |
//! | `token` | the owner token, 32 hex digits | where the event has an owner |
//! | `fence` | the fencing number | where it is known |
//! | `tenant`, `scene` | of the key | if you like |
//! | `lease_ms` | the lease asked for; without it I1, I10, I13 and I14 cannot be judged | `claim_won`, `renew_ok` |
//! | `retain_ms` | the retention; without it I4 and I4b cannot be judged | `complete_ok`, `complete_unknown` |
//! | `result` | a digest of the result | `complete_ok`, `complete_unknown`, `claim_consumed` |
//! | `fp` | the payload's fingerprint | claims |
//! | `step` | which of several effects of one handler | `effect`, `effect_refused` |
//! | `tokens` | under which tokens the resource holds an effect, one entry for each effect | `effect_truth` |
//!
//! | event | says |
//! |---|---|
//! | `produced` | a message with this key was sent |
//! | `claim_won` | the store granted the key |
//! | `claim_inflight`, `claim_consumed`, `claim_delayed`, `mismatch`, `dead` | the claim's other answers; `dead` also: the owner buried the key |
//! | `claim_failed` | the key has failed for good, or the claim was refused: nothing is concluded from it |
//! | `renew_ok`, `complete_ok` | done |
//! | `renew_lost`, `complete_lost` | the store refused: not the owner |
//! | `released`, `failed` | the owner gave the key back; recorded that it failed for good |
//! | `claim_unknown`, `renew_unknown`, `complete_unknown`, `release_unknown` | no answer was heard: applied some time from `t0` on, perhaps much later, or never. A copy of a request that a network makes is such a line of its own |
//! | `effect`, `effect_refused` | the handler's effect on a resource; a fenced resource said no |
//! | `ack`, `nack`, `dead_lettered` | what became of the delivery; the dead letter is confirmed |
//! | `crash`, `paused`, `resumed` | by the fault injector, of the worker named |
//! | `forget`, `record_lost` | an operator made the key claimable; the store lost the record |
//! | `effect_truth` | at the end: what the resource really holds. A worker's own `effect` proves nothing |
//!
//! A call that the store surely did not apply (refused, not connected) is no line. Fields that are not in the table
//! are ignored.
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

use std::io;

pub use self::line::{Kind, Label, Line, Token};
pub use self::read::BadLine;
pub use self::record::{Journal, Recording};

/// Lines in the order of `t`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct History {
    /// The lines; a stable sort by [`t`](Line::t) keeps what was written first in front.
    pub lines: Vec<Line>,
}

impl History {
    /// Sorted by the time each call ended.
    #[must_use]
    pub fn new(mut lines: Vec<Line>) -> Self {
        lines.sort_by_key(|line| line.t);
        Self { lines }
    }

    /// As JSON lines: the same history gives the same bytes.
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
    /// The writer's.
    pub fn write(&self, mut to: impl io::Write) -> io::Result<()> {
        to.write_all(self.to_text().as_bytes())
    }
}
