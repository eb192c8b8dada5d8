//! What there is to say at the end.
use std::fmt;
use std::io::{ErrorKind, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::places::Places;
use crate::screen::{Screen, Signal};
use crate::tally::Counted;

/// How the job ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Everything is settled.
    Complete,
    Interrupted(Signal),
    Failed(anyhow::Error),
}

/// The result of a job.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) ended: Ended,
    pub(crate) counted: Counted,
    pub(crate) elapsed: Duration,
    pub(crate) places: Places,
    pub(crate) dead_letters: PathBuf,
    /// Rows of the effects, and keys with more than one.
    pub(crate) effects: Option<(i64, i64)>,
    /// What is left to say of malformed lines.
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
        match &self.ended {
            Ended::Complete if self.counted.malformed + self.counted.dead > 0 => ExitCode::from(1),
            Ended::Complete => ExitCode::SUCCESS,
            Ended::Interrupted(signal) => ExitCode::from(signal.code()),
            Ended::Failed(_) => ExitCode::from(2),
        }
    }

    fn json(&self) -> String {
        let Counted { distinct_keys, executed, replayed, deferred, failed, dead, malformed, .. } = self.counted;
        let (deliveries, elapsed_ms) = (self.deliveries(), self.elapsed.as_millis());
        let level = "L1";
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

    /// What was cut short counts what is settled.
    fn deliveries(&self) -> u64 {
        match self.ended {
            Ended::Complete => self.counted.read,
            Ended::Interrupted(_) | Ended::Failed(_) => self.counted.settled(),
        }
    }

    fn hints(&self) -> Vec<String> {
        let Counted { executed, failed, malformed, read, .. } = self.counted;
        let mut hints: Vec<_> = self.malformed.iter().cloned().collect();
        match &self.ended {
            Ended::Failed(error) => hints.push(format!("error: {error}")),
            Ended::Interrupted(_) => hints.push(
                "interrupted: what is settled stays so; the same command again goes on where this one stopped".into(),
            ),
            Ended::Complete if read == 0 => hints.push("there was nothing to read: the input has no deliveries".into()),
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
        let seconds = self.elapsed.as_secs_f64();
        writeln!(f, "{} deliveries of {distinct_keys} keys settled in {seconds:.2} s", self.deliveries())?;
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
        writeln!(f, "effects  {}: {rows}", self.places.effects.display())?;
        if dead + malformed > 0 {
            writeln!(f, "dead     {}", self.dead_letters.display())?;
        }
        writeln!(
            f,
            "level L1: while the store remembers a consumed key its duplicates do not run. A worker that is killed, or stalls\n\
             past its lease, between an effect and the note of it leaves a key that runs again: at most one effect twice for each."
        )
    }
}
