//! The rules of axe-core, the keyboard, and narrow screens.
use std::path::PathBuf;

use serde_json::Value;

use crate::browser::visitor::{Served, Visitor};

const PAGES: [&str; 8] = ["overview", "keys", "in-flight", "dead", "dead-letters?read=1", "order", "health", "audit"];

/// Returns the script of axe-core.
fn axe() -> String {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/axe/4.11.0/package/axe.min.js");
    let path = std::env::var_os("IDEMPOTENT_AXE").map_or(own, PathBuf::from);
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}: `cargo xtask setup --browser` installs axe-core", path.display()))
}

/// Returns the violations of a page.
fn violations(visitor: &Visitor, axe: &str) -> Value {
    visitor.script(axe);
    let run = "const result = await axe.run(document, { resultTypes: ['violations'] });
               return result.violations.map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.html).join(' ')}`);";
    visitor.script(&format!("return (async () => {{ {run} }})();"))
}

#[test]
fn no_page_violates_a_rule_in_light_and_dark_on_narrow_and_wide_screens() {
    let (served, axe) = (Served::start(), axe());
    for width in [320, 1280] {
        let visitor = served.visitor(&[]);
        visitor.set_width(width);
        for theme in ["light", "dark"] {
            visitor.go(&format!("theme?set={theme}"));
            let key = {
                visitor.go("dead");
                visitor.find("tbody th a").get("attribute/href")
            };
            for page in PAGES.into_iter().chain([key.as_str()]) {
                visitor.go(page);
                let found = violations(&visitor, &axe);
                assert_eq!(found, serde_json::json!([]), "{page}, {theme}, {width} px");
                assert_eq!(visitor.script("return window.innerWidth"), width);
                // A scroll bar takes some of the width.
                let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
                assert_eq!(visitor.script(fits), true, "{page} is wider than {width} px");
            }
            visitor.go("dead");
            visitor.click("tbody input[name=entry]");
            visitor.plan("forget");
            assert_eq!(violations(&visitor, &axe), serde_json::json!([]), "plan, {theme}, {width} px");
        }
    }
}

#[test]
fn the_keyboard_alone_forgets_a_key_and_the_focus_is_visible() {
    let served = Served::start();
    let visitor = served.visitor(&[]);
    visitor.go("dead");
    let tab = |visitor: &Visitor| visitor.press_key("\u{e004}");
    // Chromium drops keys until it has drawn the first frame of a page, so the first keys may change nothing.
    let focus = (0..1_000).find_map(|_| {
        tab(&visitor);
        let found =
            visitor.script("const at = document.activeElement; return at === document.body ? null : at.textContent");
        (!found.is_null()).then_some(found)
    });
    assert_eq!(focus, Some("Skip to the content".into()), "the first element that Tab reaches");
    for _ in 0..60 {
        tab(&visitor);
        let outline = visitor.script("return getComputedStyle(document.activeElement).outlineStyle");
        assert_ne!(outline, "none", "{}", visitor.script("return document.activeElement.outerHTML"));
        if visitor.script("return document.activeElement.name === 'entry'") == true {
            break;
        }
    }
    visitor.press_key(" ");
    for _ in 0..60 {
        tab(&visitor);
        if visitor.script("return document.activeElement.value === 'forget'") == true {
            break;
        }
    }
    visitor.press_key("\u{e007}");
    visitor.until_text("h1", "Confirm");
}
