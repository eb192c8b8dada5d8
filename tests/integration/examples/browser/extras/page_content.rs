//! The content and the accessibility of the page, and the permissions of its scripts.
use crate::browser::chromium::Browser;
use crate::wait::until;

#[test]
fn the_code_tab_shows_the_code_by_mouse_by_keyboard_and_by_the_way_back() {
    let browser = Browser::order("code", 0);
    let shown = |id: &str| browser.script(&format!("return !document.getElementById('{id}').hidden")) == true;
    assert!(shown("try") && !shown("code"));
    browser.find("#tab-code").click(1);
    until("the code", || shown("code") && !shown("try"));
    let code = String::from_utf8(browser.service.get("/code").body).unwrap();
    until("its text", || browser.script("return document.getElementById('source').textContent") == code.as_str());
    assert_eq!(browser.find("#tab-code").get("attribute/aria-selected"), "true");
    browser.back();
    until("the form", || shown("try") && !shown("code"));
    // Arrow right.
    browser.find("#tab-try").type_in("\u{e014}");
    until("the code", || shown("code") && !shown("try"));
    assert_eq!(browser.script("return document.activeElement.id"), "tab-code");
}

#[test]
fn everything_to_use_has_a_role_and_a_name() {
    let browser = Browser::order("names", 0);
    for (selector, role, name) in [
        ("#sku", "textbox", "Article"),
        ("#qty", "spinbutton", "Quantity"),
        ("#delay", "spinbutton", "The handler takes (ms)"),
        ("#fail", "combobox", "It ends with"),
        ("#key", "status", "Idempotency key of this order"),
        ("#fresh", "button", "New order, new key"),
        ("#order", "button", "Order"),
        ("#many", "button", "Send 5 at once"),
        ("#retry", "checkbox", "after a 409, retry after Retry-After"),
        ("#numbers", "table", "Counters of the server, live"),
        ("#answers", "log", "Answers"),
        ("#tab-code", "tab", "Code"),
        ("#try", "tabpanel", "Try it"),
    ] {
        let element = browser.find(selector);
        let (known, named) = (element.get("computedrole"), element.get("computedlabel"));
        // Some versions of Chromium keep the space between a box and its label.
        assert_eq!((known.as_str(), named.trim()), (role, name), "{selector}");
    }
    assert_eq!(browser.script("return document.documentElement.lang"), "en");
}

#[test]
fn the_pages_policy_keeps_foreign_code_out_and_the_page_needs_none() {
    let browser = Browser::order("policy", 0);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    for forbidden in [
        "document.body.setAttribute('style', 'opacity: 0'); return getComputedStyle(document.body).opacity !== '1'",
        "try { document.createElement('script').textContent = '1'; return true } catch { return false }",
        "try { document.body.innerHTML = '<b>'; return true } catch { return false }",
    ] {
        assert_eq!(browser.script(forbidden), false, "{forbidden}");
    }
    assert!(!browser.complaints().is_empty(), "the browser says so");
}
