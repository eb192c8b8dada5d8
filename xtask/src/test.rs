//! Builds everything, runs everything, counts.
mod binary;
mod build;
mod extras;
mod lanes;
mod pace;
mod scratch;
mod tally;

use self::binary::libraries;
use self::build::Built;
pub(crate) use self::extras::extras;
use self::lanes::{Job, lanes};
use self::scratch::Scratch;
use self::tally::Tally;
use crate::heavy;
use crate::outside::{STORE, outside};
use crate::setup;
use crate::tools::{Done, cargo, stream};

const RUN: [&str; 3] = ["test", "--no-fail-fast", "--locked"];

/// All tests of all packages but the [heavy] one, then the doc tests, then those of the crate outside; `filter` goes to
/// each test binary. Where something could not be built, what could is run all the same.
pub(crate) fn all(filter: &[&str]) -> Done {
    if !setup::all()? {
        // Not the end: most tests need no server, and those that do say what they miss.
        println!("xtask test: something is not installed");
    }
    let mut tally = Tally::default();
    let built = counted(build::all()?, &mut tally);
    let (libraries, scratch) = (libraries()?, Scratch::new());
    let jobs = built.binaries().iter().map(|binary| {
        let mut command = binary.command(&libraries);
        command.args(filter);
        scratch.tell(&mut command);
        Job { title: binary.title(), command }
    });
    lanes::run(jobs.collect(), lanes(), |ended| tally.ended(ended));
    let [test, no_fail_fast, locked] = RUN;
    let docs = cargo(&[test, no_fail_fast, locked, "--workspace", "--exclude", heavy::PACKAGE, "--doc"])?;
    for mut command in [docs, outside(STORE, test, &[no_fail_fast, locked])?] {
        scratch.tell(command.arg("--").args(filter));
        let status = stream(&mut command, |line| tally.line(line))?;
        tally.end(status.success());
    }
    tally.tell();
    println!("xtask test: {} passed, {} failed", tally.passed(), tally.failed());
    Ok(tally.failed() == 0 && tally.passed() > 0)
}

/// Says what could not be built, and counts it.
fn counted(built: Built, tally: &mut Tally) -> Built {
    for target in built.failed() {
        println!("xtask test: {target} could not be built");
    }
    tally.unbuilt(built.failed().len());
    built
}
