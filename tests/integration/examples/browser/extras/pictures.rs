//! The pictures of README and the guides, from the real programs.
//! `PICTURES=overwrite cargo test -p idempotent-tests --test examples -- pictures` writes them.
use idempotent_harness::webdriver::WebDriver;
use serde_json::json;

use crate::example::{Running, checkout};
use crate::rest::service::Service;
use crate::wait::until;

/// The largest permitted size of a picture in bytes: the pictures are a part of each clone.
const LARGEST: usize = 200 << 10;

/// Opens a browser with a window of this size, and with enlarged text.
fn browser(width: u32, height: u32) -> WebDriver {
    let browser = WebDriver::start_with(&["--force-device-scale-factor=1.25", "--hide-scrollbars"]);
    browser.post("window/rect", &json!({ "width": width, "height": height }));
    browser
}

/// Takes a picture of the page, and writes it if that is requested.
fn take(browser: &WebDriver, name: &str) {
    let picture = browser.element("body").picture();
    assert!(picture.len() <= LARGEST, "{name} has {} bytes", picture.len());
    if std::env::var("PICTURES").is_ok_and(|value| value == "overwrite") {
        std::fs::write(checkout().join("guides/pictures").join(name), picture).unwrap();
    }
}

#[test]
fn three_clicks_on_the_page_of_shop_are_one_order() {
    let service = Service::start();
    // Large enough for the whole page, whose width is limited.
    let browser = browser(1_000, 1_400);
    browser.post("url", &json!({ "url": service.url() }));
    until("the page is ready", || browser.script("return document.querySelector('#key')?.textContent !== ''") == true);
    browser.element("#order").click(3);
    let cells = "return [...document.querySelectorAll('#numbers td')].slice(0, 2).map((cell) => cell.textContent)";
    until("each click has its answer", || browser.script(cells) == json!(["1", "2"]));
    take(&browser, "shop.png");
}

#[test]
fn the_console_shows_what_is_dead_and_plans_its_change() {
    let mut example = Running::start("console", &[]);
    let link = example.says(1).remove(0);
    let (base, _) = link.split_once("login").expect("a link to log in");
    let browser = browser(1_280, 1_200);
    let go = |page: &str| browser.post("url", &json!({ "url": format!("{base}{page}") }));
    let is_shown = |selector: &str, text: &str| browser.try_text(selector).is_some_and(|shown| shown.contains(text));

    browser.post("url", &json!({ "url": link }));
    browser.element("form button").press();
    until("the overview is shown", || is_shown("h1", "Overview"));
    until("three keys are dead", || {
        go("dead");
        browser.script("return document.querySelectorAll('input[name=entry]').length") == 3
    });
    go("theme?set=light");
    go("overview");
    take(&browser, "console-overview.png");

    go("theme?set=dark");
    go("dead");
    let entries = "[...document.querySelectorAll('input[name=entry]')]";
    browser.script(&format!("{entries}.slice(0, 2).forEach((entry) => entry.click())"));
    take(&browser, "console-dead.png");
    browser.element("button[value=forget]").press();
    until("the change is planned", || is_shown("h1", "Confirm"));
    browser.element("input[name=reason]").fill("the card service is repaired");
    take(&browser, "console-change.png");
}
