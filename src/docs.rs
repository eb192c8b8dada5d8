//! Guides, as one page for each chapter of the book in the folder `guides`. Every example in them is compiled and run as
//! a test.

/// Declares a module for each guide. The links between guides are relative in the book, and links to modules here: the
/// first definition of a link counts.
macro_rules! guides {
    ($($name:ident = $file:literal),+ $(,)?) => {$(
        #[doc = include_str!("docs/links.md")]
        #[cfg_attr(not(doctest), doc = include_str!(concat!("../guides/", $file)))]
        pub mod $name {}
    )+};
}

guides! {
    getting_started = "getting-started.md",
    choosing = "choosing.md",
    guarantees = "guarantees.md",
    keys = "keys.md",
    consumers = "consumers.md",
    brokers = "brokers.md",
    payments = "payments.md",
    http = "http.md",
    actix_web = "actix-web.md",
    grpc = "grpc.md",
    runtimes = "runtimes.md",
    steps = "steps.md",
    ordering = "ordering.md",
    outbox = "outbox.md",
    delay = "delay.md",
    redis = "redis.md",
    tiers = "tiers.md",
    testing = "testing.md",
    shutting_down = "shutting-down.md",
    deploying = "deploying.md",
    sizing = "sizing.md",
    capacity = "capacity.md",
    regions = "regions.md",
    alerts = "alerts.md",
    command_line = "command-line.md",
    console = "console.md",
    operating = "operating.md",
    metrics = "metrics.md",
    reference = "reference.md",
    traces = "traces.md",
    troubleshooting = "troubleshooting.md",
    faq = "faq.md",
    coming_from = "coming-from.md",
    coming_from_12306 = "coming-from-12306.md",
    custom_stores = "custom-stores.md",
}

#[doc = include_str!("docs/links.md")]
#[cfg_attr(not(doctest), doc = include_str!("../guides/http-reference.md"))]
#[doc = "\n```yaml"]
#[cfg_attr(not(doctest), doc = include_str!("../guides/openapi.yaml"))]
#[doc = "```"]
pub mod http_reference {}
