//! Where tests have their files: in memory where there is enough of it. A disk that stands still for seconds, as that of a
//! busy machine does when much was written to it, makes clocks of servers jump and answers come late; what a disk does
//! is asked by no test.
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::capture;

/// A file system in memory, on Linux.
const MEMORY: &str = "/dev/shm";

/// KiB that have to be free there: several times what the servers of a run have at a time.
const ENOUGH: u64 = 8 << 20;

/// Removed when dropped, but for the logs that failed tests left.
#[derive(Debug)]
pub(super) struct Scratch(Option<PathBuf>);

impl Scratch {
    /// Says where it is.
    pub(super) fn new() -> Self {
        let free = free(Path::new(MEMORY));
        let folder = (free.is_some_and(|free| free >= ENOUGH)).then(|| {
            let folder = Path::new(MEMORY).join(format!("idempotent-{}", std::process::id()));
            // As the system's own: servers of a test run as users of theirs.
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
            // What cannot be removed is left.
            let _ = match entry.path() {
                logs if logs.ends_with("idempotent-logs") => Ok(()),
                other if other.is_dir() => fs::remove_dir_all(other),
                other => fs::remove_file(other),
            };
        }
        // Where nothing is left.
        let _ = fs::remove_dir(folder);
    }
}

/// KiB that are free in a folder.
fn free(folder: &Path) -> Option<u64> {
    let (status, told) = capture(Command::new("df").arg("-Pk").arg(folder)).ok()?;
    status.success().then_some(())?;
    told.lines().last()?.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn it_is_gone_afterwards_but_for_logs() {
        let place = std::env::temp_dir().join(format!("idempotent-scratch-{}", std::process::id()));
        for kept in [false, true] {
            fs::create_dir_all(place.join("data/of a server")).unwrap();
            fs::write(place.join("file"), "").unwrap();
            if kept {
                fs::create_dir(place.join("idempotent-logs")).unwrap();
            }
            let scratch = Scratch(Some(place.clone()));
            let mut command = Command::new("true");
            scratch.tell(&mut command);
            assert!(command.get_envs().any(|(name, value)| name == "TMPDIR" && value == Some(place.as_os_str())));
            drop(scratch);
            let left = fs::read_dir(&place).map_or(0, Iterator::count);
            assert_eq!((place.exists(), left), (kept, usize::from(kept)));
        }
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn what_is_free_is_known_of_folders_that_are_there() {
        assert!(free(&std::env::temp_dir()).unwrap() > 0);
        assert_eq!(free(Path::new("/no/such/folder")), None);
    }
}
