//! The picture of the demo's page, after three quick clicks on one order.
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;

use super::webdriver::{Browser, Process};

const CLICKS: usize = 3;
/// The server's counts afterwards: one execution, and a replay for each other click.
const EXPECTED: [u64; 2] = [1, CLICKS as u64 - 1];
const LONGEST: Duration = Duration::from_secs(30);

/// Starts the service, orders, and returns the picture as PNG.
///
/// # Errors
/// The browser or the service cannot be started, or the counts do not become the expected ones.
pub(super) fn take(service: &Path, scratch: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    println!("xtask pictures: opening the page of shop");
    let arguments = ["--listen", "127.0.0.1:0", "--store", "memory"];
    let service = Process::start(Command::new(service).args(arguments), |line| {
        line.strip_prefix("listening on ").map(str::to_owned)
    })?;
    let browser = Browser::start(scratch)?;
    // Large enough for the whole page, whose width is limited.
    browser.post("window/rect", &json!({ "width": 1000, "height": 1400 }))?;
    browser.post("url", &json!({ "url": service.address }))?;
    until("the page is ready", || {
        Ok(browser.script("return document.querySelector('#key')?.textContent !== ''")? == true)
    })?;
    browser.click("#order", CLICKS)?;
    until("each click has its answer", || {
        let cells = "return [...document.querySelectorAll('#numbers td')].map((cell) => Number(cell.textContent))";
        Ok(browser.script(cells)?.as_array().is_some_and(|cells| cells.len() >= 2 && cells[..2] == EXPECTED))
    })?;
    browser.picture("body")
}

/// Waits for a condition.
///
/// # Errors
/// The condition fails, or is not true in time.
pub(super) fn until(what: &str, is_true: impl Fn() -> Result<bool, Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    while !is_true()? {
        if start.elapsed() > LONGEST {
            return Err(format!("not true after {LONGEST:?}: {what}").into());
        }
        sleep(Duration::from_millis(100));
    }
    Ok(())
}
