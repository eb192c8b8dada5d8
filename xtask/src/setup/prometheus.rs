//! Prometheus with its `promtool` from Debian's package, unpacked without installation, for the tests of metrics.
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::flavours::extract;
use crate::tools::{Done, capture, target};

/// The release that contains the version below. Both programs are static, except for the C library.
const SUITE: &str = "bookworm";

/// The start of the output of `--version`. The tests of the rules are written for this version.
const VERSION: &str = ", version 2.42.";

const PROGRAMS: [&str; 2] = ["prometheus", "promtool"];

/// Unpacks both programs into the target folder. Does nothing if they exist. Needs the network, but no root permissions.
pub(crate) fn all() -> Done {
    if !are_there()? {
        let folder = folder()?;
        println!("xtask setup: unpacking {SUITE}'s Prometheus into {}", folder.display());
        // The remains of an interrupted run would be mixed with new files.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        if let Err(error) = extract(&folder, SUITE, &[], &["prometheus"]) {
            println!("xtask setup: Prometheus could not be unpacked: {error}");
            return Ok(false);
        }
    }
    are_there()
}

fn are_there() -> Done {
    let mut all = true;
    for program in PROGRAMS {
        let version = capture(Command::new(folder()?.join("usr/bin").join(program)).arg("--version"));
        all &= version.is_ok_and(|(status, text)| status.success() && is_version(program, &text));
    }
    Ok(all)
}

/// Returns the folder, in which the test harness looks for the programs, too.
fn folder() -> Result<PathBuf, Box<dyn Error>> {
    Ok(target()?.join("prometheus"))
}

fn is_version(program: &str, text: &str) -> bool {
    text.strip_prefix(program).is_some_and(|rest| rest.starts_with(VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_another_version_is_unpacked_again() {
        assert!(is_version("promtool", "promtool, version 2.42.0+ds (branch: debian/sid)\n  build user: x\n"));
        assert!(!is_version("promtool", "promtool, version 2.53.3\n"));
        assert!(!is_version("promtool", "prometheus, version 2.42.0\n"));
    }
}
