//! The integration with axum: the reply strategy of annotated handlers, extractors, and problems as responses.
mod extractors;
mod reply;
mod whole_request;

pub use self::reply::{AxumJson, DefaultHttpRules, Http, HttpRules};
pub use self::whole_request::WholeRequest;
