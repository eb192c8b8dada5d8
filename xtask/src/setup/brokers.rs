//! RocketMQ's name server and broker, built from published crates, because Debian has no package for them.
use std::error::Error;
use std::path::PathBuf;

use serde_json::Value;

use crate::tools::{Done, cargo, stream, target};

/// A program, its crate, and the feature that it is built with.
const PROGRAMS: [(&str, &str, &str); 2] =
    [("rocketmq-namesrv-rust", "rocketmq-namesrv", "tls"), ("rocketmq-broker-rust", "rocketmq-broker", "tls")];
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
        for (_, package, feature) in PROGRAMS {
            let mut command = cargo(&["install", "--debug", "--locked", "--quiet"])?;
            command.args(["--features", feature, &format!("{package}@{VERSION}"), "--root"]).arg(&folder);
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

/// Returns whether both programs exist in this version, with their features.
fn are_there() -> Done {
    let bin = bin()?;
    if !PROGRAMS.iter().all(|(program, ..)| bin.join(program).is_file()) {
        return Ok(false);
    }
    // Written by `cargo install`.
    let record = std::fs::read_to_string(folder()?.join(".crates2.json"))?;
    Ok(are_recorded(&serde_json::from_str(&record)?))
}

/// Returns whether cargo's record of installed programs has both of them.
fn are_recorded(record: &Value) -> bool {
    let Some(installs) = record["installs"].as_object() else { return false };
    PROGRAMS.iter().all(|(_, package, feature)| {
        let built = format!("{package} {VERSION} ");
        installs.iter().any(|(name, how)| {
            let features = how["features"].as_array();
            name.starts_with(&built) && features.is_some_and(|features| features.iter().any(|name| name == feature))
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_another_version_or_without_their_feature_are_rebuilt() {
        let record = |version: &str, features: &str| {
            let one =
                |name: &str, features: &str| format!("\"{name} {version} (registry)\": {{\"features\": {features}}}");
            let both = [one("rocketmq-broker", features), one("rocketmq-namesrv", "[\"tls\"]")].join(",");
            serde_json::from_str(&format!("{{\"installs\": {{{both}}}}}")).unwrap()
        };
        assert!(are_recorded(&record("1.0.0", "[\"tls\"]")));
        assert!(!are_recorded(&record("0.9.0", "[\"tls\"]")));
        assert!(!are_recorded(&record("1.0.0", "[]")));
        assert!(!are_recorded(&Value::Null));
    }
}
