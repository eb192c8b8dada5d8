//! A console that listens on a port, and the browsers of its users.
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use idempotent::Store;
use idempotent_console::{Access, TokenList};
use idempotent_harness::webdriver::{Element, WebDriver};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::site::{Site, store};

/// The hash of the token `secret`.
const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// A console on a loopback port, with the administrator `ann`, whose token is `secret`.
pub(crate) struct Served {
    pub(crate) site: Site,
    pub(crate) address: SocketAddr,
    runtime: Runtime,
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::with(|| store(2, 3))
    }

    pub(crate) fn with<F: Future<Output = Arc<dyn Store>>>(store: impl FnOnce() -> F) -> Self {
        let runtime = Runtime::new().unwrap();
        let users = TokenList::parse(&format!("ann:admin:{SECRET}")).unwrap();
        let (site, address) = runtime.block_on(async {
            let site = Site::with(store().await, |builder| builder.access(Access::tokens(users)).secure_cookie(false));
            let site = site.await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let app: Router = site.console.mount("/admin/idempotent");
            tokio::spawn(async { axum::serve(listener, app).await });
            (site, address)
        });
        Self { site, address, runtime }
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Opens a browser and logs in.
    pub(crate) fn visitor(&self, flags: &[&str]) -> Visitor {
        let visitor = Visitor {
            driver: WebDriver::start_with(flags),
            base: format!("http://{}/admin/idempotent/", self.address),
        };
        visitor.go("login");
        visitor.find("#access_token").fill("secret");
        visitor.click("form button");
        visitor.until_text("h1", "Overview");
        visitor
    }
}

/// A browser with a page of the console.
pub(crate) struct Visitor {
    pub(crate) driver: WebDriver,
    base: String,
}

impl Visitor {
    pub(crate) fn go(&self, page: &str) {
        self.driver.post("url", &json!({ "url": format!("{}{page}", self.base) }));
    }

    /// Sets the width of the pages in CSS pixels. A window has a minimum width, which this emulation of a phone has not.
    pub(crate) fn set_width(&self, width: u32) {
        let phone = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": phone });
        self.driver.post("goog/cdp/execute", &command);
    }

    pub(crate) fn find(&self, selector: &str) -> Element<'_> {
        self.driver.element(selector)
    }

    pub(crate) fn click(&self, selector: &str) {
        self.find(selector).press();
    }

    /// Returns the visible text of the page.
    pub(crate) fn text(&self) -> String {
        self.find("body").text()
    }

    /// Waits until an element has this text. A navigation may replace the element meanwhile.
    pub(crate) fn until_text(&self, selector: &str, text: &str) {
        self.until(text, |page| page.contains(text), selector);
    }

    pub(crate) fn until(&self, what: &str, is_there: impl Fn(&str) -> bool, selector: &str) {
        let mut seen = String::new();
        for _ in 0..20_000 {
            seen = self.driver.try_text(selector).unwrap_or_default();
            if is_there(&seen) {
                return;
            }
        }
        panic!("`{what}` did not appear in {selector}: {seen}");
    }

    /// Presses and releases a key of the keyboard.
    pub(crate) fn press_key(&self, key: &str) {
        let keys = [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })];
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": keys });
        self.driver.post("actions", &json!({ "actions": [keyboard] }));
    }

    pub(crate) fn script(&self, body: &str) -> Value {
        self.driver.script(body)
    }

    /// Returns the errors in the browser's log: those of scripts, of the content security policy, and of missing files.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.driver.post("se/log", &json!({ "type": "browser" }));
        log.as_array().unwrap().iter().map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Plans an action on the selected entries, gives a reason, and waits for the result.
    pub(crate) fn act(&self, action: &str) {
        self.plan(action);
        self.click("form.card button.danger");
        self.until_text("main", "Ended.");
    }

    /// Plans an action on the selected entries, and gives a reason.
    pub(crate) fn plan(&self, action: &str) {
        self.click(&format!("button[value='{action}']"));
        self.until_text("h1", "Confirm");
        self.find("input[name=reason]").fill("stock corrected");
    }
}
