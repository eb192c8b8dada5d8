//! An example as `cargo test` has built it, beside the tests.
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Its program, which is no older than its sources.
pub(crate) fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    let binary = binary.with_extension(std::env::consts::EXE_EXTENSION);
    let built = binary.metadata().and_then(|about| about.modified()).unwrap_or_else(|error| {
        panic!("{}: {error}: run `cargo build --example {name}` in the profile of the tests", binary.display())
    });
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for source in [examples.join(format!("{name}.rs")), examples.join(name)] {
        let changed = newest(&source);
        assert!(
            changed <= built,
            "{} is older than {}: run `cargo build --example {name}`",
            binary.display(),
            source.display()
        );
    }
    binary
}

/// Of a file, or of all files in a folder.
fn newest(path: &Path) -> SystemTime {
    if path.is_dir() {
        let parts = std::fs::read_dir(path).unwrap().map(|part| newest(&part.unwrap().path()));
        return parts.max().unwrap_or(SystemTime::UNIX_EPOCH);
    }
    path.metadata().unwrap().modified().unwrap()
}
