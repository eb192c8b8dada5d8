//! Reads deliveries, line by line, no faster than they are settled.
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, stdin};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, thread};

use anyhow::anyhow;
use tokio::runtime::Handle;

use crate::Job;
use crate::broker::Broker;
use crate::delivery::{self, Field};
use crate::places;

/// `--input`.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Stdin,
    File(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdin => f.write_str("standard input"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Source {
    pub(crate) fn of(input: Option<&Path>) -> Self {
        match input {
            Some(path) if path.as_os_str() == "-" => Self::Stdin,
            Some(path) => Self::File(path.to_owned()),
            None => Self::File(places::webhooks()),
        }
    }

    /// Returns the path of the dead letters.
    pub(crate) fn dead_letters(&self) -> PathBuf {
        let mut name = match self {
            Self::Stdin => Path::new("stdin").as_os_str().to_owned(),
            Self::File(path) => path.as_os_str().to_owned(),
        };
        name.push(".dead.jsonl");
        name.into()
    }
}

/// An input that can be read.
pub(crate) struct Input {
    pub(crate) source: Source,
    reader: Box<dyn BufRead + Send>,
    /// In bytes, where it is known.
    pub(crate) size: Option<u64>,
    /// True if the input is a terminal.
    pub(crate) is_terminal: bool,
}

impl Input {
    pub(crate) fn open(source: Source) -> anyhow::Result<Self> {
        let Source::File(path) = &source else {
            let reader = Box::new(BufReader::new(stdin()));
            return Ok(Self { source, reader, size: None, is_terminal: stdin().is_terminal() });
        };
        let unreadable = |error: io::Error| anyhow!("cannot read {}: {error}", path.display());
        let file = File::open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if about.is_dir() {
            return Err(unreadable(io::ErrorKind::IsADirectory.into()));
        }
        let size = about.is_file().then_some(about.len());
        Ok(Self { source, reader: Box::new(BufReader::new(file)), size, is_terminal: false })
    }

    /// Reads on a thread of its own: what blocks on a pipe must hold up neither workers nor the end.
    pub(crate) fn read(mut self, job: Arc<Job>, broker: Arc<Broker>, field: Field) -> Reading {
        let reading = Reading::default();
        let (runtime, told) = (Handle::current(), reading.clone());
        thread::spawn(move || {
            let ended = self.publish(&job, &broker, &field, &runtime).err();
            *told.0.lock().unwrap_or_else(PoisonError::into_inner) = ended;
            broker.no_more();
        });
        reading
    }

    /// The next line, its end included; of one that is longer than [`LONGEST`] one byte more than that.
    pub(crate) fn line(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(LONGEST as u64 + 1).read_until(b'\n', &mut line);
        let read = read.map_err(|error| anyhow!("cannot read on in {}: {error}", self.source))?;
        Ok((read > 0).then_some(line))
    }

    fn publish(&mut self, job: &Job, broker: &Broker, field: &Field, runtime: &Handle) -> anyhow::Result<()> {
        for number in 1.. {
            let Some(line) = self.line()? else { break };
            if line.len() > LONGEST {
                job.tally.malformed();
                job.malformed.tell(
                    &format!("line {number}"),
                    &format!("longer than {LONGEST} bytes").into(),
                    &[],
                    &job.screen,
                );
                broker.dead_letters().copy_line(&line, &mut self.reader)?;
                continue;
            }
            if delivery::is_blank(&line) {
                job.screen.settled(line.len(), &job.tally);
                continue;
            }
            match field.key_in(&line) {
                Ok(key) => {
                    job.tally.delivery(&key);
                    if !runtime.block_on(broker.publish(number, key, line)) {
                        break;
                    }
                }
                Err(reason) => {
                    job.tally.malformed();
                    job.malformed.tell(&format!("line {number}"), &reason, &line, &job.screen);
                    broker.dead_letters().write(&line)?;
                    job.screen.settled(line.len(), &job.tally);
                }
            }
        }
        Ok(())
    }
}

/// A longer line goes to the dead letters unread: memory is bounded.
pub(crate) const LONGEST: usize = 16 << 20;

/// The result of reading.
#[derive(Clone, Default)]
pub(crate) struct Reading(Arc<Mutex<Option<anyhow::Error>>>);

impl Reading {
    pub(crate) fn error(&self) -> Option<anyhow::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
