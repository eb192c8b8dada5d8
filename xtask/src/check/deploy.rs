//! Check of the deployment samples, as far as it needs no other program.
use std::error::Error;

use crate::tools::root;

/// Returns what is wrong in `deploy`. The tests of `tests/deploy` compare the samples with schemas and with other programs.
pub(super) fn samples() -> Result<Vec<String>, Box<dyn Error>> {
    Ok(idempotent_deploy_samples::complaints(&root()?).map_err(|error| error.to_string())?)
}
