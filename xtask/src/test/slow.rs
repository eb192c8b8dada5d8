//! The time of each test, for `--timings`.
use std::process::Command;

/// The package whose tests start rustc, which must not inherit `RUSTC_BOOTSTRAP`.
pub(super) const COMPILES: &str = "idempotent-ui-tests";

/// Makes libtest print the seconds of each test. Only `--timings` depends on this unstable option.
pub(super) fn ask(command: &mut Command) {
    command.args(["-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
}

/// Parses seconds and name from a line `test NAME ... ok <1.234s>`.
pub(super) fn timed(line: &str) -> Option<(f64, &str)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (_, time) = rest.split_once('<')?;
    Some((time.strip_suffix("s>")?.parse().ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_where_there_is_one() {
        assert_eq!(timed("test a::b ... ok <1.250s>"), Some((1.25, "a::b")));
        assert_eq!(timed("test a::b ... FAILED <0.001s>"), Some((0.001, "a::b")));
        for line in ["test a::b ... ok", "test a::b ... ignored, slow", "a <1s>", "test result: ok. 3 passed"] {
            assert_eq!(timed(line), None, "{line}");
        }
    }
}
