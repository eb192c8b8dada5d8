//! What takes too long for CI.
use crate::tools::{Done, cargo, stream};

/// The largest variants of the model check, one after the other: each uses all cores it is given.
pub(crate) fn model() -> Done {
    let mut command = cargo(&["test", "--locked", "--package", "idempotent-model", "--test", "variants"])?;
    command.args(["--", "--ignored", "--nocapture", "--test-threads=1"]);
    let mut checked = 0;
    let status = stream(&mut command, |line| checked += usize::from(line.contains(" unique ")))?;
    println!("xtask soak: {checked} variants of the model checked");
    Ok(status.success() && checked > 0)
}

/// A minute of chaos on each topology, and every weakness of the scripts that chaos has to find.
pub(crate) fn chaos() -> Done {
    let mut command = cargo(&["test", "--locked", "--package", "idempotent-chaos", "--test", "smoke"])?;
    command.args(["--", "--ignored", "--nocapture", "--test-threads=1"]);
    let status = stream(&mut command, |_| {})?;
    Ok(status.success())
}

/// More rounds of each race over HTTP, and more hostile keys, than CI has time for.
pub(crate) fn fire() -> Done {
    let mut command = cargo(&["test", "--locked", "--package", "idempotent-tower", "--test", "fire"])?;
    command.args(["--", "races::", "hostile::", "--test-threads=1"]);
    command.env("IDEMPOTENT_FIRE_ROUNDS", "2000").env("FUZZ_INPUTS", "300000");
    let status = stream(&mut command, |_| {})?;
    Ok(status.success())
}
