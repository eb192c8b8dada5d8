//! The page of `apps/shop` in a real Chromium that clicks twice, reloads and goes back.
//!
//! `cargo xtask test extras` runs them; `cargo xtask setup --browser` installs what they need.

mod chromium;

mod extras {
    mod orders;
    mod page_content;
    mod pictures;
}
