//! The packages that will be published: their manifests, and the contents of their archives.
//!
//! No rule requires `homepage` and `repository`, because the address of the repository is not known yet.
mod archive;
mod rules;

use std::error::Error;
use std::fs;
use std::path::Path;

use serde_json::Value;

use self::archive::Archive;
use super::msrv;
use crate::tools::{capture, cargo, target};

/// A package as its users get it.
#[derive(Debug)]
struct Package {
    /// The description of the package by `cargo metadata`.
    described: Value,
    /// The text of the manifest. `cargo metadata` does not print `include`.
    manifest: String,
    archive: Archive,
}

/// Returns a line for each rule that a package breaks.
///
/// # Errors
/// cargo cannot create the archives, or an archive cannot be read.
pub(crate) fn packages() -> Result<Vec<String>, Box<dyn Error>> {
    let packages = msrv::packages()?;
    let published: Vec<_> = packages.iter().filter(|package| is_published(package)).collect();
    if published.len() < 2 {
        return Err("packages: few packages found; adapt the check to the new manifests".into());
    }
    pack(&published)?;
    let mut found = msrv::findings(&published, &packages);
    found.extend(msrv::untested(&published)?);
    for described in published {
        found.extend(rules::findings(&read(described)?));
    }
    Ok(found)
}

/// Returns whether the package is one of this workspace that `cargo publish` uploads.
fn is_published(package: &Value) -> bool {
    package["source"].is_null() && package["publish"].is_null()
}

/// Creates the archives of all packages in one call, in which packages of the workspace find each other.
fn pack(published: &[&Value]) -> Result<(), Box<dyn Error>> {
    let names = published.iter().filter_map(|package| package["name"].as_str());
    let arguments: Vec<_> = ["package", "--no-verify", "--allow-dirty", "--locked"]
        .into_iter()
        .chain(names.flat_map(|name| ["--package", name]))
        .collect();
    // With a network, cargo asks the registry about each dependency, which takes half a minute.
    if capture(cargo(&arguments)?.arg("--offline"))?.0.success() {
        return Ok(());
    }
    let (status, output) = capture(&mut cargo(&arguments)?)?;
    if status.success() { Ok(()) } else { Err(output.into()) }
}

fn read(described: &Value) -> Result<Package, Box<dyn Error>> {
    let text = |field: &str| described[field].as_str().ok_or_else(|| format!("cargo metadata without `{field}`"));
    let (manifest, name) = (Path::new(text("manifest_path")?), format!("{}-{}", text("name")?, text("version")?));
    let folder = manifest.parent().ok_or("a manifest without a folder")?;
    let archive = Archive::read(&target()?.join("package").join(format!("{name}.crate")), &name, folder)?;
    Ok(Package { described: described.clone(), manifest: fs::read_to_string(manifest)?, archive })
}
