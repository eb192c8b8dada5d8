//! The commands `cargo xtask sim`, `sim scale` and `chaos`, whose programs parse their own arguments and print their own results,
//! and `cargo xtask book`, which builds the guides as a site.
use std::fs;
use std::process::{Command, ExitCode};

use crate::tools::{Done, cargo, program, ran, root, stream};

/// The command of the simulators, with optimisation.
const SIMULATOR: [&str; 7] = ["run", "--release", "--quiet", "--locked", "--package", "idempotent-simulator", "--bin"];

/// The exit code for a run that did not start.
const VACUOUS: u8 = 2;

pub(crate) fn sim(arguments: &[String]) -> ExitCode {
    match arguments {
        [first, rest @ ..] if first == "scale" => pass_on(&[&SIMULATOR[..], &["idempotent-sim-scale"]].concat(), rest),
        _ => pass_on(&[&SIMULATOR[..], &["idempotent-sim"]].concat(), arguments),
    }
}

/// The command of the harness, without optimisation: the harness mostly waits for others, and tests have already built it.
const HARNESS: [&str; 7] = ["run", "--quiet", "--locked", "--package", "idempotent-chaos", "--bin", "idempotent-chaos"];

pub(crate) fn chaos(arguments: &[String]) -> ExitCode {
    let features = features(arguments).flat_map(|feature| ["--features", feature]).collect::<Vec<_>>();
    pass_on(&[&HARNESS[..], &features].concat(), arguments)
}

/// The features of the harness for clients that take minutes to build.
const CLIENTS: [&str; 3] = ["kafka", "rocketmq", "sqs"];

/// Returns the features of the harness for these arguments. Only a play that needs a slow client builds it.
fn features(arguments: &[String]) -> impl Iterator<Item = &'static str> {
    let play = arguments.first();
    let broker = arguments.windows(2).find(|pair| pair[0] == "--broker").map(|pair| &pair[1]);
    let is_needed = move |feature: &&str| [play, broker].iter().flatten().any(|name| name.starts_with(feature));
    CLIENTS.into_iter().filter(is_needed)
}

const MDBOOK: &str = "0.5.4";
const MERMAID: &str = "0.17.1";

/// Builds the site into `target/book/site`.
pub(crate) fn book() -> Done {
    let (mdbook, mermaid) = (program("mdbook", MDBOOK)?, program("mdbook-mermaid", MERMAID)?);
    let (root, folder) = (root()?, root()?.join("target/book"));
    fs::create_dir_all(&folder)?;
    // The configuration names this folder, so another target folder of cargo does not count. `install` writes the scripts
    // for diagrams, and edits the configuration that it finds next to them.
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

/// Runs a program of the workspace that parses its arguments and chooses its exit codes.
fn pass_on(program: &[&str], arguments: &[String]) -> ExitCode {
    let status = cargo(program).and_then(|mut cargo| {
        // In the caller's folder, so that relative file names work.
        Ok(cargo.current_dir(std::env::current_dir()?).arg("--").args(arguments).status()?)
    });
    match status.map(|status| status.code()) {
        Ok(Some(code)) if code <= i32::from(VACUOUS) => ExitCode::from(u8::try_from(code).unwrap_or(VACUOUS)),
        Ok(_) => ExitCode::from(VACUOUS),
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::from(VACUOUS)
        }
    }
}
