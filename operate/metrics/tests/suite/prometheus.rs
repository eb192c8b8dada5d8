//! A real Prometheus, and its tool.
mod promtool;
mod scraping;
