//! The command `cargo xtask book`: builds the guides as a site.
use std::fs;
use std::process::Command;

use crate::tools::{Done, program, ran, root, stream};

const MDBOOK: &str = "0.5.4";
const MERMAID: &str = "0.17.1";

/// Builds the site into `target/book/site`.
pub(crate) fn build() -> Done {
    let (mdbook, mermaid) = (program("mdbook", MDBOOK)?, program("mdbook-mermaid", MERMAID)?);
    let (root, folder) = (root()?, root()?.join("target/book"));
    fs::create_dir_all(&folder)?;
    // The configuration names this folder, so another target folder of cargo does not count. `install` writes the scripts for diagrams, and edits the configuration that it finds next to them.
    fs::copy(root.join("book.toml"), folder.join("book.toml"))?;
    ran(Command::new(&mermaid).arg("install").arg(&folder))?;
    let tools = mermaid.parent().map(|bin| bin.as_os_str().to_owned()).into_iter();
    let path = tools.chain(std::env::var_os("PATH")).collect::<Vec<_>>().join(":".as_ref());
    let mut build = Command::new(mdbook);
    build.arg("build").arg(&root).arg("--dest-dir").arg(folder.join("site")).env("PATH", path);
    let built = stream(&mut build, |_| ())?.success();
    if built {
        println!("xtask book: open {}", folder.join("site/index.html").display());
    }
    Ok(built)
}
