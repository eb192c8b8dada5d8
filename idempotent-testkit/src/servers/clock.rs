//! A server's clock that a test can shift.
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::files::Folder;

const LIBRARY: &str = "faketime/libfaketime.so.1";

/// Makes what the command starts go by the clock in the folder.
///
/// # Errors
/// Where the library is missing or the clock cannot be written.
pub(super) fn preload(command: &mut Command, folder: &Folder) -> Result<(), String> {
    command.env("LD_PRELOAD", library()?).env("FAKETIME_TIMESTAMP_FILE", folder.file("clock"));
    // It looks into the file each time, and leaves time spans as they are.
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    if folder.file("clock").exists() { Ok(()) } else { shift(folder, 0.0) }
}

/// The clock is so many seconds ahead of the system's from now on.
///
/// # Errors
/// Where it cannot be written.
pub(super) fn shift(folder: &Folder, seconds: f64) -> Result<(), String> {
    // In one step: the server may look at any time.
    let new = folder.file("clock.new");
    fs::write(&new, format!("{seconds:+.6}\n"))
        .and_then(|()| fs::rename(new, folder.file("clock")))
        .map_err(|e| format!("the clock cannot be shifted: {e}"))
}

/// In the folder of the machine's architecture, whichever that is.
fn library() -> Result<PathBuf, String> {
    let roots = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    let below = roots.iter().flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let mut found = below.chain(roots.iter().cloned()).map(|folder| folder.join(LIBRARY));
    found
        .find(|library| library.exists())
        .ok_or_else(|| "`libfaketime` is not installed: `cargo xtask setup` installs what the tests need".to_owned())
}
