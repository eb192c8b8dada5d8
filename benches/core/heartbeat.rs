use crate::report::Report;
pub async fn all(_: &Report) {}
