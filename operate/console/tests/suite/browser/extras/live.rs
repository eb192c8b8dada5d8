//! Pages that refresh themselves.
use idempotent_harness::servers::RedisServer;

use crate::browser::visitor::Served;

#[test]
fn a_listing_follows_the_store_until_it_is_paused() {
    let served = Served::start();
    let visitor = served.visitor(&[]);
    visitor.go("dead");
    visitor.until_text("caption", "3 keys");
    let keys = served.block_on(served.site.get_keys());
    served.block_on(served.site.forget(&keys[0]));
    visitor.until_text("caption", "2 keys");
    visitor.click("#live button");
    visitor.until_text("#live", "Paused");
    served.block_on(served.site.forget(&keys[1]));
    visitor.click("#live button");
    visitor.until_text("caption", "1 key,");
    assert_eq!(visitor.complaints(), Vec::<String>::new());
}

#[test]
fn an_outage_of_the_store_is_shown_and_ends_without_a_reload() {
    let server = RedisServer::start();
    let url = server.url().to_owned();
    let served = Served::with(|| async move { idempotent::connect(url).await.unwrap() });
    let visitor = served.visitor(&[]);
    visitor.go("dead");
    visitor.script("window.isTheSamePage = true");
    server.pause();
    visitor.until_text("main", "Not available");
    server.resume();
    visitor.until("the listing", |text| !text.contains("Not available") && text.contains("0 keys"), "main");
    assert_eq!(visitor.script("return window.isTheSamePage === true"), true);
}
