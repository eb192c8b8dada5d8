//! Redis 8.0, Valkey 8.1 and PgBouncer 1.24 from Debian's packages, unpacked without installation.
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::{Done, capture, ran, target};

/// The release that contains all of them.
const SUITE: &str = "trixie";

/// The servers and their libraries, since the system's libraries may be older.
const PACKAGES: [&str; 27] = [
    "redis-server",
    "redis-tools",
    "valkey-server",
    "valkey-tools",
    "libc6",
    "libssl3t64",
    "libsystemd0",
    "liblzf1",
    "libjemalloc2",
    "liblua5.1-0",
    "lua-cjson",
    "lua-bitop",
    "libcap2",
    "libzstd1",
    "liblzma5",
    "libgcrypt20",
    "libgpg-error0",
    "libatomic1",
    "libstdc++6",
    "libgcc-s1",
    "pgbouncer",
    "libevent-2.1-7t64",
    "libcares2",
    "libpam0g",
    "libaudit1",
    "libcap-ng0",
    "zlib1g",
];

/// A server that tests can use instead of the system's.
pub(crate) struct Flavour {
    pub(crate) program: &'static str,
    /// The folder of the program in its package.
    place: &'static str,
    /// The version that the test of versions expects.
    pub(crate) version: &'static str,
    /// The start of the output of `--version`.
    told: &'static str,
}

/// The Redis servers.
pub(crate) const FLAVOURS: [Flavour; 2] = [
    Flavour { program: "redis-server", place: "usr/bin", version: "redis 8.0", told: "Redis server v=8.0." },
    Flavour { program: "valkey-server", place: "usr/bin", version: "valkey 8.1", told: "Valkey server v=8.1." },
];

/// The pooler of PostgreSQL that keeps prepared statements in transaction mode. Debian 12 has an older one.
pub(crate) const POOLER: Flavour =
    Flavour { program: "pgbouncer", place: "usr/sbin", version: "pgbouncer 1.24", told: "PgBouncer 1.24." };

fn every() -> impl Iterator<Item = &'static Flavour> {
    FLAVOURS.iter().chain([&POOLER])
}

impl Flavour {
    /// Returns the path of the program, after [`all`] has unpacked it.
    pub(crate) fn path(&self) -> Result<PathBuf, Box<dyn Error>> {
        Ok(folder()?.join("bin").join(self.program))
    }

    /// Returns whether the program exists and has the right version.
    fn works(&self) -> Result<bool, Box<dyn Error>> {
        let told = capture(Command::new(self.path()?).arg("--version"));
        Ok(told.is_ok_and(|(status, told)| status.success() && told.starts_with(self.told)))
    }
}

/// Unpacks the servers like [`unpacked`], and prints their versions.
pub(crate) fn all() -> Done {
    let done = unpacked()?;
    for flavour in every() {
        let (_, told) = capture(Command::new(flavour.path()?).arg("--version"))?;
        println!("xtask setup: {}", told.lines().next().unwrap_or_default());
    }
    Ok(done)
}

/// Unpacks the servers into the target folder. Does nothing if they exist. Needs the network, but no root permissions.
pub(crate) fn unpacked() -> Done {
    if !are_there()? {
        let folder = folder()?;
        println!("xtask setup: unpacking {SUITE}'s Redis, Valkey and PgBouncer into {}", folder.display());
        // The remains of an interrupted run would be mixed with new files.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        unpack(&folder)?;
    }
    are_there()
}

fn are_there() -> Done {
    every().try_fold(true, |all, flavour| Ok(all && flavour.works()?))
}

fn folder() -> Result<PathBuf, Box<dyn Error>> {
    Ok(target()?.join("flavours"))
}

