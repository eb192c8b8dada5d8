//! A server clock that a test can shift.
use std::fs;
use std::io::Write;
use std::process::Command;

use super::files::Folder;
use super::missing;

const SOURCE: &str = include_str!("clock.c");

/// Makes the program of the command use the clock in the folder.
///
/// # Errors
/// If the library cannot be built, or the clock cannot be written.
pub(super) fn preload(command: &mut Command, folder: &Folder) -> Result<(), String> {
    let library = folder.file("clock.so");
    if !library.exists() {
        build(folder)?;
        shift(folder, 0.0)?;
    }
    command.env("LD_PRELOAD", library).env("CLOCK_SHIFT", folder.file("clock"));
    Ok(())
}

/// Sets the clock to this many seconds ahead of the system's clock.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn shift(folder: &Folder, seconds: f64) -> Result<(), String> {
    #[allow(clippy::cast_possible_truncation, reason = "no test shifts by 292,000 years")]
    let micros = (seconds * 1e6).round() as i64;
    // The file is written in place and in one write: the server has mapped it and may read it at any time.
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(folder.file("clock"));
    file.as_mut()
        .map_err(|e| e.to_string())
        .and_then(|file| file.write_all(&micros.to_ne_bytes()).map_err(|e| e.to_string()))
        .map_err(|e| format!("the clock cannot be shifted: {e}"))
}

fn build(folder: &Folder) -> Result<(), String> {
    fs::write(folder.file("clock.c"), SOURCE).map_err(|e| e.to_string())?;
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC", "-o", "clock.so", "clock.c"]).current_dir(folder.path());
    let output = cc.output().map_err(|e| missing("cc", &e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("the shiftable clock was not built: {}", String::from_utf8_lossy(&output.stderr)))
}
