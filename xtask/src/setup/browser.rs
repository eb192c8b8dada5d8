//! Chromium and its driver from Debian's packages, and axe-core, for the tests of pages.
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Needed, install};
use crate::tools::{Done, stream, target};

const NEEDED: [Needed; 3] = [("chromium", &["chromium"]), ("chromedriver", &["chromium-driver"]), ("npm", &["npm"])];
/// The checks of accessibility, and their version.
const AXE: (&str, &str) = ("axe-core", "4.11.0");

/// Installs the programs and axe-core. Does nothing if they exist.
pub(crate) fn all() -> Done {
    Ok(install(&NEEDED)? && axe()?)
}

/// Returns the script of axe-core, after [`all`] has installed the script.
pub(crate) fn axe_script() -> Result<PathBuf, Box<dyn Error>> {
    Ok(folder()?.join("package/axe.min.js"))
}

fn folder() -> Result<PathBuf, Box<dyn Error>> {
    Ok(target()?.join("axe").join(AXE.1))
}

fn axe() -> Done {
    let (folder, (name, version)) = (folder()?, AXE);
    if !axe_script()?.is_file() {
        println!("xtask setup: downloading {name} {version} into {}", folder.display());
        fs::create_dir_all(&folder)?;
        let mut pack = Command::new("npm");
        pack.args(["pack", "--silent", &format!("{name}@{version}")]).current_dir(&folder);
        let mut unpack = Command::new("tar");
        unpack.args(["-xzf", &format!("{name}-{version}.tgz"), "package/axe.min.js"]).current_dir(&folder);
        if !stream(&mut pack, |_| ())?.success() || !stream(&mut unpack, |_| ())?.success() {
            return Ok(false);
        }
    }
    Ok(axe_script()?.is_file())
}