fn unpack(folder: &Path) -> Result<(), Box<dyn Error>> {
    let system = folder.join("root");
    extract(folder, &system, SUITE, &PACKAGES)?;
    let bin = folder.join("bin");
    fs::create_dir_all(&bin)?;
    for flavour in every() {
        let script = bin.join(flavour.program);
        fs::write(&script, launcher(&system, flavour)?)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Downloads packages of a release of Debian, and extracts them into `system`.
///
/// # Errors
/// apt-get cannot download the packages.
pub(super) fn extract(folder: &Path, system: &Path, suite: &str, packages: &[&str]) -> Result<(), Box<dyn Error>> {
    let apt = folder.join("apt");
    for part in ["lists/partial", "archives/partial", "etc/apt.conf.d", "etc/preferences.d"] {
        fs::create_dir_all(apt.join(part))?;
    }
    let source = format!("deb [signed-by={KEYRING}] {} {suite} main\n", mirror()?);
    fs::write(apt.join("etc/sources.list"), source)?;
    apt_get(&apt, &["update"])?;
    apt_get(&apt, &[&["download"][..], packages].concat())?;
    for package in fs::read_dir(apt.join("archives"))? {
        let package = package?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            ran(Command::new("dpkg-deb").arg("-x").arg(package).arg(system))?;
        }
    }
    Ok(fs::remove_dir_all(apt)?)
}

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Returns the mirror from which this system gets its packages.
fn mirror() -> Result<String, Box<dyn Error>> {
    let texts = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"].map(fs::read_to_string);
    let found = texts.iter().flatten().find_map(|text| mirror_in(text));
    Ok(found.ok_or("this system names no mirror of Debian: the flavours are Debian's packages")?)
}

/// Returns the first mirror that is not only for security updates. Supports both forms of the file.
fn mirror_in(sources: &str) -> Option<String> {
    let lines = sources.lines().filter(|line| line.starts_with("URIs:") || line.starts_with("deb "));
    let mut words = lines.flat_map(str::split_whitespace);
    words.find(|word| word.starts_with("http") && !word.contains("security")).map(str::to_owned)
}

/// Runs apt-get with a separate state: it reads only the keys of the system, and writes nothing there.
fn apt_get(apt: &Path, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new("apt-get");
    let folders = [
        ("Dir::Etc", "etc"),
        ("Dir::Etc::sourcelist", "etc/sources.list"),
        ("Dir::State::lists", "lists"),
        ("Dir::Cache", ""),
        ("Dir::Cache::archives", "archives"),
    ];
    for (name, place) in folders {
        command.arg("-o").arg(format!("{name}={}", apt.join(place).display()));
    }
    for option in ["Dir::Etc::sourceparts=/dev/null", "Debug::NoLocking=1"] {
        command.args(["-o", option]);
    }
    // As the current user, since apt's own user may not write here.
    command.args(["-o", "APT::Sandbox::User=root", "-qq"]).args(arguments).current_dir(apt.join("archives"));
    ran(&mut command)
}

/// Writes a script that starts the server with its own loader and libraries.
fn launcher(system: &Path, flavour: &Flavour) -> Result<String, Box<dyn Error>> {
    let libraries = system.join("usr/lib");
    let loaders = fs::read_dir(&libraries)?.flatten().filter_map(|entry| {
        let inside = fs::read_dir(entry.path()).ok()?.flatten();
        inside
            .map(|file| file.path())
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux")))
    });
    let loader = loaders.into_iter().next().ok_or("the C library's package has no loader")?;
    let beside = loader.parent().unwrap_or(&libraries).display();
    let (loader, binary) = (loader.display(), system.join(flavour.place).join(flavour.program));
    let binary = binary.display();
    Ok(format!("#!/bin/sh\nexec '{loader}' --library-path '{beside}' '{binary}' \"$@\"\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_read_out_of_both_forms() {
        let mirror = Some("http://mirror.test/debian".to_owned());
        let new = "Types: deb\nURIs: http://security.test/security\n\nTypes: deb\nURIs: http://mirror.test/debian\n";
        assert_eq!(mirror_in(new), mirror);
        let old = "# deb http://no.test/debian a main\ndeb [signed-by=/k] http://mirror.test/debian bookworm main\n";
        assert_eq!(mirror_in(old), mirror);
        assert_eq!(mirror_in("Types: deb\n"), None);
    }
}
