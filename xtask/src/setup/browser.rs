//! Chromium and its driver, as Debian packages them, for the tests of the demo's page.
use super::{Needed, install};
use crate::tools::Done;

const NEEDED: [Needed; 2] = [("chromium", &["chromium"]), ("chromedriver", &["chromium-driver"])];

/// Does nothing where they are there.
pub(crate) fn all() -> Done {
    install(&NEEDED)
}
