//! A test binary that cargo has built, and the command with which cargo would run it.
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, iter};

use serde_json::Value;

use crate::tools::capture;

/// The variable with the number of tests that libtest runs at a time.
pub(super) const THREADS: &str = "RUST_TEST_THREADS";

/// A test binary of one target of one package.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Binary {
    pub(super) package: String,
    /// The kind as cargo names it: `lib`, `test`, `bin`, `example`.
    pub(super) kind: String,
    pub(super) target: String,
    version: String,
    executable: PathBuf,
    /// The folder of the package, in which its tests run.
    folder: PathBuf,
}

impl Binary {
    /// Returns the binary of cargo's message about an artifact, or `None` if it is not a test.
    pub(super) fn of(message: &Value) -> Option<Self> {
        let text = |pointer| message.pointer(pointer).and_then(Value::as_str);
        let is_test = message.pointer("/profile/test") == Some(&Value::Bool(true));
        let manifest = PathBuf::from(text("/manifest_path")?);
        let (package, version) = name(text("/package_id")?);
        is_test.then_some(Self {
            package: package.to_owned(),
            kind: text("/target/kind/0")?.to_owned(),
            target: text("/target/name")?.to_owned(),
            version: version.to_owned(),
            executable: text("/executable")?.into(),
            folder: manifest.parent()?.to_owned(),
        })
    }

    /// Returns the description of the binary, with the command that runs it alone.
    pub(super) fn title(&self) -> String {
        let Self { package, kind, target, .. } = self;
        match kind.as_str() {
            "test" | "bin" | "example" => format!("cargo test -p {package} --{kind} {target}"),
            _ => format!("cargo test -p {package} --lib"),
        }
    }

    /// Returns the command in the package's folder, with the environment that cargo sets for tests.
    pub(super) fn command(&self, libraries: &str) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).stdin(Stdio::null()).env("CARGO_TERM_COLOR", "never");
        command.env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_MANIFEST_PATH", self.folder.join("Cargo.toml"));
        // More threads than cores, because most tests mostly wait for servers and clocks.
        command.env("RUST_TEST_THREADS", env::var_os(THREADS).unwrap_or_else(|| "4".into()));
        // The message and its line show the failure. The frames of futures would push them out of the end of a log.
        command.env("RUST_BACKTRACE", "0").env("CARGO_PKG_NAME", &self.package).env("CARGO_PKG_VERSION", &self.version);
        // The tests of a macro crate are linked to the compiler.
        command.env("LD_LIBRARY_PATH", libraries);
        command
    }
}

/// Returns the library path: the compiler's libraries, and then the environment's.
pub(super) fn libraries() -> Result<String, Box<dyn Error>> {
    let (status, root) = capture(Command::new("rustc").args(["--print", "sysroot"]))?;
    if !status.success() {
        return Err(format!("`rustc --print sysroot`: {root}").into());
    }
    let all = iter::once(format!("{}/lib", root.trim())).chain(env::var("LD_LIBRARY_PATH"));
    Ok(all.collect::<Vec<_>>().join(":"))
}

/// Returns name and version: `path+file:///somewhere/idempotent-core#0.1.0` is idempotent-core.
pub(super) fn name(package_id: &str) -> (&str, &str) {
    let (place, version) = package_id.rsplit_once('#').unwrap_or((package_id, ""));
    version.split_once('@').unwrap_or((place.rsplit('/').next().unwrap_or(place), version))
}
