//! The report at the end.
use std::fmt;
use std::io::{ErrorKind, Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::level::Level;
use crate::places::Places;
use crate::screen::{Screen, Signal};
use crate::tally::Counted;

/// The result of the job.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Everything is settled.
    Complete,
    Interrupted(Signal),
    Failed(anyhow::Error),
}

/// The counts of a source's deliveries.
#[derive(Debug)]
pub(crate) struct Over {
    pub(crate) ended: Ended,
    /// Settled deliveries: each once, whether consumed or dead-lettered. Deferred and failed deliveries arrive again
    /// and count then.
    pub(crate) deliveries: u64,
    pub(crate) elapsed: Duration,
    /// The source of the deliveries.
    pub(crate) from: String,
    /// The place of the dead letters.
    pub(crate) dead_letters: String,
}

/// The result of a job.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) over: Over,
    pub(crate) counted: Counted,
    pub(crate) places: Places,
    pub(crate) level: Level,
    /// Rows of the effects, and keys with more than one.
    pub(crate) effects: Option<(i64, i64)>,
    /// The summary of malformed lines.
    pub(crate) malformed: Option<String>,
}

/// `--json`.
#[derive(Serialize)]
struct Line {
    deliveries: u64,
    distinct_keys: usize,
    executed: u64,
    replayed: u64,
    deferred: u64,
    failed: u64,
    dead: u64,
    malformed: u64,
    elapsed_ms: u128,
    level: &'static str,
}

impl Summary {
    /// Says it, and what to exit with.
    pub(crate) fn tell(&self, json: bool, screen: &Screen) -> ExitCode {
        let told = if json { writeln!(stdout(), "{}", self.json()) } else { write!(stdout(), "{self}") };
        for hint in self.hints() {
            screen.say(&hint);
        }
        if let Err(error) = told
            && error.kind() != ErrorKind::BrokenPipe
        {
            screen.say(&format!("error: cannot write the summary: {error}"));
            return ExitCode::from(2);
        }
        match &self.over.ended {
            Ended::Complete if self.counted.malformed + self.counted.dead > 0 => ExitCode::from(1),
            Ended::Complete => ExitCode::SUCCESS,
            Ended::Interrupted(signal) => ExitCode::from(signal.code()),
            Ended::Failed(_) => ExitCode::from(2),
        }
    }

    fn json(&self) -> String {
        let Counted { distinct_keys, executed, replayed, deferred, failed, dead, malformed, .. } = self.counted;
        let (deliveries, elapsed_ms) = (self.over.deliveries, self.over.elapsed.as_millis());
        let level = self.level.name();
        let line = Line {
            deliveries,
            distinct_keys,
            executed,
            replayed,
            deferred,
            failed,
            dead,
            malformed,
            elapsed_ms,
            level,
        };
        // Numbers and a literal: there is nothing in it that JSON could not say.
        serde_json::to_string(&line).unwrap_or_default()
    }

    fn hints(&self) -> Vec<String> {
        let Counted { executed, failed, malformed, read, .. } = self.counted;
        let mut hints: Vec<_> = self.malformed.iter().cloned().collect();
        match &self.over.ended {
            Ended::Failed(error) => hints.push(format!("error: {error}")),
            Ended::Interrupted(_) => hints.push(
                "interrupted: what is settled stays so; the same command again goes on where this one stopped".into(),
            ),
            Ended::Complete if read == 0 => {
                hints.push(format!("there was nothing to read: {} has no deliveries", self.over.from));
            }
            Ended::Complete if executed + failed == 0 && read > malformed => {
                hints.push("nothing ran: the store knows every key; --fresh starts over".into());
            }
            Ended::Complete => {}
        }
        hints
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted { distinct_keys, executed, replayed, deferred, failed, dead, malformed, taken_over, .. } =
            self.counted;
        let (deliveries, seconds) = (self.over.deliveries, self.over.elapsed.as_secs_f64());
        writeln!(f, "{deliveries} deliveries of {distinct_keys} keys settled in {seconds:.2} s")?;
        writeln!(f, "  executed  {executed:>7}  the handler ran")?;
        writeln!(f, "  replayed  {replayed:>7}  duplicates of a consumed key: nothing ran")?;
        writeln!(f, "  dead      {dead:>7}  given up after 17 runs")?;
        writeln!(f, "  malformed {malformed:>7}  no JSON object with a usable key")?;
        writeln!(f, "on the way: {deferred} times put off while the key was in flight, {failed} runs failed")?;
        if taken_over > 0 {
            writeln!(f, "            {taken_over} keys taken over from a dead worker")?;
        }
        writeln!(f, "store    {}", self.places.store_shown())?;
        let rows = match self.effects {
            Some((rows, 0)) => format!("{rows} rows, no key twice"),
            Some((rows, twice)) => format!("{rows} rows, {twice} keys more than once"),
            None => "cannot be counted".into(),
        };
        writeln!(f, "effects  {}: {rows}", self.places.effects_shown())?;
        if dead + malformed > 0 {
            writeln!(f, "dead     {}", self.over.dead_letters)?;
        }
        writeln!(f, "{}", self.level.explained())
    }
}
