//! The samples satisfy all checks and the published schemas, and each check fails for a broken sample.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs)]

mod broken;
mod programs;
mod schemas;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Returns the folder of the checkout.
fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// A copy of the files that the checks read.
struct Copy(TempDir);

impl Copy {
    fn new() -> Self {
        let copy = Self(tempfile::tempdir().unwrap());
        for folder in ["deploy", "operate/metrics/src"] {
            copy.copies(&checkout().join(folder), &copy.path().join(folder));
        }
        for file in ["operate/metrics/alerts.yaml", "operate/metrics/dashboard.json"] {
            fs::copy(checkout().join(file), copy.path().join(file)).unwrap();
        }
        copy
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    fn copies(&self, from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let (path, to) = (entry.path(), to.join(entry.file_name()));
            if path.is_dir() {
                self.copies(&path, &to);
            } else {
                fs::copy(path, to).unwrap();
            }
        }
    }

    /// Replaces the first occurrence of a text in a file.
    fn replace(&self, file: &str, old: &str, new: &str) {
        let path = self.path().join("deploy").join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{file} does not contain {old}");
        fs::write(path, text.replacen(old, new, 1)).unwrap();
    }
}
