//! Recordings of a command in a terminal, by the program `script` of util-linux.
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::tools::in_workspace;

/// Output that the command wrote at once.
#[derive(Debug, PartialEq)]
pub(super) struct Chunk {
    /// The time since the previous chunk, in milliseconds.
    pub(super) pause: u64,
    pub(super) text: String,
}

/// Runs a command in a terminal, and returns its output. The exit code of the command does not count.
///
/// # Errors
/// `script` cannot be started, or its files are not understood.
pub(super) fn record(command: &str, folder: &Path) -> Result<Vec<Chunk>, Box<dyn Error>> {
    let (log, timing) = (folder.join("log"), folder.join("timing"));
    let mut script = in_workspace("script")?;
    // The command replaces the shell, which would print the end of a killed command into the last line.
    let command = format!("exec {command}");
    script.args(["--quiet", "--flush", "--logging-format", "classic", "--command", &command]);
    script.arg("--log-out").arg(&log).arg("--log-timing").arg(&timing);
    script.env("SHELL", "/bin/sh").stdout(Stdio::null());
    script.status().map_err(|e| format!("`script`, of the package bsdutils: {e}"))?;
    chunks(&fs::read(log)?, &fs::read_to_string(timing)?)
}

/// Returns the chunks of a recording. The first line of the log is a header, and the timing has a line for each chunk: its
/// pause in seconds, and its length in bytes.
fn chunks(log: &[u8], timing: &str) -> Result<Vec<Chunk>, Box<dyn Error>> {
    let start = log.iter().position(|byte| *byte == b'\n').ok_or("script: the log has no header")? + 1;
    let mut rest = &log[start..];
    let mut chunks = Vec::new();
    for line in timing.lines() {
        let (pause, length) = line.split_once(' ').ok_or("script: a line of the timing is incomplete")?;
        let (bytes, later) = rest.split_at_checked(length.parse()?).ok_or("script: the log is too short")?;
        let pause = (pause.parse::<f64>()? * 1000.0).round() as u64;
        chunks.push(Chunk { pause, text: String::from_utf8_lossy(bytes).into_owned() });
        rest = later;
    }
    Ok(chunks)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_consists_of_the_chunks_between_header_and_footer() {
        let log = b"Script started\none\r\ntwo\nScript done\n";
        let chunk = |pause, text: &str| Chunk { pause, text: text.to_owned() };
        assert_eq!(chunks(log, "0.25 5\n1.0 3\n").unwrap(), [chunk(250, "one\r\n"), chunk(1000, "two")]);
        assert!(chunks(log, "0.25 99\n").is_err());
    }
}
