//! All checks without a test run. The checks write nothing into the tree.
mod cases;
mod guides;
mod imports;
mod licenses;
pub(crate) mod packages;
mod prose;
pub(crate) mod sources;
mod versions;

use std::error::Error;
use std::path::Path;

use clap::ValueEnum;

use crate::heavy;
use crate::outside::{FUZZ, STORE, outside};
use crate::report::{Findings, Report};
use crate::setup::packaged;
use crate::tools::{Done, capture, cargo, in_workspace, root};
use crate::{bench, budget};

/// The package that users depend on.
const FACADE: &str = "idempotent-rs";

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Part {
    /// Compares the processor time of the parts of CI with their limits, and counts of instructions with those of the page
    Budget,
    /// The deployment samples: their references, ports, secrets, and grace periods
    Deploy,
    /// The packages: their manifests and their contents
    Packages,
}

/// Runs one check, or all of them.
pub(crate) fn run(part: Option<Part>) -> Done {
    let mut report = Report::default();
    match part {
        None => return all(),
        Some(Part::Budget) => return Ok(budget::check()? & bench::compare()?),
        Some(Part::Deploy) => report.check("deployment samples", deployment_samples),
        Some(Part::Packages) => report.check("packages", packages::packages),
    }
    Ok(report.summary("check"))
}

/// Runs all checks, even after a failure.
fn all() -> Done {
    let measured = budget::Measured::begin();
    let mut report = Report::default();
    report.command("fmt", cargo(&["fmt", "--all", "--check"])?);
    for (name, check) in sources::CHECKS {
        report.check(name, check);
    }
    report.check("import circles", imports::circles);
    report.check("published cases", cases::cases);
    report.check("guides", guides::guides);
    report.check("links of pages", links);
    report.check("licenses of files", licenses::licenses);
    report.check("versions of servers", versions::versions);
    report.check("Rust versions of dependencies", versions::rust_versions);
    report.check("prose", prose::prose);
    report.check("deployment samples", deployment_samples);
    report.check("crates of the first build", packages::first_build);
    let lints = ["--", "-D", "warnings"];
    let mut clippy = cargo(&["clippy", "--locked", "--all-targets"])?;
    clippy.args(heavy::everything_else()?).args(lints);
    report.command("clippy, everything", clippy);
    for package in [STORE, FUZZ] {
        report.command(&format!("fmt, {package}"), outside(package, "fmt", &["--check"])?);
    }
    let all = ["--locked", "--all-targets", "--", "-D", "warnings"];
    report.command("clippy, tests/external-store", outside(STORE, "clippy", &all)?);
    // libFuzzer itself is C++, and not needed to check that the targets compile.
    report.command("fuzz targets", outside(FUZZ, "check", &["--locked", "--no-default-features"])?);
    let bare = ["clippy", "--locked", "--package", FACADE, "--no-default-features"];
    let first = ["clippy", "--locked", "--package", "idempotent-consume", "--all-targets"];
    report.command("clippy, README's first command", cargo(&[&first[..], &lints].concat())?);
    report.command("clippy, facade without features", cargo(&[&bare[..], &lints].concat())?);
    let mut docs = cargo(&["doc", "--locked", "--no-deps"])?;
    docs.args(heavy::published()?).env("RUSTDOCFLAGS", "-D warnings");
    report.command("docs", docs);
    // A link to an item of a feature is broken if the feature is off.
    for (name, features) in
        [("docs, default features", &[][..]), ("docs, facade without features", &["--no-default-features"])]
    {
        let mut docs = cargo(&[&["doc", "--locked", "--no-deps", "--package", FACADE][..], features].concat())?;
        docs.env("RUSTDOCFLAGS", "-D warnings");
        report.command(name, docs);
    }
    // Each TLS feature belongs to the crate of one client, so one build covers all of them.
    let (tls, others): (Vec<_>, Vec<_>) = features()?.into_iter().partition(|name| name.ends_with("-tls"));
    for features in others.into_iter().chain([tls.join(",")]) {
        let alone = ["check", "--locked", "--package", FACADE, "--no-default-features", "--features", &features];
        report.command(&format!("without default features, with {features}"), cargo(&alone)?);
    }
    report.check("packages", packages::packages);
    // Without advisories, because their database is not available offline.
    let deny = cargo(&["deny", "--locked", "check", "bans", "licenses", "sources"])?;
    match capture(&mut cargo(&["deny", "--version"])?)?.0.success() {
        true => report.command("dependencies", deny),
        false => report.skip("dependencies", "cargo-deny is not installed"),
    }
    measured.end("check")?;
    let within = budget::check()?;
    let passed = report.summary("check");
    if !passed {
        println!("`cargo xtask fix` repairs formatting and simple lints");
    }
    Ok(passed && within)
}

/// Checks the links of Markdown files: the file and the heading must exist.
fn links() -> Findings {
    // Pages that only rustdoc shows have links to items, which rustdoc checks.
    let is_of_rustdoc = |path: &Path| path.parent().is_some_and(|folder| folder.ends_with("src/docs"));
    let is_page = |path: &Path| path.extension().is_some_and(|extension| extension == "md") && !is_of_rustdoc(path);
    let mut lychee = in_workspace(packaged::LYCHEE.path()?)?;
    lychee.args(["--offline", "--include-fragments", "--no-progress", "--no-ignore", "--hidden"]);
    lychee.args(sources::texts(is_page)?.into_iter().map(|(path, _)| path));
    let (status, output) = capture(&mut lychee)?;
    Ok(if status.success() { Vec::new() } else { vec![output] })
}

/// Returns what is wrong in `deploy`. The tests of `tests/deploy` compare the samples with schemas and with other programs.
fn deployment_samples() -> Findings {
    Ok(idempotent_deploy_samples::complaints(&root()?).map_err(|error| error.to_string())?)
}

/// Returns the features of the facade, except `default`, which consists of others, and those whose clients take too long to
/// build.
fn features() -> Result<Vec<String>, Box<dyn Error>> {
    let packages = heavy::packages()?;
    let facade = packages.iter().find(|package| package["name"] == FACADE).ok_or("the facade is not a package")?;
    let features = facade["features"].as_object().ok_or("the facade has no features")?;
    Ok(features.keys().filter(|name| *name != "default" && !heavy::is_feature(name)).cloned().collect())
}
