//! The deployment samples of `deploy` as data, and their checks.
//!
//! [`complaints`] needs no other program, so `cargo xtask check deploy` runs it. [`processes`] returns the command lines, for tests
//! that run them. The tests of this package compare the samples with published schemas, and render and verify them with `kubectl`
//! and `systemd-analyze`.
mod budget;
mod compose;
mod kubernetes;
mod metrics;
mod process;
mod systemd;
mod yaml;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

pub use self::process::Process;
pub use self::yaml::documents;

/// The errors of reading a sample.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Returns what is wrong in the samples of this checkout, one line each.
///
/// # Errors
/// A file is missing or is no YAML.
pub fn complaints(checkout: &Path) -> Result<Vec<String>, Failure> {
    let deploy = checkout.join("deploy");
    let mut all = compose::complaints(&deploy)?;
    all.extend(kubernetes::complaints(&deploy)?);
    for process in processes(checkout)? {
        all.extend(process.complaints());
        all.extend(budget::complaints(&process));
    }
    all.extend(metrics::complaints(checkout)?);
    Ok(all)
}

/// Returns the processes of this project's programs in all samples.
///
/// # Errors
/// A file is missing or is no YAML.
pub fn processes(checkout: &Path) -> Result<Vec<Process>, Failure> {
    let deploy = checkout.join("deploy");
    let mut all = compose::processes(&deploy)?;
    all.extend(kubernetes::processes(&deploy)?);
    all.extend(systemd::processes(&deploy)?);
    Ok(all)
}

/// Returns the files of a folder with this extension, sorted by name.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|known| known == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads a file. An error contains its path.
fn read(path: &Path) -> Result<String, Failure> {
    Ok(fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// Returns the name of a file, for complaints.
fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
