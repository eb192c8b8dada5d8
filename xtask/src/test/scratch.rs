//! The folder for the files of tests, which is in memory if there is enough space. A disk that stalls for seconds, as
//! on a busy machine after many writes, makes the clocks of servers jump and answers late. No test depends on the
//! behaviour of a disk.
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::capture;

/// The file system in memory, on Linux.
const MEMORY: &str = "/dev/shm";

/// The free space in KiB that is required there: several times the space that the servers of a run need at a time.
const ENOUGH: u64 = 8 << 20;

/// A folder that is removed when the value is dropped, except the logs of failed tests.
#[derive(Debug)]
pub(super) struct Scratch(Option<PathBuf>);

impl Scratch {
    /// Creates the folder, and prints its path.
    pub(super) fn new() -> Self {
        let free = free(Path::new(MEMORY));
        let folder = (free.is_some_and(|free| free >= ENOUGH)).then(|| {
            let folder = Path::new(MEMORY).join(format!("idempotent-{}", std::process::id()));
            // With the permissions of the system's folder, because servers of a test run as other users.
            let made =
                fs::create_dir(&folder).and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o1777)));
            made.ok().map(|()| folder)
        });
        let folder = folder.flatten();
        match &folder {
            Some(folder) => println!("xtask test: files of tests are in memory, in {}", folder.display()),
            None => println!(
                "xtask test: files of tests are on the disk: less than {} GiB are free in {MEMORY}",
                ENOUGH >> 20
            ),
        }
        Self(folder)
    }

    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self(None)
    }

    pub(super) fn tell(&self, command: &mut Command) {
        if let Some(folder) = &self.0 {
            command.env("TMPDIR", folder);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(folder) = &self.0 else { return };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            // Files that cannot be removed are left.
            let _ = match entry.path() {
                logs if logs.ends_with("idempotent-logs") => Ok(()),
                other if other.is_dir() => fs::remove_dir_all(other),
                other => fs::remove_file(other),
            };
        }
        // Succeeds if the folder is empty.
        let _ = fs::remove_dir(folder);
    }
}

/// Returns the free space of a folder in KiB.
fn free(folder: &Path) -> Option<u64> {
    let (status, told) = capture(Command::new("df").arg("-Pk").arg(folder)).ok()?;
    status.success().then_some(())?;
    told.lines().last()?.split_whitespace().nth(3)?.parse().ok()
}
