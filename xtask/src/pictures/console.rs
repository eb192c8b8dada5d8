//! The pictures of the console: its overview, the dead keys, and a change of two of them.
use std::error::Error;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::page::until;
use super::webdriver::{Browser, Process};

/// The dead keys among the first orders of the example.
const DEAD: usize = 3;
/// The keys that the picture of the change selects.
const SELECTED: usize = 2;

/// A picture as PNG.
type Picture = Vec<u8>;

/// Starts the example, and returns the pictures with the names of their files.
///
/// # Errors
/// The browser or the example cannot be started, or a page does not show what it must.
pub(super) fn take(program: &Path, scratch: &Path) -> Result<[(&'static str, Picture); 3], Box<dyn Error>> {
    println!("xtask pictures: opening the pages of the console");
    let example =
        Process::start(&mut Command::new(program), |line| line.starts_with("http://").then(|| line.to_owned()))?;
    let browser = Browser::start(scratch)?;
    browser.post("window/rect", &json!({ "width": 1280, "height": 1200 }))?;
    let (base, _) = example.address.split_once("login").ok_or("the example prints no link")?;
    let go = |page: &str| browser.post("url", &json!({ "url": format!("{base}{page}") }));
    let is_title =
        |title: &str| Ok(browser.script("return document.querySelector('h1')?.textContent.trim()")? == title);

    browser.post("url", &json!({ "url": example.address }))?;
    browser.click("form button", 1)?;
    until("the overview is shown", || is_title("Overview"))?;
    until("the keys are dead", || {
        go("dead")?;
        Ok(browser.script("return document.querySelectorAll('input[name=entry]').length")? == DEAD)
    })?;
    go("theme?set=light")?;
    go("overview")?;
    let overview = browser.picture("body")?;

    go("theme?set=dark")?;
    go("dead")?;
    let entries = "[...document.querySelectorAll('input[name=entry]')]";
    browser.script(&format!("{entries}.slice(0, {SELECTED}).forEach((entry) => entry.click())"))?;
    let dead = browser.picture("body")?;
    browser.click("button[value=forget]", 1)?;
    until("the change is planned", || {
        Ok(browser.script("return document.querySelector('input[name=reason]') !== null")? == true)
    })?;
    browser.script("document.querySelector('input[name=reason]').value = 'the card service is repaired'")?;
    Ok([
        ("console-overview.png", overview),
        ("console-dead.png", dead),
        ("console-change.png", browser.picture("body")?),
    ])
}
