//! The samples and the programs that read them.
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use idempotent_deploy_samples::documents;

use crate::checkout;

/// Runs a program, which `cargo xtask setup` installs.
fn run(program: &str, arguments: &[&str], folder: &Path) -> Output {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}; run `cargo xtask setup`"))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn kubectl_renders_each_manifest_of_the_kustomization() {
    let kubernetes = checkout().join("deploy/kubernetes");
    let rendered = run("kubectl", &["kustomize", "."], &kubernetes);
    assert!(rendered.status.success(), "{}", text(&rendered));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rendered.yaml");
    fs::write(&file, &rendered.stdout).unwrap();
    let rendered = documents(&file).unwrap();
    let kustomization = documents(&kubernetes.join("kustomization.yaml")).unwrap().remove(0);
    let files =
        kustomization["resources"].as_array().unwrap().iter().map(|file| kubernetes.join(file.as_str().unwrap()));
    let mut expected: Vec<String> = files
        .flat_map(|file| documents(&file).unwrap())
        .map(|manifest| format!("{} {}", manifest["kind"], manifest["metadata"]["name"]))
        .collect();
    let mut found: Vec<String> =
        rendered.iter().map(|manifest| format!("{} {}", manifest["kind"], manifest["metadata"]["name"])).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert!(rendered.iter().all(|manifest| manifest["metadata"]["namespace"] == "shop"));
}

/// The largest exposure that `systemd-analyze security` may compute, in tenths.
const EXPOSURE: &str = "--threshold=20";

#[test]
fn systemd_accepts_each_unit_and_finds_each_service_hardened() {
    let folder = tempfile::tempdir().unwrap();
    let mut units = Vec::new();
    for entry in fs::read_dir(checkout().join("deploy/systemd")).unwrap() {
        let entry = entry.unwrap();
        // A template is checked as an instance.
        let name = entry.file_name().into_string().unwrap().replace("@.", "@1.");
        // The programs of the project are not installed here.
        let unit = fs::read_to_string(entry.path()).unwrap();
        let unit =
            unit.replace("/usr/local/bin/order_service", "/bin/true").replace("/usr/local/bin/idempotent", "/bin/true");
        fs::write(folder.path().join(&name), unit).unwrap();
        units.push(name);
    }
    assert_eq!(units.len(), 4, "{units:?}");
    for unit in &units {
        let path = format!("./{unit}");
        let verified = run("systemd-analyze", &["verify", "--recursive-errors=no", "--man=no", &path], folder.path());
        assert!(verified.status.success() && text(&verified).is_empty(), "{unit}: {}", text(&verified));
        if unit.ends_with(".service") {
            let secure = run("systemd-analyze", &["security", "--offline=true", EXPOSURE, &path], folder.path());
            assert!(secure.status.success(), "{unit}: {}", text(&secure));
        }
    }
    // A unit with an unknown setting, and one without the last restrictions, are not accepted.
    let worker = folder.path().join("idempotent-worker@1.service");
    let unit = fs::read_to_string(&worker).unwrap();
    fs::write(&worker, unit.replace("TimeoutStopSec", "TimeoutStopSecs")).unwrap();
    let verified = run(
        "systemd-analyze",
        &["verify", "--recursive-errors=no", "--man=no", "./idempotent-worker@1.service"],
        folder.path(),
    );
    assert!(text(&verified).contains("Unknown key"), "{}", text(&verified));
    fs::write(&worker, unit.replace("SystemCallFilter", "# SystemCallFilter").replace("Protect", "# Protect")).unwrap();
    let open = run(
        "systemd-analyze",
        &["security", "--offline=true", EXPOSURE, "./idempotent-worker@1.service"],
        folder.path(),
    );
    assert!(!open.status.success(), "{}", text(&open));
}
