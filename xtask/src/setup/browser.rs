//! Chromium and its driver from Debian's packages, for the tests of the demo's page.
use super::{Needed, install};
use crate::tools::Done;

const NEEDED: [Needed; 2] = [("chromium", &["chromium"]), ("chromedriver", &["chromium-driver"])];

/// Installs both programs. Does nothing if they exist.
pub(crate) fn all() -> Done {
    install(&NEEDED)
}
