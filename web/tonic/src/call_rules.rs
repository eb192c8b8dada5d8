//! The decision which calls the layer handles.
use std::time::Duration;

use http::header::HeaderMap;
use http::request::Parts;
use http::{HeaderName, Method, StatusCode};
use idempotent_tower::__private::{is_grpc, is_grpc_web};
use idempotent_tower::{KeyRules, Problem, ProblemKind};

use crate::method_set::MethodSet;

/// The treatment of a call that has a key and turns out to be a stream.
///
/// A request is a stream if it has no message or more than one, or if it does not end soon after its message. A response
/// is a stream under the same conditions. The layer sees the latter only after the method has begun.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum StreamPolicy {
    /// Refuses the call with UNIMPLEMENTED. This is the default: the client sent a key and relies on its protection.
    ///
    /// A streaming request is refused before the method runs. A streaming response is replaced by the refusal, which
    /// is recorded, so that a retry does not run the method again.
    #[default]
    Refuse,
    /// Passes the call through.
    ///
    /// A streaming request runs without protection. A streaming response reaches its caller as it arrives, the key
    /// counts as done, and a duplicate learns that the response was not stored. A unary call whose request pauses for
    /// longer than [`stream_after`](crate::GrpcLayer::stream_after) counts as a stream as well, and runs without
    /// protection. A streaming request to a method in [`require_key`](crate::GrpcLayer::require_key) is refused, as with
    /// [`Refuse`](Self::Refuse).
    PassThrough,
}

/// The settings that select calls.
#[derive(Clone, Debug)]
pub(crate) struct CallRules {
    pub(crate) key: KeyRules,
    pub(crate) key_required: MethodSet,
    pub(crate) passed: MethodSet,
    pub(crate) streams: StreamPolicy,
    pub(crate) stream_after: Duration,
}

/// The treatment of a call by its head.
#[derive(Debug)]
pub(crate) enum Treatment {
    PassThrough,
    /// Handles the call, with this policy for a streaming request.
    Handle(StreamPolicy),
    Refuse(Problem),
    /// Refuses a request that is no gRPC call, with this HTTP status.
    RefuseForm(StatusCode),
}

impl CallRules {
    /// Decides by the head of a request.
    pub(crate) fn treatment(&self, head: &Parts) -> Treatment {
        let path = head.uri.path();
        if self.passes(path) {
            return Treatment::PassThrough;
        }
        // The services inside check neither the HTTP method nor the content type before they run a method.
        let is_required = self.key_required.contains(path);
        let has_binary = has_binary_entry(&head.headers, self.key.header_name());
        if !is_required && !has_binary && !head.headers.contains_key(self.key.header_name()) {
            return Treatment::PassThrough;
        }
        let is_call = is_grpc(&head.headers);
        if head.method != Method::POST && (is_required || is_call) {
            return Treatment::RefuseForm(StatusCode::METHOD_NOT_ALLOWED);
        }
        if is_grpc_web(&head.headers) {
            tracing::error!(target: "idempotent", "a gRPC-Web call cannot be handled; put `GrpcLayer` inside `GrpcWebLayer`");
            return Treatment::Refuse(Problem::new(ProblemKind::Misconfigured));
        }
        match (is_call, is_required) {
            (false, false) => Treatment::PassThrough,
            (false, true) => Treatment::RefuseForm(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            (true, _) if has_binary => {
                let detail =
                    format!("idempotency key: sent as binary metadata; send the entry `{}`", self.key.header_name());
                Treatment::Refuse(Problem::new(ProblemKind::InvalidKey).detail(detail))
            }
            (true, true) => Treatment::Handle(StreamPolicy::Refuse),
            (true, false) => Treatment::Handle(self.streams),
        }
    }

    /// Returns whether all requests for this path pass through. A method can pass through whose service requires a key. Any other
    /// path that both settings name is an error of the settings, and its calls are refused.
    fn passes(&self, path: &str) -> bool {
        let is_exception = !self.key_required.has_method(path) && self.passed.has_method(path);
        is_exception || (self.passed.has_service(path) && !self.key_required.contains(path))
    }

    /// Returns the problems of the settings.
    pub(crate) fn problems(&self) -> Vec<String> {
        let name = self.key.header_name().as_str();
        let mut problems = Vec::new();
        if name.ends_with("-bin") {
            problems.push(format!("the key entry `{name}` is binary metadata; use a name without `-bin`"));
        }
        if name.starts_with("grpc-") {
            problems.push(format!("the key entry `{name}` has a name that gRPC reserves; use a name without `grpc-`"));
        }
        if self.stream_after.is_zero() {
            problems
                .push("`stream_after` is zero and each call would be a stream; use a duration such as 10 s".to_owned());
        }
        for (setter, methods) in [("require_key", &self.key_required), ("pass_through", &self.passed)] {
            problems.extend(methods.malformed().into_iter().map(|entry| {
                format!(
                    "`{setter}` has `{entry}`; use `/package.Service/Method`, or `/package.Service/*` for all methods"
                )
            }));
        }
        problems.extend(self.key_required.common(&self.passed).into_iter().map(|entry| {
            format!("`{entry}` requires a key and passes through; remove it from `require_key` or `pass_through`")
        }));
        problems
    }
}

/// Returns whether the headers contain the entry in its binary form.
fn has_binary_entry(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.keys().any(|key| key.as_str().strip_suffix("-bin") == Some(name.as_str()))
}
