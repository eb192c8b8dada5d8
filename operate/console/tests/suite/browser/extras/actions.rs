//! Changes in a browser.
use crate::browser::visitor::Served;

/// Scripts are off: each page must work without them.
const NO_SCRIPTS: &str = "--blink-settings=scriptEnabled=false";

#[test]
fn a_dead_key_is_forgotten_and_audited_with_and_without_scripts() {
    for flags in [&[][..], &[NO_SCRIPTS]] {
        let served = Served::start();
        let visitor = served.visitor(flags);
        visitor.click("nav a[href=dead]");
        visitor.until_text("caption", "3 keys");
        visitor.click("tbody th a");
        visitor.until_text("h1", "Key");
        visitor.act("forget");
        assert!(visitor.text().contains("done"), "{}", visitor.text());
        visitor.click("nav a[href=audit]");
        visitor.until_text("main", "stock corrected");
        visitor.click("nav a[href=dead]");
        visitor.until_text("caption", "2 keys");
        if flags.is_empty() {
            assert_eq!(visitor.complaints(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_double_click_changes_a_key_once() {
    let served = Served::start();
    let visitor = served.visitor(&[]);
    visitor.go("dead");
    visitor.click("tbody input[name=entry]");
    visitor.plan("forget");
    visitor.find("form.card button.danger").click(2);
    visitor.until_text("main", "Ended.");
    assert!(visitor.text().contains("done") && !visitor.text().contains("changed"), "{}", visitor.text());
    assert_eq!(served.site.audited().len(), 1);
}

#[test]
fn dead_letters_are_redriven_and_discarded() {
    let served = Served::start();
    let visitor = served.visitor(&[]);
    for (action, letters, left) in [("redrive", "2 dead letters", 1), ("discard", "1 dead letter", 0)] {
        visitor.go("dead-letters");
        visitor.click("button[name=read]");
        visitor.until_text("caption", letters);
        visitor.click("tbody input[name=entry]");
        visitor.act(action);
        assert!(visitor.text().contains("done"), "{}", visitor.text());
        assert_eq!(served.site.queue.dead_letters().len(), left);
    }
    assert_eq!(served.site.queue.pending(), 1);
    assert_eq!(visitor.complaints(), Vec::<String>::new());
}

#[test]
fn of_two_letters_of_one_message_exactly_the_selected_one_is_discarded() {
    let served = Served::start();
    // The letters m-1, m-2 and m-1 after another death.
    served.block_on(crate::site::bury(&served.site.queue, "m-1", "no stock"));
    let visitor = served.visitor(&[]);
    visitor.go("dead-letters?read=1");
    visitor.until_text("caption", "3 dead letters");
    for row in [2, 3] {
        visitor.click(&format!("tbody tr:nth-child({row}) input[name=entry]"));
    }
    visitor.act("discard");
    let text = visitor.text();
    assert!(text.contains("2 of 2 entries") && text.matches("done").count() == 2, "{text}");
    visitor.go("dead-letters?read=1");
    visitor.until_text("caption", "1 dead letter");
    assert!(visitor.text().contains("1@9"), "{}", visitor.text());
    visitor.go("audit");
    visitor.until_text("main", "3@9 of message m-1");
    assert_eq!(visitor.complaints(), Vec::<String>::new());
}
