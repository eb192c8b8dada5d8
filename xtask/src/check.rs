//! All checks without a test run. The checks write nothing into the tree.
mod book;
mod cases;
mod crates;
mod deploy;
mod equal_lines;
mod examples;
mod imports;
mod links;
mod msrv;
mod packages;
mod prose;
mod sources;
mod translations;
mod versions;

use std::error::Error;

pub(crate) use self::msrv::needed as needed_rust_version;
pub(crate) use self::packages::packages as package_rules;
use crate::budget;
use crate::heavy;
use crate::outside::{FUZZ, STORE, outside};
use crate::report::{Outcome, Report};
use crate::tools::{Done, capture, cargo};

/// The package that users depend on.
const FACADE: &str = "idempotent-rs";

/// Runs all checks, even after a failure.
pub(crate) fn all() -> Done {
    let measured = budget::Measured::begin();
    let mut report = Report::default();
    report.command("fmt", cargo(&["fmt", "--all", "--check"])?);
    for (name, check) in sources::CHECKS {
        report.check(name, || check().map(Outcome::of));
    }
    report.check("examples", || examples::examples().map(Outcome::of));
    report.check("equal lines", || equal_lines::equal_lines().map(Outcome::of));
    report.check("import circles", || imports::circles().map(Outcome::of));
    report.check("published cases", || cases::cases().map(Outcome::of));
    report.check("guides", || book::book().map(Outcome::of));
    report.check("links of pages", || links::links().map(Outcome::of));
    report.check("translations", || translations::translations().map(Outcome::of));
    report.check("versions of servers", || versions::versions().map(Outcome::of));
    report.check("prose", || prose::prose().map(Outcome::of));
    report.check("deployment samples", || deploy::samples().map(Outcome::of));
    report.check("crates of the first build", || crates::first().map(Outcome::of));
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
    report.check("packages", || packages::packages().map(Outcome::of));
    report.check("dependencies", dependencies);
    measured.end("check")?;
    let within = budget::check()?;
    let passed = report.summary("check");
    if !passed {
        println!("`cargo xtask fix` repairs formatting and simple lints");
    }
    Ok(passed && within)
}

/// Checks only the deployment samples.
pub(crate) fn deploy() -> Done {
    let mut report = Report::default();
    report.check("deployment samples", || deploy::samples().map(Outcome::of));
    Ok(report.summary("check deploy"))
}

/// Checks only the packages to be published.
pub(crate) fn packages() -> Done {
    let mut report = Report::default();
    report.check("packages", || packages::packages().map(Outcome::of));
    Ok(report.summary("check packages"))
}

/// Returns the features of the facade, except `default`, which consists of others, and those whose clients take too long to
/// build.
fn features() -> Result<Vec<String>, Box<dyn Error>> {
    let packages = heavy::packages()?;
    let facade = packages.iter().find(|package| package["name"] == FACADE).ok_or("the facade is not a package")?;
    let features = facade["features"].as_object().ok_or("the facade has no features")?;
    Ok(features.keys().filter(|name| *name != "default" && !heavy::is_feature(name)).cloned().collect())
}

/// Checks bans, licenses and sources, but no advisories, because their database is not available offline.
fn dependencies() -> Result<Outcome, Box<dyn Error>> {
    if !capture(&mut cargo(&["deny", "--version"])?)?.0.success() {
        return Ok(Outcome::Skipped("cargo-deny is not installed".to_owned()));
    }
    let (status, output) = capture(&mut cargo(&["deny", "--locked", "check", "bans", "licenses", "sources"])?)?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed(output) })
}
