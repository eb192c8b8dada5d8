//! The pages in a real Chromium.
//!
//! `cargo xtask test extras` runs these tests; `cargo xtask setup --browser` installs what they need.
mod visitor;

mod extras {
    mod accessibility;
    mod actions;
    mod attacks;
    mod live;
}
