//! The build of all targets: the test binaries, and a list of the targets that could not be built.
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, iter};

use serde_json::Value;

use super::jobs::Tally;
use crate::heavy;
use crate::tools::{capture, cargo};

/// The result of the build.
#[derive(Debug, Default)]
pub(super) struct Built {
    failed: BTreeSet<String>,
    binaries: Vec<Binary>,
}

/// Builds all packages except the [heavy] one, with the features of the examples.
pub(super) fn all() -> Result<Built, Box<dyn Error>> {
    let everything = heavy::tested()?;
    of(&everything.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Continues after an error, so that all built targets can run. rustc's messages are printed to stderr.
///
/// Builds examples as programs, which tests start. With `--all-targets`, they and the benchmarks would be built once
/// more.
pub(super) fn of(packages: &[&str]) -> Result<Built, Box<dyn Error>> {
    let mut command = cargo(&["build", "--keep-going", "--locked"])?;
    command.args(packages).args(["--lib", "--bins", "--tests", "--examples", "--message-format=json"]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut built = Built::default();
    for line in BufReader::new(child.stdout.take().ok_or("cargo has no stdout")?).lines() {
        // Build scripts may print other lines.
        if let Ok(message) = serde_json::from_str(&line?) {
            built.message(&message);
        }
    }
    if !child.wait()?.success() && built.failed.is_empty() {
        // A build script or cargo itself failed, and printed the reason to stderr.
        built.failed.insert("the workspace".to_owned());
    }
    built.binaries.sort_by_key(|binary| (weight(binary), binary.package.clone(), binary.target.clone()));
    Ok(built)
}

/// The packages whose tests take longest, the longest first: a long binary that starts last has a core for itself.
const LONGEST: [&str; 11] = [
    "idempotent-kafka",
    "idempotent-dynamodb",
    "idempotent-sqlx",
    "idempotent-rabbitmq",
    "idempotent-tests",
    "idempotent-redis",
    "idempotent-simulator",
    "idempotent-chaos",
    "idempotent-harness",
    "idempotent-redis-streams",
    "idempotent-tower",
];

fn weight(binary: &Binary) -> usize {
    let tests = matches!(binary.kind.as_str(), "test");
    let place = LONGEST.iter().position(|package| *package == binary.package);
    place.filter(|_| tests).unwrap_or(LONGEST.len())
}

impl Built {
    /// Counts the targets that could not be built as failures.
    pub(super) fn counted(self, tally: &mut Tally) -> Self {
        self.failed.iter().for_each(|target| tally.fail(&format!("{target} could not be built")));
        self
    }

    pub(super) fn failed(&self) -> &BTreeSet<String> {
        &self.failed
    }

    pub(super) fn binaries(&self) -> &[Binary] {
        &self.binaries
    }

    /// Returns the binary of this target.
    pub(super) fn binary(&self, package: &str, target: &str) -> Result<&Binary, String> {
        let mut binaries = self.binaries.iter().filter(|binary| binary.package == package && binary.target == target);
        binaries.next().ok_or_else(|| format!("{target} of {package} was not built"))
    }

    fn message(&mut self, message: &Value) {
        let text = |pointer| message.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        match text("/reason") {
            "compiler-message" => {
                eprint!("{}", text("/message/rendered"));
                if text("/message/level") == "error" {
                    let (package, _) = name(text("/package_id"));
                    let (kind, target) = (text("/target/kind/0"), text("/target/name"));
                    self.failed.insert(format!("{kind} `{target}` of {package}"));
                }
            }
            "compiler-artifact" => self.binaries.extend(Binary::of(message)),
            _ => {}
        }
    }
}

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_failure_is_named_once_and_built_binaries_still_run() {
        let mut built = Built::default();
        let target = |kind: &str, name: &str| json!({"kind": [kind], "name": name});
        for level in ["error", "error", "warning"] {
            built.message(&json!({"reason": "compiler-message", "package_id": "path+file:///x/core#0.1.0",
                "target": target("test", "broken"), "message": {"level": level}}));
        }
        for (kind, name, test) in [("lib", "core", true), ("test", "fine", true), ("bin", "no test", false)] {
            built.message(&json!({"reason": "compiler-artifact", "package_id": "path+file:///x/y#core@0.1.0",
                "manifest_path": "/x/y/Cargo.toml", "executable": "/x/a", "target": target(kind, name),
                "profile": {"test": test}}));
        }
        assert_eq!(built.failed.iter().collect::<Vec<_>>(), ["test `broken` of core"]);
        let runnable: Vec<_> = built.binaries().iter().map(Binary::title).collect();
        assert_eq!(runnable, ["cargo test -p core --lib", "cargo test -p core --test fine"]);
    }
}
