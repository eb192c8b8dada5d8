//! RocketMQ's name server and broker, built from published crates, because Debian has no package for them.
use std::error::Error;
use std::path::PathBuf;

use crate::tools::{Done, capture, cargo, stream, target};

/// A program, its crate, and its build arguments.
const PROGRAMS: [(&str, &str, &[&str]); 2] = [
    ("rocketmq-namesrv-rust", "rocketmq-namesrv", &["--features", "tls"]),
    ("rocketmq-broker-rust", "rocketmq-broker", &["--features", "tls"]),
];
/// The version of the client in `idempotent-rocketmq`.
const VERSION: &str = "1.0.0";

/// Returns the folder of the programs, after [`all`] has built them.
pub(crate) fn bin() -> Result<PathBuf, Box<dyn Error>> {
    Ok(folder()?.join("bin"))
}

fn folder() -> Result<PathBuf, Box<dyn Error>> {
    Ok(target()?.join("brokers"))
}

/// Builds the programs into the target folder. Does nothing if they exist, because cargo records what it has installed.
/// Needs the network, and minutes.
pub(crate) fn all() -> Done {
    if !are_there()? {
        let folder = folder()?;
        println!("xtask setup: building RocketMQ {VERSION} into {}, which takes minutes", folder.display());
        for (_, package, how) in PROGRAMS {
            let mut command = cargo(&["install", "--debug", "--locked", "--quiet"])?;
            command.args(how).arg(format!("{package}@{VERSION}")).arg("--root").arg(&folder);
            // Separate from the build of this workspace, and without debug information.
            command.env("CARGO_TARGET_DIR", folder.join("build")).env("CARGO_PROFILE_DEV_DEBUG", "0");
            if !stream(&mut command, |_| ())?.success() {
                return Ok(false);
            }
        }
        // Removes gigabytes of build results.
        std::fs::remove_dir_all(folder.join("build"))?;
    }
    println!("xtask setup: found RocketMQ {VERSION} in {}", bin()?.display());
    are_there()
}

/// Returns whether both programs exist in this version.
fn are_there() -> Done {
    let bin = bin()?;
    if !PROGRAMS.iter().all(|(program, ..)| bin.join(program).is_file()) {
        return Ok(false);
    }
    let (status, listed) = capture(cargo(&["install", "--list", "--root"])?.arg(folder()?))?;
    Ok(status.success() && are_listed(&listed))
}

fn are_listed(list: &str) -> bool {
    PROGRAMS.iter().all(|(_, package, _)| list.lines().any(|line| line == format!("{package} v{VERSION}:")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_another_version_are_rebuilt() {
        let list = "rocketmq-broker v1.0.0:\n    rocketmq-broker-rust\nrocketmq-namesrv v1.0.0:\n    x\n";
        assert!(are_listed(list));
        assert!(!are_listed(&list.replace("broker v1.0.0", "broker v0.9.0")));
        assert!(!are_listed(""));
    }
}
