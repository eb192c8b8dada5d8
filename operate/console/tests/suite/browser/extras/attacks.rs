//! Hostile texts and other sites.
use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::json;

use crate::browser::visitor::Served;

#[test]
fn hostile_texts_run_no_script_and_break_no_rule_of_the_policy() {
    let served = Served::start();
    let visitor = served.visitor(&[]);
    visitor.go("dead");
    visitor.click("tbody input[name=entry]");
    visitor.plan("forget");
    let hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>\"onmouseover=\"alert(3)";
    visitor.find("input[name=reason]").fill(hostile);
    visitor.click("form.card button.danger");
    visitor.until_text("main", "Ended.");
    visitor.go("audit");
    visitor.until_text("main", "<script>alert(2)</script>");
    assert_eq!(visitor.script("return document.querySelectorAll('main img, main script').length"), 0);
    visitor.go("keys?scope=%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E*");
    visitor.until_text("h1", "Keys");
    assert_eq!(visitor.complaints(), Vec::<String>::new());
}

/// Serves one page for each connection on a port of its own, which is another origin of the same site.
fn other_site(page: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4_096]);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                page.len()
            );
            let _ = stream.write_all((head + &page).as_bytes());
        }
    });
    port
}

#[test]
fn a_form_of_another_site_with_a_stolen_token_is_refused() {
    let served = Served::start();
    let visitor = served.visitor(&[]);
    visitor.go("dead");
    let value = |name: &str| visitor.find(&format!("input[name={name}]")).get("property/value");
    let fields = [("token", value("token")), ("target", value("target")), ("entry", value("entry"))];
    let inputs: String = fields.iter().map(|(name, value)| format!("<input name={name} value='{value}'>")).collect();
    let action = format!("http://{}/admin/idempotent/plan", served.address);
    let page = format!(
        "<form method=post action='{action}'>{inputs}<input name=action value=forget><button>Win</button></form>"
    );
    let port = other_site(page);
    visitor.driver.post("url", &json!({ "url": format!("http://127.0.0.1:{port}/") }));
    visitor.click("button");
    visitor.until_text("body", "comes from another site");
    assert!(served.site.audited().is_empty());
}
