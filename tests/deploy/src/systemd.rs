//! The units for systemd. `systemd-analyze` checks their syntax and hardening, in a test.
use std::path::Path;

use crate::process::Process;
use crate::{Failure, files, name_of, read};

/// Returns the processes of the services.
pub(crate) fn processes(deploy: &Path) -> Result<Vec<Process>, Failure> {
    files(&deploy.join("systemd"), "service")?.iter().map(|path| Ok(process(&name_of(path), &read(path)?)?)).collect()
}

/// Parses a service. `%d` remains in the paths, and `%i` is 1.
fn process(place: &str, unit: &str) -> Result<Process, String> {
    let value = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let mut words = value("ExecStart").ok_or_else(|| format!("{place}: no ExecStart"))?.split(' ');
    let program = words.next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let credentials = unit.lines().filter_map(|line| line.strip_prefix("LoadCredential=")?.split(':').next());
    let grace = value("TimeoutStopSec").map(humantime::parse_duration).transpose();
    Ok(Process {
        place: place.to_owned(),
        program: program.to_owned(),
        arguments: words.map(|word| word.replace("%i", "1")).collect(),
        files: credentials.map(|name| format!("%d/{name}")).collect(),
        grace: grace.map_err(|error| format!("{place}: TimeoutStopSec: {error}"))?,
        ..Process::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_that_no_line_loads_is_a_complaint() {
        let unit = "[Service]\nExecStart=/usr/local/bin/idempotent --store=@%d/redis-url purge\nLoadCredential=redis-url:/etc/x\n";
        let good = process("u", unit).map(|process| process.complaints());
        assert_eq!(good, Ok(Vec::new()));
        let bad = process("u", &unit.replace("redis-url:", "redis:")).map(|process| process.complaints().len());
        assert_eq!(bad, Ok(2));
    }
}
