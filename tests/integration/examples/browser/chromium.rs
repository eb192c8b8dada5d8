//! The page, open in a browser.
use idempotent_harness::webdriver::{Element, WebDriver};
use serde_json::{Value, json};

use crate::rest::service::Service;
use crate::wait::until;

/// A service, and a browser with its page.
pub(crate) struct Browser {
    pub(crate) service: Service,
    driver: WebDriver,
}

/// The server's counts for the newest key, as the page shows them.
#[derive(Debug, PartialEq)]
pub(crate) struct Counted {
    pub(crate) executions: u64,
    pub(crate) replays: u64,
    pub(crate) conflicts: u64,
    pub(crate) mismatches: u64,
}

impl Browser {
    /// The page is open, and an order for `sku` is filled in, whose handler takes this long.
    pub(crate) fn order(sku: &str, delay_ms: u64) -> Self {
        let browser = Self { service: Service::start(), driver: WebDriver::start() };
        browser.go("/");
        browser.find("#sku").fill(sku);
        browser.find("#delay").fill(&delay_ms.to_string());
        browser
    }

    pub(crate) fn find(&self, selector: &str) -> Element<'_> {
        self.driver.element(selector)
    }

    pub(crate) fn script(&self, body: &str) -> Value {
        self.driver.script(body)
    }

    pub(crate) fn go(&self, path: &str) {
        self.driver.post("url", &json!({ "url": format!("{}{path}", self.service.url()) }));
        self.ready();
    }

    pub(crate) fn reload(&self) {
        self.driver.post("refresh", &json!({}));
        self.ready();
    }

    pub(crate) fn back(&self) {
        self.driver.post("back", &json!({}));
        self.ready();
    }

    /// The page's script has run: it fills in the key.
    fn ready(&self) {
        until("the page is there", || {
            let there =
                "return document.readyState === 'complete' && document.querySelector('#key')?.textContent !== ''";
            self.script(there) == true
        });
    }

    pub(crate) fn key(&self) -> String {
        self.find("#key").text()
    }

    /// The newest first.
    pub(crate) fn answers(&self) -> Vec<String> {
        let texts = self.script("return [...document.querySelectorAll('#answers li')].map((line) => line.textContent)");
        texts.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    /// Returns the number of elements with this text.
    pub(crate) fn said(&self, what: &str) -> usize {
        self.answers().iter().filter(|answer| answer.contains(what)).count()
    }

    pub(crate) fn counted(&self) -> Option<Counted> {
        let row = format!("#numbers tr[data-key='{}']", self.key());
        let cells = format!("return [...document.querySelectorAll(\"{row} td\")].map((cell) => cell.textContent)");
        let cells = self.script(&cells);
        let numbers: Vec<u64> = cells.as_array()?.iter().map(|cell| cell.as_str().unwrap().parse().unwrap()).collect();
        let [executions, replays, conflicts, mismatches] = numbers[..] else { return None };
        Some(Counted { executions, replays, conflicts, mismatches })
    }

    /// Returns the errors in the browser's log, without expected refusals.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.driver.post("se/log", &json!({ "type": "browser" }));
        let lines = log.as_array().unwrap().iter().map(|line| line["message"].as_str().unwrap().to_owned());
        lines.filter(|line| !line.contains("/orders - Failed to load resource")).collect()
    }
}
