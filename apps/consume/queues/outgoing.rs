//! The lines of a file, as messages to be published.
use std::thread;

use anyhow::anyhow;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::delivery::is_blank;
use crate::input::{Input, LONGEST};

/// A line without its end.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Counted from 1, blank lines too.
    pub(crate) number: u64,
    /// The id, derived from number and content: the same whenever the file is published.
    pub(crate) id: String,
    pub(crate) body: Vec<u8>,
}

pub(crate) type Lines = mpsc::Receiver<anyhow::Result<Outgoing>>;

/// Lines read ahead.
const AHEAD: usize = 64;

/// Reads on a separate thread. Malformed lines are messages too: the consumer dead-letters them.
pub(crate) fn read(mut input: Input) -> Lines {
    let (lines, receiver) = mpsc::channel(AHEAD);
    thread::spawn(move || {
        for number in 1.. {
            let line = match input.line() {
                Ok(None) => return,
                Ok(Some(line)) if is_blank(&line) => continue,
                Ok(Some(line)) if line.len() > LONGEST => {
                    Err(anyhow!("line {number} of {} is longer than {LONGEST} bytes: no broker takes it", input.source))
                }
                line => line.map(|line| outgoing(number, line.unwrap_or_default())),
            };
            let broken = line.is_err();
            // The receiver has ended, or the input is broken.
            if lines.blocking_send(line).is_err() || broken {
                return;
            }
        }
    });
    receiver
}

fn outgoing(number: u64, mut body: Vec<u8>) -> Outgoing {
    if body.ends_with(b"\n") {
        body.pop();
    }
    let digest: String = Sha256::digest(&body)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Outgoing { number, id: format!("{number}-{digest}"), body }
}
