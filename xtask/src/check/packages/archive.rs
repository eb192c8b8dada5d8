//! The contents of a package's archive.
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::tools::capture;

/// The files of an archive, and its size.
#[derive(Debug)]
pub(super) struct Archive {
    /// The path of each file in the package, and its size.
    pub(super) files: Vec<(String, u64)>,
    /// The size of the archive without compression.
    pub(super) unpacked: u64,
}

impl Archive {
    /// Reads an archive whose files are in a folder of this name. The sources are in `folder`.
    ///
    /// # Errors
    /// The archive is missing or damaged.
    pub(super) fn read(path: &Path, name: &str, folder: &Path) -> Result<Self, Box<dyn Error>> {
        let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let (status, list) = capture(Command::new("tar").args(["--list", "--gzip", "--file"]).arg(path))?;
        if !status.success() {
            return Err(format!("{}: {list}", path.display()).into());
        }
        let files = list.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('/'));
        // A file that only the archive has is one that cargo generates, such as Cargo.lock.
        let size = |file: &str| fs::metadata(folder.join(file)).map_or(0, |file| file.len());
        let files = files.map(|file| (file.to_owned(), size(file))).collect();
        Ok(Self { files, unpacked: unpacked(&bytes).ok_or("an archive without a size")? })
    }
}

/// Returns the size without compression: the last four bytes of a gzip file.
fn unpacked(gzip: &[u8]) -> Option<u64> {
    gzip.last_chunk().map(|size| u32::from_le_bytes(*size).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_the_end_of_the_file() {
        assert_eq!(unpacked(&[31, 139, 0, 2, 1, 0, 0]), Some(258));
        assert_eq!(unpacked(&[31, 139]), None);
    }

    #[test]
    fn a_missing_archive_is_an_error_with_its_path() {
        let missing = Archive::read(Path::new("no.crate"), "no-0.1.0", Path::new("."));
        assert!(missing.is_err_and(|e| e.to_string().starts_with("no.crate: ")));
    }
}
