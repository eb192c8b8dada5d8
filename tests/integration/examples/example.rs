//! An example as `cargo test` has built it, beside the tests; or, where `IDEMPOTENT_EXAMPLES` names a folder, the one
//! in there, such as a release build.
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Its program, which is no older than its sources.
pub(crate) fn binary(name: &str) -> PathBuf {
    let folder = std::env::var_os("IDEMPOTENT_EXAMPLES").map_or_else(beside_the_tests, PathBuf::from);
    let binary = folder.join(name).with_extension(std::env::consts::EXE_EXTENSION);
    let built = binary
        .metadata()
        .and_then(|about| about.modified())
        .unwrap_or_else(|error| panic!("{}: {error}: `cargo xtask test` builds the examples", binary.display()));
    let examples = checkout().join("examples");
    let sources = [examples.join(format!("{name}.rs")), examples.join(name)];
    for source in sources.into_iter().filter(|source| source.exists()) {
        let changed = newest(&source);
        assert!(
            changed <= built,
            "{} is older than {}: `cargo xtask test` builds the examples first",
            binary.display(),
            source.display()
        );
    }
    binary
}

/// Returns the folder of the checkout.
pub(crate) fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn beside_the_tests() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples")
}

/// Of a file, or of all files in a folder.
fn newest(path: &Path) -> SystemTime {
    if path.is_dir() {
        let parts = std::fs::read_dir(path).unwrap().map(|part| newest(&part.unwrap().path()));
        return parts.max().unwrap_or(SystemTime::UNIX_EPOCH);
    }
    path.metadata().unwrap().modified().unwrap()
}
