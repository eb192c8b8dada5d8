//! Installation of the peers of `bench peers` into the target folder.
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::SERVER;
use crate::setup::flavours::{self, REDIS};
use crate::setup::once;
use crate::tools::{cargo, ran, root, target};

/// The folder of the bench, with the versions of the peers.
const SOURCE: &str = "benches/peers";

/// Installs the peers whose versions have changed, and returns the environment of the bench.
///
/// axum-idempotent needs Redis 7.4 or later, so all of them run on Redis 8.0, unless the environment names a server.
pub(super) fn install() -> Result<Vec<(&'static str, OsString)>, Box<dyn Error>> {
    let folder = target()?.join("peers");
    fs::create_dir_all(&folder)?;
    rust(&folder)?;
    typescript()?;
    python()?;
    let mut environment = vec![("IDEMPOTENT_PEERS", folder.into_os_string())];
    if std::env::var_os(SERVER).is_none() {
        flavours::all()?;
        environment.push(REDIS.environment()?);
    }
    Ok(environment)
}

/// Builds the peers in Rust. `idempotent` 2 names Rust 1.98, but also compiles with the workspace's version.
fn rust(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut build = cargo(&["build", "--quiet", "--release", "--locked", "--ignore-rust-version"])?;
    build.arg("--manifest-path").arg(root()?.join(SOURCE).join("rust/Cargo.toml"));
    ran(build.arg("--target-dir").arg(folder.join("rust")))
}

fn typescript() -> Result<(), Box<dyn Error>> {
    let manifest = root()?.join(SOURCE).join("package.json");
    once("peers/node", &fs::read_to_string(&manifest)?, |folder| {
        fs::copy(manifest, folder.join("package.json"))?;
        ran(Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
            .arg(folder))
    })?;
    Ok(())
}

fn python() -> Result<(), Box<dyn Error>> {
    let manifest = root()?.join(SOURCE).join("requirements.txt");
    once("peers/python", &fs::read_to_string(&manifest)?, |folder| {
        ran(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let pip = ["-m", "pip", "install", "--disable-pip-version-check", "--requirement"];
        ran(Command::new(folder.join("bin/python")).args(pip).arg(manifest))
    })?;
    Ok(())
}
